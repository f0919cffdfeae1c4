"""Conducting a run: stage it, follow the agent, bring the logs home, judge the cells, derive the tables.

    plan -> files -> Ansible carries them and starts the agent -> files -> parse, judge, tabulate

Each step leaves its result in the run's folder, and the next one starts from there alone.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner import evidence, parsers, plan, progress, render, tables
from runner.errors import BusyError, HostError, UsageError
from runner.io import ansible, archive, logs, rundir
from runner.io.files import ROOT, write_bytes, write_json
from runner.io.follow import Follower
from runner.io.rundir import RunDir
from runner.io.signals import Signals
from runner.io.terminal import Display
from runner.io.workloads import staged
from runner.model import Cell, Host, Line, Plan, Problem, Result, Workload
from runner.records import encode

BUSY = 75  # the agent's exit status when another run holds the host
FOLLOWERS = 5  # a follower that is killed is replaced so often
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
    work = {
        "run": run.plan.run,
        "cells": [cell.id for cell in todo],
        "launch_host": run.launch_host.name,
        "mpirun": run.plan.cluster.mpirun,
        "detached": run.plan.detached,
        "lost_after_s": LOST_AFTER_S,
    }
    run.folder.stop.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="runkit-stage-") as folder:
        target = Path(folder) / "stage.pyz"
        archive.stage(
            target,
            work,
            {cell.id: plan.cell_json(cell) for cell in todo},
            {cell.id: cell.hostfile for cell in todo if cell.hostfile is not None},
            run.folder.workload,
        )
        outcome = _playbook("bench", run, {"bench_agent_stage": str(target)}, signals)
    if outcome.successful or outcome.status == "canceled":
        return outcome.successful
    busy = next((failure for failure in outcome.failures if failure.status == BUSY), None)
    if busy is not None:
        raise BusyError(
            f"cluster {run.plan.cluster.name}: run {busy.message} is working on {busy.host}; wait for it, "
            f"or end it with: {command('stop', busy.message)}"
        )
    raise _host_error("stage the run", outcome)


def _playbook(name: str, run: Run, variables: Mapping[str, str], signals: Signals | None) -> ansible.Outcome:
    return ansible.playbook(
        name,
        run.inventory,
        {"bench_agent_root": run.agent_root, "bench_agent_run": run.plan.run, **variables},
        log=run.folder.log(name) if run.folder.path.exists() else None,
        cancelled=(lambda: signals.count > 0) if signals else (lambda: False),
    )


def _host_error(what: str, outcome: ansible.Outcome) -> HostError:
    said = "; ".join(map(str, outcome.failures)) or outcome.status
    return HostError(f"cannot {what}: {said}")


def command(*words: str) -> str:
    """A command line of ours, as a person would type it."""
    return shlex.join(("python", "-m", "runner", *words))


# --- follow --------------------------------------------------------------------------------


def follow(
    run: Run, todo: Sequence[Cell], signals: Signals, display: Display, seen: int = 0
) -> progress.View:
    """Show the agent's progress until it is done; a first signal asks it to stop, a second ends it at once.

    A detached run is only watched: a signal ends the watching, the run goes on. A follower that is lost is
    replaced. The first ``seen`` events of the journal are passed over: those of an earlier try.
    """
    view = progress.View(tuple(todo))
    wishes = _Wishes(run, signals, display)
    for _ in range(FOLLOWERS):
        began, passed = time.monotonic(), 0
        with Follower(_agent(run, "follow")) as follower:
            for came in follower.events(0.5):
                event = came or {"event": "tick", "seconds": time.monotonic() - began}
                passed += "t" in event
                if "t" not in event or passed > seen:
                    began = time.monotonic() if event["event"] == "cell_started" else began
                    view = progress.fold(view, event, sample)
                    _tell(view, event, display)
                if wishes.leave():
                    break
                wishes.pass_on(follower)
        seen = max(seen, passed)
        if view.over is not None or wishes.leave():
            break
        time.sleep(0.2)
    display.clear()
    return view


class _Wishes:
    """What a person asked for while a run goes on, by signals or by ``stop``; each is passed on once."""

    def __init__(self, run: Run, signals: Signals, display: Display) -> None:
        self._run, self._signals, self._display = run, signals, display
        self._asked = 0

    def leave(self) -> bool:
        """Whether a person leaves a run that goes on without them."""
        return self._run.plan.detached and self._signals.count > 0

    def pass_on(self, follower: Follower) -> None:
        """Say to the agent what was not said yet."""
        wanted = max(self._signals.count, int(self._run.folder.stop.exists()))
        if wanted > self._asked:
            self._asked = wanted
            follower.say("stop" if wanted == 1 else "now")
            self._display.say("stopping ..." if wanted == 1 else "stopping now ...")


def sample(cell: Cell, text: str) -> progress.Sample:
    """What a record line of a cell says; nothing where it is not quite one."""
    run = parsers.parse_cell([Line(1, text)], cell.log_name, parsers.Known(family=cell.family))
    if isinstance(run, Problem) or not run.records:
        return progress.Sample()
    record = run.records[-1]
    return progress.Sample(record.step, record.rate, record.done)


def _tell(view: progress.View, event: Mapping[str, object], display: Display) -> None:
    if event["event"] == "cell_ended" and view.ended is event:
        display.say(progress.ended(view))
    elif view.over is None and view.ended is None:
        display.show(progress.line(view))


def _agent(run: Run, word: str) -> list[str]:
    if run.launch_host.connection != "local":
        raise UsageError(
            f"{run.launch_host.name}: following a run over SSH is not possible yet; use a local cluster"
        )
    folder = Path(run.agent_root) / run.plan.run
    return [sys.executable, str(folder / "agent.py"), word, str(folder)]


# --- collect, stop -------------------------------------------------------------------------


def collect(run: Run) -> int:
    """Bring home what every host measured, each file verified; returns their number. Raises HostError."""
    with tempfile.TemporaryDirectory(prefix="runkit-collect-") as folder:
        for _ in range(2):  # somebody else may have packed the same run in between
            outcome = _playbook("collect", run, {"bench_agent_collected": folder}, None)
            if outcome.successful:
                break
        fetched = 0
        cells = [cell.id for cell in run.plan.cells]
        for host in run.plan.cluster.hosts:
            path = Path(folder) / f"{host.name}.tar.gz"
            if path.is_file():
                fetched += archive.unpack(path, host.name, run.folder.path, cells)
    if not outcome.successful:
        raise _host_error("collect the run", outcome)
    return fetched


def stop(run: Run) -> int:
    """End everything the run left on any host; returns how many hosts something was ended on.

    Raises HostError where something survives or a host does not answer.
    """
    run.folder.stop.touch()
    outcome = _playbook("stop", run, {}, None)
    if not outcome.successful:
        raise _host_error("stop the run", outcome)
    return sum(1 for changed in outcome.changed.values() if changed)


# --- judge ---------------------------------------------------------------------------------


def judge(run: Run) -> tuple[Result, ...]:
    """The result of every cell, from what is in the run's folder; writes what is derived from it."""
    events = tuple(run.folder.journal())
    results = tuple(_judge_cell(run, cell, events) for cell in run.plan.cells)
    write_json(run.folder.path / "results.json", "runkit/results", 1, _results(run, results))
    run.folder.write_sums()
    return results


def _judge_cell(run: Run, cell: Cell, events: tuple[Mapping[str, Any], ...]) -> Result:
    folder = run.folder.cell(cell.id)
    text = logs.CellLog(folder)
    log = parsers.parse_cell(text, cell.log_name, parsers.Known(family=cell.family))
    if not isinstance(log, Problem):
        log = replace(log, problems=(*log.problems, *text.problems))
    traces = evidence.Traces(
        events=events,
        ranks=tuple(run.folder.ranks(cell.id)),
        log=None if isinstance(log, Problem) else log,
        unread=log.detail if isinstance(log, Problem) else None,
        last_words=tuple(run.folder.last_words(cell.id)),
    )
    result = evidence.judge(cell, traces)
    if result.state not in ("planned", "refused"):
        write_json(folder / "evidence.json", "runkit/evidence", 1, evidence.document(cell, traces))
        write_json(folder / "result.json", "runkit/result", 1, encode(result))
    return result


def _results(run: Run, results: Sequence[Result]) -> dict[str, Any]:
    return {
        "run": run.plan.run,
        "created": run.plan.created,
        "cluster": run.plan.cluster.name,
        "title": run.plan.cluster.title,
        "notes": [note] if (note := shared_cores(run)) else [],
        "results": [encode(result) for result in results],
    }


def shared_cores(run: Run) -> str | None:
    """What a table must say where its cards are process slots; None where they are cards."""
    if run.plan.cluster.card_model:
        return None
    cpus = {host: (facts["cpus"], facts["cpu"]) for host, facts in run.folder.facts().items()}
    each = ", ".join(f"{host}: {count} cores, {model}" for host, (count, model) in sorted(cpus.items()))
    text = "cards are process slots that share the cores of their machine"
    return f"{text} ({each}); a speed-up here says nothing about accelerators" if each else text


def tabulate(run: Run, results: Sequence[Result]) -> str:
    """The tables as Markdown; writes them into the run's folder in every format."""
    made = tables.tables(results, shared_cores(run))
    template = (ROOT / "reports" / "templates" / "report.html.j2").read_text("utf-8")
    title = f"{run.plan.cluster.title}, {run.plan.created}"
    for name, form in (("report.md", "md"), ("report.html", "html"), ("results.csv", "csv")):
        text = render.render(made, form, title, "en", template)
        write_bytes(run.folder.path / name, text.encode())
    return render.markdown(made)
