"""Two sets of figures side by side: what is like for like, and which changes are more than noise.

A change is told where the 95 % interval of the ratio leaves out 1. With repeats on both sides the interval is
that of Welch's t test on the logarithms of the rates (The generalization of Student's problem, Biometrika 34,
1947), or Student's, of one variance for both, where that is wider: Welch's alone raises more than 5 % false
alarms between 2 runs and 5. With one run on each side, the intervals of the steady rates are put together as
independent errors are. Those know of the noise within a run only: between runs of a cluster there is more,
and repeats show it; those of one side stand for the other as well. Where either side carries no interval,
nothing is said of the change.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import exp, fsum, log, sqrt

from runner.comparable import Terms, hardware, unlike
from runner.model import LogRun
from runner.rates import rate
from runner.uncertainty import student_t

STEADY = "steady"  # the rate of the steady part of a run, by runner.steady


@dataclass(frozen=True, slots=True)
class Side:
    """One figure: a rate for all cards by ``rule`` (STEADY, or a rule), of one setting.

    ``rates`` has one value per repeat; ``error`` is the relative standard error of a single one, None where
    it is unknown. Of the setting, what is not known is None. ``what`` says what was trained: family and
    model. ``runs`` are the runs behind the rates, where there are any.
    """

    source: str
    what: str
    cards: int
    rates: tuple[float, ...]
    rule: str
    unit: str | None
    precision: str | None = None
    batch_size: int | None = None
    hardware: str | None = None
    mode: str | None = None
    date: str | None = None
    error: float | None = None
    runs: tuple[LogRun, ...] = ()
    driver: str | None = None

    @property
    def terms(self) -> Terms:
        """What a figure beside this one must share."""
        parts = hardware(self.hardware, self.driver)
        return Terms(self.rule, self.unit, self.precision, self.batch_size, parts, self.mode, self.date)

    @property
    def rate(self) -> float:
        """The geometric mean of the repeats."""
        if len(self.rates) == 1:
            return self.rates[0]
        return exp(fsum(log(one) for one in self.rates) / len(self.rates))


@dataclass(frozen=True, slots=True)
class Compared:
    """A pair: its ratio B / A with interval, whether it changed (None: unknown), how the two are unlike."""

    a: Side
    b: Side
    ratio: float
    ci95: tuple[float, float] | None
    changed: bool | None
    reasons: tuple[str, ...]


def compare(a: Sequence[Side], b: Sequence[Side]) -> tuple[list[Compared], list[Side]]:
    """Pair what was trained alike, the same settings first; what finds no partner comes second."""
    left, right = list(a), list(b)
    made: list[Compared] = []
    for fit in (_same, _same_cards):
        for one in list(left):
            other = next((side for side in right if fit(one, side)), None)
            if other is not None:
                left.remove(one)
                right.remove(other)
                made.append(_compared(one, other))
    made.sort(key=lambda pair: (pair.a.what, pair.a.precision or "", pair.a.batch_size or 0, pair.a.cards))
    return made, [*left, *right]


def reasons(one: Side, other: Side) -> tuple[str, ...]:
    """Say in what two figures differ that a ratio of them would hide; what is unknown is no difference."""
    return tuple(unlike(one.terms, other.terms))


def mean_ratio(pairs: Sequence[Compared], allowed: Collection[str]) -> float | None:
    """Give the geometric mean of the ratios that are like for like, or whose every reason is allowed."""
    logs = [log(pair.ratio) for pair in pairs if set(pair.reasons) <= set(allowed)]
    return exp(fsum(logs) / len(logs)) if logs else None


def _same(one: Side, other: Side) -> bool:
    return _same_cards(one, other) and not {"batch_size", "precision", "mode"} & set(reasons(one, other))


def _same_cards(one: Side, other: Side) -> bool:
    return (one.what, one.cards) == (other.what, other.cards)


def _by(side: Side, rule: str) -> Side:
    """The same figure by another rule, where its runs give one."""
    rates = [rate(run, rule) for run in side.runs]
    known = tuple(one for one in rates if one)
    return replace(side, rates=known, rule=rule, error=None) if rates and len(known) == len(rates) else side


def _compared(one: Side, other: Side) -> Compared:
    if one.rule != other.rule:
        one, other = (_by(one, other.rule), other) if one.rule == STEADY else (one, _by(other, one.rule))
    ratio = other.rate / one.rate
    half = _half(one, other)
    ci95 = None if half is None else (ratio * exp(-half), ratio * exp(half))
    changed = None if ci95 is None else not ci95[0] <= 1 <= ci95[1]
    return Compared(one, other, ratio, ci95, changed, reasons(one, other))


def _half(one: Side, other: Side) -> float | None:
    """Half the width of the interval of the logarithm of the ratio; None where a side has no known error."""
    errors = [_error(side) for side in (one, other)]
    known = [error for error in errors if error is not None]
    if len(known) < 2:
        return None
    total = fsum(variance for variance, _ in known)
    if total == 0:
        return 0.0
    freedom = total**2 / fsum(
        variance**2 / free for variance, free in known if free
    )  # Welch and Satterthwaite
    return max(student_t(freedom) * sqrt(total), _pooled((one, other)))


def _pooled(sides: Sequence[Side]) -> float:
    """Half the width where runs of both sides vary alike; 0 where neither has repeats."""
    freedom = sum(len(side.rates) - 1 for side in sides)
    if freedom == 0:
        return 0.0
    squares = fsum(_spread(side) for side in sides)
    return student_t(freedom) * sqrt(squares / freedom * fsum(1 / len(side.rates) for side in sides))


def _spread(side: Side) -> float:
    """The sum of the squared deviations of the logarithms of a side's rates."""
    logs = [log(one) for one in side.rates]
    mean = fsum(logs) / len(logs)
    return fsum((one - mean) ** 2 for one in logs)


def _error(side: Side) -> tuple[float, float] | None:
    """The variance of the logarithm of a side's rate, and its degrees of freedom."""
    number = len(side.rates)
    if number == 1:
        return None if side.error is None else (side.error**2, 1000.0)  # whose interval has its t already
    return _spread(side) / (number - 1) / number, number - 1.0
