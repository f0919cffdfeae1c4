"""Rules: how the records of a run become one figure.

A rule is text, stored beside every figure that it gave:

    mean:skip=N      drop the first N records, arithmetic mean
    mean:tail=N      the last N records, arithmetic mean
    harmonic:skip=N  drop the first N records, harmonic mean of the rates, i.e. the rate of the mean step time
    median:skip=N    drop the first N records, median
    mode             the most frequent rate; the first of them where several are equally frequent
    trim:skip=N      drop N, sort, drop max(int(5 % of those left), 5) at each end, mean
    summary[:KEY]    the log's own final figure

All work on rates for all cards together. ``trim`` is how PaddlePaddle's ``test_tipc/analysis.py`` averages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple

from runner.errors import UsageError
from runner.model import LogRun, Record
from runner.names import shown

FEW = 10  # a figure from fewer records, or from so few behind the warm-up, is flagged

_FORM = (
    r"(?P<kind>mean|harmonic|median|trim):skip=(?P<skip>\d{1,9})"
    r"|(?P<tailed>mean):tail=(?P<tail>\d{1,9})"
    r"|(?P<mode>mode)"
    r"|(?P<summary>summary)(?::(?P<key>[A-Za-z_][\w.]{0,99}))?"
)


class Rule(NamedTuple):
    """A rule, taken apart. ``tail`` and ``key`` are None where the rule has none."""

    kind: str
    skip: int = 0
    tail: int | None = None
    key: str | None = None


class Scale(NamedTuple):
    """What is needed to turn what a log says into a rate for all cards. Unknown is None."""

    cards: int | None = None
    hosts: int | None = None
    threads: int | None = None  # per host
    global_batch: int | None = None

    def factor(self, scope: str) -> float | None:
        """Say how many times a rate in ``scope`` is the rate of all cards; None where that is unknown."""
        if scope == "per_card":
            return self.cards
        if scope == "per_host":
            return self.hosts
        if scope == "per_thread":
            return self.hosts * self.threads if self.hosts and self.threads else None
        return 1


def parse_rule(text: str) -> Rule:
    """Take a rule apart. Raises UsageError where it is none of those above."""
    found = re.fullmatch(_FORM, text, re.ASCII)
    if found is None:
        raise UsageError(
            f"rule {shown(text)}: unknown; write mean:skip=N, mean:tail=N, harmonic:skip=N, median:skip=N, "
            "mode, trim:skip=N, summary or summary:KEY"
        )
    kind = found["kind"] or found["tailed"] or found["mode"] or found["summary"]
    tail = int(found["tail"]) if found["tail"] else None
    if tail == 0:
        raise UsageError(f"rule {shown(text)}: the last 0 records give no figure; take at least 1")
    return Rule(kind, skip=int(found["skip"] or 0), tail=tail, key=found["key"])


def all_cards(records: Sequence[Record], scope: str, scale: Scale) -> list[float]:
    """Give the rate of each record for all cards together; empty where the scale for it is unknown."""
    if scope == "seconds_per_step":
        batch = scale.global_batch
        return [] if batch is None else [batch / record.step_s for record in records if record.step_s]
    factor = scale.factor(scope)
    return [] if factor is None else [record.rate * factor for record in records if record.rate is not None]


def select(rule: Rule, values: Sequence[float]) -> Sequence[float]:
    """Give the values that ``rule`` looks at, in order; none for ``summary``."""
    if rule.kind == "summary":
        return ()
    if rule.tail is not None:
        return values[-rule.tail :]
    left = values[rule.skip :]
    if rule.kind == "trim":
        ends = max(len(left) * 5 // 100, 5)
        left = sorted(left)[ends : len(left) - ends] if len(left) > 2 * ends else ()
    return left


def too_few(rule: Rule, values: Sequence[float]) -> bool:
    """Say whether ``rule`` works on too few of the values for a firm figure; never of ``summary``."""
    if rule.kind == "summary":
        return False
    return len(values) - rule.skip <= FEW or len(select(rule, values)) < FEW


def figure(rule: Rule, values: Sequence[float], summary: Mapping[str, float]) -> float | None:
    """Work out what ``rule`` makes of the rates of a run, in order; None where nothing is left to work on.

    ``summary`` is the log's own figures; its first one is what ``summary`` without a key means.
    """
    if rule.kind == "summary":
        return summary.get(rule.key or next(iter(summary), ""))
    chosen = select(rule, values)
    return _MEANS[rule.kind](chosen) if chosen else None


def scale_of(run: LogRun) -> Scale:
    """Give the scale of a run that was found in a log."""
    threads = run.facts.get("threads")
    return Scale(run.cards, run.hosts, threads if isinstance(threads, int) else None, run.global_batch)


def rate(run: LogRun, rule: str) -> float | None:
    """Work out what another rule makes of a run: the rate for all cards in the unit of the run, or None."""
    values = all_cards(run.records, run.scope, scale_of(run))
    return figure(parse_rule(rule), values, run.rates.get("summary", {}))


def used(run: LogRun, rule: str) -> int:
    """Count how many records of a run ``rule`` works on; 0 for the log's own figure."""
    return len(select(parse_rule(rule), all_cards(run.records, run.scope, scale_of(run))))


def overview(values: Sequence[float], summary: Mapping[str, float]) -> dict[str, Any]:
    """Give the usual means over all records, for whoever wants to see how far rules are apart."""
    means = {name: figure(Rule(name), values, {}) for name in ("mean", "median", "harmonic", "trim")}
    return {**means, "summary": dict(summary)}


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)


def _harmonic(values: Sequence[float]) -> float:
    return 0.0 if min(values) <= 0 else len(values) / fsum(1 / value for value in values)


def _median(values: Sequence[float]) -> float:
    middle, ordered = len(values) // 2, sorted(values)
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _mode(values: Sequence[float]) -> float:
    return Counter(values).most_common(1)[0][0]


_MEANS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": _mean,
    "harmonic": _harmonic,
    "median": _median,
    "mode": _mode,
    "trim": _mean,
}
