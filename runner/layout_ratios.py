"""The ratios of a layout: speed-ups, and which figures side by side are not like for like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runner.comparable import unlike, why
from runner.layout_figures import FILLED, Cell, Figure, difference, in_format
from runner.layouts import Grid
from runner.messages import Messages
from runner.model import Evidence


def with_speed_ups(
    grid: Grid, cells: Sequence[Sequence[Cell]], figures: Sequence[Sequence[Figure]], say: Messages
) -> list[list[Figure]]:
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


def unlike_notes(
    grid: Grid, cells: Sequence[Sequence[Cell]], figures: Sequence[Sequence[Figure]], say: Messages
) -> Iterator[str]:
    """Say which throughputs are not like for like with the first of their column, where no speed-up does.

    Nor with the first of their row, where the columns are of several families.
    """
    if any(column.show == "speed_up" for column in grid.columns):
        return
    rows = [tuple(zip(*line, strict=True)) for line in zip(cells, figures, strict=True)]
    several = len({column.family for column in grid.columns}) > 1
    for one in (*zip(*rows, strict=True), *(rows if several else ())):
        shown = [
            (cell.wanted, figure.terms)
            for cell, figure in one
            if figure.evidence and cell.wanted.show == "rate"
        ]
        for wanted, terms in shown[1:]:
            base, first = shown[0]
            if differences := unlike(terms, first):
                yield say("unlike", cell=wanted.place, base=base.place, why=why(differences, say))


def _speed_up(cell: Cell, mine: Figure, rates: Sequence[Figure], say: Messages) -> Figure:
    """Take the rate of a row over that of one card of its setting; one card itself stays blank."""
    own = mine.evidence
    if own is None or own.cards == 1:
        return Figure(cell.blank)
    setting = (1, own.precision, own.batch_size)
    known = [(rate.evidence, rate) for rate in rates if rate.evidence is not None]
    ones = [pair for pair in known if (pair[0].cards, pair[0].precision, pair[0].batch_size) == setting]
    if not ones or not ones[0][0].value:
        return Figure(cell.blank)
    (one, base), *_ = ones
    differences, named = unlike(mine.terms, base.terms), base.named and mine.named
    value, filled = own.value / one.value, own.filled or one.filled
    evidence = Evidence(
        *(cell.row, cell.column, own.cards, own.precision, own.batch_size),
        shown=in_format(value, cell.reference.format) + FILLED * filled,
        value=value,
        published=cell.published,
        logs=own.logs + one.logs,
        sha256=own.sha256 + one.sha256,
        filled=filled,
        unlike=tuple(differences),
    )
    notes = difference(cell, evidence, say) if named else ()
    if differences:
        place, reasons = cell.wanted.place, why(differences, say)  # in a note: a cell is as it was published
        notes = (*notes, say("unlike", cell=place, base=say("one_card"), why=reasons))
    return Figure(evidence.shown, notes, evidence, named)
