"""What ``bench`` does with a matrix: start it, resume it, attach to it, and end with its tables.

Every function returns an exit status, 0 when all cells are measured and 1 when some are not.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from runner import conduct, following, judging, preflight
from runner.conduct import Run, command
from runner.errors import BusyError, Interrupted, UsageError
from runner.io import origin
from runner.io.fetch import Fetched
from runner.io.signals import Signals
from runner.io.terminal import Display
from runner.model import Cell, Cluster, Plan, Workload


def new(cluster: Cluster, chosen: Sequence[Workload], cells: tuple[Cell, ...], detached: bool) -> int:
    _check_launchers(cluster, cells)
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


def _check_launchers(cluster: Cluster, cells: Sequence[Cell]) -> None:
    """On this machine a missing program can be seen before anything starts; elsewhere the agent sees it."""
    if cluster.hosts[0].connection != "local":
        return
    for program in sorted({cell.argv[0] for cell in cells if cell.state == "planned"}):
        if shutil.which(program) is None:
            brings = "pip install -r requirements.txt brings an mpirun, cluster_mpirun names another"
            raise UsageError(f"{program}: no such program on this machine; {brings}")


def resume(earlier: Run, is_looked_at: bool) -> int:
    """Measure what is missing, once the hosts of that were looked at."""
    with Signals() as signals:
        fetched = _collect(earlier)
        results = judging.judge(earlier.folder, earlier.plan, fetched)
        states = {result.cell: result.state for result in results}
        todo = [cell for cell in earlier.plan.cells if states[cell.id] not in ("measured", "refused")]
        if not todo:
            return _finish(earlier, signals, fetched)
        if is_looked_at:
            preflight.check(earlier.plan.cluster, earlier.inventory, todo)
        return _go(earlier, todo, signals, len(earlier.folder.journal()))


def attach(earlier: Run) -> int:
    todo = [cell for cell in earlier.plan.cells if cell.state == "planned"]
    with Signals() as signals:
        return _follow(earlier, todo, signals)


def _go(begun: Run, todo: Sequence[Cell], signals: Signals, seen: int = 0) -> int:
    display = Display(sys.stderr)
    cells = "1 cell" if len(todo) == 1 else f"{len(todo)} cells"
    display.say(f"run {begun.plan.run}: {cells} on {begun.plan.cluster.name}")
    display.show("staging ...")
    started = conduct.stage(begun, todo, signals)
    display.clear()
    if not started:
        conduct.stop(begun)
        return _home(begun, signals)
    if begun.plan.detached and begun.folder.stop.exists():
        conduct.stop(begun)
        return _home(begun, signals)
    if begun.plan.detached:
        display.say(f"it goes on by itself; see it with: {command('bench', '--attach', begun.plan.run)}")
        return 0
    return _follow(begun, todo, signals, seen)


def _follow(begun: Run, todo: Sequence[Cell], signals: Signals, seen: int = 0) -> int:
    view = following.follow(begun, todo, signals, Display(sys.stderr), seen)
    if view.over is None:
        again = command("bench", "--attach", begun.plan.run)
        goes_on = "the run goes on" if begun.plan.detached else "nobody was there to end the run"
        raise Interrupted(signals.last, f"{signals.name}: {goes_on}; see it with: {again}")
    if view.over not in ("done", "stopped on request"):
        print(f"the agent on {begun.launch_host.name} ended early: {view.over}", file=sys.stderr)
    return _home(begun, signals)


def _home(begun: Run, signals: Signals) -> int:
    if signals.count > 1:
        text = f"{signals.name} twice: ended at once; what was measured comes home with: "
        raise Interrupted(signals.last, text + command("collect", begun.plan.run))
    return _finish(begun, signals, _collect(begun))


def _collect(run: Run) -> Fetched:
    """Bring home what there is, and tell which hosts are out of reach."""
    fetched = conduct.collect(run)
    for host, why in fetched.absent.items():
        print(f"runkit: {host} could not be asked for its logs: {why}", file=sys.stderr)
    return fetched


def _finish(done: Run, signals: Signals, fetched: Fetched) -> int:
    results = judging.judge(done.folder, done.plan, fetched)
    print(judging.tabulate(done.folder, done.plan, results), end="")
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
