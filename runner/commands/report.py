"""``report``: the tables of runs, or of folders of logs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from runner.errors import UsageError
from runner.model import Problem, Result, Table
from runner.names import hint, printable, shown

if TYPE_CHECKING:
    from runner.commands.parse import Content
    from runner.io.rundir import RunDir
    from runner.layouts import Layout
    from runner.readings import Reading

HELP = "show the tables of runs or of folders of logs"
EXAMPLE = "python -m runner report ../logs/resnet50 --layout resnet50_ngc_tensorflow1 --lang zh"


class _Material(NamedTuple):
    """What the sources hold: the results of runs, each with the note it carries, and logs."""

    runs: list[tuple[list[Result], str | None]]
    readings: list[Reading]


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
    from runner.messages import LANGUAGES
    from runner.render import FORMATS

    formats = _words("--format", args.format, FORMATS)
    languages = _words("--lang", args.lang, LANGUAGES)
    if args.output is None and len(formats) * len(languages) > 1:
        raise UsageError("several formats or languages need --output DIR, where each gets its file")
    if args.fill and not args.layout:
        raise UsageError("--fill: fills the cells of a layout; name one with --layout")
    layout = _layout(args.layout) if args.layout else None
    sources = _sources(args.sources)
    material = _gather(sources, layout is not None)
    for language in languages:
        tables = _tables(material, layout, language, args.fill)
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


def _sources(given: Sequence[str]) -> dict[str, str]:
    """Each source once, with what to call it: its name, or all of its path where two have one name."""
    kept: dict[Path, str] = {}
    for source in given:
        path = Path(source) if Path(source).exists() else Path("runs") / source
        if not source.strip() or not path.exists():
            what = shown(source) if source.strip() else "SOURCE: is empty"
            raise UsageError(
                f"{what}: no such log; name a log, a folder or archive of logs, or a run under runs/"
            )
        if path.resolve() in kept:
            print(f"runkit: {shown(source)}: the same source again; read once", file=sys.stderr)
        kept.setdefault(path.resolve(), source)
    names = [path.name for path in kept]
    return {
        source: printable(path.name if names.count(path.name) == 1 else source.rstrip("/"))
        for path, source in kept.items()
    }


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


def _gather(sources: Mapping[str, str], with_layout: bool) -> _Material:
    """Read every source. For a layout, a run is no more than the logs of its measured cells."""
    from runner.commands.parse import read_all, tell_unknown
    from runner.io import rundir
    from runner.parsers import NOTHING_KNOWN

    material = _Material([], [])
    of_logs = [one for one in sources if Path(one).exists() and not Path(one, "plan.json").exists()]
    contents = read_all(of_logs, NOTHING_KNOWN)
    for source, called in sources.items():
        if source in of_logs:
            found = next(contents)
            names = [_name(source, called, one.log.name, len(sources) > 1) for one in found]
            material.readings.extend(_readings(found, names))
            if not with_layout:  # which tells them in a table
                tell_unknown(source, [(one.log.name, one.unknown) for one in found if one.unknown])
            continue
        folder = rundir.find(source)
        results, note = _results(folder)
        if with_layout:
            material.readings.extend(_cells(folder, results))
        else:
            material.runs.append((results, note))
    return material


def _name(source: str, called: str, log: str, among_others: bool) -> str:
    """What to call a log: below its folder or archive, which is named too where there are several sources."""
    if Path(source).is_file() and log == printable(Path(source).name):
        return called
    return f"{called}/{log}" if among_others else log


def _readings(contents: Sequence[Content], names: Sequence[str]) -> Iterator[Reading]:
    from runner.readings import Reading

    for one, name in zip(contents, names, strict=True):
        yield Reading(name, one.log.sha256, tuple(replace(run, log=name) for run in one.runs))


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


def _cells(folder: RunDir, results: Sequence[Result]) -> Iterator[Reading]:
    """The logs of the measured cells, with what was planned where they do not say it; tells of the others."""
    from runner import conduct
    from runner.io.logfolders import CellLog
    from runner.parsers import Known, parse_cell
    from runner.readings import Own, Reading

    states = {result.cell: result.state for result in results}
    for cell in conduct.open_run(folder).plan.cells:
        if states.get(cell.id) != "measured":
            text = f"{cell.id} is {states.get(cell.id, 'planned')}; its cell of the layout stays blank"
            print(f"runkit: {folder.run}: {text}", file=sys.stderr)
            continue
        found = parse_cell(CellLog(folder.cell(cell.id)), cell.log_name, Known(family=cell.family))
        if isinstance(found, Problem):
            continue
        run = replace(
            found,
            cards=found.cards or cell.cards,
            batch_size=found.batch_size or cell.batch_size,
            precision=found.precision or cell.precision,
        )
        own = Own(f"{folder.run}/{cell.id.rpartition('.r')[0]}", cell.mode)
        yield Reading(f"{folder.run}/{cell.id}/{cell.log_name}", None, (run,), own)


# --- showing ---------------------------------------------------------------------------------


def _tables(material: _Material, layout: Layout | None, language: str, fill: bool) -> list[Table]:
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
