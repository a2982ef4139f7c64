"""Classifiers for sequences and bags of tokens, in the manner of scikit-learn."""

from sparsetoken.estimators.attention import AttentionClassifier, ElementwiseAttentionClassifier
from sparsetoken.estimators.comparison import Comparison, compare
from sparsetoken.estimators.datasets import DigitBags, digit_bags
from sparsetoken.estimators.linear import PooledClassifier, VectorisedClassifier
from sparsetoken.estimators.metrics import localisation_score
from sparsetoken.estimators.regression import AttentionRegressor
from sparsetoken.estimators.sequences import mask_tokens
from sparsetoken.estimators.token_evidence import (
    FreeResponseCurve,
    explain,
    free_response_curve,
    plot_attention,
)
from sparsetoken.estimators.tokenwise import TokenWise

__all__ = [
    "AttentionClassifier",
    "AttentionRegressor",
    "Comparison",
    "DigitBags",
    "ElementwiseAttentionClassifier",
    "FreeResponseCurve",
    "PooledClassifier",
    "TokenWise",
    "VectorisedClassifier",
    "compare",
    "digit_bags",
    "explain",
    "free_response_curve",
    "localisation_score",
    "mask_tokens",
    "plot_attention",
]
