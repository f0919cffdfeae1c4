"""The rate that a run settled at, with a 95 % confidence interval: found in its records, not decreed.

    1. Records far from the rest are left out: the slow ones at an epoch's beginning, at the end of the log
       and elsewhere (checkpoints, stalled storage), and the few that are too fast. ``outliers`` says what
       is far; both sides alike, so that heavy tails pull the mean nowhere.
    2. The warm-up is cut where the standard error of what is left is least: MSER-5 (White, An effective
       truncation heuristic for bias reduction in simulation output, Simulation 69, 1997), in batches of 5
       where there are 60 records or more. A head that does not differ from the rest is put back; one that
       does is cut half as long again, for what its slope still holds.
    3. The interval is that of a mean of autocorrelated values, see ``uncertainty``, with Student's t for the
       effective number of records. Fewer than 50 effective records carry no interval.

The mean is taken in what the log measures: of seconds per step where it states those, of rates elsewhere.
A running mean is first taken apart into the means between one record and the next.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import floor, fsum, inf, log10, sqrt
from statistics import median

from runner.outliers import FAR, middle_and_deviation
from runner.uncertainty import mean_of, student_t

EFFECTIVE = 50  # independent records that an interval needs
LEAST = 10  # records that a steady rate needs
BATCH, BATCHED = 5, 60  # of MSER-5, and from how many records on
DIFFERS = 3.0  # standard errors between the head and the rest of a run
ROUNDING = 0.005  # most relative error that rounding may put into an interval of a running mean
SEARCHED = 1.2  # times as wide: what choosing the window from the same records costs, and room to prove it
SAMPLED = 200  # values whose digits are counted


@dataclass(frozen=True, slots=True)
class Sample:
    """One record: its index, its value as the log measures it (a rate, or seconds per step), its epoch.

    ``rounding``: how far from the truth rounding may have put a value that was worked out from others.
    """

    index: int
    value: float
    epoch: int | None = None
    rounding: float = 0.0


@dataclass(frozen=True, slots=True)
class Steady:
    """A steady value, in the measure of the samples.

    ``ci95`` is None where the records carry no interval; ``effective`` says how many independent records
    they are worth. ``first`` and ``last`` are indices of samples, as are those of ``left_out``, each with its
    reason: ``warm_up epoch_boundary stall partial_interval too_fast no_figure``. ``drift``: parts of the
    window differ by more than chance allows.
    """

    mean: float
    ci95: tuple[float, float] | None
    records: int
    effective: float
    first: int
    last: int
    left_out: tuple[tuple[int, str], ...]
    drift: bool


def steady(samples: Sequence[Sample], seconds: bool = False) -> Steady | None:
    """Find the steady value of ``samples``, in order; None where fewer than LEAST would carry it.

    ``seconds``: the values are seconds per step, so the greater is the slower.
    """
    usable = [one for one in samples if 0 < one.value < inf]
    left_out = [(one.index, "no_figure") for one in samples if not 0 < one.value < inf]
    values = [one.value for one in usable]
    grain = _grain(values)
    far = _far(values, [max(3 * grain, 3 * one.rounding) for one in usable])
    kept = [at for at in range(len(usable)) if at not in far]
    start = _warm_up([values[at] for at in kept])
    window = kept[start:]
    if len(window) < LEAST:
        return None
    left_out += [(one.index, "warm_up") for one in usable[: window[0]]]
    left_out += [(usable[at].index, _why(usable, at, seconds)) for at in far if at > window[0]]
    inside = [values[at] for at in window]
    mean, error, effective = mean_of(inside)
    half = student_t(effective - 1) * error * SEARCHED + (grain / 2 if error * sqrt(effective) < grain else 0)
    half += min(usable[at].rounding for at in window)  # what the mean of all intervals keeps of it
    return Steady(
        mean=mean,
        ci95=(mean - half, mean + half) if effective >= EFFECTIVE and half < mean else None,
        records=len(window),
        effective=effective,
        first=usable[window[0]].index,
        last=usable[window[-1]].index,
        left_out=tuple(sorted(left_out)),
        drift=_drifts(inside),
    )


def intervals(
    means: Sequence[Sample],
    steps: Sequence[int],
    seconds: bool = False,
    anew: Collection[int] = (),
) -> list[Sample]:
    """Take running means apart; ``steps`` says of how many steps each is the mean.

    ``anew``: positions of means that share no step with the one before, although they are of more steps.

    A mean over k steps and the one before it, over j, leave that of the k - j between them: of the seconds
    per step, whose inverse a mean rate states. Where k is not more than j, the mean began anew. What
    rounding would drown, a short interval late in a long mean, is taken together with the next.
    """
    grain = _grain([one.value for one in means]) / max((one.value for one in means), default=1.0)
    made: list[Sample] = []
    before, since = 0.0, 0  # seconds and steps up to the last interval made
    newest = 0  # steps of the last mean
    for at, (one, now) in enumerate(zip(means, steps, strict=True)):
        if now <= newest or at in anew:
            before, since = 0.0, 0
        newest = now
        spent = now * one.value if seconds else now / one.value
        if now - since < now * grain / ROUNDING:
            continue
        each = (spent - before) / (now - since)
        if each > 0:
            value = each if seconds else 1 / each
            off = grain / 2 * (now + since) / (now - since)
            made.append(Sample(one.index, value, one.epoch, off * value))
        before, since = spent, now
    return made


# --- what does not belong --------------------------------------------------------------------


def _far(values: Sequence[float], least: Sequence[float]) -> set[int]:
    """Indices of the values that are far from the median, and by more than ``least``, what rounding does."""
    if not values:
        return set()
    middle, deviation = middle_and_deviation(values)
    limit = FAR * deviation
    return {
        at
        for at, (value, rounded) in enumerate(zip(values, least, strict=True))
        if abs(value - middle) > max(limit, rounded)
    }


def _grain(values: Sequence[float]) -> float:
    """One unit in the last place that the log prints: values are written with so many decimals, no more.

    Where it prints so many significant digits, smaller values have more decimals: they do not count.
    """
    if not values:
        return 1.0
    some = values[:: 1 + len(values) // SAMPLED]
    least = 10.0 ** floor(log10(median(some)))
    return float(10.0 ** -max(_decimals(repr(value)) for value in some if value >= least))


def _decimals(text: str) -> int:
    """Digits after the point of a number as Python writes it: ``0.55``, ``203.0``, ``1.5e-07``."""
    digits, _, exponent = text.partition("e")
    after = digits.partition(".")[2]
    return len(after) * (after != "0") - int(exponent or 0)


def _why(samples: Sequence[Sample], at: int, seconds: bool) -> str:
    if (samples[at].value > median(one.value for one in samples)) != seconds:
        return "too_fast"
    if at == len(samples) - 1:
        return "partial_interval"
    if samples[at].epoch != samples[at - 1].epoch:
        return "epoch_boundary"
    return "stall"


def _warm_up(values: Sequence[float]) -> int:
    """How many values at the beginning are not yet of the steady state."""
    cut = _least_error(values)
    if cut == 0:
        return 0
    head, rest = values[:cut], values[cut:]
    if len(rest) < LEAST:
        return cut
    mean, error, _ = mean_of(rest)
    of_head = error * sqrt(len(rest) / len(head))
    if abs(fsum(head) / len(head) - mean) < DIFFERS * sqrt(error**2 + of_head**2):
        return 0
    return min(cut + cut // 2, len(values) // 2)


def _least_error(values: Sequence[float]) -> int:
    """MSER: the cut in the first half after which the squared standard error of the mean is least."""
    size = BATCH if len(values) >= BATCHED else 1
    first = len(values) % size
    batches = [fsum(values[at : at + size]) / size for at in range(first, len(values), size)]
    if len(batches) < 4:
        return 0
    shift = batches[-1]  # sums of what is near zero keep their digits
    best, least = 0, inf
    total = squares = 0.0
    for at in range(len(batches) - 1, -1, -1):
        total += batches[at] - shift
        squares += (batches[at] - shift) ** 2
        left = len(batches) - at
        error = max(squares - total**2 / left, 0.0) / left**2
        if at <= len(batches) // 2 and error <= least:
            best, least = at, error
    return first + best * size if best else 0


def _drifts(values: Sequence[float]) -> bool:
    """Whether any two quarters differ beyond chance, as Geweke (1992) compares the ends of a sequence."""
    size = len(values) // 4
    if size < LEAST:
        return False
    quarters = [mean_of(values[at : at + size]) for at in range(0, 4 * size, size)]
    return any(
        abs(one - other) > 2 * DIFFERS * sqrt(error**2 + another**2)
        for (one, error, _), (other, another, _) in combinations(quarters, 2)
    )
