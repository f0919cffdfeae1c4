"""Published figures held against the logs that they cite: a verdict per claim, and what else is wrong.

    reproduced     the stated rule gives the figure; or one was found, and chance would hardly have done so
    consistent     a rule was found that gives it, but so might chance: a short figure, few records
    contradicted   the log gives another figure, or no rule that was tried gives this one
    no_log         there is no log, or nothing to be read in it
    blank          nothing was published

Rules are searched for from the usual to the far-fetched, one stage after the other, and the search ends with
the first stage that holds a match: a figure that the family's own rule gives needs no other explanation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from runner.across import Finding
from runner.claims import Claim, Rates
from runner.findings import Row, findings
from runner.model import LogRun
from runner.names import printable
from runner.parsers import same_precision
from runner.published import digits, is_blank, shows, window
from runner.rates import FEW, rate, used

VERDICTS = ("reproduced", "consistent", "contradicted", "no_log", "blank")
SHORT = 3  # digits that a figure needs to tell one rule from another
CHANCE = 0.05  # how likely a match by chance may be
NEAR, NEAR_LEAST = 0.01, 15  # what is near a figure: a share of it, and at least so many widths of its window


def audit(claims: Sequence[Claim], runs: Sequence[LogRun | None]) -> tuple[list[Row], list[Finding]]:
    """Hold each claim against the run of its log, or None; the rows are in the order of the claims."""
    pairs = list(zip(claims, runs, strict=True))
    rows = [verdict(claim, run) for claim, run in pairs]
    rates = Rates(claims)
    rows = [_speed_up(row, rows, rates) if row.claim.show == "speed_up" else row for row in rows]
    found = findings(rows, runs)
    codes: dict[int, dict[str, None]] = defaultdict(dict)
    for one in found:
        for at in one.claims:
            codes[at][one.code] = None
    return [replace(row, findings=tuple(codes[at])) for at, row in enumerate(rows)], found


def passed(rows: Sequence[Row]) -> bool:
    """Whether nothing is contradicted and every log is there."""
    return all(row.verdict in ("reproduced", "consistent", "blank") for row in rows)


def choose(claim: Claim, runs: Sequence[LogRun]) -> LogRun | None:
    """Of the runs in a log, the one that the claim speaks of: by cards, batch size, precision."""

    def fit(run: LogRun) -> tuple[bool, bool, bool, bool]:
        return (
            run.cards == claim.cards,
            run.batch_size == claim.batch_size,
            same_precision(run.precision, (claim.precision or "").lower()),
            run.rate is not None,
        )

    return max(reversed(runs), key=fit, default=None)


# --- verdicts --------------------------------------------------------------------------------


def verdict(claim: Claim, run: LogRun | None) -> Row:
    """Judge one claim alone."""
    if is_blank(claim.published):
        return Row(claim, "blank")
    if run is None:
        return Row(claim, "no_log", reason="no log, or no run in it")
    printed = claim.printed
    if printed is None:
        return Row(claim, "contradicted", reason=f"{printable(claim.published)} is no figure")
    if claim.show != "rate":
        return _outcome(claim, run, printed)
    return _stated(claim, claim.rule, run, printed) if claim.rule else _searched(claim, run, printed)


def _stated(claim: Claim, rule: str, run: LogRun, printed: Decimal) -> Row:
    value = rate(run, rule)
    if value is None:
        return Row(claim, "no_log", rule, reason=f"the log holds nothing that {rule} works on")
    good = shows(value, printed)
    cut = "" if run.complete else "; the log is cut off"
    reason = None if good else f"{rule} gives {value:.6g}{cut}"
    return Row(claim, "reproduced" if good else "contradicted", rule, value, _count(run, rule), reason=reason)


def _outcome(claim: Claim, run: LogRun, printed: Decimal) -> Row:
    """Judge a time or an accuracy: the log states it, no rule is needed."""
    value = getattr(run, claim.show, None)
    if value is None:
        return Row(
            claim, "no_log", reason=f"the log has no {claim.show.removesuffix('_s').replace('_', ' ')}"
        )
    value = round(value * 100, 9) if claim.show == "accuracy" else value / claim.seconds
    good = shows(value, printed)
    word, reason = ("reproduced", None) if good else ("contradicted", f"the log has {value:.9g}")
    return Row(claim, word, None, value, reason=reason)


def _speed_up(row: Row, rows: Sequence[Row], rates: Rates) -> Row:
    """Judge a speed-up by the rates that were worked out anew for the rows beside it."""
    printed = row.claim.printed
    if printed is None or row.verdict == "blank":
        return row
    mine, base = (
        next((rows[at].recomputed for at in rates.beside(row.claim, cards)), None)
        for cards in (row.claim.cards, 1)
    )
    if not mine or not base:
        return replace(row, verdict="no_log", reason="no log of both rates")
    value = mine / base
    good = shows(value, printed)
    reason = None if good else f"{mine:.6g} / {base:.6g} is {value:.4g}"
    return replace(row, verdict="reproduced" if good else "contradicted", recomputed=value, reason=reason)


def _searched(claim: Claim, run: LogRun, printed: Decimal) -> Row:
    values: dict[str, float] = {}
    for stage in _stages(run):
        values.update({rule: value for rule in stage if (value := rate(run, rule)) is not None})
        matched = [rule for rule in values if shows(values[rule], printed)]
        if matched:
            return _found(claim, run, printed, values, matched)
    if not values:
        return Row(claim, "no_log", reason="the log holds no figure by any rule", rules_tried=0)
    nearest = min(values, key=lambda rule: abs(values[rule] - float(printed)))
    reason = f"no rule gives it; nearest is {nearest} with {values[nearest]:.6g}"
    return Row(
        claim,
        "contradicted",
        recomputed=values[nearest],
        records=_count(run, nearest),
        rules_tried=len(values),
        rules_matched=0,
        reason=reason,
    )


def _found(
    claim: Claim, run: LogRun, printed: Decimal, values: Mapping[str, float], matched: Sequence[str]
) -> Row:
    rule = matched[0]
    records = _count(run, rule)
    chance = _chance(run, list(values.values()), printed)
    doubts = [
        f"{digits(printed)} digits" if digits(printed) < SHORT else "",
        f"{records} records" if records < FEW else "",
        "a chance match is likely" if chance > CHANCE else "",
    ]
    reason = ", ".join(doubt for doubt in doubts if doubt)
    return Row(
        claim,
        "consistent" if reason else "reproduced",
        rule,
        values[rule],
        records,
        rules_tried=len(values),
        rules_matched=len(matched),
        chance=chance,
        reason=reason or None,
    )


def _chance(run: LogRun, values: Sequence[float], printed: Decimal) -> float:
    """How likely so many rules meet a figure that lies anywhere in the range of what rules give.

    Or near this one, where that is likelier: rules crowd about the rate of a run, and figures do.
    """
    means = [one for one in run.rates.values() if isinstance(one, float)]
    every = {*values, *means, *run.rates.get("summary", {}).values()}
    spread = max(every) - min(every)
    share = min(1.0, window(printed) / spread) if spread else 0.0
    around = max(NEAR * float(abs(printed)), NEAR_LEAST * window(printed))
    near = {round(one / window(printed)) for one in values if abs(one - float(printed)) <= around}
    local = min(1.0, len(near) * window(printed) / (2 * around))
    return float(max(1 - (1 - share) ** len(set(values)), local))


def _stages(run: LogRun) -> Iterator[list[str]]:
    """Rules to try, the usual first: the family's and the log's own, then skips, tails, and odd ones."""
    number = used(run, "mean:skip=0")
    summaries = [f"summary:{key}" for key in run.rates.get("summary", {})]
    yield [run.rule]
    yield summaries
    yield ["mean:skip=0", "harmonic:skip=0", "median:skip=0", "mode"]
    kinds = ("mean", "harmonic", "median", "trim")
    yield [f"{kind}:skip={skip}" for kind in kinds for skip in range(min(number, 11))]
    yield [
        f"{kind}:skip={skip}" for kind in kinds for skip in (*range(11, 21), 50, 100, 200) if skip < number
    ]
    yield [f"mean:tail={tail}" for tail in range(1, min(number, 100) + 1)]
    yield [f"mean:tail={tail}" for tail in range(100, min(number, 10_000) + 1, 50)]


def _count(run: LogRun, rule: str) -> int:
    """How many records a figure rests on; all of them where it is the log's own."""
    return used(run, rule) or len(run.records)
