"""NVIDIA nccl-tests 2.x (``all_reduce_perf`` and its siblings): tables of a collective operation.

The first process prints them. A record is one size: ``step`` is the size in bytes, ``rate`` the bus bandwidth
out of place. The figure of the run is that of the largest size, ``summary:busbw``; beside it
``busbw_in_place`` and ``avg_busbw``, which is the program's own mean over all sizes and both ways. Schema::

    # nccl-tests version V nccl-headers=N nccl-library=N                newer releases
    # Collective test starting: all_reduce_perf                         newer releases
    # nThread N nGpus N minBytes N maxBytes N step: 2(factor) ...       begins a test
    #  Rank  R Group  G Pid  N on HOST device  D [BUS] GPU              one a card
    SIZE COUNT TYPE [REDOP] [ROOT]  TIME ALGBW BUSBW WRONG  TIME ALGBW BUSBW WRONG     us, GB/s
    # Out of bounds values : 0 OK
    # Avg bus bandwidth    : X

Releases before 2.12 have no Group, and REDOP and ROOT only where the operation has them. What stands for
WRONG is a number of elements, in older releases the error (``*`` behind it: too large), ``N/A`` where nothing
was checked.

Example::

    1048576   262144   float   sum   -1   45.67   22.96   40.18   0   45.12   23.24   40.67   0
"""

from __future__ import annotations

from dataclasses import replace

from runner.model import LogRun, Problem
from runner.parsers._engine import FIGURE, Family, Row
from runner.parsers._launch import counted
from runner.parsers._values import count

_TYPE = r"(?:u?int(?:8|32|64)?|char|half|float|double|bfloat16|f(?:p)?8e\dm\d)"
_TYPES = (
    *(f" {sign}int{bits} " for sign in ("", "u") for bits in ("", "8", "32", "64")),
    *(" char ", " half ", " float ", " double ", " bfloat16 ", " f8e", " fp8e"),
)
_GAP = r" {1,20}"
_WAY = rf"{FIGURE}{_GAP}{FIGURE}{_GAP}"
_WRONG = rf"{_GAP}(?:N/A|{FIGURE}\*?)"
_RANK = r"# {1,9}Rank {1,9}(?P<rank>\d{1,6}) (?:Group {1,9}\d{1,6} )?"
_SUMMARY = {"out": "summary.busbw", "into": "summary.busbw_in_place", "type": "facts.type"}


def _finish(run: LogRun) -> LogRun:
    facts = dict(run.facts)
    ranks, library = facts.pop("last_rank", None), facts.pop("library", None)
    made = counted(replace(run, facts=facts, nccl=run.nccl or _version(library)), count(_next(ranks)))
    wrong = facts.get("wrong", "0")
    if wrong == "0":
        return made
    text = f"the operation gave {wrong} wrong values: what it measured is no working system"
    return replace(made, problems=(*made.problems, Problem("wrong_values", None, text)))


def _next(rank: str | None) -> str | None:
    return None if rank is None else str(int(rank) + 1)


def _version(code: str | None) -> str | None:
    """``22703`` is 2.27.3; below 2.9, where the form was another, None."""
    number = int(code or 0)
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number >= 20900 else None


FAMILY = Family(
    name="nccl_tests",
    framework="NCCL",
    model=None,
    unit="GB/s",
    scope="global",
    rule="summary",
    summary="busbw",
    kind="collective",
    words=(
        *("# nThread ", "# nccl-tests ", "# Collective ", " Pid ", "# Out of bounds", "# Avg bus bandwidth"),
        *_TYPES,
    ),
    near=rf"^\s{{0,40}}\d{{1,15}} {{1,20}}\d{{1,15}} {{1,20}}{_TYPE} ",
    rows=(
        Row(
            "record",
            rf"(?P<step>\d{{1,15}}){_GAP}\d{{1,15}}{_GAP}(?P<type>{_TYPE}){_GAP}"
            rf"(?:[a-z][a-z_]{{0,20}}{_GAP})?(?:-?\d{{1,6}}{_GAP})?"
            rf"{_WAY}(?P<rate>(?P<out>{FIGURE})){_WRONG}{_GAP}{_WAY}(?P<into>{FIGURE}){_WRONG}",
            _SUMMARY,
        ),
        Row(
            "summary",
            rf"# Avg bus bandwidth {{1,9}}: (?P<average>{FIGURE})",
            {"average": "summary.avg_busbw"},
            end=True,
        ),
        Row("note", r"# Out of bounds values : (?P<wrong>\d{1,15}) \w{1,20}", {"wrong": "facts.wrong"}),
        Row(
            "head",
            r"# nccl-tests version (?P<tests>\S{1,40})(?:.{0,200} nccl-library=(?P<library>\d{1,7}))?.{0,80}",
            {"tests": "facts.tests_version", "library": "facts.library"},
        ),
        Row("head", r"# Collective test starting: (?P<test>\w{1,60})", {"test": "facts.test"}),
        Row("start", r"# {1,3}nThread {1,3}\d{1,6} {1,3}nGpus {1,3}\d{1,6} {1,3}minBytes .*"),
        Row(
            "note",
            rf"{_RANK}Pid {{1,9}}\d{{1,10}} on {{1,9}}(?P<host>\S{{1,255}}) device {{1,9}}\d{{1,6}} "
            r"\[[0-9a-fA-Fx:.]{1,20}\] (?P<gpu>\S.{0,80})",
            {"rank": "facts.last_rank"},
        ),
    ),
    finish=_finish,
)
