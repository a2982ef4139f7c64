"""What limits attention on given data: rules over measured errors and an estimated signal."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sparsetoken.estimators.comparison import Comparison, ComparisonRow
from sparsetoken.planning.best_training import best_cosine
from sparsetoken.planning.signal_estimate import SignalEstimate, Tokens
from sparsetoken.records import Record
from sparsetoken.task import Task
from sparsetoken.theory.floor import floor
from sparsetoken.theory.oracle import oracle, required_strength
from sparsetoken.theory.oracle_ranking import best_ranking

__all__ = ["Facts", "Finding", "findings"]

# A difference counts from this many standard errors on.
_CLEAR = 2.0
# Errors this close are alike.
_ALIKE = 0.01
# A signal is weak if even attention that knows it errs more than this share of the chance error.
_WEAK = 0.5
# The squared cosine that counts as learnt, and a gap below what theory allows that counts as a miss.
_LEARNT = 0.8
_MISSED = 0.15
# An error above this share of the chance error, though clearly below it, tells of little signal.
_LITTLE = 0.8
# Attention on more than this many times the informative tokens, beyond one, is soft.
_SOFT = 3.0
# Among which the strength is sought that would have been seen.
_STRENGTHS = tuple(float(f"{value:.2g}") for value in np.geomspace(0.5, 40.0, 20))


@dataclass(frozen=True)
class Finding(Record):
    """One reason: what it is, the numbers that say so, and the next step."""

    cause: str
    because: str
    next_step: str

    def __str__(self) -> str:
        return f"{self.cause}: {self.because}. Next: {self.next_step}."


class Facts:
    """The numbers that findings are made of."""

    def __init__(self, tokens: Tokens, comparison: Comparison, signal: SignalEstimate) -> None:
        self.samples = len(tokens.labels)
        self.length = float(tokens.lengths.mean())
        self.signal = signal
        self.comparison = comparison
        self._rate = rate = float(np.mean(tokens.labels == signal.positive))
        self._ranked = comparison.measure != "error"
        self.measure = comparison.measure
        # How the text says it.
        self.errs, self.err = ("errs", "err")
        if self._ranked:
            self.errs, self.err = f"has a {self.measure} of", f"have a {self.measure} of"
        self.chance = 0.5 if self._ranked else min(rate, 1 - rate)
        self.rows = {row.name: row for row in comparison.rows}
        self.attention = self.rows["attention"]
        self.rival = min(
            (row for row in comparison.rows if row.name != "attention"), key=lambda row: row.error
        )
        self.paired = next(one for one in comparison.differences if one.name == self.rival.name)
        self.limits: dict[str, float] = {}
        self.task: Task | None = None
        if signal.strength is not None and signal.informative is not None:
            length = max(2, round(self.length))
            informative = int(np.clip(round(signal.informative), 1, length - 1))
            self.task = Task(length, informative, signal.strength, rate)
            self.limits = self._limits(self.task)

    def _limits(self, task: Task) -> dict[str, float]:
        learnt = task.replace(strength=task.strength * (self.signal.alignment or 0.0))
        return {
            "attention": self._least(task, "attention"),
            "pooled": self._least(task, "pooled"),
            "learnt": self._least(learnt, "bayes"),
        }

    def _least(self, task: Task, classifier: str) -> float:
        """Return the least error of a classifier that knows the signal, as the rows measure it."""
        if self._ranked:
            return best_ranking(task, classifier).misranked
        return oracle(task, classifier=classifier).test_error

    def clearly_below(self, row: ComparisonRow, error: float) -> bool:
        """Return whether a measured error is below another by more than its standard errors."""
        return row.error < error - _CLEAR * row.uncertainty

    @property
    def best(self) -> ComparisonRow:
        """The classifier of the least measured error."""
        return min(self.rows.values(), key=lambda row: row.error)

    @property
    def beats_pooling(self) -> bool:
        """Whether attention is clearly better than mean pooling, as measured."""
        return any(
            one.name == "pooled" and one.difference < -_CLEAR * one.uncertainty
            for one in self.comparison.differences
        )

    @property
    def useful_strength(self) -> float:
        """Strength in one token at which attention that knows it errs half of the chance error."""
        task = Task(max(2, round(self.length)), 1, 1.0, self._rate)
        limit = _WEAK * min(self._rate, 1 - self._rate)
        return required_strength(task, error=limit, tolerance=0.05).strength

    @property
    def seen_strength(self) -> float:
        """Strength in one token from which on attention would mostly be clearly better than guessing."""
        ratio = self.samples / self.signal.effective_dimension
        clear = self.chance - (_CLEAR + 1) * self.best.uncertainty
        for strength in _STRENGTHS:
            task = Task(max(2, round(self.length)), 1, strength, self._rate)
            learnt = max(best_cosine(task, ratio), 0.0)
            if self._least(task.replace(strength=strength * learnt), "attention") < clear:
                return strength
        return np.inf

    @property
    def has_a_fixed_place(self) -> bool:
        """Whether what tells places apart is the best, and clearly better than attention."""
        excess = self.paired.difference - _CLEAR * self.paired.uncertainty
        best = self.rival.name == "vectorised" and self.clearly_below(self.rival, self.chance)
        return best and excess > 0

    @property
    def beyond_the_limit(self) -> bool:
        """Whether a classifier does clearly better than any could if the estimates were true."""
        if self.task is None or not self.clearly_below(self.best, self.limits["attention"]):
            return False
        more = _CLEAR * self.signal.uncertainty["strength"]
        stronger = self.task.replace(strength=self.task.strength + more)
        return self.clearly_below(self.best, self._least(stronger, "bayes"))


def findings(facts: Facts) -> Iterator[Finding]:
    """Yield what limits attention, the main reason first; there is always one."""
    gap = f"{abs(facts.paired.difference):.3f} ± {facts.paired.uncertainty:.3f}"
    pays = facts.paired.difference < -_CLEAR * facts.paired.uncertainty
    if facts.has_a_fixed_place:
        found = [_fixed_place(facts, gap)]
    elif facts.task is None or not facts.clearly_below(facts.best, facts.chance):
        found = [_unseen(facts) if pays else _without_signal(facts)]
    elif facts.beyond_the_limit:
        found = [_misfit(facts)]
    else:
        found = [
            finding
            for check in (_not_sparse, _too_weak, _unlearnt, _too_soft)
            for finding in check(facts)
        ]
    if pays:
        yield Finding(
            "attention pays",
            f"its {facts.measure} is {gap} below that of {facts.rival.name}",
            "use it, and read on" if found else "use it",
        )
    yield from found
    if not found and not pays:
        yield _nothing_to_mend(facts, gap)


def _nothing_to_mend(facts: Facts, gap: str) -> Finding:
    """Return that attention is where the estimates see it, or that nothing measured says why not."""
    learnt, row = facts.limits["learnt"], facts.attention
    shown = f"its {facts.measure} {row.error:.3f} ± {row.uncertainty:.3f} is"
    keep = f"keep it ({facts.rival.name}, the best of the others, differs by {gap})"
    if row.error - _CLEAR * row.uncertainty > learnt:
        return Finding(
            "nothing to mend is seen",
            f"{shown} above the {learnt:.3f} that the estimates allow these samples, and nothing that was "
            "measured says why",
            f"{keep}; the estimates describe tokens of about normal noise",
        )
    return Finding(
        "attention does what it can",
        f"{shown} no worse than the {learnt:.3f} or so that these samples allow",
        keep,
    )


def _unseen(facts: Facts) -> Finding:
    """Return that the samples teach attention a signal, but halves of them do not."""
    return Finding(
        "too few samples",
        f"attention {facts.errs} {facts.attention.error:.3f} ± {facts.attention.uncertainty:.3f} "
        f"(guessing {facts.chance:.3f}), but directions learnt on halves of the {facts.samples:,} "
        "samples have no more in common yet than chance gives, so that the signal cannot be described",
        f"collect about {2 * facts.samples:,} samples, and see forecast()",
    )


def _without_signal(facts: Facts) -> Finding:
    best = facts.best
    shown = f"{best.name} {facts.errs} {best.error:.3f} ± {best.uncertainty:.3f} (guessing {facts.chance:.3f})"
    apart = "directions learnt on two halves have no more in common than chance gives"
    if facts.task is not None:
        apart = "what directions learnt on two halves have in common may be chance"
    seen, useful = facts.seen_strength, facts.useful_strength
    clear = facts.clearly_below(best, facts.chance)
    if seen > useful:
        return Finding(
            "too few samples",
            f"{shown}, and {apart}; a signal in one token would show only from a strength of about "
            f"{seen:.1f} on with {facts.samples:,} samples, and {useful:.1f} would be useful",
            f"use {best.name} until there are several times as many samples"
            if clear
            else "collect several times as many samples before giving up",
        )
    if not clear:
        return Finding(
            "nothing to tell the classes apart",
            f"no classifier is clearly better than guessing ({shown}), and {apart}; a signal in one "
            f"token would mostly show from a strength of about {seen:.1f} on: any there is is probably weaker",
            "give the tokens other features (TokenWise); many more samples would show a weak signal only",
        )
    if best.error > _LITTLE * facts.chance:
        return Finding(
            "the signal is too weak",
            f"{shown}, and {apart}: whatever there is is weak for so many samples",
            "look for better features of a token (TokenWise), or collect several times as many samples",
        )
    # There is a signal, and it may well be sparse: only what was looked for is not seen.
    return Finding(
        "no shift of tokens is seen",
        f"{shown}, so that there is a signal, but {apart}: it may be no shift of tokens along one direction",
        f"use {best.name}; squares or other features of a token (TokenWise) may turn the signal into such a "
        "shift, and more samples may show one",
    )


def _fixed_place(facts: Facts, gap: str) -> Finding:
    """Return that a readout which knows the places of tokens does better than attention."""
    return Finding(
        "the signal has a fixed place",
        f"{facts.rival.name}, which gives every place a readout of its own, {facts.errs} "
        f"{facts.rival.error:.3f} ± {facts.rival.uncertainty:.3f}, {gap} below attention",
        "use VectorisedClassifier, or give attention the place as another feature of a token",
    )


def _misfit(facts: Facts) -> Finding:
    """Return that what was measured is better than what was estimated allows: noise is not normal."""
    return Finding(
        "the estimates do not fit",
        f"{facts.best.name} {facts.errs} {facts.best.error:.3f} ± {facts.best.uncertainty:.3f}, "
        f"where attention that knew a signal of strength {facts.signal.strength:.2f} in "
        f"{facts.signal.informative:.1f} of {facts.length:.1f} tokens of normal noise would reach "
        f"{facts.limits['attention']:.3f}",
        "go by the measured numbers, not by strength and limits; these describe tokens of about "
        "normal noise, which other features of a token (TokenWise) may have",
    )


def _not_sparse(facts: Facts) -> Iterator[Finding]:
    alike = facts.limits["pooled"] <= facts.limits["attention"] + _ALIKE
    if alike and not facts.beats_pooling:
        yield Finding(
            "the signal is not sparse",
            f"about {facts.signal.informative:.1f} of {facts.length:.1f} tokens carry it, and "
            f"pooling that knew it would {facts.err} {facts.limits['pooled']:.3f}, attention "
            f"{facts.limits['attention']:.3f}",
            "use PooledClassifier: it is simpler and as good",
        )


def _too_weak(facts: Facts) -> Iterator[Finding]:
    limit = facts.limits["attention"]
    if limit > _WEAK * facts.chance:
        yield Finding(
            "the signal is too weak",
            f"at strength {facts.signal.strength:.2f} in {facts.length:.0f} tokens even attention "
            f"that knew it would {facts.err} {limit:.3f} (guessing {facts.chance:.3f})",
            "more samples will not help: look for better features of a token, or shorter sequences",
        )


def _unlearnt(facts: Facts) -> Iterator[Finding]:
    """Yield a finding if the direction is not learnt: by want of samples, or by the learner."""
    alignment, own = facts.signal.alignment or 0.0, facts.signal.query_alignment
    if facts.task is None:
        return
    seen = f"the learnt direction has a cosine of {alignment:.2f} with the signal"
    if own is not None and alignment**2 - own**2 > _MISSED:
        yield Finding(
            "the query is misaligned",
            f"with these settings it has a cosine of {own:.2f} with the signal, though the default ones "
            f"learn {alignment:.2f} from the same {facts.samples:,} samples",
            'let all samples teach the query (split=None), and refine="auto" improve it',
        )
        return
    if alignment**2 >= _LEARNT:
        return
    ratio = facts.samples / facts.signal.effective_dimension
    # Compared where it was measured: on half of the samples, of which all would teach the odds twice.
    half = alignment**2 / (2 - alignment**2)
    surely = max(facts.task.strength - _CLEAR * facts.signal.uncertainty["strength"], 0.0)
    expected = best_cosine(facts.task.replace(strength=surely), ratio / 2)
    odds = alignment**2 / (1 - alignment**2)
    enough = facts.samples * _LEARNT / (1 - _LEARNT) / odds
    more = f"collect about {float(f'{enough:.2g}'):,.0f} samples, and see forecast()"
    if expected**2 - half > _MISSED:
        yield Finding(
            "the query is misaligned",
            f"half of the samples teach it a cosine of {np.sqrt(half):.2f} with the signal, though two steps on "
            f"{facts.samples // 2:,} samples in {facts.signal.effective_dimension:.0f} effective dimensions "
            f"of normal noise teach {expected:.2f}",
            f"other features of a token (TokenWise) or several heads may find more of it; or {more}",
        )
        return
    allowed = floor(facts.task, ratio, tolerance=1e-2).reachable_overlap
    if allowed - alignment**2 > _MISSED:
        more += f"; learn_direction() may find up to {np.sqrt(allowed):.2f} of it in these"
    yield Finding(
        "too few samples",
        f"{seen}; the best classifier that has learnt so much {facts.errs} "
        f"{facts.limits['learnt']:.3f}, "
        f"one that knew the signal {facts.limits['attention']:.3f}",
        more,
    )


def _too_soft(facts: Facts) -> Iterator[Finding]:
    if not facts.signal.normal:
        return  # how many tokens carry the signal is not known, nor what is possible
    attended, informative = facts.comparison.attended_tokens, facts.signal.informative or 1.0
    behind = facts.attention.error - _CLEAR * facts.attention.uncertainty
    if attended > _SOFT * max(informative, 1.0) and behind > facts.limits["learnt"]:
        yield Finding(
            "attention is too soft",
            f"it is spread over {attended:.1f} of {facts.length:.1f} tokens, of which about "
            f"{informative:.1f} carry the signal, and {facts.errs} {facts.attention.error:.3f} where "
            f"{facts.limits['learnt']:.3f} is possible",
            "set a larger sharpness, or tied=True",
        )
