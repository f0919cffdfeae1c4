"""Records that measured something else than steady training: they are named, and every rule counts them.

The published rules average them in, and so does runkit where it is asked for such a rule; whoever reads the
figure must know. A record counts as slow where its rate is below 90 % of the median and far from it, as
``runner.outliers`` says. The records before the first that is not are the warm-up, which the rules know of.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from runner.model import Problem, Record
from runner.outliers import FAR, middle_and_deviation

LEAST = 3  # records: what is usual among fewer cannot be said
SLOW = 0.9  # of the median
_NAMED = 8  # lines that a sentence names


def stalls(records: Sequence[Record], scope: str, saves: Sequence[int]) -> list[Problem]:
    """Name the records of a run that are far from the rest, with what lies in their interval.

    ``saves`` are the lines that say that the parameters were saved. At most one problem, at the first line.
    """
    rated = [(one, _rate(one, scope)) for one in records]
    samples = [(one, rate) for one, rate in rated if rate is not None]
    if len(samples) < LEAST:
        return []
    rates = [rate for _, rate in samples]
    least = _least(rates)
    begun = next(at for at, rate in enumerate(rates) if rate >= least)
    slow = [at for at in range(begun, len(rates)) if rates[at] < least]
    if not slow:
        return []
    ordered = [one for one, _ in samples]
    usual = Counter(_steps(before, one) for before, one in pairwise(ordered)).most_common(1)[0][0]
    why = Counter(_why(ordered, at, usual, saves) for at in slow)
    reasons = ", ".join(f"{number} {reason}" for reason, number in why.most_common())
    named = [str(ordered[at].line) for at in slow[:_NAMED]] + ["..."] * (len(slow) > _NAMED)
    lines = f"line{'s' * (len(slow) > 1)} {', '.join(named)}"
    text = f"slow records among {len(samples)}: {reasons} ({lines}); a rule counts those it does not drop"
    return [Problem("stall", ordered[slow[0]].line, text)]


def _rate(record: Record, scope: str) -> float | None:
    if scope != "seconds_per_step":
        return record.rate
    return 1 / record.step_s if record.step_s else None


def _least(rates: Sequence[float]) -> float:
    """The least rate that is not far from the rest; the median itself never is."""
    middle, deviation = middle_and_deviation(rates)
    return min(SLOW * middle, middle - FAR * deviation)


def _steps(before: Record, record: Record) -> int | None:
    if before.step is None or record.step is None or before.epoch != record.epoch:
        return None
    return record.step - before.step


def _why(records: Sequence[Record], at: int, usual: int | None, saves: Sequence[int]) -> str:
    before, record = records[max(at - 1, 0)], records[at]
    if bisect_right(saves, record.line) > bisect_right(saves, before.line):
        return "after a checkpoint"
    if record.epoch != before.epoch:
        return "at the beginning of an epoch"
    ends = at == len(records) - 1 or records[at + 1].epoch != record.epoch
    if ends and usual is not None and (_steps(before, record) or usual) < usual:
        return "of fewer steps than the others"
    return "at the end of the log" if at == len(records) - 1 else "with no cause in the log"
