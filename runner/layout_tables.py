"""What logs give under the rules of a layout, in the shape of the publication, each figure with its evidence.

A cell without its log stays blank; so does one whose log contradicts it, with a note that says how.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_DOWN, Decimal
from typing import NamedTuple

from runner.layout_lists import lists
from runner.layouts import BLANK, BLANKS, Column, Grid, Layout, Reference
from runner.messages import Messages, messages
from runner.model import Evidence, LogRun, Table
from runner.rates import all_cards, parse_rule, scale_of, select, used
from runner.readings import Choice, Reading, Wanted, choose, rule_of
from runner.tables import heading

FILLED = "\N{DAGGER}"  # marks a figure from a log that the publication does not name


class _Cell(NamedTuple):
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


class _Figure(NamedTuple):
    """What a cell shows, what must be said of it, its evidence; whether the log is the published one."""

    text: str
    notes: tuple[str, ...] = ()
    evidence: Evidence | None = None
    named: bool = False


def tables_of(
    layout: Layout, readings: Sequence[Reading], language: str = "en", fill: bool = False
) -> list[Table]:
    """Make the tables of a layout from the logs at hand.

    The published tables come first, then where each figure comes from, the published environment and list of
    logs, and the logs that gave nothing. ``fill``: a cell that would stay blank is filled, and marked, from
    the one log of its family, model, cards, precision and batch size, whatever that log is called.
    """
    say = messages(language)
    made = [_grid(layout, grid, readings, fill, say) for grid in layout.tables]
    source = layout.source
    place = f"{source.repository}, {source.path}, {source.commit[:12]}"
    made = [replace(table, notes=(*table.notes, say("source", place=place))) for table in made]
    return [*made, *lists(layout, readings, made, say)]


def _grid(layout: Layout, grid: Grid, readings: Sequence[Reading], fill: bool, say: Messages) -> Table:
    cells = [
        [_cell(layout, grid, row, column, say) for column in range(len(grid.columns))]
        for row in range(len(grid.rows))
    ]
    figures = [[_figure(cell, readings, fill, say) for cell in line] for line in cells]
    figures = _with_speed_ups(grid, cells, figures, say)
    heads = [row.heading[say.language] if row.heading else str(row.cards) for row in grid.rows]
    flat = [pair for pairs in zip(cells, figures, strict=True) for pair in zip(*pairs, strict=True)]
    absent = sum(cell.published is not None and not any(figure[1:]) for cell, figure in flat)
    return Table(
        title=grid.title[say.language],
        columns=(grid.corner[say.language], *(_heading(column, say) for column in grid.columns)),
        rows=tuple((head, *(one.text for one in line)) for head, line in zip(heads, figures, strict=True)),
        notes=(
            *(note for _, one in flat for note in one.notes),
            *([say("absent", n=absent)] if absent else []),
        ),
        evidence=tuple(one.evidence for _, one in flat if one.evidence),
    )


def _cell(layout: Layout, grid: Grid, at: int, place: int, say: Messages) -> _Cell:
    row, column = grid.rows[at], grid.columns[place]
    reference = row.cells[place]
    wanted = Wanted(
        place=say("cell", cards=row.cards, setting=_heading(column, say)),
        show=column.show,
        cards=row.cards,
        precision=row.precision or column.precision,
        batch_size=row.batch_size or column.batch_size,
        family=column.family or layout.family,
        model=layout.model,
        names=tuple(name for name in (reference.log, *reference.aliases) if name),
        rule=reference.rule,
    )
    return _Cell(at, place + 1, wanted, reference)


def _heading(column: Column, say: Messages) -> str:
    if column.heading is not None:
        return column.heading[say.language]
    return heading(column.precision or "", column.batch_size or 0)  # a layout without both does not load


def _figure(cell: _Cell, readings: Sequence[Reading], fill: bool, say: Messages) -> _Figure:
    if cell.wanted.show == "speed_up":
        return _Figure(cell.blank)
    choice, notes = choose(cell.wanted, readings, fill, say)
    if choice is None:
        return _Figure(cell.blank, notes)
    evidence = _evidence(cell, choice)
    if choice.named:
        notes = (*notes, *_difference(cell, evidence, say))
    return _Figure(evidence.shown, notes, evidence, choice.named)


def _evidence(cell: _Cell, choice: Choice) -> Evidence:
    wanted, run, rule = cell.wanted, choice.run, rule_of(cell.wanted, choice.run)
    lines = _window(run, rule) if rule else ()
    return Evidence(
        *(cell.row, cell.column, wanted.cards, wanted.precision, wanted.batch_size),
        shown=_shown(choice.value, cell.reference.format) + FILLED * choice.filled,
        value=choice.value,
        published=cell.published,
        logs=(choice.reading.name,),
        sha256=(choice.reading.sha256,),
        rule=rule,
        records=used(run, rule) if rule else 0,
        found=len(run.records) if lines else 0,
        lines=lines,
        problems=tuple(dict.fromkeys(problem.code for problem in run.problems)),
        filled=choice.filled,
    )


def _window(run: LogRun, rule: str) -> tuple[int, ...]:
    """First and last line of the records that a rule looks at; a trimmed mean leaves some of them out."""
    parsed = parse_rule(rule)
    if parsed.kind == "summary":
        return ()
    rated = [one.line for one in run.records if all_cards((one,), run.scope, scale_of(run))]
    lines = select(parsed._replace(kind="mean"), rated)
    return (int(lines[0]), int(lines[-1])) if lines else ()


def _with_speed_ups(
    grid: Grid, cells: Sequence[Sequence[_Cell]], figures: Sequence[Sequence[_Figure]], say: Messages
) -> list[list[_Figure]]:
    """Put in the speed-ups, which need all rates of their table."""
    shows = [column.show for column in grid.columns]
    rates = [line[shows.index("rate")] for line in figures] if "speed_up" in shows else []  # see layouts
    return [
        [
            _speed_up(cell, rates[row], rates, say) if cell.wanted.show == "speed_up" else figure
            for cell, figure in zip(cells[row], line, strict=True)
        ]
        for row, line in enumerate(figures)
    ]


def _speed_up(cell: _Cell, mine: _Figure, rates: Sequence[_Figure], say: Messages) -> _Figure:
    """Take the rate of a row over that of one card of its setting; one card itself stays blank."""
    own = mine.evidence
    if own is None or own.cards == 1:
        return _Figure(cell.blank)
    setting = (1, own.precision, own.batch_size)
    known = [(rate.evidence, rate.named) for rate in rates if rate.evidence is not None]
    ones = [pair for pair in known if (pair[0].cards, pair[0].precision, pair[0].batch_size) == setting]
    if not ones or not ones[0][0].value:
        return _Figure(cell.blank)
    one, named = ones[0][0], ones[0][1] and mine.named
    value, filled = own.value / one.value, own.filled or one.filled
    evidence = Evidence(
        *(cell.row, cell.column, own.cards, own.precision, own.batch_size),
        shown=_shown(value, cell.reference.format) + FILLED * filled,
        value=value,
        published=cell.published,
        logs=own.logs + one.logs,
        sha256=own.sha256 + one.sha256,
        filled=filled,
    )
    return _Figure(evidence.shown, _difference(cell, evidence, say) if named else (), evidence, named)


def _shown(value: float, form: str) -> str:
    return _cut(value, int(form[1:-1])) if form.endswith("t") else format(value, form)


def _cut(value: float, digits: int) -> str:
    return str(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_DOWN))


def _difference(cell: _Cell, evidence: Evidence, say: Messages) -> tuple[str, ...]:
    """Say where a figure is not the published one: neither rounded to its digits, nor cut off, nor %.6g."""
    if evidence.published is None:
        return ()
    plain = evidence.published.replace(",", "")
    digits = len(plain.partition(".")[2])
    value = evidence.value
    if plain in (f"{value:.{digits}f}", _cut(value, digits), f"{value:.6g}"):
        return ()
    shown = {"published": evidence.published, "shown": evidence.shown}
    return (say("differs", cell=cell.wanted.place, **shown),)
