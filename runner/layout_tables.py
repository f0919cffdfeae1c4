"""What the logs that a layout names give under its rules, in the shape of the publication.

A cell without its log stays blank; so does one whose log contradicts it, with a note that says how.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_DOWN, Decimal
from typing import NamedTuple

from runner.layouts import BLANK, Column, Grid, Layout, Reference, Row
from runner.messages import Messages, messages
from runner.model import LogRun, Table
from runner.parsers import same_precision
from runner.rates import rate, used
from runner.tables import heading


class Reading(NamedTuple):
    """A log that was read: its name, its hash where it is one file, the runs found in it."""

    name: str
    sha256: str | None
    runs: tuple[LogRun, ...]

    @property
    def base(self) -> str:
        """Its name without folders, and without the ending that packing it added."""
        return self.name.rpartition("/")[2].removesuffix(".gz")


class _Cell(NamedTuple):
    """One cell of a layout with everything its row and column say."""

    cards: int
    precision: str | None
    batch_size: int | None
    show: str
    column: str
    reference: Reference


class _Figure(NamedTuple):
    """What a cell shows, why it is blank although its log is there, where the figure comes from, in full."""

    text: str
    note: str | None = None
    origin: tuple[str, ...] | None = None
    value: float | None = None


def fill(layout: Layout, readings: Sequence[Reading], language: str = "en") -> list[Table]:
    """Make the tables of a layout from the logs at hand.

    The published tables come first, then where each figure comes from, the published environment, and the
    logs that belong to no cell.
    """
    say = messages(language)
    source = layout.source
    origins: list[tuple[str, ...]] = []
    made = [_grid(grid, readings, origins, say) for grid in layout.tables]
    place = f"{source.repository}, {source.path}, {source.commit[:12]}"
    made = [replace(table, notes=(*table.notes, say("source", place=place))) for table in made]
    if origins:
        heads = ("cards", "column", "log", "rule", "records", "computed", "problems", "sha256")
        made.append(Table(say("figures_from"), tuple(say(head) for head in heads), tuple(origins)))
    if layout.environment:
        facts = tuple((fact.item[language], fact.value) for fact in layout.environment)
        made.append(Table(say("environment"), (say("item"), say("value")), facts))
    return [*made, *_strangers(layout, readings, say)]


def _grid(grid: Grid, readings: Sequence[Reading], origins: list[tuple[str, ...]], say: Messages) -> Table:
    rows, notes = [], []
    for row, figures in zip(grid.rows, _figures(grid, readings, say), strict=True):
        rows.append(
            (row.heading[say.language] if row.heading else str(row.cards), *(one.text for one in figures))
        )
        notes += [figure.note for figure in figures if figure.note]
        origins += [figure.origin for figure in figures if figure.origin]
    columns = tuple(_heading(column, say) for column in grid.columns)
    return Table(grid.title[say.language], (grid.corner[say.language], *columns), tuple(rows), tuple(notes))


def _figures(grid: Grid, readings: Sequence[Reading], say: Messages) -> list[list[_Figure]]:
    """Work out every cell, row by row: what the logs give, then the speed-ups, which need all rates."""
    cells = [
        [_cell(row, *pair, say) for pair in zip(grid.columns, row.cells, strict=True)] for row in grid.rows
    ]
    figures = [[_figure(cell, readings, say) for cell in line] for line in cells]
    shows = [column.show for column in grid.columns]
    if "speed_up" not in shows:
        return figures
    at = shows.index("rate")  # the only one: see layouts
    rates = [(line[at], figures[number][at]) for number, line in enumerate(cells)]
    return [
        [
            _speed_up(cell, rates[number], rates) if cell.show == "speed_up" else figure
            for cell, figure in zip(line, figures[number], strict=True)
        ]
        for number, line in enumerate(cells)
    ]


def _speed_up(cell: _Cell, mine: tuple[_Cell, _Figure], rates: Sequence[tuple[_Cell, _Figure]]) -> _Figure:
    """Take the rate of a row over that of one card of its setting; one card itself stays blank."""
    setting, figure = (mine[0].precision, mine[0].batch_size), mine[1]
    ones = [rate for of, rate in rates if of.cards == 1 and (of.precision, of.batch_size) == setting]
    if cell.cards == 1 or not ones or not ones[0].value or figure.value is None:
        return _Figure(BLANK)
    value = figure.value / ones[0].value
    logs = " / ".join(one.origin[2] for one in (figure, ones[0]) if one.origin)
    origin = (str(cell.cards), cell.column, logs, BLANK, BLANK, repr(value), BLANK, BLANK)
    return _Figure(_shown(value, cell.reference.format), origin=origin)


def _cell(row: Row, column: Column, reference: Reference, say: Messages) -> _Cell:
    return _Cell(
        cards=row.cards,
        precision=row.precision or column.precision,
        batch_size=row.batch_size or column.batch_size,
        show=column.show,
        column=_heading(column, say),
        reference=reference,
    )


def _heading(column: Column, say: Messages) -> str:
    if column.heading is not None:
        return column.heading[say.language]
    return heading(column.precision or "", column.batch_size or 0)  # a layout without both does not load


def _figure(cell: _Cell, readings: Sequence[Reading], say: Messages) -> _Figure:
    names = (cell.reference.log, *cell.reference.aliases)
    by_name = ([reading for reading in readings if reading.base == name] for name in names)
    named = next((found for found in by_name if found), None)
    if named is None:
        return _Figure(BLANK)
    place = say("cell", cards=cell.cards, setting=cell.column)
    chosen = _chosen(cell, place, named, say)
    if isinstance(chosen, str):
        return _Figure(BLANK, chosen)
    reading, run = chosen
    rule = cell.reference.rule or run.rule
    value = _value(run, cell.show, rule)
    if value is None:  # a log of speed alone says no time or accuracy, and need not
        lacks = say("no_figure", cell=place, log=reading.name, rule=rule) if cell.show == "rate" else None
        return _Figure(BLANK, lacks)
    return _Figure(_shown(value, cell.reference.format), None, _origin(cell, reading, run, value), value)


def _chosen(cell: _Cell, place: str, named: Sequence[Reading], say: Messages) -> tuple[Reading, LogRun] | str:
    """Choose the run that a cell shows among logs of one name, or say why they give none."""
    log = named[0].name
    runs = [(reading, run) for reading in named for run in reading.runs]
    if not runs:
        return say("not_understood", cell=place, log=log)
    fitting = [(reading, run) for reading, run in runs if not _contradictions(run, cell)]
    if len({reading.sha256 or reading.name for reading, _ in fitting}) > 1:
        return say("several_logs", cell=place, log=log)
    own = [run for reading, run in fitting if reading is fitting[0][0]]  # the same log may be there twice
    if len(own) > 1:
        return say("several_runs", cell=place, log=log, n=len(own))
    if fitting:
        return fitting[0]
    key, says = next(iter(_contradictions(runs[0][1], cell).items()))
    return say("contradicts", cell=place, log=runs[0][0].name, what=say(key), says=says)


def _contradictions(run: LogRun, cell: _Cell) -> dict[str, object]:
    """Collect what a log says of itself where the layout says otherwise; silence contradicts nothing."""
    pairs = {"cards": (run.cards, cell.cards), "batch_size": (run.batch_size, cell.batch_size)}
    wrong: dict[str, object] = {
        key: says for key, (says, want) in pairs.items() if says and want and says != want
    }
    if run.precision and cell.precision and not same_precision(run.precision, cell.precision):
        wrong["precision"] = run.precision
    return wrong


def _value(run: LogRun, show: str, rule: str) -> float | None:
    if show == "rate":
        return rate(run, rule)
    if show == "accuracy":
        return None if run.accuracy is None else 100 * run.accuracy
    return run.time_to_train_s if show == "time_to_train_s" else run.time_to_target_s


def _shown(value: float, form: str) -> str:
    if form.endswith("t"):  # cut off, as the publication did
        return str(Decimal(repr(value)).quantize(Decimal(1).scaleb(-int(form[1:-1])), ROUND_DOWN))
    return format(value, form)


def _origin(cell: _Cell, reading: Reading, run: LogRun, value: float) -> tuple[str, ...]:
    is_rate = cell.show == "rate"
    rule = cell.reference.rule or run.rule
    count = used(run, rule) if is_rate else 0
    return (
        str(cell.cards),
        cell.column,
        reading.name,
        rule if is_rate else BLANK,
        f"{count}/{len(run.records)}" if count else BLANK,
        repr(value),
        ", ".join(dict.fromkeys(problem.code for problem in run.problems)) or BLANK,
        (reading.sha256 or BLANK)[:12],
    )


def _strangers(layout: Layout, readings: Sequence[Reading], say: Messages) -> list[Table]:
    cells = [cell for grid in layout.tables for row in grid.rows for cell in row.cells]
    named = {name for cell in cells for name in (cell.log, *cell.aliases)}
    rows = [
        (reading.name, ", ".join(dict.fromkeys(run.family for run in reading.runs)) or BLANK)
        for reading in readings
        if reading.base not in named
    ]
    return [Table(say("not_in_layout"), (say("log"), say("family")), tuple(rows))] if rows else []
