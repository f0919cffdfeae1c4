"""``bench``: run the matrix and print the tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from runner import catalog, conduct, dryrun, parsers, plan
from runner.conduct import Run, command
from runner.errors import BusyError, HostError, Interrupted, UsageError
from runner.io import ansible, inventory, origin, rundir, workloads
from runner.io.signals import Signals
from runner.io.terminal import Display
from runner.model import Cell, Cluster, Plan, Workload

HELP = "run the matrix and print the tables"
EXAMPLE = "python -m runner bench --cards 1,8,32 --precision fp32,fp16"
DEFAULT_WORKLOAD = "digits"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``bench``."""
    parser.add_argument(
        "-w",
        "--workload",
        metavar="NAME",
        action="append",
        help=f"a name under workloads/ or the path of such a file; repeatable; default: {DEFAULT_WORKLOAD}",
    )
    parser.add_argument(
        "--mode", metavar="MODES", help="throughput (default), time_to_train, accuracy; comma-separated"
    )
    parser.add_argument(
        "--cards", metavar="COUNTS", help="such as 1,8,32; default: those of the workload that fit"
    )
    parser.add_argument(
        "--precision", metavar="NAMES", help="such as fp32,fp16; default: the workload's first"
    )
    parser.add_argument("--batch-size", metavar="SIZES", help="per card; default: the workload's first")
    parser.add_argument(
        "--repeat", metavar="N", default="1", help="measure each cell so many times; default: 1"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="print the exact command lines and start nothing")
    how.add_argument("--detach", action="store_true", help="start and return; the run goes on by itself")
    how.add_argument("--attach", metavar="RUN", help="follow a run that goes on, then print its tables")
    how.add_argument("--resume", metavar="RUN", help="measure the cells of a run that are not measured yet")


def run(args: argparse.Namespace) -> int:
    """Return 0 when all cells are measured, 1 when some are not; raises for everything else."""
    if args.attach or args.resume:
        _refuse_matrix(args)
        earlier = conduct.open_run(rundir.find(args.attach or args.resume))
        return _attach(earlier) if args.attach else _resume(earlier)
    asked = _overrides(args)
    chosen = [_workload(name) for name in args.workload or [DEFAULT_WORKLOAD]]
    cluster = inventory.load(args.inventory, ansible.inventory_list)
    cells = plan.cells(chosen, cluster, asked, {name: f.progress for name, f in parsers.families().items()})
    refused = all(cell.state == "refused" for cell in cells)
    if args.dry_run:
        print(dryrun.dry_run(cells, cluster), end="")
        return 2 if refused else 0
    if refused:
        raise UsageError("; ".join(f"{cell.id}: refused: {cell.reason}" for cell in cells))
    return _new(cluster, chosen, cells, args.detach)


def _refuse_matrix(args: argparse.Namespace) -> None:
    for option in ("workload", "mode", "cards", "precision", "batch_size"):
        if getattr(args, option):
            name = f"--{option.replace('_', '-')}"
            raise UsageError(
                f"{name}: the matrix of a run is fixed in its plan.json; leave it out, or start a new run"
            )


def _workload(name: str) -> Workload:
    families = sorted(parsers.families())
    return workloads.load(
        name, lambda stem, document, place: catalog.workload(stem, document, families, place)
    )


def _overrides(args: argparse.Namespace) -> plan.Overrides:
    return plan.Overrides(
        modes=plan.words("--mode", args.mode) if args.mode is not None else (),
        cards=plan.counts("--cards", args.cards) if args.cards is not None else (),
        precisions=plan.words("--precision", args.precision) if args.precision is not None else (),
        batch_sizes=plan.counts("--batch-size", args.batch_size) if args.batch_size is not None else (),
        repeat=plan.counts("--repeat", args.repeat)[0],
    )


def _new(cluster: Cluster, chosen: Sequence[Workload], cells: tuple[Cell, ...], detached: bool) -> int:
    made = Plan(
        run=origin.new_id(),
        created=origin.now(),
        cluster=cluster,
        cells=cells,
        detached=detached,
        versions=origin.versions(),
        commit=origin.commit(),
    )
    with Signals() as signals:
        begun = conduct.new(Path("runs"), made, chosen)
        try:
            return _go(begun, [cell for cell in cells if cell.state == "planned"], signals)
        except BusyError:
            begun.folder.remove()
            raise


def _resume(earlier: Run) -> int:
    with Signals() as signals:
        conduct.collect(earlier)
        states = {result.cell: result.state for result in conduct.judge(earlier)}
        todo = [cell for cell in earlier.plan.cells if states[cell.id] not in ("measured", "refused")]
        if not todo:
            return _finish(earlier, signals)
        return _go(earlier, todo, signals)


def _attach(earlier: Run) -> int:
    todo = [cell for cell in earlier.plan.cells if cell.state == "planned"]
    with Signals() as signals:
        return _follow(earlier, todo, signals)


def _go(begun: Run, todo: Sequence[Cell], signals: Signals) -> int:
    display = Display(sys.stderr)
    display.say(f"run {begun.plan.run}: {len(todo)} cells on {begun.plan.cluster.name}")
    display.show("staging ...")
    started = conduct.stage(begun, todo, signals)
    display.clear()
    if not started:
        conduct.stop(begun)
        return _home(begun, signals)
    if begun.plan.detached:
        display.say(f"it goes on by itself; see it with: {command('bench', '--attach', begun.plan.run)}")
        return 0
    return _follow(begun, todo, signals)


def _follow(begun: Run, todo: Sequence[Cell], signals: Signals) -> int:
    view = conduct.follow(begun, todo, signals, Display(sys.stderr))
    again = command("bench", "--attach", begun.plan.run)
    if view.over is None and signals.count:
        raise Interrupted(signals.last, f"{signals.name}: the run goes on; see it with: {again}")
    if view.over is None:
        raise HostError(
            f"{begun.plan.run}: its agent on {begun.launch_host.name} cannot be followed; try: {again}"
        )
    return _home(begun, signals)


def _home(begun: Run, signals: Signals) -> int:
    if signals.count > 1:
        text = f"{signals.name} twice: ended at once; what was measured comes home with: "
        raise Interrupted(signals.last, text + command("collect", begun.plan.run))
    conduct.collect(begun)
    return _finish(begun, signals)


def _finish(done: Run, signals: Signals) -> int:
    results = conduct.judge(done)
    print(conduct.tabulate(done, results), end="")
    measured = sum(1 for result in results if result.state == "measured")
    for result in results:
        if result.state not in ("measured", "planned"):
            print(f"{result.cell}: {result.state}: {result.reason}", file=sys.stderr)
    if measured == len(results):
        return 0
    again = command("bench", "--resume", done.plan.run)
    said = f"{measured} of {len(results)} cells measured; the rest with: {again}"
    if signals.count:
        raise Interrupted(signals.last, f"{signals.name}: stopped; {said}")
    print(f"runkit: {said}", file=sys.stderr)
    return 1
