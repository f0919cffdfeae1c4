"""Conducting a run: stage it, bring its logs home, end it; ``following`` and ``judging`` do the rest.

    plan -> files -> Ansible carries them and starts the agent -> files -> parse, judge, tabulate

Each step leaves its result in the run's folder, and the next one starts from there alone.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from runner import plan
from runner.errors import BusyError, HostError
from runner.io import ansible, archive, fetch, inventory, rundir, ssh
from runner.io.events import Failure
from runner.io.files import ROOT, write_bytes
from runner.io.rundir import RunDir
from runner.io.signals import Signals
from runner.io.workloads import staged
from runner.model import Cell, Host, Plan, Workload

BUSY = 75  # the agent's exit status when another run holds the host
LOST_AFTER_S = 20.0  # the agent ends a cell whose controller was silent for so long


@dataclass(frozen=True, slots=True)
class Run:
    """A run's folder and the plan in it."""

    folder: RunDir
    plan: Plan

    @property
    def inventory(self) -> Path:
        """The cluster's folder."""
        return Path(self.plan.cluster.path)

    @property
    def launch_host(self) -> Host:
        """The host whose agent starts the cells."""
        return self.plan.cluster.hosts[0]

    def hosts(self, cells: Sequence[Cell]) -> list[Host]:
        """The hosts that these cells use, the launch host first."""
        used = {place.host for cell in cells for place in cell.placement} | {self.launch_host.name}
        return [host for host in self.plan.cluster.hosts if host.name in used]

    @property
    def agent_root(self) -> str:
        """Where the hosts keep their runs; on this machine "~" is $HOME, which Ansible's "~" need not be."""
        root = self.plan.cluster.agent_root
        return str(Path(root).expanduser()) if self.launch_host.connection == "local" else root


def new(runs: Path, made: Plan, workloads: Sequence[Workload]) -> Run:
    """Write the plan and the workloads' files as they are now: a later ``--resume`` stages the same bytes."""
    folder = rundir.create(runs, made.run)
    folder.write_plan(plan.to_json(made))
    for workload in workloads:
        for name, source in staged(workload):
            write_bytes(folder.workload / name, source.read_bytes())
    return Run(folder, made)


def open_run(folder: RunDir) -> Run:
    """The run that is in a folder. Raises UsageError where its plan cannot be read."""
    return Run(folder, plan.from_json(folder.read_plan(), str(folder.plan)))


# --- stage ---------------------------------------------------------------------------------


def stage(run: Run, todo: Sequence[Cell], signals: Signals) -> bool:
    """Put the cells on the hosts and start the agent; False where a signal broke it off, wherever it was.

    Raises BusyError, HostError.
    """
    hosts, cluster = run.hosts(todo), run.plan.cluster
    work = {
        "run": run.plan.run,
        "cells": [cell.id for cell in todo],
        "hosts": [{"name": host.name, "address": host.for_others} for host in hosts],
        "launch_host": run.launch_host.name,
        "mpirun": cluster.mpirun,
        "root": run.agent_root,
        "python": cluster.agent_python,
        "detached": run.plan.detached,
        "lost_after_s": LOST_AFTER_S,
        "remedy": command("-i", _cluster_word(run), "provision"),
    }
    run.folder.stop.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="runkit-stage-") as folder:
        target = Path(folder) / "stage.pyz"
        archive.stage(
            target,
            work,
            {cell.id: plan.cell_json(cell) for cell in todo},
            {cell.id: _texts(cell) for cell in todo},
            run.folder.workload,
        )
        variables = {"bench_agent_stage": str(target), "bench_agent_launch_host": run.launch_host.name}
        outcome = _playbook("bench", run, todo, variables, signals)
    if outcome.successful or outcome.status == "canceled":
        return outcome.successful
    busy = next((failure for failure in outcome.failures if failure.status == BUSY), None)
    if busy is not None:
        other, _, where = busy.message.partition(" on ")
        raise BusyError(
            f"cluster {run.plan.cluster.name}: run {other} is working on {where or busy.host}; wait for it, "
            f"or end it with: {command('stop', other)}"
        )
    raise _host_error(run, "stage the run", outcome.failures, outcome.status)


def _texts(cell: Cell) -> Mapping[str, str]:
    """The files of a cell that the plan wrote."""
    return {**cell.scripts, **({} if cell.hostfile is None else {"hostfile": cell.hostfile})}


def _playbook(
    name: str, run: Run, cells: Sequence[Cell], variables: Mapping[str, str], signals: Signals | None = None
) -> ansible.Outcome:
    return ansible.playbook(
        name,
        run.inventory,
        {"bench_agent_root": run.agent_root, "bench_agent_run": run.plan.run, **variables},
        hosts=[host.name for host in run.hosts(cells)],
        log=run.folder.log(name) if run.folder.path.exists() else None,
        cancelled=(lambda: signals.count > 0) if signals else (lambda: False),
    )


def _host_error(
    run: Run, what: str, failures: Sequence[Failure], otherwise: str, then: str = ""
) -> HostError:
    hosts = {host.name: host for host in run.plan.cluster.hosts}
    said = []
    for failure in failures:
        host, message = hosts.get(failure.host), failure.message
        if host is not None and failure.unreachable:
            message = ssh.explained(host, variables(run, host), message)
        where = failure.host if failure.unreachable else f"{failure.host}: {failure.task}"
        said.append(f"{where}: {message}")
    return HostError(f"cannot {what}: {'; '.join(said) or otherwise}{then}")


def variables(run: Run, host: Host) -> Mapping[str, object]:
    """What the inventory says of a host now; secrets among it are why it is not kept in the plan."""
    return inventory.hostvars(run.inventory, ansible.inventory_list).get(host.name, {})


def _cluster_word(run: Run) -> str:
    return run.inventory.name if run.inventory.parent == ROOT / "inventory" else str(run.inventory)


def command(*words: str) -> str:
    """A command line of ours, as a person would type it."""
    return shlex.join(("python", "-m", "runner", *words))


def agent(run: Run, host: Host, word: str) -> list[str]:
    """The command line of the agent on a host, from here."""
    folder = f"{run.agent_root}/{run.plan.run}"
    if host.connection == "local":
        return [sys.executable, f"{folder}/agent.py", word, folder]
    folder = ssh.home_path(folder)
    argv = [run.plan.cluster.agent_python, f"{folder}/agent.py", word, folder]
    return ssh.command(host, variables(run, host), argv, bulk=word == "pack")


# --- collect, stop -------------------------------------------------------------------------


def collect(run: Run) -> fetch.Fetched:
    """Bring home what the hosts measured, each file verified. Raises HostError where one in reach cannot."""
    cells = [cell for cell in run.plan.cells if cell.state == "planned"]
    ids, hosts = [cell.id for cell in cells], run.hosts(cells)
    packs = {host: agent(run, host, "pack") for host in hosts}
    with ThreadPoolExecutor(max_workers=len(hosts)) as pool:
        came = pool.map(lambda host: fetch.fetch(packs[host], host.name, run.folder.path, ids), hosts)
        found = dict(zip(hosts, came, strict=True))
    absent = {
        host.name: ssh.explained(host, variables(run, host), why) for host, (_, why) in found.items() if why
    }
    if run.launch_host.name in absent:
        said = "; ".join(f"{name}: {why}" for name, why in absent.items())
        again = command("collect", run.plan.run)
        raise HostError(f"cannot collect the run: {said}; once it is back: {again}")
    files = {name: digest for those, _ in found.values() for name, digest in those.items()}
    return fetch.Fetched(files, absent)


def stop(run: Run) -> int:
    """End everything the run left on any host; returns how many hosts something was ended on.

    Raises HostError where something survives or a host does not answer, after the others were seen to.
    """
    run.folder.stop.touch()
    outcome = _playbook("stop", run, run.plan.cells, {})
    ended = sum(1 for changed in outcome.changed.values() if changed)
    if not outcome.successful:
        then = f"; ended on {ended} other host(s); once it is back: {command('stop', run.plan.run)}"
        raise _host_error(run, "stop the run everywhere", outcome.failures, outcome.status, then)
    return ended
