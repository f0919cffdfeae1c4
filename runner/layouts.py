"""The shape of a published report, as a file under ``reports/references/`` states it.

The published figures in it are there to be compared with: no figure that is shown comes from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runner.errors import UsageError
from runner.messages import LANGUAGES
from runner.names import hint, shown
from runner.published import figure
from runner.rates import parse_rule
from runner.records import decode

BLANK = "-"
BLANKS = (BLANK, "--", "\u2014\u2014")  # how publications show that there is no figure
PARTS = ("gpu", "driver", "cpu", "memory")  # of hosts, in which figures must not differ to be like for like
FIGURES = ("rate", "time_to_train_s", "time_to_target_s", "accuracy", "speed_up")

Text = Mapping[str, str]  # language to words


@dataclass(frozen=True, slots=True)
class Source:
    """Where the report was published."""

    repository: str
    commit: str
    path: str


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the published environment.

    Where it speaks of hosts, ``part`` is one of PARTS, and ``cards`` the numbers of cards that ran on them;
    none where all did.
    """

    item: Text
    value: str
    part: str = ""
    cards: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """One line of the published list of logs: its words, and the path that it leads to, if any."""

    item: Text
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """Which of FIGURES a column shows, and of which setting; headed like ``FP32(BS=256)`` by default.

    ``family`` is that of its logs where it is not the layout's: a column of another framework.
    """

    show: str = "rate"
    precision: str | None = None
    batch_size: int | None = None
    heading: Mapping[str, str] | None = None
    family: str | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """One published figure, or one of BLANKS; its log, the rule that gives it, how it is shown.

    A blank figure may name a log too: the one that fills the cell where somebody measures it. Of ``log`` and
    ``aliases`` the first that is there counts. ``format`` is ``.2f``, ``,.0f`` or ``.6g`` as Python writes
    numbers, or ``.2t``: cut off after two decimals, where the publication did so. Without a rule the log
    family's own holds.
    """

    published: str = BLANK
    log: str | None = None
    aliases: tuple[str, ...] = ()
    rule: str | None = None
    format: str = ".2f"


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of one number of cards, one per column; headed by that number by default."""

    cards: int
    cells: tuple[Reference, ...]
    precision: str | None = None
    batch_size: int | None = None
    heading: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """One published table; ``corner`` heads the column of its row headings."""

    title: Text
    corner: Text
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """One published report, of logs of one ``family`` about one ``model``, in the words of the parsers."""

    title: Text
    source: Source
    family: str
    model: str
    tables: tuple[Grid, ...]
    environment: tuple[Fact, ...] = ()
    logs: tuple[Link, ...] = ()

    @property
    def is_blank(self) -> bool:
        """Whether nothing was published but the shape."""
        return all(cell.published in BLANKS for cell in _cells(self))

    def hardware(self, cards: int) -> dict[str, str]:
        """What the publication says of the hosts that so many cards ran on, by part."""
        said = [fact for fact in self.environment if fact.part and (not fact.cards or cards in fact.cards)]
        return {fact.part: fact.value for fact in said}

    def names(self, log: str) -> set[str]:
        """Give every name of the log that was published as ``log``."""
        return {log}.union(*(cell.aliases for cell in _cells(self) if cell.log == log))


def _cells(layout: Layout) -> list[Reference]:
    return [cell for grid in layout.tables for row in grid.rows for cell in row.cells]


def load(document: Any, place: str) -> Layout:
    """Make a layout of the data of a reference file. Raises UsageError, one line with ``place`` and key."""
    layout = decode(Layout, document, place)
    for key, text in _texts(layout):
        if set(text) != set(LANGUAGES):
            raise UsageError(
                f"{place}: {key}: needs its words in {' and '.join(LANGUAGES)}, no more and no less"
            )
    for number, fact in enumerate(layout.environment):
        if fact.part and fact.part not in PARTS:
            key = f"{place}: environment[{number}].part"
            raise UsageError(f"{key}: {shown(fact.part)} is no part of a host; {hint(fact.part, PARTS)}")
    for number, grid in enumerate(layout.tables):
        _check(grid, f"{place}: tables[{number}]")
    return layout


def _texts(layout: Layout) -> Iterator[tuple[str, Text]]:
    yield "title", layout.title
    for number, fact in enumerate(layout.environment):
        yield f"environment[{number}].item", fact.item
    for number, link in enumerate(layout.logs):
        yield f"logs[{number}].item", link.item
    for number, grid in enumerate(layout.tables):
        key = f"tables[{number}]"
        yield f"{key}.title", grid.title
        yield f"{key}.corner", grid.corner
        headed = [(f"columns[{place}]", one.heading) for place, one in enumerate(grid.columns)]
        headed += [(f"rows[{place}]", one.heading) for place, one in enumerate(grid.rows)]
        yield from ((f"{key}.{part}.heading", text) for part, text in headed if text is not None)


def _check(grid: Grid, key: str) -> None:
    for number, column in enumerate(grid.columns):
        here = f"{key}.columns[{number}]"
        if column.show not in FIGURES:
            raise UsageError(f"{here}.show: {shown(column.show)} is no figure; {hint(column.show, FIGURES)}")
        if column.heading is None and (column.precision is None or column.batch_size is None):
            raise UsageError(f"{here}: needs a heading, or both precision and batch_size")
    shows = [column.show for column in grid.columns]
    if "speed_up" in shows and shows.count("rate") != 1:
        raise UsageError(
            f"{key}.columns: speed_up needs one column of rates; {shows.count('rate')} are there"
        )
    for number, row in enumerate(grid.rows):
        here = f"{key}.rows[{number}].cells"
        if len(row.cells) != len(grid.columns):
            raise UsageError(f"{here}: {len(row.cells)} of them for {len(grid.columns)} columns")
        for place, cell in enumerate(row.cells):
            _check_cell(cell, shows[place], f"{here}[{place}]")


def _check_cell(cell: Reference, show: str, key: str) -> None:
    if cell.published not in BLANKS and figure(cell.published) is None:
        raise UsageError(f"{key}.published: {shown(cell.published)}; write a number, or - or -- for a blank")
    if show == "speed_up" and (cell.log or cell.aliases or cell.rule):
        raise UsageError(f"{key}: a speed_up is taken from the rates; leave log, aliases and rule out")
    if not re.fullmatch(r",?\.\d{1,2}[fg]|\.\d{1,2}t", cell.format, re.ASCII):
        raise UsageError(f"{key}.format: {shown(cell.format)}; write .2f, ,.0f, .6g or .2t")
    try:
        parse_rule(cell.rule or "mode")
    except UsageError as error:
        raise UsageError(f"{key}: {error}") from error
