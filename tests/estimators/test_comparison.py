"""compare() and the metrics."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bags import equal_bags, make_bags
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sparsetoken import ParameterError, Task, forecast, sample
from sparsetoken.estimators import (
    AttentionClassifier,
    PooledClassifier,
    TokenWise,
    compare,
    comparison,
    free_response_curve,
    localisation_score,
    mask_tokens,
)
from sparsetoken.estimators.comparison import PairedDifference
from sparsetoken.estimators.metrics import concentration

QUICK = {"attention": AttentionClassifier(refine=True, tied=True, sharpness=2.0, ridge=0.01)}


def test_attention_pays_where_the_signal_is_sparse() -> None:
    X, y, _ = equal_bags(length=20, strength=5.0)
    found = compare(X, y, cv=4, classifiers=QUICK)
    assert [row.name for row in found.rows] == [
        *("pooled", "max-pooled", "mean|max|min", "kernel mean", "vectorised", "attention")
    ]
    pooled = found.differences[0]
    assert pooled.difference < -2 * pooled.uncertainty
    assert found.attended_tokens < 6
    assert found.log_attention_spread > 1
    assert "attention" in str(found)
    assert {row["measure"] for row in found.to_rows()} == {found.measure} == {"error"}
    assert found.to_rows()[0]["attention_minus_it"] == pooled.difference
    assert found.to_rows()[-1]["attention_minus_it"] is None


def test_attention_does_not_pay_where_all_tokens_carry_the_signal() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    X = rng.standard_normal((120, 6, 4)) + 0.4 * y[:, None, None]
    found = compare(X, y, cv=3, repeats=1)
    assert not found.advice.startswith("Attention pays")


def test_advice_names_the_best_rival() -> None:
    X, y, _ = equal_bags(length=20, strength=5.0)
    never: dict[str, Any] = {
        "max-pooled": PooledClassifier(ridge=1e6),
        "vectorised": PooledClassifier(ridge=1e6),
        "mean|max|min": None,
        "kernel mean": None,
    }
    found = compare(X, y, cv=4, classifiers=QUICK | never)
    assert found.advice.startswith("Attention pays: its error is")
    assert "below that of pooled" in found.advice
    # Attention is the last row, and any other may be its rival.
    *others, attention = found.rows
    for position, row in enumerate(others):
        rows = [replace(each, error=0.4) for each in others]
        rows[position] = replace(row, error=0.3)
        assert f"that of {row.name}" in replace(found, rows=(*rows, attention)).advice
    blind = {"attention": AttentionClassifier(refine=False, sharpness=0.0, ridge=1e6)}
    worse = compare(X, y, cv=4, classifiers=blind)
    assert worse.advice.startswith("Attention does not pay")


def test_rare_classes_are_ranked_not_counted() -> None:
    X, y, _ = equal_bags(count=600, length=10, strength=5.0)
    rare = np.r_[np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:30]]
    found = compare(X[rare], y[rare], cv=3, repeats=1, classifiers=QUICK)
    assert found.scoring == ("auc", "average_precision")
    assert "1 - auc" in str(found)
    pooled, attention = found.rows[0], found.rows[-1]
    assert attention.scores["auc"][0] > pooled.scores["auc"][0] + 0.05
    assert attention.error == pytest.approx(1 - attention.scores["auc"][0])
    assert found.to_rows()[0]["auc_uncertainty"] == pooled.scores["auc"][1]
    # A row alone says that its error is no share of mistakes.
    assert {row.measure for row in found.rows} == {"1 - auc"}
    assert [row["measure"] for row in found.to_rows()] == ["1 - auc"] * len(found.rows)


def test_groups_scoring_and_jobs() -> None:
    X, y, _ = equal_bags(count=90)
    groups = np.arange(90) // 3
    search = GridSearchCV(QUICK["attention"], {"ridge": [0.01, 0.1]}, cv=2)
    mean = FunctionTransformer(np.mean, kw_args={"axis": 1})  # processes cannot import this file
    options: dict[str, Any] = {
        "cv": 3,
        "repeats": 1,
        "groups": groups,
        "scoring": ["balanced_accuracy", "auc"],
        "classifiers": {
            "attention": search,
            "kernel mean": None,
            "logistic": make_pipeline(mean, LogisticRegression()),
        },
    }
    one, two = compare(X, y, **options), compare(X, y, **options, workers=2)
    assert one.scoring == ("balanced_accuracy", "auc")
    assert "kernel mean" not in [row.name for row in one.rows]
    assert [row.error for row in one.rows] == [row.error for row in two.rows]
    for train, test in comparison._folds(3, 2, y, groups, 0):
        assert not set(groups[train]) & set(groups[test])


def test_fewer_coefficients_are_simpler() -> None:
    X, y, _ = equal_bags(count=60, strength=0.0)
    found = compare(X, y, cv=3, repeats=1, classifiers=QUICK | {"kernel mean": None})
    counts = {row.name: row.coefficients for row in found.rows}
    assert counts == {
        "pooled": 6,
        "max-pooled": 6,
        "mean|max|min": 16,
        "vectorised": 31,
        "attention": 6,
    }
    if "prefer" in found.advice:
        preferred = found.advice.split("prefer ")[1].split(",")[0]
        rival = found.advice.split(" and ")[1].split(" are ")[0]
        assert counts[preferred] < max(counts[rival], counts["attention"])


def test_where_nothing_errs_more_data_are_not_asked_for() -> None:
    X, y, _ = equal_bags(count=60, strength=80.0)
    found = compare(X, y, cv=3, repeats=1, classifiers=QUICK)
    assert {row.error for row in found.rows[:2]} == {found.rows[-1].error} == {0.0}
    assert found.advice == (
        "No difference: attention and pooled have the same error in every fold, 0.000 on average; "
        "use either."
    )
    many = (*found.rows[:-1], replace(found.rows[-1], coefficients=99))
    assert "prefer pooled" in replace(found, rows=many).advice


@pytest.mark.parametrize(
    ("difference", "own", "other", "preferred"),
    [
        (-0.05, 10, 40, "prefer attention, "),
        (0.05, 10, 40, ""),  # the simpler one measures worse
        (0.05, 40, 10, "prefer pooled, "),
        (-0.05, 40, 10, ""),
        (-0.05, 40, 41, ""),  # about as simple
        (0.0, 10, 20, "prefer attention, "),
    ],
)
def test_the_simpler_is_preferred_if_much_simpler_and_no_worse(
    difference: float, own: int, other: int, preferred: str
) -> None:
    X, y, _ = equal_bags(count=60, strength=0.0)
    found = compare(X, y, cv=3, repeats=1, classifiers=QUICK)
    rival = replace(found.rows[0], coefficients=other)
    row = replace(found.rows[-1], coefficients=own)
    advice = replace(found, rows=(*found.rows[:-1], row))._simpler(rival, difference)
    assert advice.partition("which")[0] == preferred


def test_standard_errors_are_those_of_nadeau_and_bengio() -> None:
    X, y, _ = equal_bags(count=60)
    split = ShuffleSplit(n_splits=5, test_size=0.25, random_state=0)
    found = compare(X, y, cv=split, classifiers=QUICK)
    for row in found.rows:
        assert len(row.errors) == 5
        expected = np.sqrt((1 / 5 + 15 / 45) * np.var(row.errors, ddof=1))
        assert row.uncertainty == pytest.approx(expected)
    gaps = found.rows[-1].errors - found.rows[0].errors
    expected = np.sqrt((1 / 5 + 15 / 45) * np.var(gaps, ddof=1))
    assert found.differences[0].uncertainty == pytest.approx(expected)


@pytest.mark.parametrize("form", ["list", "masked"])
def test_ragged_input_and_transformer(form: str) -> None:
    bags = make_bags()
    X = bags.X if form == "list" else mask_tokens(*bags.padded)
    found = compare(
        X, bags.y, cv=3, repeats=1, transformer=TokenWise(StandardScaler()), classifiers=QUICK
    )
    assert "vectorised" not in [row.name for row in found.rows]
    assert found.mean_length == pytest.approx(np.mean([len(bag) for bag in bags.X]))
    for example in found.examples:
        assert len(example.attention) == len(bags.X[example.row])
        assert example.attention.sum() == pytest.approx(1)
        assert example.label == bags.y[example.row]


def test_plot_shows_every_classifier_and_the_attention() -> None:
    bags = make_bags()
    found = compare(bags.X, bags.y, cv=2, repeats=1, classifiers=QUICK)
    for figure in (found.plot(), found.plot(figure=Figure())):
        errors, attention, _ = figure.axes
        assert [text.get_text() for text in errors.get_yticklabels()] == [
            r.name for r in found.rows
        ]
        assert errors.get_xlabel() == "cross-validated error ± standard error"
        assert errors.get_xlim()[0] == 0
        assert errors.get_ylim() == (len(found.rows) - 0.5, -0.5)
        image = attention.images[0].get_array()
        assert image.shape == (12, max(len(example.attention) for example in found.examples))
        np.testing.assert_allclose(image.filled(0).sum(axis=1), 1)


def test_few_tokens_are_compared_without_a_warning() -> None:
    X, y, _ = equal_bags(count=30)
    assert X.shape[0] * X.shape[1] / 2 < 100  # of a training set: fewer than landmarks
    found = compare(X, y, cv=2, repeats=1, classifiers=QUICK)  # a warning is an error here
    assert "kernel mean" in [row.name for row in found.rows]


def test_bad_requests() -> None:
    X, y, _ = equal_bags(count=20)
    with pytest.raises(ParameterError, match="attention weights"):
        compare(X, y, classifiers={"attention": PooledClassifier()})
    with pytest.raises(ParameterError, match="cv = 1"):
        compare(X, y, cv=1)
    with pytest.raises(ParameterError, match="repeats = 1000000000000"):
        compare(X, y, repeats=10**12)
    with pytest.raises(ParameterError, match="two folds"):
        compare(X, y, cv=ShuffleSplit(n_splits=1))
    for seed in (-1, 0.5, None, 2**32):
        with pytest.raises(ParameterError, match=r"^seed = "):
            compare(X, y, seed=seed)  # type: ignore[arg-type]
    for workers in (0, -1, 2000, None):
        with pytest.raises(ParameterError, match=r"^workers = "):
            compare(X, y, workers=workers)  # type: ignore[arg-type]


def test_localisation_score_by_hand() -> None:
    attention = [[0.1, 0.7, 0.2], [0.5, 0.2, 0.3], [1.0], [0.6, 0.4]]
    assert localisation_score(attention, [1, 2, -1, 1]) == pytest.approx(1 / 3)
    assert localisation_score(attention, [1, 2, -1, 1], k=2) == 1.0
    assert localisation_score(attention, [[0, 1], [1, 2], None, []]) == 0.5
    assert localisation_score(np.array([[0.1, 0.9], [0.9, 0.1]]), np.array([0, 0])) == 0.5


def test_masks_name_the_informative_tokens_as_their_positions_do() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random((40, 6))
    masks = sample(Task(6, 2, 1.0), 40, dimension=2, rng=rng).positions
    named = [np.flatnonzero(mask) for mask in masks]
    assert localisation_score(scores, masks) == localisation_score(scores, named)
    by_mask, by_name = (free_response_curve(scores, one) for one in (masks, named))
    np.testing.assert_array_equal(by_mask.token_recall, by_name.token_recall)
    found = free_response_curve([[0.1, 2.0], [0.4, 0.3]], [[False, True], [False, False]])
    assert found.at(0.0) == 1.0


@pytest.mark.parametrize("measure", [localisation_score, free_response_curve])
@pytest.mark.parametrize(
    ("rows", "positions", "parameter"),
    [
        ([[0.9, 0.1]], [[0.99]], "positions of sample 0"),
        ([[0.9, 0.1]], [[True]], "positions of sample 0"),
        ([[0.9, 0.1]], [["first"]], "positions of sample 0"),
        ([[0.9, 0.1]], [[[0], [1]]], "positions of sample 0"),
        ([[0.9, 0.1]], 0, "positions"),
        (np.array([0, 1]), np.ones((2, 3)), " of sample 0"),
        ([["a", "b"]], [0], " of sample 0"),
    ],
)
def test_positions_that_name_no_token_are_refused(
    measure: Any, rows: Any, positions: Any, parameter: str
) -> None:
    with pytest.raises(ParameterError) as refused:
        measure(rows, positions)
    assert refused.value.parameter.endswith(parameter)


def test_localisation_score_refuses_nonsense() -> None:
    with pytest.raises(ParameterError, match="positions of sample 1"):
        localisation_score([[1.0], [0.5, 0.5]], [0, 2])
    with pytest.raises(ParameterError, match="length of positions"):
        localisation_score([[1.0]], [0, 1])
    with pytest.raises(ParameterError, match="in some sequence"):
        localisation_score([[1.0]], [-1])
    with pytest.raises(ParameterError, match="k = 0"):
        localisation_score([[1.0]], [0], k=0)


def test_concentration_counts_tokens() -> None:
    np.testing.assert_allclose(concentration([[1.0, 0.0], [0.25] * 4]), [1, 4])


def test_a_sample_that_is_not_finite_has_the_number_that_the_caller_knows() -> None:
    X = np.random.default_rng(0).standard_normal((60, 4, 3))
    X[50, 1, 1] = np.nan
    with pytest.raises(ParameterError, match="sample 50 "):
        compare(X, np.arange(60) % 2)


@pytest.mark.parametrize("power", [-1000, 900])
@pytest.mark.parametrize("form", ["array", "list"])
def test_units_whose_squares_no_float_holds_change_nothing(power: int, form: str) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((120, 3, 4)), np.arange(120) % 2
    X[y == 1, 0] += 3
    plain = compare(X, y, cv=2, repeats=1, classifiers=QUICK, seed=0)
    odd = np.ldexp(X, power)
    given = list(odd) if form == "list" else odd
    found = compare(given, y, cv=2, repeats=1, classifiers=QUICK, seed=0)
    assert [row.error for row in found.rows] == [row.error for row in plain.rows]


@pytest.mark.parametrize(
    ("folds", "errors", "clear"),
    [(10, 2.1, True), (5, 2.1, True), (2, 2.1, False), (2, 15.0, True), (3, 4.0, False)],
)
def test_a_difference_of_few_folds_must_be_larger_to_be_clear(
    folds: int, errors: float, clear: bool
) -> None:
    X, y, _ = equal_bags(60)
    found = compare(X, y, cv=2, repeats=1, classifiers=QUICK)
    rows = tuple(replace(row, errors=np.zeros(folds)) for row in found.rows)
    found = replace(found, rows=rows)
    for sign in (-1, 1):
        assert found._is_clear(PairedDifference("pooled", sign * errors * 0.01, 0.01)) == clear
    # Two folds often have the same difference by chance, ten do not.
    assert found._is_clear(PairedDifference("pooled", 0.01, 0.0)) == (folds >= 5)


def test_copies_on_both_sides_of_folds_are_told_of() -> None:
    X, y, _ = equal_bags(count=30)
    twice, labels = np.concatenate([X, X]), np.concatenate([y, y])
    for called in (
        lambda: compare(twice, labels, cv=2),
        lambda: forecast(PooledClassifier(), list(twice), labels),
    ):
        with pytest.raises(UserWarning, match="30 of 60 samples are copies"):  # errors in tests
            called()
    alone = {"attention": AttentionClassifier(refine=False, sharpness=1.0, ridge=0.1)}
    alone |= dict.fromkeys(("kernel mean", "vectorised", "mean|max|min"))
    groups = np.arange(60) % 30
    compare(twice, labels, groups=groups, cv=2, repeats=1, classifiers=alone)
