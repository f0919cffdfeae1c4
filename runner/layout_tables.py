"""What logs give under the rules of a layout, in the shape of the publication, each figure with its evidence.

A cell without its log stays blank; so does one whose log contradicts it, with a note that says how.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runner.layout_figures import FILLED, Cell, Figure, difference, in_format
from runner.layout_lists import lists
from runner.layout_ratios import unlike_notes, with_speed_ups
from runner.layouts import Column, Grid, Layout
from runner.messages import Messages, messages
from runner.model import Evidence, LogRun, Table
from runner.rates import all_cards, parse_rule, scale_of, select, used
from runner.readings import Choice, Reading, Wanted, choose, rule_of, terms_of
from runner.tables import heading


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
    figures = [
        [_figure(cell, readings, fill, layout.hardware(row.cards), say) for cell in line]
        for row, line in zip(grid.rows, cells, strict=True)
    ]
    figures = with_speed_ups(grid, cells, figures, say)
    heads = [row.heading[say.language] if row.heading else str(row.cards) for row in grid.rows]
    flat = [pair for pairs in zip(cells, figures, strict=True) for pair in zip(*pairs, strict=True)]
    absent = sum(
        cell.published is not None and not (figure.notes or figure.evidence) for cell, figure in flat
    )
    return Table(
        title=grid.title[say.language],
        columns=(grid.corner[say.language], *(_heading(column, say) for column in grid.columns)),
        rows=tuple((head, *(one.text for one in line)) for head, line in zip(heads, figures, strict=True)),
        notes=(
            *(note for _, one in flat for note in one.notes),
            *unlike_notes(grid, cells, figures, say),
            *([say("absent", n=absent)] if absent else []),
        ),
        evidence=tuple(one.evidence for _, one in flat if one.evidence),
    )


def _cell(layout: Layout, grid: Grid, at: int, place: int, say: Messages) -> Cell:
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
    return Cell(at, place + 1, wanted, reference)


def _heading(column: Column, say: Messages) -> str:
    if column.heading is not None:
        return column.heading[say.language]
    return heading(column.precision or "", column.batch_size or 0)  # a layout without both does not load


def _figure(
    cell: Cell, readings: Sequence[Reading], fill: bool, hosts: dict[str, str], say: Messages
) -> Figure:
    """Take what a cell shows; ``hosts`` is what the publication says of them, for the logs that it names."""
    if cell.wanted.show == "speed_up":
        return Figure(cell.blank)
    choice, notes = choose(cell.wanted, readings, fill, say)
    if choice is None:
        return Figure(cell.blank, notes)
    evidence = _evidence(cell, choice)
    terms = terms_of(choice.reading, choice.run, evidence.rule)
    if choice.named:
        notes = (*notes, *difference(cell, evidence, say))
        terms = replace(terms, hardware={**hosts, **terms.hardware})
    return Figure(evidence.shown, notes, evidence, choice.named, terms)


def _evidence(cell: Cell, choice: Choice) -> Evidence:
    wanted, run, rule = cell.wanted, choice.run, rule_of(cell.wanted, choice.run)
    lines = _window(run, rule) if rule else ()
    return Evidence(
        *(cell.row, cell.column, wanted.cards, wanted.precision, wanted.batch_size),
        shown=in_format(choice.value, cell.reference.format) + FILLED * choice.filled,
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
