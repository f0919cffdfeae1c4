"""Tables to text: Markdown, HTML, CSV, JSON. Pure: templates come in as text, documents go out as text.

What stands in a table may come from a log or an inventory: it is escaped for each format.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from types import SimpleNamespace

from runner.layouts import BLANKS
from runner.model import STATES, Table
from runner.names import printable
from runner.records import encode

FORMATS = ("md", "html", "csv", "json")

_NUMBER = re.compile(r"[-+]?\d[\d.,:/ ]*(?:e[-+]?\d+)?[\u2020\u2021]*", re.ASCII)  # with daggers
_EDGE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")  # within a word it marks nothing
_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\|[]`*~"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def render(tables: Sequence[Table], form: str, title: str, language: str, template: str) -> str:
    """Write ``tables`` in one of FORMATS; ``template`` is the HTML document's. Ends with a newline."""
    if form == "md":
        return markdown(tables)
    if form == "html":
        return html(tables, title, language, template)
    return csv_text(tables) if form == "csv" else json_text(tables, title)


def markdown(tables: Sequence[Table]) -> str:
    """Write pipe tables, each under its title and above its notes."""
    return "\n\n".join(_markdown(table) for table in tables) + "\n" if tables else ""


def html(tables: Sequence[Table], title: str, language: str, template: str) -> str:
    """Write one self-contained document from the text of a Jinja template."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    shown = [
        {
            "title": printable(table.title),
            "columns": _columns(table),
            "rows": [[printable(cell) for cell in row] for row in table.rows],
            "notes": [printable(note) for note in table.notes],
        }
        for table in tables
    ]
    text: str = environment.from_string(template).render(
        title=printable(title), language=language, tables=shown
    )
    return text.rstrip("\n") + "\n"


def csv_text(tables: Sequence[Table]) -> str:
    """Write the tables one after the other, an empty line between: title, headings, rows, notes."""
    lines: list[str] = []
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator="\n")
    for number, table in enumerate(tables):
        if number:
            writer.writerow([])
        rows = [(table.title,), table.columns, *table.rows, *((note,) for note in table.notes)]
        writer.writerows([_harmless(cell) for cell in row] for row in rows)
    return "".join(lines)


def json_text(tables: Sequence[Table], title: str) -> str:
    """Write title, columns, rows and notes of each table; every cell is text, as it is shown.

    A publication's own table has the evidence of its figures beside them, in numbers.
    """
    body = {
        "schema": "runkit/report",
        "version": 1,
        "title": title,
        "tables": [
            {
                "title": table.title,
                "columns": list(table.columns),
                "rows": [list(row) for row in table.rows],
                "notes": list(table.notes),
                **({"evidence": encode(table.evidence)} if table.evidence else {}),
            }
            for table in tables
        ],
    }
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


def _markdown(table: Table) -> str:
    from tabulate import tabulate

    grid = tabulate(
        [[_marked(cell) for cell in row] for row in table.rows],
        headers=[_marked(head) for head in table.columns],
        tablefmt="pipe",
        disable_numparse=True,
        colalign=[column["align"] for column in _columns(table)] if table.rows else None,
    )
    notes = "\n".join(f"- {_marked(note)}" for note in table.notes)
    return "\n\n".join(part for part in (f"## {_marked(table.title)}", grid, notes) if part)


def _columns(table: Table) -> list[dict[str, str]]:
    """Head and alignment of each column: numbers to the right, with whatever stands in for one."""
    stand_ins = {*BLANKS, *STATES}
    made = []
    for number, head in enumerate(table.columns):
        cells = {row[number] for row in table.rows}
        numeric = all(cell in stand_ins or _NUMBER.fullmatch(cell) for cell in cells)
        made.append({"head": printable(head), "align": "right" if numeric else "left"})
    return made


def _marked(text: str) -> str:
    return _EDGE.sub(r"\\_", printable(text).translate(_MARKS))


def _harmless(cell: str) -> str:
    """Keep a spreadsheet from taking text for a formula."""
    safe = printable(cell)
    is_formula = safe[:1] in ("=", "+", "@") or (safe[:1] == "-" and safe not in BLANKS)
    return f"'{safe}" if is_formula and not _NUMBER.fullmatch(safe) else safe
