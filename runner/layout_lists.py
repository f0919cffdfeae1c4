"""What stands below the published tables: where each figure comes from, environment, links, other logs."""

from __future__ import annotations

from collections.abc import Sequence

from runner.layouts import BLANK, Layout
from runner.messages import Messages
from runner.model import Table
from runner.readings import Reading


def lists(layout: Layout, readings: Sequence[Reading], made: Sequence[Table], say: Messages) -> list[Table]:
    """Make the lists that have something in them; ``made`` are the published tables, with evidence."""
    facts = tuple((fact.item[say.language], fact.value) for fact in layout.environment)
    found = (
        _origins(made, say),
        Table(say("environment"), (say("item"), say("value")), facts),
        _links(layout, readings, say),
        _strangers(layout, readings, made, say),
    )
    return [table for table in found if table.rows]


def _origins(made: Sequence[Table], say: Messages) -> Table:
    rows = [
        (
            str(number),
            str(one.cards),
            table.columns[one.column],
            " / ".join(one.logs),
            one.rule or BLANK,
            f"{one.records}/{one.found}" if one.records else BLANK,
            f"{one.lines[0]}-{one.lines[1]}" if one.lines else BLANK,
            repr(one.value),
            ", ".join(one.problems) or BLANK,
            " / ".join(hash or BLANK for hash in one.sha256),
        )
        for number, table in enumerate(made, start=1)
        for one in table.evidence
    ]
    keys = ("table", "cards", "column", "log", "rule", "records", "lines", "computed", "problems", "sha256")
    return Table(say("figures_from"), tuple(say(key) for key in keys), tuple(rows))


def _links(layout: Layout, readings: Sequence[Reading], say: Messages) -> Table:
    """Tabulate the published list of logs, each with the name of the log at hand."""
    rows = []
    for link in layout.logs:
        names = layout.names((link.path or "").rpartition("/")[2])
        here = [one.name for one in readings if one.own is None and one.base in names]
        rows.append((link.item[say.language], link.path or BLANK, ", ".join(dict.fromkeys(here)) or BLANK))
    return Table(say("logs_published"), (say("item"), say("published_as"), say("log")), tuple(rows))


def _strangers(layout: Layout, readings: Sequence[Reading], made: Sequence[Table], say: Messages) -> Table:
    cells = [cell for grid in layout.tables for row in grid.rows for cell in row.cells]
    named = {name for cell in cells for name in (cell.log, *cell.aliases)}
    taken = {word for table in made for one in table.evidence for word in (*one.logs, *one.sha256)}
    others = [
        one
        for one in readings
        if not {one.name, one.sha256 or one.name} & taken and (one.own or one.base not in named)
    ]
    keys = ("family", "cards", "precision", "batch_size")
    rows = [(one.name, *(_said(one, key) for key in keys)) for one in others]
    return Table(say("not_in_layout"), (say("log"), *(say(key) for key in keys)), tuple(dict.fromkeys(rows)))


def _said(reading: Reading, key: str) -> str:
    values = [getattr(run, key) for run in reading.runs]
    return ", ".join(dict.fromkeys(BLANK if value is None else str(value) for value in values)) or BLANK
