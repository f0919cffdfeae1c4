"""One cell of a layout: what it is to show, what it shows, and how that is written."""

from __future__ import annotations

from decimal import ROUND_DOWN, Decimal
from typing import NamedTuple

from runner.comparable import Terms
from runner.layouts import BLANK, BLANKS, Reference
from runner.messages import Messages
from runner.model import Evidence
from runner.published import figure, shows
from runner.readings import Wanted

FILLED = "\N{DAGGER}"  # marks a figure from a log that the publication does not name


class Cell(NamedTuple):
    """One cell of a layout with everything its row and column say."""

    row: int
    column: int
    wanted: Wanted
    reference: Reference

    @property
    def blank(self) -> str:
        """What stands here without a figure: the publication's own blank, where it had one."""
        return self.reference.published if self.published is None else BLANK

    @property
    def published(self) -> str | None:
        """The published figure; None where it was blank."""
        return None if self.reference.published in BLANKS else self.reference.published


class Figure(NamedTuple):
    """What a cell shows, what must be said of it, its evidence; whether the log is the published one."""

    text: str
    notes: tuple[str, ...] = ()
    evidence: Evidence | None = None
    named: bool = False
    terms: Terms = Terms()


def in_format(value: float, form: str) -> str:
    """Write a figure in the format of a Reference."""
    if not form.endswith("t"):
        return format(value, form)
    return str(Decimal(repr(value)).quantize(Decimal(1).scaleb(-int(form[1:-1])), ROUND_DOWN))


def difference(cell: Cell, evidence: Evidence, say: Messages) -> tuple[str, ...]:
    """Say where a figure is not the published one: neither rounded to its digits, nor cut off, nor %.6g."""
    printed = None if evidence.published is None else figure(evidence.published)
    if printed is None or shows(evidence.value, printed):
        return ()
    shown = {"published": evidence.published, "shown": evidence.shown}
    return (say("differs", cell=cell.wanted.place, **shown),)
