"""``data``: prepare and check a workload's data sets on the hosts."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import Interrupted, UsageError
from runner.names import printable

if TYPE_CHECKING:
    from runner.io.datasets import Verdict
    from runner.model import Workload

HELP = "prepare and check a workload's data sets on the hosts"
EXAMPLE = "python -m runner -i v100x32 data resnet50_ngc_pytorch --from ~/Downloads"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``data``."""
    parser.add_argument("workload", metavar="WORKLOAD", help="its name under workloads/, or a file's path")
    parser.add_argument("--from", dest="source", metavar="DIR", help="the folder here that has the archives")
    parser.add_argument("--synthetic", action="store_true", help="make small sets in the same layout")
    parser.add_argument("--json", action="store_true", help="print a JSON array, one object per host and set")


def run(args: argparse.Namespace) -> int:
    """Return 0 when all sets are ready on all hosts, 1 when one is not; raises UsageError."""
    from runner import provision
    from runner.io import ansible, datasets, inventory
    from runner.io.signals import Signals

    workload = _workload(args.workload)
    if not workload.data:
        print(f"{workload.name}: needs no data set; it brings its own", file=sys.stderr)
        return 0
    source = datasets.checked_source(args.source) if args.source is not None else None
    cluster = inventory.load(args.inventory, ansible.inventory_list)
    log = Path("runs") / f"data-{cluster.name}.log"
    with Signals() as signals:
        order = datasets.Order(cluster, workload.data, source, args.synthetic, log, lambda: signals.count > 0)
        verdicts = datasets.prepare(order, _say)
    if signals.count:
        again = "run data again: what is done is not done twice"
        again = again if order.local else f"the hosts finish what they are at; {again}"
        raise Interrupted(signals.last, f"data ended by {signals.name}; {again}")
    print(json.dumps([asdict(each) for each in verdicts], indent=1) if args.json else _table(verdicts))
    failed = [each for each in verdicts if each.state not in ("ready", "made")]
    for each in failed:
        print(f"runkit: {each.host}: {each.folder}: {provision.explain(each.detail)}", file=sys.stderr)
    return 1 if failed else 0


def _say(text: str) -> None:
    """A line in one piece: hosts tell what goes on at the same time."""
    print(f"{printable(text)}\n", end="", file=sys.stderr)


def _workload(name: str) -> Workload:
    from runner import catalog, parsers
    from runner.io import workloads

    families = tuple(parsers.families())
    found = workloads.load(
        name, lambda stem, document, path: catalog.workload(stem, document, families, path)
    )
    folders = [each.folder for each in found.data]
    if len(set(folders)) < len(folders):
        raise UsageError(f"{found.path}: data: two sets have the same folder; give each its own")
    return found


def _table(verdicts: Sequence[Verdict]) -> str:
    from tabulate import tabulate

    rows = [(each.host, each.folder, each.state, _counts(each)) for each in verdicts]
    return tabulate(rows, ("host", "data set", "state", "counts"), "pipe", disable_numparse=True)


def _counts(verdict: Verdict) -> str:
    words = [f"{part} {number}" for part, number in verdict.counts.items()]
    if verdict.state != "failed" and verdict.detail:
        words.append(printable(verdict.detail))
    return ", ".join(words) or "-"
