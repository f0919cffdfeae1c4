"""Command lines that scripts echo (``set -x``, ``print``) and that say how many processes a training has.

Forms, with anything between the words::

    + mpiexec --allow-run-as-root -np 8 --bind-to socket python3 PROGRAM --batch_size=256 --amp
    horovodrun -np 8 -H host1:4,host2:4 python PROGRAM ...      hosts with slots, filled in order
    + python3 -m torch.distributed.launch --nproc_per_node=8 [--nnodes=4 ...] PROGRAM ...
    torchrun --nnodes 4 --nproc_per_node 8 PROGRAM ...
    python ./multiproc.py --nproc_per_node 8 --nnodes 4 --node_rank 0 PROGRAM ...

MPI counts all processes; the launchers of PyTorch those of a host, whose product with the hosts is ``cards``
where ``with_launcher`` is the family's last word. Without ``--nnodes`` there is one host, unless MPI or the
like starts the launcher: such a line says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

from runner.model import LogRun, Problem
from runner.parsers._engine import Row
from runner.parsers._values import count

_MPI = r"(?:\+{1,4} )?(?:\S{1,200}/)?(?:horovodrun|mpirun|mpiexec|orterun)"
_TORCH = r"(?:\+{1,4} )?(?:\S{1,200} .{0,999}?)?"
_TORCH += r"(?:torch\.distributed\.(?:launch|run)|(?:\S{0,200}/)?torchrun|(?:\S{0,200}/)?multiproc\.py)"
_NOT_BY_MPI = r"(?!.*?(?:mpirun|mpiexec|orterun|srun|pdsh)\s)"
_LIST = r"[\w.-]{1,255}(?::\d{1,4})?(?:,[\w.-]{1,255}(?::\d{1,4})?){0,999}"  # of hosts
MPI_WORDS = ("horovodrun", "mpirun", "mpiexec", "orterun")  # a program's name is in many other lines
TORCH_WORDS = ("torch.distributed.", "torchrun", "multiproc.py")
_ONE, _MANY = {"nproc_per_node": "cards"}, {"nproc_per_node": "facts.of_a_host", "nnodes": "hosts"}


def mpi_rows(program: str, options: Mapping[str, str], precisions: Mapping[str, str]) -> tuple[Row, ...]:
    """Give the rows of a line that starts ``program`` (a pattern) by MPI.

    ``options`` are of the program, without dashes, and what they mean; ``precisions`` are looks ahead into
    the line and the precision that they mean: the first that fits holds.
    """
    listed = dict.fromkeys(("H", "host", "hosts"), "hosts_listed")
    mapped = dict.fromkeys(("map-by", "npernode", "ppn"), "hosts_mapped")
    return _rows(_MPI, program, {"np": "cards", "n": "cards", **listed, **mapped, **options}, precisions)


def torch_rows(program: str, options: Mapping[str, str], precisions: Mapping[str, str]) -> tuple[Row, ...]:
    """Give the rows of a line that starts ``program`` by a launcher of PyTorch; as ``mpi_rows``."""
    several, one = {**_MANY, **options}, {**_ONE, **options}
    return (
        *_rows(rf"{_NOT_BY_MPI}(?=.*?\s--nnodes\b){_TORCH}", program, several, precisions),
        *_rows(rf"{_NOT_BY_MPI}(?!.*?\s--nnodes\b){_TORCH}", program, one, precisions),
    )


def _rows(
    launcher: str, program: str, fields: Mapping[str, str], precisions: Mapping[str, str]
) -> tuple[Row, ...]:
    """Give the rows; all looks ahead stand at the beginning of the line, where each is done once."""
    value = rf"\d{{1,9}}|(?:(?<=H.)|(?<=host.)|(?<=hosts.)){_LIST}|(?<=map-by.)(?:ppr|node)\b\S{{0,80}}"
    pairs = rf"(?<=\s)--?({'|'.join(fields)})[ =]({value})(?=\s|$)"
    started = rf"(?=.*?[\s/]{program}(?:\s|$))"
    return tuple(
        Row(
            "note",
            rf"{started}{look}{launcher}\s.*",
            fields,
            pairs,
            means={"precision": kind} if kind else {},
        )
        for look, kind in precisions.items()
    )


def with_launcher(run: LogRun) -> LogRun:
    """Give the cards of a run whose launcher counts those of a host."""
    facts = dict(run.facts)
    each = count(facts.pop("of_a_host", None))
    return counted(replace(run, facts=facts), each * run.hosts if each and run.hosts else None)


def hosts_of(parameters: Mapping[str, str], cards: int | None) -> int | None:
    """How many of the hosts that a launcher lists so many processes fill, slot by slot, where known."""
    listed = parameters.get("hosts_listed")
    slots: dict[str, int] = {}
    for host in (listed or "").split(","):
        name, _, of_it = host.partition(":")
        slots[name] = slots.get(name, 0) + int(of_it or 1)
    if not listed or cards is None or "hosts_mapped" in parameters:
        return None
    if ":" not in listed:
        return min(len(slots), cards)
    filled = [taken - free for taken, free in zip(accumulate(slots.values()), slots.values(), strict=True)]
    return sum(before < cards for before in filled) if sum(slots.values()) >= cards else None


def counted(run: LogRun, cards: int | None) -> LogRun:
    """Give the cards that only several lines together say: better than a name, less than a plain word."""
    if cards is None or run.sources.get("cards") not in (None, "name"):
        return run
    problems = run.problems
    if run.cards not in (None, cards):
        text = f"cards: the log says {cards}, its name says {run.cards}; the log holds"
        problems = (*problems, Problem("name_disagrees", None, text))
    whole = cards * run.batch_size if run.batch_size else run.global_batch
    sources = {"cards": "log", **{key: one for key, one in run.sources.items() if key != "cards"}}
    return replace(run, cards=cards, global_batch=whole, sources=sources, problems=problems)
