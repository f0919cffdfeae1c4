"""What the sources of a command hold: runs of one's own, folders and archives of logs, published reports."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from runner import conduct, judging
from runner.errors import UsageError
from runner.gathering import Content, read_all, tell_unknown
from runner.io import rundir, yamlfile
from runner.io.files import ROOT, read_json
from runner.io.logfolders import CellLog
from runner.io.rundir import RunDir
from runner.layouts import Layout, load
from runner.model import Problem, Result
from runner.names import hint, printable, shown
from runner.parsers import NOTHING_KNOWN, Known, parse_cell
from runner.readings import Own, Reading
from runner.records import decode


class Material(NamedTuple):
    """What the sources hold: the results of runs, each with the note it carries, and logs."""

    runs: list[tuple[list[Result], str | None]]
    readings: list[Reading]


def named(given: Sequence[str]) -> dict[str, str]:
    """Each source once, with what to call it: its name, or all of its path where two have one name."""
    kept: dict[Path, str] = {}
    for source in given:
        path = Path(source) if Path(source).exists() else Path("runs") / source
        if not source.strip() or not path.exists():
            what = printable(source) if source.strip() else "SOURCE: is empty"
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


def layouts() -> dict[str, Path]:
    """Find the published reports whose layout is known, by name."""
    return {path.stem: path for path in sorted((ROOT / "reports" / "references").glob("*.yml"))}


def layout(name: str) -> Layout:
    """Read a layout by its name. Raises UsageError where there is none of that name."""
    known = layouts()
    if name not in known:
        raise UsageError(f"--layout {shown(name)}: unknown; {hint(name, known)}")
    return load(yamlfile.read(known[name]), yamlfile.place(known[name]))


def gather(sources: Mapping[str, str], with_layout: bool) -> Material:
    """Read every source. For a layout, a run is no more than the logs of its measured cells."""
    material = Material([], [])
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
        results, note = results_of(folder)
        if with_layout:
            material.readings.extend(cells_of(folder, results))
        else:
            material.runs.append((results, note))
    return material


def _name(source: str, called: str, log: str, among_others: bool) -> str:
    """What to call a log: below its folder or archive, which is named too where there are several sources."""
    if Path(source).is_file() and log == printable(Path(source).name):
        return called
    return f"{called}/{log}" if among_others else log


def _readings(contents: Sequence[Content], names: Sequence[str]) -> Iterator[Reading]:
    for one, name in zip(contents, names, strict=True):
        yield Reading(name, one.log.sha256, tuple(replace(run, log=name) for run in one.runs))


def results_of(folder: RunDir) -> tuple[list[Result], str | None]:
    """The results of a run, judged anew where results.json was deleted."""
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


def cells_of(folder: RunDir, results: Sequence[Result]) -> Iterator[Reading]:
    """The logs of the measured cells, with what was planned where they do not say it; tells of the others."""
    states = {result.cell: result.state for result in results}
    plan = conduct.open_run(folder).plan
    where = (plan.cluster.card_model, plan.cluster.driver, plan.created[:10])
    for cell in plan.cells:
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
        own = Own(f"{folder.run}/{cell.id.rpartition('.r')[0]}", cell.mode, *where)
        yield Reading(f"{folder.run}/{cell.id}/{cell.log_name}", None, (run,), own)
