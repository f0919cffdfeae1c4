"""Judging a run by what is in its folder, and deriving its tables: works without any host, years later."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner import evidence, parsers, render, tables
from runner.comparable import hardware
from runner.io import logfolders
from runner.io.fetch import Fetched
from runner.io.files import ROOT, write_bytes, write_json
from runner.io.rundir import RunDir
from runner.model import Cell, Plan, Problem, Result
from runner.records import encode
from runner.steadiness import steadied

NOTHING = Fetched()


def judge(folder: RunDir, plan: Plan, fetched: Fetched = NOTHING) -> tuple[Result, ...]:
    """The result of every cell; writes what is derived. ``fetched`` is what came home just now."""
    events = tuple(folder.journal())
    facts = folder.facts()
    results = tuple(
        _judge_cell(folder, cell, events, fetched.absent, _hosts(facts, plan, cell)) for cell in plan.cells
    )
    write_json(folder.path / "results.json", "runkit/results", 1, _results(folder, plan, results))
    folder.write_sums(fetched.files)
    return results


def _judge_cell(
    run: RunDir,
    cell: Cell,
    events: tuple[Mapping[str, Any], ...],
    absent: Collection[str],
    hosts: Mapping[str, str],
) -> Result:
    folder = run.cell(cell.id)
    text = logfolders.CellLog(folder)
    known = parsers.Known(family=cell.family)
    log = parsers.parse_cell(text.holding(parsers.words(known)), cell.log_name, known)
    if not isinstance(log, Problem):
        log = replace(log, problems=(*log.problems, *text.problems), steady=steadied(log).steady)
    traces = evidence.Traces(
        events=events,
        ranks=tuple(run.ranks(cell.id)),
        log=None if isinstance(log, Problem) else log,
        unread=log.detail if isinstance(log, Problem) else None,
        last_words=tuple(run.last_words(cell.id)),
        absent=tuple(place.host for place in cell.placement if place.host in absent),
    )
    said = {} if isinstance(log, Problem) else hardware(log.gpu, log.driver)
    result = replace(evidence.judge(cell, traces), hardware={**hosts, **said})
    if result.state not in ("planned", "refused"):
        write_json(folder / "evidence.json", "runkit/evidence", 1, evidence.document(cell, traces))
        write_json(folder / "result.json", "runkit/result", 1, encode(result))
    return result


def _results(folder: RunDir, plan: Plan, results: Sequence[Result]) -> dict[str, Any]:
    return {
        "run": plan.run,
        "created": plan.created,
        "cluster": plan.cluster.name,
        "title": plan.cluster.title,
        "notes": [note] if (note := shared_cores(folder, plan)) else [],
        "results": [encode(result) for result in results],
    }


def _hosts(facts: Mapping[str, Mapping[str, Any]], plan: Plan, cell: Cell) -> dict[str, str]:
    """What the hosts of a cell are made of; where they differ, each kind of processor is named."""
    said = [facts.get(place.host, {}) for place in cell.placement]
    cpus = {f"{one['cpu']} * {one['cpus']}" for one in said if one.get("cpu") and one.get("cpus")}
    return hardware(plan.cluster.card_model, plan.cluster.driver, cpu=", ".join(sorted(cpus)))


def shared_cores(folder: RunDir, plan: Plan) -> str | None:
    """What a table must say where its cards are process slots; None where they are cards."""
    if plan.cluster.card_model:
        return None
    cpus = {host: (facts["cpus"], facts["cpu"]) for host, facts in folder.facts().items()}
    each = ", ".join(f"{host}: {count} cores, {model}" for host, (count, model) in sorted(cpus.items()))
    text = "cards are process slots that share the cores of their machine"
    return f"{text} ({each}); a speed-up here says nothing about accelerators" if each else text


def tabulate(folder: RunDir, plan: Plan, results: Sequence[Result]) -> str:
    """The tables as Markdown; writes them into the run's folder in every format."""
    made = tables.tables(results, shared_cores(folder, plan))
    template = (ROOT / "reports" / "templates" / "report.html.j2").read_text("utf-8")
    title = f"{plan.cluster.title}, {plan.created}"
    for name, form in (("report.md", "md"), ("report.html", "html"), ("results.csv", "csv")):
        write_bytes(folder.path / name, render.render(made, form, title, "en", template).encode())
    return render.markdown(made)
