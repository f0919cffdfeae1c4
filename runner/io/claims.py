"""Read a table of values with commas, semicolons or tabs as rows of text, bounded, with the line of each."""

from __future__ import annotations

import csv
from collections.abc import Collection
from io import StringIO
from pathlib import Path

from runner.errors import UsageError
from runner.io import regular
from runner.names import hint, printable, shown

ROWS_LIMIT = 10_000  # claims, of which each is held against each
SIZE_LIMIT = 64 << 20  # bytes


def rows(path: Path, columns: Collection[str], needed: Collection[str]) -> list[tuple[int, dict[str, str]]]:
    """Read ``path``: line and cells of each row, by column. Cells that are not there are empty.

    Raises UsageError where the file cannot be read, names a column that is not of ``columns`` or lacks a
    ``needed`` one, or has a row of more cells than columns.
    """
    place = printable(str(path))
    lines = StringIO(text(path), newline="")
    delimiter = max(",;\t", key=lines.readline().count)  # as spreadsheets of several countries write
    lines.seek(0)
    reader = csv.DictReader(lines, strict=True, restval="", delimiter=delimiter, skipinitialspace=True)
    try:
        reader.fieldnames = heads = [head.strip() for head in reader.fieldnames or ()]
        _check(place, heads, columns, needed)
        found = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise UsageError(f"{place}: line {reader.line_num}: {error}; write it as CSV") from error
    for line, row in found:
        if None in row:
            raise UsageError(f"{place}: line {line}: more cells than columns; put quotes around commas")
    if len(found) > ROWS_LIMIT:
        raise UsageError(f"{place}: more than {ROWS_LIMIT} rows; split it")
    return found


def _check(place: str, heads: list[str], columns: Collection[str], needed: Collection[str]) -> None:
    for number, head in enumerate(heads, 1):
        if not head:
            raise UsageError(f"{place}: column {number} has no name; name it or take it out")
        if head not in columns:
            raise UsageError(f"{place}: column {shown(head)}: unknown; {hint(head, columns)}")
        if heads.count(head) > 1:
            raise UsageError(f"{place}: column {shown(head)} stands twice; remove one")
    for name in needed:
        if name not in heads:
            raise UsageError(f"{place}: no column {name}; the first line names the columns")


def text(path: Path) -> str:
    """Read a text file of at most SIZE_LIMIT. Raises UsageError where it is larger, not UTF-8, or no file."""
    return regular.text(path, printable(str(path)), SIZE_LIMIT, "name a file")
