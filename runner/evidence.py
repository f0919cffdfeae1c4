"""What became of a cell, judged by what it left: the journal, the ranks' own records, its logs.

An exit status of 0 is not a measurement. A cell is ``measured`` only when all its ranks ran where they were
planned, its logs are whole, say what was planned and hold enough finite records, and the ranks ended with
the same parameters where the log can tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.model import Cell, LogRun, Problem, Result
from runner.parsers import same_precision

MIN_RECORDS = 10  # fewer carry no rate that anybody could repeat

# Problems of a log that leave nothing to publish; the others are shown with the figure.
FATAL = {
    "nan_loss": "the loss is not finite",
    "truncated": "the log ends before the training does",
    "parameters_differ": "the ranks ended with different parameters",
    "mixed_ranks": "more than one rank wrote records",
    "log_disagrees": "NCCL joined other ranks than the log speaks of",
}


@dataclass(frozen=True, slots=True)
class Traces:
    """Everything a cell left. ``log`` is None where no family's grammar fits, ``unread`` says why then."""

    events: tuple[Mapping[str, Any], ...]  # of the journal, in order
    ranks: tuple[Mapping[str, Any], ...]
    log: LogRun | None
    unread: str | None
    last_words: tuple[tuple[str, str], ...]
    absent: tuple[str, ...] = ()  # hosts of the cell that could not be asked for what it left there


def judge(cell: Cell, traces: Traces) -> Result:
    """The state of a cell in one word, the reason where it is not ``measured``, and its figures."""
    state, reason = _state(cell, traces)
    log = traces.log
    if log is None or state == "planned":
        return _result(cell, state, reason)
    return _result(
        cell,
        state,
        reason,
        rate=log.rate if state == "measured" else None,
        rule=log.rule,
        records=len(log.records),
        # A throughput cell ends when it has measured enough, not when it has learned enough.
        time_to_train_s=None if cell.mode == "throughput" else log.time_to_train_s,
        time_to_target_s=log.time_to_target_s,
        accuracy=log.accuracy,
        problems=log.problems,
    )


def _result(cell: Cell, state: str, reason: str | None, **figures: Any) -> Result:
    return Result(
        cell=cell.id,
        workload=cell.workload,
        mode=cell.mode,
        cards=cell.cards,
        precision=cell.precision,
        batch_size=cell.batch_size,
        listed=cell.listed,
        repeat=cell.repeat,
        state=state,
        reason=reason,
        unit=cell.unit,
        **figures,
    )


def _state(cell: Cell, traces: Traces) -> tuple[str, str | None]:
    if cell.state == "refused":
        return "refused", cell.reason
    started, ended = last_try(traces.events, cell.id)
    if started is None:
        return "planned", "not started"
    if ended is None:
        since = traces.events[traces.events.index(started) :]
        lost = any(event["event"] == "agent_lost" for event in since)
        return ("lost", "the agent was lost while it ran") if lost else ("running", "not ended yet")
    if ended["outcome"] == "exited" and ended["status"] == 0:
        return _measured(cell, traces)
    return _ended_badly(ended, traces)


def _ended_badly(ended: Mapping[str, Any], traces: Traces) -> tuple[str, str]:
    if ended["outcome"] == "lost":
        return "lost", str(ended["reason"])
    if ended["outcome"] != "exited":
        return str(ended["outcome"]), _why(ended, _errors(traces.last_words))
    return "failed", _why(ended, _errors(traces.last_words) or traces.last_words)


def _measured(cell: Cell, traces: Traces) -> tuple[str, str | None]:
    reason = _shortfall(cell, traces)
    if reason and traces.absent:
        return "lost", f"what it left on {', '.join(traces.absent)} could not be collected"
    return ("failed", reason) if reason else ("measured", None)


def last_try(
    events: Sequence[Mapping[str, Any]], cell: str
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """The newest start of a cell and its end; None for what did not happen."""
    started = ended = None
    for event in events:
        if event.get("cell") == cell and event["event"] == "cell_started":
            started, ended = event, None
        elif event.get("cell") == cell and event["event"] == "cell_ended":
            ended = event
    return started, ended


def _errors(last_words: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """Of ranks whose last words are an error; the launcher only repeats that some rank failed."""
    return [said for said in last_words if said[0] != "launcher" and "error" in said[1].lower()]


def _why(ended: Mapping[str, Any], said: Sequence[tuple[str, str]]) -> str:
    """What the agent saw, after what the first of those who said something said."""
    return f"{said[0][0]}: {said[0][1]} ({ended['reason']})" if said else str(ended["reason"])


def _shortfall(cell: Cell, traces: Traces) -> str | None:
    """What is missing for a measurement; None where nothing is."""
    log = traces.log
    if log is None:
        return _absent(cell, traces.ranks) or traces.unread or "its log holds no record of any known family"
    fatal = [f"{FATAL[problem.code]}: {problem.detail}" for problem in log.problems if problem.code in FATAL]
    return (
        _absent(cell, traces.ranks)
        or next(iter(fatal), None)
        or _contradiction(cell, log)
        or _too_little(cell, log)
    )


def _absent(cell: Cell, ranks: Sequence[Mapping[str, Any]]) -> str | None:
    planned = Counter({place.host: place.ranks for place in cell.placement})
    ran = Counter(str(rank["host"]) for rank in ranks)
    total = planned.total()  # one per card, or one per host where the framework starts the rest
    if {rank["rank"] for rank in ranks} != set(range(total)):
        return f"{len(ranks)} of {total} ranks ran"
    if ran != planned:
        return f"ranks ran on {_places(ran)}, planned were {_places(planned)}"
    worlds = {rank["world_size"] for rank in ranks} - {total}
    if worlds and total > 1:
        return f"a rank saw a world of {min(worlds, key=str)} ranks, planned were {total}"
    return None


def _places(counter: Counter[str]) -> str:
    return ", ".join(f"{host} ({ranks})" for host, ranks in sorted(counter.items()))


def _contradiction(cell: Cell, log: LogRun) -> str | None:
    for name in ("cards", "batch_size"):
        said, planned = getattr(log, name), getattr(cell, name)
        if said is not None and said != planned:
            return f"the log says {name.replace('_', ' ')} {said}, planned was {planned}"
    if log.precision is not None and not same_precision(log.precision, cell.precision):
        return f"the log says precision {log.precision}, planned was {cell.precision}"
    hosts = len(cell.placement)
    if log.transport is not None and log.hosts not in (None, hosts):
        return f"the ranks that talked to one another were on {log.hosts} hosts, planned were {hosts}"
    return None


def _too_little(cell: Cell, log: LogRun) -> str | None:
    if log.rate is None:
        return f"no rate by the rule {log.rule}"
    if len(log.records) < MIN_RECORDS:
        return f"{len(log.records)} records; a rate needs at least {MIN_RECORDS}"
    if cell.target is not None and log.time_to_target_s is None:
        return f"the target {cell.target:g} was not reached"
    return None


def document(cell: Cell, traces: Traces) -> dict[str, Any]:
    """The body of evidence.json: who really ran, what the agent saw, what the log says of itself."""
    started, ended = last_try(traces.events, cell.id)
    log = traces.log
    return {
        "cell": cell.id,
        "planned": {place.host: place.ranks for place in cell.placement},
        "world_size": len(traces.ranks),
        "hosts": dict(sorted(Counter(str(rank["host"]) for rank in traces.ranks).items())),
        "ranks": [dict(rank) for rank in sorted(traces.ranks, key=lambda rank: int(rank["rank"]))],
        "transport": log.transport if log else None,
        "window": {"records": len(log.records), "rule": log.rule} if log else None,
        "steady": log.steady if log else None,
        "log": {"sha256": log.sha256, "family": log.family, **log.facts} if log else None,
        "started": dict(started) if started else None,
        "ended": dict(ended) if ended else None,
        "problems": [_problem(problem) for problem in log.problems] if log else [],
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {"code": problem.code, "line": problem.line, "detail": problem.detail}
