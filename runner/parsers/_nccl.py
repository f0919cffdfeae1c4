"""Lines of NCCL that stand in the logs of any family on GPUs (``NCCL_DEBUG=VERSION`` or ``INFO``).

Forms of NCCL 2.7 to 2.30; newer ones write ``ncclCommInitRank`` or the like before ``comm``::

    NCCL version 2.7.8+cuda10.2
    HOST:PID:TID [DEVICE] NCCL INFO Channel 00 : 2[41000] -> 8[3f000] [receive] via NET/IB/0
    HOST:PID:TID [DEVICE] NCCL INFO comm 0x... rank 8 nranks 32 cudaDev 0 busId 3f000 - Init COMPLETE

Only a channel proves a transport: ``Using network ...`` stands as well where every rank is on one host.
"""

from __future__ import annotations

from runner.parsers._engine import Row

_FROM = r"\S{1,300}:\d{1,10}:\d{1,10} \[\d{1,4}\] NCCL INFO "

NCCL_WORDS = ("NCCL ",)
NCCL_ROWS = (
    Row("note", rf"(?:{_FROM})?NCCL version (?P<nccl>\d[\w.+-]{{0,60}})"),
    Row(
        "note",
        rf"{_FROM}Channel \S{{1,20}} ?: .{{1,100}}\[(?:send|receive)\] via (?P<transport>NET/\w{{1,40}})\S*",
    ),
    Row(
        "note",
        rf"{_FROM}(?:ncclCommInit\w{{0,20}} )?comm \S{{1,40}} rank \d{{1,6}} nranks (?P<cards>\d{{1,6}}) "
        r".{0,300}Init COMPLETE",
    ),
)
