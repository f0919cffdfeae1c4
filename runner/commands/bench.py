"""``bench``: run the matrix and print the tables."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import UsageError
from runner.names import printable

if TYPE_CHECKING:
    from runner import plan
    from runner.model import Workload

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
    parser.add_argument(
        "--accept-hours", action="store_true", help="cells that take an hour or more are meant to run"
    )
    parser.add_argument(
        "--scripts", metavar="DIR", help="with --dry-run: write the command lines there as scripts that run"
    )
    parser.add_argument(
        "--no-preflight",
        action="store_true",
        help="start though a look at the hosts would find what keeps training from running",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="print the exact command lines and start nothing")
    how.add_argument("--detach", action="store_true", help="start and return; the run goes on by itself")
    how.add_argument("--attach", metavar="RUN", help="follow a run that goes on, then print its tables")
    how.add_argument("--resume", metavar="RUN", help="measure the cells of a run that are not measured yet")


def run(args: argparse.Namespace) -> int:
    """Return 0 when all cells are measured, 1 when some are not; raises for everything else."""
    from runner import bench, dryrun, limits, parsers, plan, preflight
    from runner.io import ansible, inventory, scripts

    _refuse_scripts(args)
    if args.attach is not None or args.resume is not None:
        return _go_on(args)
    asked = _overrides(args)
    chosen = [_workload(name) for name in args.workload or [DEFAULT_WORKLOAD]]
    cluster = inventory.load(args.inventory, ansible.inventory_list)
    cells = plan.cells(chosen, cluster, asked, {name: f.progress for name, f in parsers.families().items()})
    refused = all(cell.state == "refused" for cell in cells)
    remarks = [text for each in chosen if (text := limits.remark(each, cluster))]
    if args.dry_run:
        if args.scripts is not None:
            scripts.write(Path(args.scripts), dryrun.scripts(cells, cluster, chosen), chosen)
        print(dryrun.dry_run(cells, cluster, remarks=remarks), end="")
        return 2 if refused else 0
    if refused:
        raise UsageError("; ".join(f"{cell.id}: refused: {cell.reason}" for cell in cells))
    for text in remarks:
        print(f"runkit: {printable(text)}", file=sys.stderr)
    if not args.no_preflight:
        preflight.check(cluster, Path(cluster.path), cells)
    return bench.new(cluster, chosen, cells, args.detach)


def _refuse_scripts(args: argparse.Namespace) -> None:
    if args.scripts is not None and not args.dry_run:
        raise UsageError("--scripts: writes what --dry-run prints; give --dry-run too")
    if args.scripts is not None and not args.scripts.strip():
        raise UsageError('--scripts "": is empty; name a new folder')


def _go_on(args: argparse.Namespace) -> int:
    """A run that was started before."""
    from runner import bench, conduct
    from runner.io import rundir

    _refuse_matrix(args)
    earlier = conduct.open_run(rundir.find(args.resume if args.attach is None else args.attach))
    if args.attach is not None:
        return bench.attach(earlier)
    return bench.resume(earlier, not args.no_preflight)


def _refuse_matrix(args: argparse.Namespace) -> None:
    for option in ("workload", "mode", "cards", "precision", "batch_size", "accept_hours"):
        if getattr(args, option):
            name = f"--{option.replace('_', '-')}"
            raise UsageError(
                f"{name}: the matrix of a run is fixed in its plan.json; leave it out, or start a new run"
            )


def _workload(name: str) -> Workload:
    from runner import catalog, parsers
    from runner.io import workloads

    families = sorted(parsers.families())
    return workloads.load(
        name, lambda stem, document, place: catalog.workload(stem, document, families, place)
    )


def _repeat(text: str) -> int:
    from runner import plan

    first, *more = plan.counts("--repeat", text)
    if more:
        raise UsageError(f"--repeat {text}: one number; each cell is measured so many times")
    return first


def _overrides(args: argparse.Namespace) -> plan.Overrides:
    from runner import plan

    return plan.Overrides(
        modes=plan.words("--mode", args.mode) if args.mode is not None else (),
        cards=plan.counts("--cards", args.cards) if args.cards is not None else (),
        precisions=plan.words("--precision", args.precision) if args.precision is not None else (),
        batch_sizes=plan.counts("--batch-size", args.batch_size) if args.batch_size is not None else (),
        repeat=_repeat(args.repeat),
        hours=args.accept_hours,
    )
