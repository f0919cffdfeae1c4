"""The plan: workloads x cluster x what the user asked for becomes cells, in the order they will run.

A cell that a limit forbids is there too, refused, with the reason. What cannot be meant is a UsageError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

from runner import containers, limits, records
from runner.catalog import matching
from runner.errors import UsageError
from runner.launch import LAUNCHERS, Launch
from runner.model import Cell, Cluster, Container, Mode, Placement, Plan, Start, Workload
from runner.names import hint, is_name, shown
from runner.placeholders import fill

PLAN = "runkit/plan", 1
CELL = "runkit/cell", 1
MOST_CELLS = 10_000
HOURS = 3600.0  # seconds; what takes longer must be asked for twice
_COUNT = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the user asked for; what is empty is the workload's own choice."""

    modes: tuple[str, ...] = ()
    cards: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    repeat: int = 1
    hours: bool = False  # whether cells that take an hour or more are meant


class _Point(NamedTuple):
    mode: Mode
    precision: str
    batch_size: int
    cards: int
    repeat: int


def counts(option: str, text: str) -> tuple[int, ...]:
    """Read ``1,8,32`` as given for ``option``. Raises UsageError on all but distinct positive numbers."""
    numbers = []
    for word in words(option, text):
        if not _COUNT.fullmatch(word):
            what = "is not a positive whole number, or is too large; write such as 1,8,32"
            raise UsageError(f"{option} {shown(text)}: {shown(word)} {what}")
        numbers.append(int(word))
    return tuple(numbers)


def words(option: str, text: str) -> tuple[str, ...]:
    """Read ``fp32,amp`` as given for ``option``. Raises UsageError where a word is empty or stands twice."""
    found = tuple(word.strip() for word in text.split(","))
    if not all(found):
        raise UsageError(f"{option} {shown(text)}: a value is empty; write them with one comma between two")
    if len(set(found)) < len(found):
        raise UsageError(f"{option} {shown(text)}: a value stands twice; --repeat measures a cell again")
    return found


def cells(
    workloads: Sequence[Workload], cluster: Cluster, overrides: Overrides, progress_of: Mapping[str, str]
) -> tuple[Cell, ...]:
    """Make the cells, ordered by workload, mode, precision, batch size, cards, repeat.

    ``progress_of`` maps a log family to the regular expression of its records.
    Raises UsageError for what the workloads or the cluster do not know.
    """
    if len({workload.name for workload in workloads}) < len(workloads):
        raise UsageError("-w: the same workload is named twice; --repeat measures a cell again")
    made: list[Cell] = []
    for workload in workloads:
        chosen = _chosen(workload, cluster, overrides)
        for point in _points(workload, chosen):
            if len(made) == MOST_CELLS:
                raise UsageError(f"more than {MOST_CELLS} cells; ask for fewer values, or a smaller --repeat")
            blank = _blank(workload, point, progress_of[workload.family])
            made.append(_if_meant(_placed(blank, workload, cluster), overrides.hours))
    return tuple(made)


def cell_json(cell: Cell) -> dict[str, Any]:
    """Return what the agent needs of a cell: all its fields, plain. To be written under ``CELL``."""
    data: dict[str, Any] = records.encode(cell)
    return data


def to_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain data. To be written under ``PLAN``."""
    data: dict[str, Any] = records.encode(plan)
    return data


def from_json(document: Mapping[str, Any], place: str) -> Plan:
    """Read what ``to_json`` made, whoever wrote it; ``place`` is the file, for the message.

    Raises UsageError on other keys or types, and on names that must not become paths.
    """
    body = {key: value for key, value in document.items() if key not in ("schema", "version")}
    plan = records.decode(Plan, body, place)
    ids = [cell.id for cell in plan.cells]
    if len(set(ids)) < len(ids):
        raise UsageError(f"{place}: cells: an id stands twice")
    paths = [plan.run, plan.cluster.name, *(host.name for host in plan.cluster.hosts)]
    for cell in plan.cells:
        paths += [cell.id, cell.workload, cell.log_name, *(placed.host for placed in cell.placement)]
        if odd := set(cell.scripts) - {containers.NODE, containers.PEER}:
            raise UsageError(f"{place}: scripts: {shown(min(odd))}: is none that a plan has")
    for name in paths:
        if not is_name(name):
            raise UsageError(f"{place}: {shown(name)}: must be a name of letters, digits, . _ and -")
    return plan


def _chosen(workload: Workload, cluster: Cluster, asked: Overrides) -> Overrides:
    """Fill in what the user left open, and check what they said."""
    modes = [mode.name for mode in workload.modes]
    for option, values, known in (
        ("--mode", asked.modes, modes),
        ("--precision", asked.precisions, workload.precisions),
    ):
        for value in values:
            if value not in known:
                raise UsageError(f"{option} {shown(value)}: not one of {workload.name}; {hint(value, known)}")
    for count in (*asked.cards, *asked.batch_sizes, asked.repeat):
        if count < 1:
            raise UsageError(f"{count}: cards, batch sizes and repeats are positive whole numbers")
    if asked.cards and max(asked.cards) > cluster.cards:
        kind = "cards" if cluster.card_model else "slots"
        text = f"{cluster.name} has {cluster.cards} {kind}; ask for at most that many"
        raise UsageError(f"--cards {max(asked.cards)}: {text}")
    cards = asked.cards or tuple(count for count in workload.cards if count <= cluster.cards)
    if not cards:
        text = f"is measured on {_listed(workload.cards)} cards, {cluster.name} has {cluster.cards}"
        raise UsageError(f"-w {workload.name}: {text}; name a count with --cards")
    return Overrides(
        modes=asked.modes or ("throughput" if "throughput" in modes else modes[0],),
        cards=cards,
        precisions=asked.precisions or workload.precisions[:1],
        batch_sizes=asked.batch_sizes or workload.batch_sizes[:1],
        repeat=asked.repeat,
    )


def _points(workload: Workload, chosen: Overrides) -> Iterator[_Point]:
    modes = {mode.name: mode for mode in workload.modes}
    axes = product(
        (modes[name] for name in chosen.modes),
        chosen.precisions,
        chosen.batch_sizes,
        chosen.cards,
        range(1, chosen.repeat + 1),
    )
    return (_Point(*values) for values in axes)


def _blank(workload: Workload, point: _Point, progress: str) -> Cell:
    return Cell(
        id=f"{workload.name}.{point.mode.name}.c{point.cards:02d}"
        f".{point.precision}.bs{point.batch_size}.r{point.repeat}",
        workload=workload.name,
        mode=point.mode.name,
        cards=point.cards,
        precision=point.precision,
        batch_size=point.batch_size,
        repeat=point.repeat,
        state="refused",
        reason=None,
        placement=(),
        argv=(),
        env={},
        hostfile=None,
        unit=workload.unit,
        family=workload.family,
        log_name=workload.log_name,
        progress=progress,
        deadlines=workload.deadlines,
        estimated_s=_estimate(point),
        target=point.mode.target,
        listed=point.batch_size in workload.batch_sizes,
    )


def _estimate(point: _Point) -> float:
    known, cards = point.mode.estimates, str(point.cards)
    return known.get(f"{cards} {point.precision}", known.get(cards, point.mode.estimated_s))


def _placed(cell: Cell, workload: Workload, cluster: Cluster) -> Cell:
    """Give the cell its hosts and its command, or the reason why it cannot have them."""
    placement = place(cell.cards, cluster)
    values = _values(cell, cluster, placement, workload)
    cell = replace(cell, log_name=fill(cell.log_name, values))
    found = matching(workload, cell.mode, cell.cards, cell.precision, len(placement))
    if not placement:
        first, *more = whole_hosts(cluster)
        text = f"are not whole hosts; up to {first} fit on one, or {_listed(more)} on several"
        return replace(cell, reason=f"{cell.cards} cards {text}")
    if len(found) != 1:
        text = f"no variant for {cell.mode} on {cell.cards} cards in {cell.precision}"
        return replace(cell, reason=f"{workload.name} has {text}; it lists {_listed(workload.cards)}")
    variant = workload.variants[found[0]]
    launcher = LAUNCHERS[variant.launcher]
    if len(placement) > 1 and not launcher.many_hosts:
        text = f"starts on one host, {cell.cards} cards need {len(placement)}; it takes a variant of its own"
        return replace(cell, reason=f"launcher {variant.launcher} {text}")
    if reason := limits.refusal(workload, cluster, cell, placement, launcher):
        return replace(cell, reason=reason)
    command = tuple(fill(word, values) for word in variant.argv)
    launch: Launch = launcher.start(
        Start(cell.id, placement, command, values["image"], _container(workload, values)), cluster
    )
    one_each = tuple(Placement(place.host, 1) for place in placement)
    return replace(
        cell,
        state="planned",
        placement=one_each if launcher.per_host else placement,
        argv=launch.argv,
        env=launch.env,
        hostfile=launch.hostfile,
        scripts=launch.scripts,
    )


def _container(workload: Workload, values: Mapping[str, str]) -> Container | None:
    if workload.container is None:
        return None
    return replace(
        workload.container,
        mounts=tuple(fill(text, values) for text in workload.container.mounts),
        env={name: fill(text, values) for name, text in workload.container.env.items()},
    )


def _if_meant(cell: Cell, hours: bool) -> Cell:
    """Refuse a cell of hours that nobody said is meant."""
    if cell.state != "planned" or cell.estimated_s < HOURS or hours:
        return cell
    blank = replace(cell, state="refused", placement=(), argv=(), env={}, hostfile=None, scripts={})
    text = f"{cell.mode} takes about {cell.estimated_s / 3600:.1f} h on {cell.cards} card(s)"
    return replace(blank, reason=f"{text}; say that it is meant with --accept-hours")


def place(cards: int, cluster: Cluster) -> tuple[Placement, ...]:
    """Put ``cards`` ranks on the launch host if they fit, else on whole hosts in order; () if neither."""
    if cards <= cluster.hosts[0].cards:
        return (Placement(cluster.hosts[0].name, cards),)
    sums = whole_hosts(cluster)
    if cards not in sums:
        return ()
    return tuple(Placement(host.name, host.cards) for host in cluster.hosts[: sums.index(cards) + 1])


def whole_hosts(cluster: Cluster) -> list[int]:
    """Return the cards of the first host, of the first two, and so on."""
    return [sum(host.cards for host in cluster.hosts[: i + 1]) for i in range(len(cluster.hosts))]


def _values(
    cell: Cell, cluster: Cluster, placement: Sequence[Placement], workload: Workload
) -> dict[str, str]:
    """Return what each of ``placeholders.PLACEHOLDERS`` stands for in this cell."""
    here = placement[0].ranks if placement else cell.cards
    addresses = {host.name: host.for_others for host in cluster.hosts}
    return {
        "python": cluster.python,
        "files": f"workload/{cell.workload}",
        "cards": str(cell.cards),
        "hosts": str(len(placement)),
        "precision": cell.precision,
        "batch_size": str(cell.batch_size),
        "global_batch": str(cell.batch_size * cell.cards),
        "mode": cell.mode,
        "target": "" if cell.target is None else format(cell.target, "g"),
        "data": cluster.data_root,
        "image": cluster.registry + workload.image.name if workload.image else "",
        "devices": containers.devices(here),
        "cards_here": str(here),
        "node_rank": containers.variable("OMPI_COMM_WORLD_RANK") if len(placement) > 1 else "0",
        "master": cluster.hosts[0].for_others,
        "port": str(cluster.port),
        "addresses": ",".join(addresses[place.host] for place in placement),
        "logs": containers.logs_of(cell.id),
        "scratch": containers.SCRATCH,
    }


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
