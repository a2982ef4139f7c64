"""Fitting the heads of binary classifiers when it is known what to fit."""

from dataclasses import replace

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.heads import (
    LEAST_UNIT,
    SUMMARIES,
    FittedHeads,
    HeadSettings,
    Problems,
    Recipe,
    feature_units,
    head_directions,
    head_features,
)
from sparsetoken.estimators.labelled import LabelledSequences
from sparsetoken.estimators.objective import Heads
from sparsetoken.estimators.refinement import refined_heads
from sparsetoken.estimators.scaling import Scaler
from sparsetoken.learning.readout import Readout, fit_readout
from sparsetoken.losses import Loss

__all__ = ["fit_heads"]


def fit_heads(
    labelled: LabelledSequences,
    for_query: LabelledSequences,
    scaler: Scaler,
    recipe: Recipe,
    settings: HeadSettings,
    firsts: Array | None = None,
) -> list[FittedHeads]:
    """Fit the heads of all binary problems: the query on `for_query`, the rest on `labelled`.

    Parameters
    ----------
    firsts : array of shape (C, d), optional
        Stage 1's readouts on `for_query`, if they are known already.
    """
    problems = Problems.of(labelled, scaler)
    if recipe.family in SUMMARIES:
        queries = np.zeros((len(problems), 1, labelled.sequences.dimension))
        fitted = _read_out(problems, queries, recipe, settings)
        return [replace(one, heads=one.heads.padded(settings.heads)) for one in fitted]
    directions = head_directions(for_query, scaler, settings, firsts)
    if recipe.family == "two-step":
        return _two_step(problems, for_query, directions, recipe, settings)
    return refined_heads(problems, for_query, directions, recipe, settings)


def _read_out(
    problems: Problems, queries: Array, recipe: Recipe, settings: HeadSettings
) -> list[FittedHeads]:
    """Return stage 4's readouts on the features of queries (P, H, d)."""
    fitted = []
    with_extremes = recipe.reads_extremes
    shared = None
    for row, own in enumerate(queries):
        if shared is None or np.any(own):  # mean pooling has the same features in all problems
            shared, squares = head_features(
                problems.sequences, own, problems.scaler, settings.pooling, extremes=with_extremes
            )
        read = recipe.columns(shared.shape[1])
        units = feature_units(shared[:, read], problems.weights[row], problems.scaler.constant)
        if np.any(own):
            norms = np.sqrt(squares @ problems.weights[row])
            units = np.maximum(units, LEAST_UNIT * np.repeat(norms, own.shape[1]))
        readout = _solve(shared[:, read] / units, problems, row, recipe.ridge, settings.loss)
        every = np.zeros(shared.shape[1])
        every[read] = readout.weights / units
        weights, extremes = np.split(every, [own.size])
        heads = Heads(
            own,
            weights.reshape(own.shape),
            readout.bias,
            extremes.reshape(2, -1) if with_extremes else None,
        )
        solution = replace(readout.solution, steps=max(1, readout.solution.steps))
        fitted.append(FittedHeads(heads, readout.objective, solution))
    return fitted


def _solve(features: Array, problems: Problems, row: int, ridge: float, loss: Loss) -> Readout:
    weights = problems.weights[row]
    # A penalty does not see the bias: centred features need fewer steps.
    centre = weights @ features / weights.sum()
    readout = fit_readout(
        np.asarray(features - centre, dtype=float),
        problems.labels[row],
        loss=loss,
        ridge=ridge,
        sample_weight=weights,
        tolerance=1e-10,
    )
    return replace(readout, bias=readout.bias - float(centre @ readout.weights))


def _two_step(
    problems: Problems,
    for_query: LabelledSequences,
    directions: Array,
    recipe: Recipe,
    settings: HeadSettings,
) -> list[FittedHeads]:
    """Fit heads one after another, each query on what the ones before left unexplained."""
    sharpness = float(recipe.sharpness)
    queries = sharpness * directions[:, None]
    fitted = _read_out(problems, queries, recipe, settings)
    while queries.shape[1] < settings.heads:
        offsets = np.array(
            [
                one.heads.decisions(for_query.sequences, problems.scaler, settings.pooling)
                for one in fitted
            ]
        )
        further = head_directions(for_query, problems.scaler, settings, offsets=offsets)
        queries = np.concatenate([queries, sharpness * further[:, None]], axis=1)
        fitted = _read_out(problems, queries, recipe, settings)
    return fitted
