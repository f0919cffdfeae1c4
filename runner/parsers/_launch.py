"""Command lines that scripts echo (``set -x``, ``print``) and that say how many processes a training has.

Forms, with anything between the words::

    + mpiexec --allow-run-as-root -np 8 --bind-to socket python3 PROGRAM --batch_size=256 --amp
    horovodrun -np 8 -H host1:4,host2:4 python PROGRAM ...
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

from runner.model import LogRun, Problem
from runner.parsers._engine import Row
from runner.parsers._values import count

_MPI = r"(?:\+{1,4} )?(?:\S{1,200}/)?(?:horovodrun|mpirun|mpiexec|orterun)"
_TORCH = r"(?:\+{1,4} )?(?:\S{1,200} .{0,999}?)?"
_TORCH += r"(?:torch\.distributed\.(?:launch|run)|(?:\S{0,200}/)?torchrun|(?:\S{0,200}/)?multiproc\.py)"
_NOT_BY_MPI = r"(?!.*?(?:mpirun|mpiexec|orterun|srun|pdsh)\s)"
MPI_WORDS = ("horovodrun", "mpirun", "mpiexec", "orterun")  # a program's name is in many other lines
TORCH_WORDS = ("torch.distributed.", "torchrun", "multiproc.py")
_ONE, _MANY = {"nproc_per_node": "cards"}, {"nproc_per_node": "facts.of_a_host", "nnodes": "hosts"}


def mpi_rows(program: str, options: Mapping[str, str], precisions: Mapping[str, str]) -> tuple[Row, ...]:
    """Give the rows of a line that starts ``program`` (a pattern) by MPI.

    ``options`` are of the program, without dashes, and what they mean; ``precisions`` are looks ahead into
    the line and the precision that they mean: the first that fits holds.
    """
    return _rows(_MPI, program, {"np": "cards", "n": "cards", **options}, precisions)


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
    pairs = rf"(?<=\s)--?({'|'.join(fields)})[ =](\d{{1,9}})(?=\s|$)"
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
