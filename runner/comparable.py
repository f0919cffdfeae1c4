"""Whether two figures are like for like: the one answer for speed-ups, tables and ``compare``.

A ratio of figures hides in what else they differ. What is not known of one of them is no difference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from runner.messages import Messages
from runner.model import LogRun
from runner.names import printable
from runner.parsers import same_precision

REASONS = ("batch_size", "precision", "unit", "hardware", "averaging", "mode", "date")
MARK = "\N{DOUBLE DAGGER}"  # marks a ratio of figures that are not like for like

_FIRST_STAMP = 1e9  # seconds; a time of a record below it counts from the start of the training
_LAST_STAMP = 1e10

Unlike = Mapping[str, tuple[str, str]]  # reason to what the one has and what the other


@dataclass(frozen=True, slots=True)
class Terms:
    """How a figure came about, as far as that is known; ``batch_size`` is per card.

    ``rule`` is how records became the figure, ``hardware`` says of parts (gpu, driver, cpu, memory) what they
    are, ``date`` is a day, as 2031-05-06.
    """

    rule: str | None = None
    unit: str | None = None
    precision: str | None = None
    batch_size: int | None = None
    hardware: Mapping[str, str] = field(default_factory=dict)
    mode: str | None = None
    date: str | None = None


def unlike(one: Terms, other: Terms) -> Unlike:
    """Say in what two figures differ that a ratio of them would hide, in the order of REASONS."""
    plain = {
        "batch_size": (one.batch_size, other.batch_size),
        "unit": (one.unit, other.unit),
        "averaging": (one.rule, other.rule),
        "mode": (one.mode, other.mode),
        "date": (one.date, other.date),
    }
    found = {key: (str(a), str(b)) for key, (a, b) in plain.items() if a and b and a != b}
    if one.precision and other.precision and not same_precision(one.precision, other.precision):
        found["precision"] = (one.precision, other.precision)
    if parts := _parts(one.hardware, other.hardware):
        first, second = (
            ", ".join(f"{part} {has[part]}" for part in parts) for has in (one.hardware, other.hardware)
        )
        found["hardware"] = (first, second)
    return {reason: found[reason] for reason in REASONS if reason in found}


def why(differences: Unlike, say: Messages) -> str:
    """Put differences in words: ``averaging (mean:skip=5 / summary), date (2031-05-06 / 2031-05-07)``."""
    return ", ".join(
        f"{say(reason)} ({printable(one)} / {printable(other)})"
        for reason, (one, other) in differences.items()
    )


def hardware(gpu: str | None, driver: str | None, **others: str) -> dict[str, str]:
    """Put together what is known of the parts."""
    known = {"gpu": gpu, "driver": driver, **others}
    return {part: said for part, said in known.items() if said}


def day(run: LogRun) -> str | None:
    """The day of the first record; None where the log says none. Logs name no time zone."""
    time = run.records[0].time if run.records else None
    if time is None or not _FIRST_STAMP <= time < _LAST_STAMP:
        return None
    return datetime.fromtimestamp(time, UTC).date().isoformat()


def _parts(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return [part for part, said in one.items() if part in other and not _same(part, said, other[part])]


def _same(part: str, one: str, other: str) -> bool:
    """Whether two names may be of one thing; a card by its model alone may be any of that model."""
    if part != "gpu":
        return one == other
    words, more = (
        set(re.split(r"[^a-z0-9]+", name.lower())) - {"nvidia", "tesla", ""} for name in (one, other)
    )
    return words <= more or more <= words
