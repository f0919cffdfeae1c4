"""What is wrong with published figures beside their verdicts: each by itself, and against each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from runner.claims import Claim, Rates, same_hardware
from runner.model import LogRun
from runner.names import printable
from runner.parsers import same_precision
from runner.published import decimals, shows
from runner.rates import FEW, all_cards, parse_rule, scale_of, select

LULL = 0.95  # of the fastest record so far: a start that falls below it has stalled
NAMED = 5  # figures or logs that a finding names


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
    outside = dict(_outside(run))
    positions = _positions(run, rule)
    for code, reasons in (
        ("includes_warm_up", ("warm_up",)),
        ("includes_stall", ("stall", "epoch_boundary", "partial_interval")),
    ):
        hit = [at for at in positions if outside.get(at) in reasons]
        if hit:
            yield code, f"{len(hit)} of {len(positions)} records, the first is record {hit[0]}"


def _outside(run: LogRun) -> Iterator[tuple[int, str]]:
    """The records outside the steady part, and why; slow ones of a start that gets faster are no stall."""
    steady, scale, fastest = run.steady or {}, scale_of(run), 0.0
    for one in steady.get("left_out", ()):
        at, reason = one["record"], one["reason"]
        value = next(iter(all_cards((run.records[at],), run.scope, scale)), 0.0)
        rises = at < steady["first"] and value >= LULL * fastest
        yield at, "warm_up" if reason == "stall" and rises else reason
        fastest = max(fastest, value)


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
    """One result with figures that no rounding makes the same."""
    groups: dict[Hashable, list[tuple[int, Decimal]]] = defaultdict(list)
    for at, claim in enumerate(claims):
        value = claim.printed
        if value is not None:
            log = claim.log if None in (claim.model, claim.cards) else None
            groups[claim.setting, log].append((at, value))
    for group in groups.values():
        printed = _apart(value for _, value in group)
        if len(printed) > 1:
            same = [at for at, value in group if any(one is value or one == value for one in printed)]
            words = [f"as {claims[at].published}" for at in same][:NAMED]
            yield Finding("two_values", tuple(same), f"the same result {' and '.join(dict.fromkeys(words))}")


def _apart(printed: Iterable[Decimal]) -> set[Decimal]:
    """The figures without those that are only another one with fewer digits."""
    kept: list[Decimal] = []
    for value in sorted(set(printed)):
        if kept and shows(float(value), kept[-1]):
            kept[-1] = value
        elif not (kept and shows(float(kept[-1]), value)):
            kept.append(value)
    return set(kept)


def _one_log(claims: Sequence[Claim], runs: Sequence[LogRun | None]) -> Iterator[Finding]:
    """Logs of two names that are the same, and runs that stand for two settings."""
    groups: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for at, run in enumerate(runs):
        if run is not None and run.sha256 is not None:
            groups[run.sha256][claims[at].log].append(at)
    for names in groups.values():
        if len(names) > 1:
            text = " and ".join(printable(name) for name in list(names)[:NAMED])
            every = tuple(sorted(at for group in names.values() for at in group))
            yield Finding("same_log_twice", every, f"{text} are byte for byte the same")
        for group in names.values():
            yield from _two_settings(group, claims, runs)


def _two_settings(
    group: Sequence[int], claims: Sequence[Claim], runs: Sequence[LogRun | None]
) -> Iterator[Finding]:
    """Of the claims that cite one log, those that take one run of it for two settings."""
    by_run: dict[Hashable, list[int]] = defaultdict(list)
    for at in group:
        run = runs[at]
        by_run[run and (run.family, run.records[0].line if run.records else run.rate)].append(at)
    for same in by_run.values():
        if len({claims[at].setting[:-1] for at in same}) > 1:
            yield Finding("same_log_twice", tuple(same), "one run published under two settings")


def _multiples(claims: Sequence[Claim]) -> Iterator[Finding]:
    """A figure of many cards that is, to its last digit, that of fewer times their ratio."""
    groups: dict[Hashable, dict[int, tuple[int, Decimal]]] = defaultdict(dict)
    for at, claim in enumerate(claims):
        value = claim.printed
        if value and claim.cards and claim.show == "rate":
            alike = (*claim.setting[:3], *claim.setting[4:])
            groups[alike, Fraction(value) / claim.cards].setdefault(claim.cards, (at, value))
    for group in groups.values():
        (less, (few, small)), *others = sorted(group.items())
        for more, (many, large) in others:
            if more % less == 0:
                text = f"{large} is {more // less} x {small}, to the last digit"
                yield Finding("exact_multiple", tuple(sorted((few, many))), text)


def _speed_ups(claims: Sequence[Claim]) -> Iterator[Finding]:
    """Claims in units of times, against the rates beside them."""
    rates = Rates(claims)
    for at, claim in enumerate(claims):
        printed = claim.printed
        if printed is None or claim.show != "speed_up":
            continue
        many, one = next(rates.beside(claim, claim.cards), None), next(rates.beside(claim, 1), None)
        if many is None or one is None:
            continue
        top, base = claims[many].printed, claims[one].printed
        if top and base and not shows(float(top / base), printed):
            text = f"{printed} published, {top} / {base} is {float(top / base):.4g}"
            yield Finding("speedup_wrong", tuple(sorted({at, many, one})), text)
