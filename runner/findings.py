"""What is wrong with published figures beside their verdicts: each by itself, and against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from runner.across import Finding, across
from runner.claims import Claim, same_hardware
from runner.model import LogRun
from runner.names import printable
from runner.parsers import same_precision
from runner.published import decimals, shows
from runner.rates import FEW, all_cards, parse_rule, scale_of, select


@dataclass(frozen=True, slots=True)
class Row:
    """The verdict on one claim. ``rules_tried``, ``rules_matched`` and ``chance`` are of a search, else None.

    ``chance``: how likely one of so many rules meets such a figure anywhere in the range of their values.
    """

    claim: Claim
    verdict: str
    rule: str | None = None
    recomputed: float | None = None
    records: int | None = None
    rules_tried: int | None = None
    rules_matched: int | None = None
    chance: float | None = None
    reason: str | None = None
    findings: tuple[str, ...] = ()


def findings(rows: Sequence[Row], runs: Sequence[LogRun | None]) -> list[Finding]:
    """Look at judged claims, each with the run of its log; in the order of the claims."""
    claims = [row.claim for row in rows]
    found = [
        Finding(code, (at,), detail)
        for at, (row, run) in enumerate(zip(rows, runs, strict=True))
        if run is not None
        for code, detail in (*_against_log(row.claim, run), *_of_log(run), *_of_figure(row, run))
    ]
    found += across(claims, runs)
    return sorted(found, key=lambda one: one.claims)


# --- findings of one claim -------------------------------------------------------------------


def _against_log(claim: Claim, run: LogRun) -> Iterator[tuple[str, str]]:
    """What the claim says of its run and the log says otherwise."""
    for code, said, found in (
        ("cards_differ", claim.cards, run.cards),
        ("batch_differs", claim.batch_size, run.batch_size),
    ):
        if said is not None and found is not None and said != found:
            yield code, f"published for {said}, the log has {found}"
    mine = (claim.precision or "").lower()
    if mine and run.precision and not same_precision(mine, run.precision):
        text = f"published as {printable(claim.precision or mine)}, the log has {run.precision}"
        yield "precision_differs", text
    if claim.hardware and run.gpu and not same_hardware(claim.hardware, run.gpu):
        text = f"published for {printable(claim.hardware)}, the log has {printable(run.gpu)}"
        yield "hardware_differs", text


def _of_log(run: LogRun) -> Iterator[tuple[str, str]]:
    for problem in run.problems:
        if problem.code in ("nan_loss", "not_machine_output"):
            line = "" if problem.line is None else f"line {problem.line}: "
            yield problem.code, line + problem.detail


def _of_figure(row: Row, run: LogRun) -> Iterator[tuple[str, str]]:
    """What the figure rests on, and whether it was multiplied after it had been rounded."""
    if row.claim.show != "rate":
        return
    if row.records is not None and row.records < FEW:
        yield "few_records", f"it rests on {row.records} records"
    if row.rule is not None and row.verdict != "contradicted":
        yield from _included(run, row.rule)
    printed = row.claim.printed
    cards = run.cards or 1
    if printed is None or cards == 1:
        return
    for value in dict.fromkeys(one for one in (row.recomputed, run.rate) if one is not None):
        each = _rounded_before(value / cards, cards, printed)
        if each is not None and not shows(value, printed):
            yield "exact_multiple", f"{cards} x {each}, which is {value / cards:.6g} rounded"
            return


def _rounded_before(each: float, cards: int, printed: Decimal) -> Decimal | None:
    """The rate of one card, rounded so far that a multiple of it shows, where ``printed`` is one."""
    for places in range(4):
        rounded = Decimal(f"{each:.{places}f}")
        coarse = Decimal(cards).scaleb(-places) > Decimal(1).scaleb(-decimals(printed))
        if coarse and rounded * cards == printed:
            return rounded
    return None


def _included(run: LogRun, rule: str) -> Iterator[tuple[str, str]]:
    """Warm-up and stalls among the records that the rule works on, as the steady rate found them."""
    outside = {one["record"]: one["reason"] for one in (run.steady or {}).get("left_out", ())}
    positions = _positions(run, rule)
    for code, reasons in (
        ("includes_warm_up", ("warm_up",)),
        ("includes_stall", ("stall", "epoch_boundary", "partial_interval")),
    ):
        hit = [at for at in positions if outside.get(at) in reasons]
        if hit:
            yield code, f"{len(hit)} of {len(positions)} records, the first is record {hit[0]}"


def _positions(run: LogRun, rule: str) -> list[int]:
    """Indices of the records that a rule works on; of a trimmed mean, of those before the trimming."""
    parsed = parse_rule(rule)
    if parsed.kind in ("summary", "mode", "median", "trim"):
        return []  # which do not feel them, or are not ours
    scale = scale_of(run)
    rated = [at for at, one in enumerate(run.records) if all_cards((one,), run.scope, scale)]
    return [int(at) for at in select(parsed, rated)]
