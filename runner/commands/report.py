"""``report``: the tables of runs, or of folders of logs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import UsageError
from runner.model import Table
from runner.names import hint, shown

if TYPE_CHECKING:
    from runner.layouts import Layout
    from runner.material import Material

HELP = "show the tables of runs or of folders of logs"
EXAMPLE = "python -m runner report ../logs/resnet50 --layout resnet50_ngc_tensorflow1 --lang zh"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``report``."""
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="a run (id or folder), a folder or archive of logs, a log",
    )
    parser.add_argument("--layout", metavar="NAME", help="the shape of a published report, by its rules")
    parser.add_argument(
        "--fill",
        action="store_true",
        help="fill and mark blank cells of the layout from logs of their cards, precision and batch size",
    )
    parser.add_argument(
        "--format", default="md", help="md, html, csv, json; several with --output (default: md)"
    )
    parser.add_argument("--lang", default="en", help="en, zh; several with --output (default: en)")
    parser.add_argument("--output", metavar="DIR", help="write report.FORMAT files there instead of printing")


def run(args: argparse.Namespace) -> int:
    """Print or write the tables; 1 where no figure is in them and the publication has some."""
    from runner import material
    from runner.messages import LANGUAGES
    from runner.render import FORMATS

    formats = _words("--format", args.format, FORMATS)
    languages = _words("--lang", args.lang, LANGUAGES)
    if args.output is None and len(formats) * len(languages) > 1:
        raise UsageError("several formats or languages need --output DIR, where each gets its file")
    if args.fill and not args.layout:
        raise UsageError("--fill: fills the cells of a layout; name one with --layout")
    layout = material.layout(args.layout) if args.layout else None
    sources = material.named(args.sources)
    found = material.gather(sources, layout is not None)
    for language in languages:
        tables = _tables(found, layout, language, args.fill)
        title = layout.title[language] if layout else ", ".join(sources.values())
        for form in formats:
            name = f"report.{form}" if len(languages) == 1 else f"report.{language}.{form}"
            _put(_document(tables, form, title, language), args.output and Path(args.output) / name)
    return _status(tables, layout, args.fill)


def _status(tables: Sequence[Table], layout: Layout | None, fill: bool) -> int:
    if layout is None:
        found = any(cell != "-" for table in tables for row in table.rows for cell in row[1:])
    else:
        found = any(table.evidence for table in tables)
    if found:
        return 0
    if layout is not None and layout.is_blank and not fill:
        text = "blank, as it was published; --fill takes figures from logs of the same settings"
        print(f"runkit: {text}", file=sys.stderr)
        return 0
    print("runkit: no figure was found", file=sys.stderr)
    return 1


def _words(option: str, text: str, known: Sequence[str]) -> list[str]:
    words = list(dict.fromkeys(text.split(",")))
    for word in words:
        if word not in known:
            raise UsageError(f"{option} {shown(word)}: unknown; {hint(word, known)}")
    return words


# --- showing ---------------------------------------------------------------------------------


def _tables(material: Material, layout: Layout | None, language: str, fill: bool) -> list[Table]:
    from runner.layout_tables import tables_of
    from runner.tables import found, tables

    if layout is not None:
        return tables_of(layout, material.readings, language, fill)
    made = [table for results, note in material.runs for table in tables(results, note, language)]
    runs = [run for reading in material.readings for run in reading.runs]
    return [*made, found(runs, language)] if runs else made


def _document(tables: Sequence[Table], form: str, title: str, language: str) -> str:
    from runner.io.files import ROOT
    from runner.render import render

    template = (ROOT / "reports" / "templates" / "report.html.j2").read_text("utf-8")
    return render(tables, form, title, language, template)


def _put(text: str, path: Path | None) -> None:
    from runner.io.files import write_bytes

    if path is None:
        sys.stdout.write(text)
    else:
        write_bytes(path, text.encode())
