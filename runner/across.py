"""What is wrong with published figures against each other: in time that grows with them, not their square."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from runner.claims import Claim, Rates
from runner.comparable import Terms, unlike
from runner.model import LogRun
from runner.names import printable
from runner.published import shows

NAMED = 5  # figures or logs that a finding names


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with one or more claims, by their indices, beside their verdicts."""

    code: str
    claims: tuple[int, ...]
    detail: str


def across(claims: Sequence[Claim], runs: Sequence[LogRun | None]) -> list[Finding]:
    """Look at claims, each with the run of its log, all together."""
    return [*_two_values(claims), *_one_log(claims, runs), *_multiples(claims), *_speed_ups(claims)]


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
    """Of the claims that cite one log, those that take one run of it for two settings.

    What a claim does not say is no difference.
    """
    by_run: dict[Hashable, list[int]] = defaultdict(list)
    for at in group:
        run = runs[at]
        by_run[run and (run.family, run.records[0].line if run.records else run.rate)].append(at)
    for same in by_run.values():
        said = zip(*(claims[at].setting[:-1] for at in same), strict=True)
        if any(len({one for one in of_all if one is not None}) > 1 for of_all in said):
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
        if claim.show != "speed_up" or claim.printed is None:
            continue
        many = next(rates.beside(claim, claim.cards), None)
        one = next(rates.beside(claim, 1), None)
        if one is None:  # perhaps it was taken against a rate of another setting
            one = next(rates.beside(replace(claim, precision=None, batch_size=None), 1), None)
        if many is not None and one is not None:
            text = _ratio(claim.printed, claims[many], claims[one])
            if text:
                yield Finding("speedup_wrong", tuple(sorted({at, many, one})), text)


def _ratio(printed: Decimal, many: Claim, one: Claim) -> str | None:
    """What is wrong with a speed-up: not the ratio, or one of two rates that are not like for like."""
    top, base = many.printed, one.printed
    if not top or not base:
        return None
    differ = unlike(_terms(many), _terms(one))
    words = [f"{key.replace('_', ' ')} {getattr(many, key)} with {getattr(one, key)}" for key in differ]
    if shows(float(top / base), printed):
        return f"{printed}, {top} / {base}, compares {' and '.join(words)}" if words else None
    return None if words else f"{printed} published, {top} / {base} is {float(top / base):.4g}"


def _terms(claim: Claim) -> Terms:
    return Terms(precision=(claim.precision or "").lower() or None, batch_size=claim.batch_size)
