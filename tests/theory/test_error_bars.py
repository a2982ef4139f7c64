"""Each part of an error bar is there for an error that it covers: leave one out, and a test fails."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from sparsetoken import (
    Loss,
    Query,
    Step,
    Task,
    Training,
    descend,
    get_loss,
    localise,
    oracle,
    predict,
    register_loss,
    theory,
)
from sparsetoken.numerics.newton import newton
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.theory import (
    capacity,
    descent,
    floor,
    limit,
    localisation,
    merged_scores,
    misclassification,
    oracle_ranking,
    oracle_rules,
    potential,
    prediction,
    predictor,
    ranking,
    replicates,
    ridgeless,
)
from sparsetoken.theory.attention_law import attention_law
from sparsetoken.theory.feature_law import FeatureLaw
from sparsetoken.theory.laws import pooled_law
from sparsetoken.theory.limit import limit_readout
from sparsetoken.theory.oracle_ranking import best_ranking
from sparsetoken.theory.potential import Potential
from sparsetoken.theory.prediction import Prediction
from sparsetoken.theory.replicates import replicate_error
from sparsetoken.theory.saddle import Saddle
from sparsetoken.theory.trained_readout import LimitReadout

TASK, QUERY = Task(10, 1, 4.0, 0.4), Query(0.8, 1.0)
DRAWN = Training(1.0, 2.0, ridge=1e-3)
ANY = 1e9  # a tolerance that the first few points meet


def deviations(found: Prediction, truth: Prediction) -> Iterator[tuple[float, float]]:
    """Yield how far quantities are from the truth, each with the bar that is stated."""
    for field in ("test_error", "train_loss", "train_error"):
        deviation = abs(getattr(found, field) - getattr(truth, field))
        yield deviation, getattr(found.uncertainty, field)


# The spread of replicates of the law.


def test_the_spread_of_replicates_is_a_98_percent_bar() -> None:
    each = np.arange(1.0, 9.0)
    expected = 3.0 * np.std(each, ddof=1) / np.sqrt(8)
    assert replicate_error(each) == pytest.approx(expected, rel=1e-9)


def test_points_that_were_not_drawn_count_where_few_carry_the_mean() -> None:
    """Eight replicates of which one saw a rare event: others like it were missed."""
    few = np.array([0.0] * 7 + [8e-3])
    unseen = replicate_error(few, largest=2e-4) - replicate_error(few)
    assert unseen == pytest.approx(10 * 2e-4 * np.std(few, ddof=1) / 1e-3)
    even = 1e-3 + 1e-9 * np.arange(8)
    assert replicate_error(even, largest=2e-4) - replicate_error(even) < 1e-8


def rare_prediction() -> float:
    setting = (Task(10, 1, 7.0), Training(6.0, 2.0, ridge=1e-2))
    return predict(*setting, query=Query(0.95, 1.0), tolerance=1.0).uncertainty.test_error


def rare_descent() -> float:
    step = Step(50.0, readout_step=4.0, bias_step=2.0, query_step=20.0)
    return descend(Task(10, 1, 8.0), [step] * 2, tolerance=1.0)[-1].uncertainty["test_error"]


@pytest.mark.parametrize("bar", [rare_prediction, rare_descent])
def test_the_bar_of_the_test_error_has_the_unseen_points(
    bar: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rare errors have a law of their own; without it a few points carry them.
    monkeypatch.setattr(predictor, "_RARE", 0.0)
    full = bar()
    monkeypatch.setattr(replicates, "_UNSEEN", 0.0)
    assert bar() < full


def test_an_error_that_few_points_carry_is_known_to_nothing_better_than_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setting = (Task(10, 1, 7.0), Training(6.0, 2.0, ridge=1e-2))
    sure = predict(*setting, query=Query(0.95, 1.0), tolerance=1.0)
    assert sure.uncertainty.test_error < 0.2 * sure.test_error
    monkeypatch.setattr(misclassification, "ENOUGH_POINTS", 10**9)
    found = predict(*setting, query=Query(0.95, 1.0), tolerance=1.0)
    assert found.solution.status is Status.BEYOND_REACH
    assert found.uncertainty.test_error >= found.test_error


def test_an_exact_law_has_rounding_left_relative_to_its_value() -> None:
    for same in (np.array([0.3]), np.full(8, 0.3)):
        assert replicate_error(same) == pytest.approx(3e-14, abs=0)
    assert 0 < replicate_error(np.array([1e-9])) < 1e-15


# What quadrature misses.


class SoftHinge(Loss):
    """w log(1 + exp((1 - t)/w)): a hinge with a corner of width w that quadrature is not told of."""

    name = "soft_hinge"
    minimisers = (np.inf, np.inf)
    width = 0.05

    def value(self, margin):
        return self.width * np.logaddexp(0.0, (1 - margin) / self.width)

    def slope(self, margin):
        return -expit((1 - margin) / self.width)

    def curvature(self, margin):
        share = expit((1 - margin) / self.width)
        return share * (1 - share) / self.width


class ToldHinge(SoftHinge):
    """The same loss, with its corner cut into panels."""

    name = "told_hinge"
    breakpoints = tuple(1 + SoftHinge.width * np.arange(-24.0, 25.0, 3.0))


def test_the_bar_covers_what_quadrature_misses() -> None:
    """The law is exact: without the error of quadrature the bars would be some 1e-9."""
    register_loss(SoftHinge())
    register_loss(ToldHinge())
    found, truth = (
        predict(TASK, Training(2.0, 3.0, ridge=1e-2, loss=name), classifier="pooled")
        for name in ("soft_hinge", "told_hinge")
    )
    for (deviation, bar), (_, bar_of_truth) in zip(
        deviations(found, truth), deviations(truth, truth), strict=True
    ):
        assert deviation > 1e-8
        assert bar_of_truth < 0.1 * deviation
        assert deviation <= bar < 1e3 * deviation


def test_the_error_of_quadrature_is_that_of_the_worst_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register_loss(SoftHinge())
    loss = get_loss("soft_hinge")

    def errors(law: FeatureLaw) -> tuple[np.ndarray, np.ndarray]:
        """Return what a finer rule changes at each point, and what is said."""
        point = limit_readout((law, law), loss, 3.0, 1e-2).state.point
        sums = law.signed @ point[: law.signed.shape[1]], law.scale
        found = Potential(law, loss, 3.0)
        usual, truth = (found._margin(point, 0.0, finer).moments(*sums) for finer in (1, 8))
        said = found._quadrature_error(point, 0.0, usual)
        return np.abs(usual - truth)[:, : len(said)], said

    missed, said = errors(pooled_law(TASK))
    assert np.all(missed.max(axis=0) > 1.2 * missed.min(axis=0))
    assert np.all(1.1 * said >= missed.max(axis=0))
    # Of many points a grid is looked at, as fine as one likes: one error for each moment.
    count = len(said)
    monkeypatch.setattr(potential, "_CHECKED", (16, 7))
    assert len(errors(attention_law(TASK, QUERY, 6))[1]) == count


def test_the_bar_covers_what_quadrature_misses_on_a_drawn_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setting = (TASK, DRAWN)
    good = predict(*setting, query=QUERY, tolerance=1e-3)
    monkeypatch.setattr(limit, "_table_accuracy", lambda _: (1e-5, 2))
    monkeypatch.setattr(predictor, "FINEST", 1.0)
    crude = predict(*setting, query=QUERY, tolerance=1e-3)
    # Two nodes a panel leave some percent of a moment, on the same points of the law.
    assert crude.uncertainty.test_error > 2 * good.uncertainty.test_error
    assert abs(crude.test_error - good.test_error) < crude.uncertainty.test_error


def test_quadrature_is_made_finer_where_it_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """More points of the law would not help: two nodes a panel leave more than is wanted."""
    asked, fine = [], limit._table_accuracy

    def crude(tolerance: float) -> tuple[float, int]:
        asked.append(tolerance)
        return (1e-5, 2) if tolerance > 5e-4 else fine(tolerance)

    sizes, solved = [], predictor.limit_readout

    def noted(laws: tuple[FeatureLaw, FeatureLaw], *arguments: Any) -> LimitReadout:
        sizes.append(len(laws[1].scale))
        return solved(laws, *arguments)

    monkeypatch.setattr(limit, "_table_accuracy", crude)
    monkeypatch.setattr(predictor, "limit_readout", noted)
    found = predict(TASK, DRAWN, query=QUERY, tolerance=1e-3)
    assert sizes == 2 * [sizes[0]]
    assert asked[0] > 5e-4 >= asked[-1]
    assert found.solution.status is Status.CONVERGED
    assert found.uncertainty.test_error <= 1e-3


def test_tables_are_as_fine_as_the_wanted_accuracy_asks() -> None:
    wanted = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
    left, nodes = zip(*map(limit._table_accuracy, wanted), strict=True)
    assert all(
        part <= 0.01 * accuracy or part == 2e-7 for part, accuracy in zip(left, wanted, strict=True)
    )
    assert list(left[:4]) == sorted(set(left), reverse=True)
    assert list(nodes) == sorted(nodes)


# What a solver that stops early leaves.


def test_the_bar_covers_what_a_solver_that_stops_early_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Law and moments are exact: without the residual the bars would be at rounding level."""
    training = Training(2.0, 3.0, ridge=1e-2, loss="squared_hinge")
    truth = predict(TASK, training, classifier="pooled", tolerance=1e-9)
    monkeypatch.setattr(limit, "_SOLUTION", 0.3)
    monkeypatch.setattr(limit, "_CORRECTIONS", 1)
    early = predict(TASK, training, classifier="pooled", tolerance=1.0)
    for deviation, bar in deviations(early, truth):
        assert deviation > 1e-8
        assert deviation <= bar


def test_a_solution_that_is_not_one_widens_the_bar_of_a_drawn_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setting = (TASK, DRAWN)
    good = predict(*setting, query=QUERY, tolerance=1e-3)

    carried_over = limit._carried_over

    def trusted(*arguments: Any, **options: Any) -> Any:
        return replace(carried_over(*arguments, **options), trusted=True)

    # No second correction, nor a new solution: the residual of the first is all that is known.
    monkeypatch.setattr(limit, "_CORRECTIONS", 1)
    monkeypatch.setattr(limit, "_carried_over", trusted)
    monkeypatch.setattr(limit, "_ROUGH_SOLUTION", 0.5)
    rough = predict(*setting, query=QUERY, tolerance=1.0)
    assert rough.solution.residual > 10 * good.solution.residual
    assert rough.uncertainty.test_error > good.uncertainty.test_error
    assert abs(rough.test_error - good.test_error) < rough.uncertainty.test_error


def test_nothing_is_known_of_what_did_not_converge() -> None:
    found = predict(TASK, Training(1.0, 2.0), query=QUERY, tolerance=1e-2)
    failed = replace(found, solution=Solution(Status.STEP_LIMIT, residual=1.0, steps=1))
    for name in ("auc", "hit_rate"):
        assert found.metrics(name)[f"{name}_uncertainty"] < 1e-2
        assert failed.metrics(name)[f"{name}_uncertainty"] == np.inf


def pooled_readout() -> LimitReadout:
    law = pooled_law(TASK)
    return limit_readout((law, law), get_loss("logistic"), 3.0, 1e-2)


def test_the_errors_of_the_order_parameters_hold_the_residual() -> None:
    readout = pooled_readout()
    assert np.all(readout.weights_error >= readout.solution.residual * np.abs(readout.weights))


def test_the_error_of_the_training_loss_holds_that_of_its_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, errors = pooled_readout().train_loss_error, Potential.errors

    def less_sure(*arguments: Any) -> tuple[np.ndarray, float]:
        of_gradient, of_train_loss = errors(*arguments)
        return of_gradient, of_train_loss + 1e-3

    monkeypatch.setattr(Potential, "errors", less_sure)
    assert pooled_readout().train_loss_error == pytest.approx(before + 1e-3, rel=1e-9)


def test_the_error_of_the_margin_holds_the_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law is exact: only the solver may be wrong."""
    setting = (TASK, Training(2.0, 0.5, ridge=0.0))
    good, solved = predict(*setting, classifier="pooled"), ridgeless.widest_margin
    assert good.uncertainty.margin is not None
    assert good.uncertainty.margin < 1e-9

    def less_sure(*arguments: Any) -> Any:
        found = solved(*arguments)
        return replace(found, solution=replace(found.solution, residual=1e-3))

    monkeypatch.setattr(ridgeless, "widest_margin", less_sure)
    rough = predict(*setting, classifier="pooled", tolerance=1.0)
    assert rough.uncertainty.margin == pytest.approx(1e-3)
    # The readout is known no better, and so is its error.
    assert rough.uncertainty.test_error > 1e-5 > good.uncertainty.test_error


def of_excess(monkeypatch: pytest.MonkeyPatch, **changes: Callable[[Any], Any]) -> None:
    """Change what is found to be the least excess, or its solution."""
    solved = capacity.least_excess

    def changed(*arguments: Any) -> Any:
        found = solved(*arguments)
        excess = found.evaluation.hinged
        if "excess" in changes:
            excess = replace(excess, value=changes["excess"](excess.value))
        solution = changes.get("solution", lambda same: same)(found.solution)
        return replace(
            found, evaluation=replace(found.evaluation, hinged=excess), solution=solution
        )

    monkeypatch.setattr(capacity, "least_excess", changed)


@pytest.mark.parametrize("reuse", [False, True])
def test_the_error_of_a_capacity_is_how_far_the_residual_moves_it(
    reuse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as an excess that is off by as much; on reused data its law changes with the capacity."""
    monkeypatch.setattr(capacity, "_SIZE", 8)  # of reused data, which take long
    training = Training(1.0, 1.0, query_step=5.0, reuse=True)
    setting = {"training": training} if reuse else {"query": QUERY}
    good = capacity.capacity(TASK, tolerance=1.0, **setting)
    with monkeypatch.context() as patch:
        of_excess(patch, excess=lambda value: 1.01 * value)
        moved = capacity.capacity(TASK, tolerance=1.0, **setting)
    of_excess(monkeypatch, solution=lambda found: replace(found, residual=0.01))
    rough = capacity.capacity(TASK, tolerance=1.0, **setting)
    assert rough.alpha == pytest.approx(good.alpha)
    assert good.solution.steps > 1
    wider = rough.uncertainty - good.uncertainty
    assert wider == pytest.approx(good.alpha - moved.alpha, rel=0.05)


@pytest.mark.parametrize("reuse", [False, True])
def test_a_capacity_that_is_all_error_is_bounded_at_the_most(
    reuse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "_SIZE", 8)
    training = Training(1.0, 1.0, query_step=5.0, reuse=True)
    setting = {"training": training} if reuse else {"query": QUERY}
    good = capacity.capacity(TASK, tolerance=ANY, **setting)
    monkeypatch.setattr(capacity, "replicate_error", lambda *_: 10.0)
    found = capacity.capacity(TASK, tolerance=ANY, **setting)
    assert found.uncertainty == np.inf
    if not reuse:
        assert (found.alpha, found.solution.status) == (np.inf, Status.BEYOND_REACH)
        bound = float(found.solution.message.partition("the capacity is beyond ")[2].split(";")[0])
        assert 0 < bound < 0.1 * good.alpha


def test_the_bar_covers_a_smoothing_that_could_not_be_lowered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kinks rounded over a width s lower a loss of slope at most 1 by at most s/2."""
    training, width, solve = Training(2.0, 3.0, ridge=1e-2, loss="hinge"), 1e-3, limit.solve_saddle

    def smoothed(potential: Potential, ridge: float, *more: Any) -> Saddle:
        found = solve(potential, ridge, *more).result
        moved = newton(
            lambda x: potential.second_order(x, ridge, width),
            found.point,
            np.ones(len(found.point), dtype=bool),
            np.arange(len(found.point)) >= len(found.point) - 3,
            1e-10,
        )
        return Saddle(moved, width)

    truth = predict(TASK, training, classifier="pooled")
    monkeypatch.setattr(limit, "solve_saddle", smoothed)
    found = predict(TASK, training, classifier="pooled", tolerance=1.0)
    for deviation, bar in deviations(found, truth):
        assert 1e-8 < deviation <= bar < 0.1
    assert found.uncertainty.train_loss >= width


def alone(law: FeatureLaw, index: int) -> FeatureLaw:
    """Return one replicate of a law as a law without others."""
    size = len(law.scale) // law.replicates
    rows = slice(index * size, (index + 1) * size)
    arrays = {
        name: getattr(law, name)[rows] for name in ("coordinates", "scale", "label", "removed")
    }
    return replace(law, **arrays, weight=law.weight[rows] * law.replicates, replicates=1)


@pytest.mark.parametrize(
    ("loss", "ratio", "ridge"),
    [
        ("logistic", 2.0, 1e-2),
        ("squared_hinge", 2.0, 1e-2),
        ("square", 0.5, 0.0),  # interpolates
        ("logistic", 0.5, 0.0),  # the widest margin
    ],
)
def test_replicates_differ_as_their_own_solutions_do(loss: str, ratio: float, ridge: float) -> None:
    """A replicate's numbers come from one Newton step: differences are those of solving, to 20 %."""
    law = attention_law(TASK, QUERY, 9)
    found = limit_readout((law, law), get_loss(loss), ratio, ridge, tolerance=1e-6)
    parts = [alone(law, index) for index in range(law.replicates)]
    own = [limit_readout((part, part), get_loss(loss), ratio, ridge) for part in parts]
    for name in ("weights", "train_loss", "train_error", "margin"):
        value = getattr(found, name)
        each = getattr(found, "replicate_margins" if name == "margin" else f"replicate_{name}")
        if each is not None:
            differences = np.array([getattr(one, name) for one in own]) - value
            left = np.abs(each - value - differences).max(axis=0)
            assert np.all(left <= 0.2 * np.abs(differences).max(axis=0)), name


@pytest.mark.parametrize(("times", "close"), [(0.95, False), (1.0, True), (1.05, False)])
def test_a_capacity_that_is_too_close_to_tell_is_told(times: float, close: bool) -> None:
    """A bar of the capacity is 1 % at the most; which side of it the samples are on is open then."""
    known = capacity.capacity(TASK, query=QUERY)
    assert 1e-9 < known.uncertainty / known.alpha < 0.01
    training = Training(1.0, times * known.alpha, ridge=0.0)
    found = predict(TASK, training, query=QUERY, tolerance=ANY)
    assert (found.solution.status is Status.NEAR_THRESHOLD) == close


# What every module that makes bars puts into them.

MORE = 1e-3
SEVERAL = Task(8, 2, 2.0)


def bar_of(found: Any) -> dict[str, float]:
    return {"bar": found.uncertainty}


def ranking_bars() -> dict[str, float]:
    found = predict(TASK, DRAWN, query=QUERY, tolerance=ANY).ranking
    return {
        **found.uncertainty,
        **{f"{name} at a recall": bar for name, bar in found.at_recall(0.5).uncertainty.items()},
        **{
            f"{name} at a threshold": bar for name, bar in found.at_threshold(0).uncertainty.items()
        },
        **found.calibration([0.0])[0].uncertainty,
    }


def descent_bars() -> dict[str, float]:
    step = Step(8.0, readout_step=2.0, bias_step=1.0, query_step=1.0)
    return descend(TASK, [step], tolerance=ANY)[-1].uncertainty


# Bars by the modules that know the differences between replicates.
BARS: dict[str, tuple[tuple[Any, ...], Callable[[], dict[str, float]]]] = {
    "predict": (
        (prediction, misclassification),
        lambda: vars(predict(TASK, DRAWN, query=QUERY, tolerance=ANY).uncertainty),
    ),
    "the widest margin": (
        (prediction, misclassification),
        lambda: vars(
            predict(TASK, Training(1.0, 0.5, ridge=0.0), query=QUERY, tolerance=ANY).uncertainty
        ),
    ),
    "ranking": ((ranking, merged_scores), ranking_bars),
    "capacity": ((capacity,), lambda: bar_of(capacity.capacity(TASK, query=QUERY, tolerance=ANY))),
    "capacity of reused data": (
        (capacity,),
        lambda: bar_of(capacity.capacity(TASK, Training(1.0, 1.0, query_step=5.0, reuse=True))),
    ),
    "oracle": ((oracle_rules,), lambda: bar_of(oracle(TASK, tolerance=ANY))),
    "Bayes' oracle": (
        (oracle_rules,),
        lambda: bar_of(oracle(SEVERAL, classifier="bayes", tolerance=ANY)),
    ),
    "the best ranking": ((oracle_ranking,), lambda: bar_of(best_ranking(TASK, "bayes"))),
    "floor": ((floor,), lambda: vars(floor.floor(SEVERAL, 1.0, tolerance=ANY).uncertainty)),
    "the floor's classifier": (
        (oracle_rules,),
        lambda: {
            name: getattr(floor.floor(SEVERAL, 1.0, tolerance=ANY).uncertainty, name)
            for name in ("test_error", "reachable_test_error")
        },
    ),
    "descend": ((descent,), descent_bars),
    "localise": (
        (localisation,),
        lambda: {"attended_mass": localise(TASK, query=QUERY).uncertainty["attended_mass"]},
    ),
}


@pytest.mark.parametrize("name", BARS)
def test_every_bar_holds_the_differences_between_replicates(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "_SIZE", 8)  # of reused data, which take long
    modules, bars = BARS[name]
    before = bars()
    for module in modules:
        monkeypatch.setattr(module, "replicate_error", lambda *args: replicate_error(*args) + MORE)
    after = bars()
    assert before
    for quantity, bar in before.items():
        if bar is not None:
            assert after[quantity] >= bar + 0.1 * MORE, quantity


@pytest.mark.parametrize("part", ["replicate_weights", "weights_error"])
def test_every_bar_of_an_error_or_a_ranking_holds_what_is_open_of_the_readout(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bars() -> dict[str, float]:
        found = predict(TASK, DRAWN, query=QUERY, tolerance=ANY)
        return {"test_error": found.uncertainty.test_error, **found.ranking.uncertainty}

    before, solved = bars(), predictor.limit_readout

    def less_sure(*arguments: Any) -> LimitReadout:
        found = solved(*arguments)
        more = np.zeros_like(getattr(found, part))  # in ν, which every quantity feels
        more[..., -1] = 0.5 * found.weights[-1]
        more[1::2] *= -1 if part == "replicate_weights" else 1
        return replace(found, **{part: getattr(found, part) + more})

    monkeypatch.setattr(predictor, "limit_readout", less_sure)
    after = bars()
    for quantity, bar in before.items():
        assert after[quantity] > bar + 1e-5, quantity


def test_every_module_with_bars_of_replicates_is_above() -> None:
    listed = {module.__name__ for modules, _ in BARS.values() for module in modules}
    known = {
        name
        for name in (f"{theory.__name__}.{one.name}" for one in iter_modules(theory.__path__))
        if hasattr(import_module(name), "replicate_error") and name != replicates.__name__
    }
    # The other one only tells whether a capacity is too close.
    assert known - listed == {"sparsetoken.theory.ridgeless"}
