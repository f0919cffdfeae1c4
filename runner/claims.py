"""What a publication says: one claim per figure, and how it is read from the rows of a table."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from heapq import merge

from runner.errors import UsageError
from runner.names import hint, shown
from runner.parsers import families
from runner.published import figure, undressed
from runner.rates import parse_rule

_NO_MODEL = re.compile(
    r"\b\d+ ?gi?b?\b|\b\d+ ?[x\u00d7*]|(?<=\d) ?[x\u00d7*] ?\d+\b|\bsxm\d?\b|rtx|gtx", re.ASCII
)
NEEDED = ("log", "published")
_SECONDS = {
    **dict.fromkeys(("s", "sec", "seconds"), 1),
    **dict.fromkeys(("min", "minutes"), 60),
    **dict.fromkeys(("h", "hours"), 3600),
}
_SHOWS = {
    **dict.fromkeys(("x", "times", "speedup", "speed-up"), "speed_up"),
    **dict.fromkeys(_SECONDS, "time_to_train_s"),
    "%": "accuracy",
}
COLUMNS = (
    *NEEDED,
    *("family", "framework", "model", "hardware", "cards", "precision", "batch_size", "unit"),
    *("rule_expr", "rule", "recomputed"),  # the last two are for people
)


@dataclass(frozen=True, slots=True)
class Claim:
    """One published figure. Text is as published; what the publication does not say is None.

    ``rule`` is None where it is to be found. ``place`` says where it stands: a line of a file.
    """

    place: str
    log: str
    published: str
    unit: str | None = None
    rule: str | None = None
    family: str | None = None
    framework: str | None = None
    model: str | None = None
    hardware: str | None = None
    cards: int | None = None
    precision: str | None = None
    batch_size: int | None = None

    @property
    def show(self) -> str:
        """What the figure is, by its unit: ``rate time_to_train_s accuracy speed_up``."""
        return _SHOWS.get((self.unit or "").strip().lower(), "rate")

    @property
    def seconds(self) -> int:
        """How many seconds the unit of a time has."""
        return _SECONDS.get((self.unit or "").strip().lower(), 1)

    @property
    def printed(self) -> Decimal | None:
        """The published figure; None where it cannot be read as one."""
        return figure(undressed(self.published, self.show))

    @property
    def setting(self) -> tuple[object, ...]:
        """What two claims must share to speak of the same result: all but log, rule and figure."""
        kind = _lower(self.precision)
        return (
            *(_lower(one) for one in (self.model, self.framework, self.hardware)),
            *(self.cards, "amp" if kind == "fp16" else kind, self.batch_size, _lower(self.unit)),
        )

    def beside(self, other: Claim) -> bool:
        """Whether two claims are of one setting but for cards and unit, as far as they say."""
        pairs = list(zip(self.setting, other.setting, strict=True))
        return all(None in pair or pair[0] == pair[1] for pair in (*pairs[:3], *pairs[4:-1]))


class Rates:
    """The rates among claims, by cards and model, so that those beside a speed-up are found at once."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        self._claims = claims
        self._at: dict[Hashable, list[int]] = defaultdict(list)
        for at, claim in enumerate(claims):
            if claim.show == "rate":
                self._at[claim.cards].append(at)
                self._at[claim.cards, claim.setting[0]].append(at)

    def beside(self, claim: Claim, cards: int | None) -> Iterator[int]:
        """Indices of the rates of so many cards that are of the setting of ``claim``, in order."""
        model = claim.setting[0]
        keys: list[Hashable] = [cards] if model is None else [(cards, model), (cards, None)]
        every = merge(*(self._at.get(key, ()) for key in keys))
        return (at for at in every if claim.beside(self._claims[at]))


def claims(rows: Sequence[tuple[int, Mapping[str, str]]], place: str) -> list[Claim]:
    """Make a claim of each row, given with its line. Raises UsageError with ``place``, line and column."""
    return [_claim(row, f"{place}: line {line}") for line, row in rows]


def _claim(row: Mapping[str, str], place: str) -> Claim:
    said = {key: text.strip() for key, text in row.items() if text and text.strip()}
    family, rule = said.get("family"), said.get("rule_expr")
    if family is not None and family not in families():
        raise UsageError(f"{place}: family {shown(family)}: unknown; {hint(family, families())}")
    if rule is not None:
        try:
            parse_rule(rule)
        except UsageError as error:
            raise UsageError(f"{place}: {error}") from error
    return Claim(
        place=place,
        log=said.get("log", ""),
        published=said.get("published", ""),
        unit=said.get("unit"),
        rule=rule,
        family=family,
        framework=said.get("framework"),
        model=said.get("model"),
        hardware=said.get("hardware"),
        cards=_count(said, "cards", place),
        precision=said.get("precision"),
        batch_size=_count(said, "batch_size", place),
    )


def _count(said: Mapping[str, str], key: str, place: str) -> int | None:
    text = said.get(key)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or int(text) == 0:
        raise UsageError(f"{place}: {key} {shown(text)}: must be a whole number from 1 on")
    return int(text)


def _lower(text: str | None) -> str | None:
    return text.strip().lower() if text else None


def same_hardware(claimed: str, found: str) -> bool:
    """Whether two names may be of the same card: they share a model, such as V100, or one names none."""
    one, other = _models(claimed), _models(found)
    return not one or not other or bool(one & other)


def _models(name: str) -> set[str]:
    """The models of cards in a name: words with digits that are no memory, count or socket."""
    words = re.split(r"[^a-z0-9]+", _NO_MODEL.sub(" ", name.lower()))
    return {word for word in words if re.search(r"[a-z]\d|\d{3}", word)}
