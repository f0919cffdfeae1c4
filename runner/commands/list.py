"""The command ``list``: what there is to work with."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from runner.errors import UsageError
from runner.model import Result, Workload
from runner.names import printable

HELP = "show the clusters, workloads, log families and runs there are"
EXAMPLE = "python -m runner list workloads"

Rows = list[dict[str, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("what", nargs="?", choices=tuple(SECTIONS), help="only these; default: all of them")
    parser.add_argument("--json", action="store_true", help="print a JSON object: section -> list of entries")


def run(args: argparse.Namespace) -> int:
    """Print one table per section. What cannot be read is named on stderr and left out; always 0."""
    wanted = [args.what] if args.what else list(SECTIONS)
    found = {name: SECTIONS[name](args.inventory) for name in wanted}
    if args.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
    else:
        print("\n\n".join(_table(name, rows, titled=len(wanted) > 1) for name, rows in found.items()))
    return 0


def _clusters(selected: str) -> Rows:
    """Those under ``inventory/``, and the one chosen with ``-i``, which must be readable."""
    from runner.io import inventory

    chosen = inventory.outline(selected)
    others = [name for name in inventory.names() if inventory.find(name) != Path(chosen.path)]
    hostless = [name for name in others if inventory.is_hostless(name)]  # such as a lab that is not up
    clusters = [chosen, *_readable(inventory.outline, [name for name in others if name not in hostless])]
    rows: Rows = [
        *(
            {"name": each.name, "title": each.title, "hosts": len(each.hosts), "cards": each.cards}
            for each in clusters
        ),
        *({"name": name, "title": "no hosts yet", "hosts": 0, "cards": 0} for name in hostless),
    ]
    return sorted(rows, key=lambda row: str(row["name"]))


def _workloads(_selected: str) -> Rows:
    from runner import catalog, parsers
    from runner.io import workloads

    def load(name: str) -> Workload:
        families = tuple(parsers.families())
        return workloads.load(
            name, lambda stem, document, path: catalog.workload(stem, document, families, path)
        )

    return [
        {
            "name": found.name,
            "title": found.title,
            "modes": [mode.name for mode in found.modes],
            "cards": list(found.cards),
            "precisions": list(found.precisions),
            "batch_sizes": list(found.batch_sizes),
        }
        for found in _readable(load, workloads.names())
    ]


def _families(_selected: str) -> Rows:
    from runner import parsers

    return [
        {"name": family.name, "framework": family.framework, "unit": family.unit, "rule": family.rule}
        for family in parsers.families().values()
    ]


def _runs(_selected: str) -> Rows:
    folders = sorted(path for path in Path("runs").glob("*") if path.is_dir())
    return list(_readable(_run, folders))


def _run(folder: Path) -> dict[str, Any]:
    from runner import plan, records
    from runner.io.files import read_json

    planned = plan.from_json(read_json(folder / "plan.json", *plan.PLAN), str(folder / "plan.json"))
    states = {cell.id: cell.state for cell in planned.cells}
    derived = folder / "results.json"
    if derived.exists():
        for item in read_json(derived, "runkit/results", 1).get("results") or []:
            result = records.decode(Result, item, str(derived))
            states[result.cell] = result.state
    return {
        "id": folder.name,
        "created": planned.created,
        "cluster": planned.cluster.name,
        "states": dict(Counter(states.values())),
    }


def _readable(read: Callable[[Any], Any], sources: Iterable[Any]) -> Iterator[Any]:
    """Read each source; name those that cannot be read, and go on."""
    for source in sources:
        try:
            yield read(source)
        except UsageError as error:
            print(f"runkit: {error}", file=sys.stderr)


def _table(name: str, rows: Rows, *, titled: bool) -> str:
    from tabulate import tabulate

    title = f"{name.capitalize()}\n\n" if titled else ""
    if not rows:
        return f"{title}none"
    cells = [[_text(value) for value in row.values()] for row in rows]
    align = ["right" if isinstance(value, int) else "left" for value in rows[0].values()]
    return title + tabulate(cells, list(rows[0]), "pipe", disable_numparse=True, colalign=align)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{count} {key}" for key, count in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return printable(str(value)).replace("|", "\\|")


SECTIONS: Mapping[str, Callable[[str], Rows]] = {
    "clusters": _clusters,
    "workloads": _workloads,
    "families": _families,
    "runs": _runs,
}
