"""What is wrong with published figures beside their verdicts: each by itself, and against each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations

from runner.claims import Claim
from runner.model import LogRun
from runner.names import printable
from runner.parsers import same_precision
from runner.published import decimals, figure, shows
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


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with one or more claims, by their indices, beside their verdicts."""

    code: str
    claims: tuple[int, ...]
    detail: str


def findings(rows: Sequence[Row], runs: Sequence[LogRun | None]) -> list[Finding]:
    """Look at judged claims, each with the run of its log; in the order of the claims."""
    claims = [row.claim for row in rows]
    found = [
        Finding(code, (at,), detail)
        for at, (row, run) in enumerate(zip(rows, runs, strict=True))
        if run is not None
        for code, detail in (*_against_log(row.claim, run), *_of_log(run), *_of_figure(row, run))
    ]
    found += [*_two_values(claims), *_one_log(claims, runs), *_multiples(claims), *_speed_ups(claims)]
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
    if claim.hardware and run.gpu and not _same_hardware(claim.hardware, run.gpu):
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
    printed = figure(row.claim.published)
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


# --- findings across claims ------------------------------------------------------------------


def _two_values(claims: Sequence[Claim]) -> Iterator[Finding]:
    for (at, one), (other, another) in combinations(enumerate(claims), 2):
        figures = figure(one.published), figure(another.published)
        if None in figures or one.setting != another.setting or figures[0] == figures[1]:
            continue
        if one.log == another.log or None not in (one.model, one.cards):
            text = f"the same result as {one.published} and as {another.published}"
            yield Finding("two_values", (at, other), text)


def _one_log(claims: Sequence[Claim], runs: Sequence[LogRun | None]) -> Iterator[Finding]:
    for (at, run), (other, twin) in combinations(enumerate(runs), 2):
        if run is None or twin is None or run.sha256 is None or run.sha256 != twin.sha256:
            continue
        if claims[at].log != claims[other].log:
            text = (
                f"{printable(claims[at].log)} and {printable(claims[other].log)} are byte for byte the same"
            )
            yield Finding("same_log_twice", (at, other), text)
        elif claims[at].setting[:-1] != claims[other].setting[:-1] and run == twin:
            yield Finding("same_log_twice", (at, other), "one run published under two settings")


def _multiples(claims: Sequence[Claim]) -> Iterator[Finding]:
    """A figure of many cards that is, to its last digit, that of fewer times their ratio."""
    for (at, one), (other, another) in combinations(enumerate(claims), 2):
        (few, less), (many, more) = sorted(((at, one), (other, another)), key=lambda pair: pair[1].cards or 0)
        small, large = figure(less.published), figure(more.published)
        if not small or not large or not less.cards or not more.cards or less.cards == more.cards:
            continue
        if less.show != "rate":
            continue
        alike = (*less.setting[:3], *less.setting[4:]) == (*more.setting[:3], *more.setting[4:])
        if alike and more.cards % less.cards == 0 and small * (more.cards // less.cards) == large:
            text = f"{large} is {more.cards // less.cards} x {small}, to the last digit"
            yield Finding("exact_multiple", tuple(sorted((few, many))), text)


def _speed_ups(claims: Sequence[Claim]) -> Iterator[Finding]:
    """Claims in units of times, against the rates beside them."""
    rates = [one for one in enumerate(claims) if one[1].show == "rate"]
    for at, claim in enumerate(claims):
        printed = figure(claim.published)
        if printed is None or claim.show != "speed_up":
            continue
        same = [pair for pair in rates if claim.beside(pair[1])]
        many = [pair for pair in same if pair[1].cards == claim.cards]
        one = [pair for pair in same if pair[1].cards == 1]
        if not many or not one:
            continue
        top, base = figure(many[0][1].published), figure(one[0][1].published)
        if top and base and not shows(float(top / base), printed):
            text = f"{printed} published, {top} / {base} is {float(top / base):.4g}"
            yield Finding("speedup_wrong", tuple(sorted((at, many[0][0], one[0][0]))), text)


def _same_hardware(claimed: str, found: str) -> bool:
    """Whether a model of card, such as V100, is one word of the name that the log has."""
    words = _words(found)
    return any(word in words for word in _words(claimed) if any(letter.isdigit() for letter in word))


def _words(text: str) -> list[str]:
    return re.split(r"[^a-z0-9]+", text.lower())
