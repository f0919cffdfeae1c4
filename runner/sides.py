"""The figures of a source as ``compare`` takes them: of a run, of logs, or of a published report."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from runner import material
from runner.comparable import day
from runner.comparing import STEADY, Side
from runner.errors import UsageError
from runner.gathering import read_all
from runner.io import rundir
from runner.layouts import Layout
from runner.model import LogRun
from runner.names import hint, printable
from runner.parsers import NOTHING_KNOWN
from runner.published import figure
from runner.rates import rate
from runner.readings import Own, Reading
from runner.steadiness import steadied
from runner.uncertainty import NORMAL


def sides(source: str) -> list[Side]:
    """Collect the figures of a source. Raises UsageError where there is no such source."""
    path = Path(source)
    if path.exists() and not (path / "plan.json").exists():
        (contents,) = read_all([source], NOTHING_KNOWN)
        return [side for one in contents for run in one.runs if (side := _of_log(run))]
    if source in material.layouts():
        return list(_published(source, material.layout(source)))
    if not path.exists() and not (Path("runs") / source).is_dir():
        what = "no such run, folder of logs, log or published report"
        raise UsageError(f"{printable(source)}: {what}; {hint(source, material.layouts())}")
    return _of_run(source)


def _of_log(run: LogRun) -> Side | None:
    return _side(run.log, [run], Own("", "", date=day(run) or ""))


def _of_run(source: str) -> list[Side]:
    """One side per cell: the repeats of a cell are the rates of one side."""
    folder = rundir.find(source)
    results, _ = material.results_of(folder)

    def cell(reading: Reading) -> str:
        return reading.own.cell if reading.own else reading.name

    made = []
    for name, repeats in groupby(material.cells_of(folder, results), key=cell):
        group = list(repeats)
        runs = [steadied(run) for reading in group for run in reading.runs]
        made.append(_side(name, runs, group[0].own or Own("", "")))
    return [side for side in made if side is not None]


def _side(source: str, runs: list[LogRun], own: Own) -> Side | None:
    """Make one side of the repeats of one setting; None where they hold no rate or say no cards."""
    first = runs[0]
    steady = [run.steady for run in runs if run.steady is not None]
    rule = STEADY if len(steady) == len(runs) else first.rule
    rates = [one["rate"] for one in steady] if rule == STEADY else [rate(run, rule) for run in runs]
    known = tuple(one for one in rates if one)
    if not first.cards or len(known) < len(runs):
        return None
    ends = steady[0]["ci95"] if rule == STEADY and len(runs) == 1 else None
    return Side(
        source=source,
        what=f"{first.family} {first.model or ''}".strip(),
        cards=first.cards,
        rates=known,
        rule=rule,
        unit=first.unit,
        precision=first.precision,
        batch_size=first.batch_size,
        hardware=first.gpu or own.gpu or None,
        mode=own.mode or None,
        date=own.date or None,
        error=(ends[1] - ends[0]) / 2 / NORMAL / known[0] if ends else None,
        runs=tuple(runs),
        driver=first.driver or own.driver or None,
    )


def _published(name: str, layout: Layout) -> Iterable[Side]:
    for grid in layout.tables:
        for row in grid.rows:
            parts = layout.hardware(row.cards)
            for column, cell in zip(grid.columns, row.cells, strict=True):
                printed = figure(cell.published)
                if column.show != "rate" or not printed:
                    continue
                yield Side(
                    source=name,
                    what=f"{column.family or layout.family} {layout.model}",
                    cards=row.cards,
                    rates=(float(printed),),
                    rule=cell.rule or "",
                    unit=None,
                    precision=column.precision or row.precision,
                    batch_size=column.batch_size or row.batch_size,
                    hardware=parts.get("gpu"),
                    driver=parts.get("driver"),
                )
