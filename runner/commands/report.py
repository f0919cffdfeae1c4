"""``report``: the tables of runs, or of folders of logs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from runner.errors import UsageError
from runner.model import Problem, Result, Table
from runner.names import hint, shown

if TYPE_CHECKING:
    from runner.io.rundir import RunDir
    from runner.layout_tables import Reading
    from runner.layouts import Layout

HELP = "show the tables of runs or of folders of logs"
EXAMPLE = "python -m runner report ../logs/resnet50 --layout resnet50_ngc_tensorflow1 --lang zh"


class _Material(NamedTuple):
    """What the sources hold: the results of runs, each with the note it carries, and logs."""

    runs: list[tuple[list[Result], str | None]]
    readings: list[Reading]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``report``."""
    parser.add_argument(
        "sources", nargs="+", metavar="SOURCE", help="a run (id or folder), a folder of logs, a log"
    )
    parser.add_argument("--layout", metavar="NAME", help="the shape of a published report, by its rules")
    parser.add_argument(
        "--format", default="md", help="md, html, csv, json; several with --output (default: md)"
    )
    parser.add_argument("--lang", default="en", help="en, zh; several with --output (default: en)")
    parser.add_argument("--output", metavar="DIR", help="write report.FORMAT files there instead of printing")


def run(args: argparse.Namespace) -> int:
    """Print or write the tables; 1 where no figure is in them."""
    from runner.messages import LANGUAGES
    from runner.render import FORMATS

    formats = _words("--format", args.format, FORMATS)
    languages = _words("--lang", args.lang, LANGUAGES)
    if args.output is None and len(formats) * len(languages) > 1:
        raise UsageError("several formats or languages need --output DIR, where each gets its file")
    layout = _layout(args.layout) if args.layout else None
    material = _gather(args.sources, layout is not None)
    for language in languages:
        tables = _tables(material, layout, language)
        title = layout.title[language] if layout else ", ".join(Path(name).name for name in args.sources)
        for form in formats:
            name = f"report.{form}" if len(languages) == 1 else f"report.{language}.{form}"
            _put(_document(tables, form, title, language), args.output and Path(args.output) / name)
    published = tables[: len(layout.tables)] if layout else tables
    if any(cell != "-" for table in published for row in table.rows for cell in row[1:]):
        return 0
    print("runkit: no figure was found", file=sys.stderr)
    return 1


def _words(option: str, text: str, known: Sequence[str]) -> list[str]:
    words = list(dict.fromkeys(text.split(",")))
    for word in words:
        if word not in known:
            raise UsageError(f"{option} {shown(word)}: unknown; {hint(word, known)}")
    return words


def _layout(name: str) -> Layout:
    from runner.io import yamlfile
    from runner.io.files import ROOT
    from runner.layouts import load

    folder = ROOT / "reports" / "references"
    known = {path.stem: path for path in folder.glob("*.yml")}
    if name not in known:
        raise UsageError(f"--layout {shown(name)}: unknown; {hint(name, known)}")
    return load(yamlfile.read(known[name]), yamlfile.place(known[name]))


# --- reading ---------------------------------------------------------------------------------


def _gather(sources: Sequence[str], with_layout: bool) -> _Material:
    """Read every source. For a layout, a run is no more than the logs of its measured cells."""
    from runner.io import rundir

    material = _Material([], [])
    for source in sources:
        path = Path(source)
        if path.exists() and not (path / "plan.json").exists():
            material.readings.extend(_logs(source, tell=not with_layout))
            continue
        folder = rundir.find(source)
        results, note = _results(folder)
        if with_layout:
            material.readings.extend(_cells(folder, {one.cell for one in results if one.state == "measured"}))
        else:
            material.runs.append((results, note))
    return material


def _logs(source: str, tell: bool) -> Iterator[Reading]:
    """The logs of a file or folder; with a layout, those without a run are told in a table instead."""
    from runner.commands.parse import read, tell_unknown
    from runner.io.logfolders import walk
    from runner.layout_tables import Reading
    from runner.parsers import NOTHING_KNOWN

    unknown = []
    for log in walk(Path(source)):
        try:
            runs, why = read(log, NOTHING_KNOWN)
        except UsageError as error:  # in a folder of many files, one that is no log spoils nothing
            if not Path(source).is_dir():
                raise
            print(f"runkit: {error}; passed over", file=sys.stderr)
            continue
        if why is not None:
            unknown.append((log.name, why))
        yield Reading(log.name, log.sha256, tuple(runs))
    if tell:
        tell_unknown(source, unknown)


def _results(folder: RunDir) -> tuple[list[Result], str | None]:
    """The results of a run, judged anew where results.json was deleted."""
    from runner import conduct, judging
    from runner.io.files import read_json
    from runner.records import decode

    path = folder.path / "results.json"
    if not path.exists():
        judging.judge(folder, conduct.open_run(folder).plan)
    body = read_json(path, "runkit/results", 1)
    results, notes = body.get("results"), body.get("notes", [])
    if not isinstance(results, list) or not isinstance(notes, list):
        raise UsageError(f"{path}: results and notes must be lists; delete the file and it is built again")
    places = [f"{path}: results[{number}]" for number in range(len(results))]
    decoded = [decode(Result, item, place) for item, place in zip(results, places, strict=True)]
    return decoded, "; ".join(str(note) for note in notes) or None


def _cells(folder: RunDir, measured: Container[str]) -> Iterator[Reading]:
    """The logs of the measured cells, under the names that they are published under."""
    from runner import conduct
    from runner.io.logfolders import CellLog
    from runner.layout_tables import Reading
    from runner.parsers import Known, parse_cell

    for cell in conduct.open_run(folder).plan.cells:
        if cell.id in measured:
            found = parse_cell(CellLog(folder.cell(cell.id)), cell.log_name, Known(family=cell.family))
            runs = () if isinstance(found, Problem) else (found,)
            yield Reading(f"{folder.run}/{cell.id}/{cell.log_name}", None, runs)


# --- showing ---------------------------------------------------------------------------------


def _tables(material: _Material, layout: Layout | None, language: str) -> list[Table]:
    from runner.layout_tables import fill
    from runner.tables import found, tables

    if layout is not None:
        return fill(layout, material.readings, language)
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
