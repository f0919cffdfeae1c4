"""What a person sees while a run goes on: a view folded from the agent's events, shown as one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.model import Cell


@dataclass(frozen=True, slots=True)
class Sample:
    """What one record line says: step, rate in the cell's unit, fraction done in [0, 1]."""

    step: int | None = None
    rate: float | None = None
    done: float | None = None


@dataclass(frozen=True, slots=True)
class View:
    """Where a run is: ``todo`` are the cells of this try, ``elapsed_s`` counts in the current one."""

    todo: tuple[Cell, ...]
    index: int = -1
    elapsed_s: float = 0.0
    sample: Sample = Sample()
    ended: Mapping[str, Any] | None = None  # the newest end of a cell
    over: str | None = None  # why the agent ended


Read = Callable[[Cell, str], Sample]


def fold(view: View, event: Mapping[str, Any], read: Read) -> View:
    """The view after one more event. ``read`` turns a record line of a cell into a Sample."""
    kind, cell = event["event"], event.get("cell")
    index = next((number for number, each in enumerate(view.todo) if each.id == cell), None)
    if kind == "cell_started" and index is not None:
        return replace(view, index=index, elapsed_s=0.0, sample=Sample(), ended=None)
    if kind == "cell_ended" and index is not None:
        return replace(view, index=index, ended=event)
    if kind == "progress" and index == view.index and index is not None and view.ended is None:
        return replace(
            view, elapsed_s=float(event["seconds"]), sample=read(view.todo[index], str(event["line"]))
        )
    if kind == "tick" and view.ended is None and view.sample == Sample():
        return replace(view, elapsed_s=float(event["seconds"]))
    if kind in ("agent_ended", "agent_lost"):
        return replace(view, over=str(event.get("reason", "the agent was lost")))
    return view


def left_s(view: View) -> float:
    """Seconds that the cells not yet done will take, by their own progress or their estimate."""
    if view.index < 0:
        return sum(cell.estimated_s for cell in view.todo)
    here, done = view.todo[view.index], view.sample.done
    if view.ended is not None:
        rest = 0.0
    elif done is not None and done > 0.02:
        rest = view.elapsed_s * (1 - done) / done
    else:
        rest = max(0.0, here.estimated_s - view.elapsed_s)
    return rest + sum(cell.estimated_s for cell in view.todo[view.index + 1 :])


def line(view: View) -> str:
    """One line: which cell of how many, step, current rate, time left."""
    if view.index < 0:
        return f"starting, {len(view.todo)} to measure, about {clock(left_s(view))} in all"
    cell, sample = view.todo[view.index], view.sample
    parts = [f"[{view.index + 1}/{len(view.todo)}] {title(cell)}"]
    if sample.step is not None:
        parts.append(f"step {sample.step}")
    parts.append(f"{sample.rate:,.1f} {cell.unit}" if sample.rate is not None else "starting")
    parts.append(f"{clock(left_s(view))} left")
    return "  ".join(parts)


def ended(view: View) -> str:
    """The line that stays of a cell that has just ended."""
    cell, event = view.todo[view.index], view.ended
    assert event is not None
    rate = f", last rate {view.sample.rate:,.1f} {cell.unit}" if view.sample.rate is not None else ""
    how = (
        "done"
        if event["outcome"] == "exited" and event["status"] == 0
        else f"{event['outcome']}: {event['reason']}"
    )
    return (
        f"[{view.index + 1}/{len(view.todo)}] {title(cell)}: {how} in {clock(float(event['seconds']))}{rate}"
    )


def title(cell: Cell) -> str:
    """A cell as people call it."""
    cards = "1 card" if cell.cards == 1 else f"{cell.cards} cards"
    mode = "" if cell.mode == "throughput" else f" {cell.mode}"
    again = f" #{cell.repeat}" if cell.repeat > 1 else ""
    return f"{cell.workload}{mode} {cards} {cell.precision} bs{cell.batch_size}{again}"


def clock(seconds: float) -> str:
    """``m:ss``, or ``h:mm:ss`` from an hour on."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
