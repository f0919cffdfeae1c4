"""What NCCL says of itself in the logs of any family (``NCCL_DEBUG=VERSION``, ``INFO``), 2.4 to 2.30.

Forms; the head is ``HOST:PID:TID [DEVICE] NCCL INFO``, from 2.26 on a time may stand before it::

    NCCL version 2.7.8+cuda10.2                                        by one rank; no head up to 2.20
    cudaDriverVersion 13000
    Using network IB
    NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE ; OOB eth0:...    from 2.18 on [RO] before the ;
    Ring 00 : 15 -> 0 [receive] via NET/Socket/0                       2.4 to 2.6
    Channel 00 : 2[41000] -> 8[3f000] [receive] via NET/IB/0/GDRDMA    bus ids, up to 2.15
    Channel 00/0 : 9[1] -> 0[0] [send] via NET/IB/0(8)/GDRDMA/Shared   devices, later
    Channel 00 : 0[3f000] -> 1[40000] via P2P/IPC                      or SHM/..., direct shared memory
    comm 0x... rank 8 nranks 32 cudaDev 0 busId 3f000 - Init COMPLETE  later ncclCommInitRank before it
    comm 0x... rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 ...  from 2.19 on

Only a channel proves a transport: ``Using network`` stands as well where all ranks are on one host. A channel
is told by the rank that sends (or, ``[receive]``, gets). Formats: ``src/transport.cc``, ``src/init.cc``,
``src/transport/net_ib.cc`` of NCCL at those releases.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from runner.model import Problem
from runner.parsers._engine import Hit, Row

_STAMP = r"(?:\[[\d :.,TZ+-]{8,40}\] ?)?"
_FROM = rf"{_STAMP}(?P<host>[\w.-]{{1,255}}):\d{{1,10}}:\d{{1,10}} \[-?\d{{1,4}}\] NCCL INFO "
_PEER = r"(?:\[[0-9a-fA-F]{1,16}\])?"
_COMM = r"(?:ncclCommInit\w{0,40} )?comm \S{1,40} rank (?P<rank>\d{1,6}) "

WORDS = ("NCCL INFO ", "NCCL version ")
ROWS = (
    Row("note", rf"(?:{_FROM})?NCCL version (?P<nccl>\d[\w.+-]{{0,60}})"),
    Row("note", rf"{_FROM}cudaDriverVersion (?P<cuda_driver>\d{{4,6}})"),
    Row("note", rf"{_FROM}Using network (?P<network>\S.{{0,60}})"),
    Row("note", rf"{_FROM}NET/IB : Using (?P<devices>\[\d{{1,4}}\].{{1,2000}})"),
    Row(
        "note",
        rf"{_FROM}(?:Channel|Ring) \d{{1,4}}(?:/\d{{1,4}})? : (?P<left>\d{{1,6}}){_PEER} -> "
        rf"(?P<right>\d{{1,6}}){_PEER}(?: \[(?P<way>send|receive)\])? via (?P<via>\S.{{0,120}})",
    ),
    Row("note", rf"{_FROM}{_COMM}nranks (?P<ranks>\d{{1,6}}) .{{0,300}}COMPLETE"),
    Row("note", rf"{_FROM}{_COMM}nRanks (?P<ranks>\d{{1,6}}) nNodes (?P<nodes>\d{{1,6}}) .{{0,200}}"),
)


_SAYS = {"send": "sends", "receive": "receives"}
_WAYS = tuple(_SAYS)
_DIRECT = "/GDRDMA"
_LINKS = {"IB": "InfiniBand", "RoCE": "RoCE"}
_NAMED = 4  # ranks that a sentence names
_Teller = tuple[int, str]  # rank and host: groups of ranks number theirs anew on each host
_Paths = Mapping[_Teller, frozenset[str]]


class Said(NamedTuple):
    """What NCCL said of a run. ``hosts`` is None where not all ranks spoke, ``least_hosts`` then still holds.

    ``transport`` is what docs/contracts.md says of that key, None where no channel is in the log.
    """

    cards: int | None = None
    hosts: int | None = None
    least_hosts: int = 0
    transport: Mapping[str, Any] | None = None
    problems: tuple[Problem, ...] = ()


def said(hits: Iterable[Hit]) -> Said:
    """Put together what the lines of NCCL in a run say."""
    lines = [hit.values for hit in hits if "host" in hit.values]
    channels = [line for line in lines if "via" in line]
    paths = {way: _between_hosts(channels, way) for way in _WAYS}
    cards = max((int(line["ranks"]) for line in lines if "ranks" in line), default=None)
    nodes = max((int(line["nodes"]) for line in lines if "nodes" in line), default=None)
    spoke = {line["rank"] for line in lines if "ranks" in line and int(line["ranks"]) == cards}
    hosts = {line["host"] for line in lines}
    return Said(
        cards=cards,
        hosts=nodes or (len(hosts) if len(spoke) == cards else None),
        least_hosts=len(hosts),
        transport=_transport(lines, channels, paths) if channels else None,
        problems=(*_ranks_differ(paths), *_networks_differ(lines)),
    )


def in_words(transport: Mapping[str, Any]) -> str:
    """Say a transport in one line: ``NET/IB (RoCE) without GPUDirect RDMA; within hosts P2P/IPC``."""
    parts = []
    if transport["between_hosts"]:
        link = f" ({', '.join(transport['link'])})" if transport["link"] else ""
        with_it = {True: "with", False: "without", None: "partly with"}[transport["gpu_direct"]]
        parts.append(f"{', '.join(transport['between_hosts'])}{link} {with_it} GPUDirect RDMA")
    if transport["within_hosts"]:
        parts.append(f"within hosts {', '.join(transport['within_hosts'])}")
    return "; ".join(parts)


def _transport(
    lines: Iterable[Mapping[str, str]], channels: Iterable[Mapping[str, str]], paths: Mapping[str, _Paths]
) -> Mapping[str, Any]:
    every = {path for of_way in paths.values() for of in of_way.values() for path in of}
    links = {link for line in lines for link in _links(line)}
    direct = {path.endswith(_DIRECT) for path in every}
    return {
        "between_hosts": sorted({path.removesuffix(_DIRECT) for path in every}),
        "link": sorted(links) if any(path.startswith(("NET/IB", "COLLNET/")) for path in every) else [],
        "gpu_direct": direct.pop() if len(direct) == 1 else None,
        "within_hosts": sorted({_path(line["via"]) for line in channels if not _is_network(line["via"])}),
        "ranks": [
            {"rank": rank, "host": host, **{way: sorted(paths[way].get((rank, host), ())) for way in _WAYS}}
            for rank, host in sorted({teller for way in _WAYS for teller in paths[way]})
        ],
    }


def _path(via: str) -> str:
    """``NET/IB/0(8)/GDRDMA/Shared`` is NET/IB/GDRDMA, ``P2P/CUMEM/read`` P2P/CUMEM."""
    if via.startswith(("SHM", "direct shared memory")):
        return "SHM"
    kind, _, rest = via.partition("/")
    name = rest.partition("/")[0].partition("(")[0]
    return f"{kind}/{name}{_DIRECT if _DIRECT in rest else ''}"


def _is_network(via: str) -> bool:
    return via.startswith(("NET/", "COLLNET/"))


def _between_hosts(channels: Iterable[Mapping[str, str]], way: str) -> _Paths:
    """Give the network paths of each rank in one direction; it may use several cards."""
    found: dict[_Teller, set[str]] = {}
    for line in channels:
        if line.get("way") == way and _is_network(line["via"]):
            rank = int(line["right" if way == "receive" else "left"])
            found.setdefault((rank, line["host"]), set()).add(_path(line["via"]))
    return {teller: frozenset(of) for teller, of in sorted(found.items())}


# --- problems ------------------------------------------------------------------------------


def _ranks_differ(paths: Mapping[str, _Paths]) -> Iterable[Problem]:
    usual = {way: Counter(ranks.values()).most_common(1)[0][0] for way, ranks in paths.items() if ranks}
    for way, most in usual.items():
        odd = [
            f"rank {rank} on {host} {_SAYS[way]} via {_listed(of)}"
            for (rank, host), of in paths[way].items()
            if of != most
        ]
        if odd:
            more = f" and {len(odd) - _NAMED} more" if len(odd) > _NAMED else ""
            yield _differ(f"{'; '.join(odd[:_NAMED])}{more}; the others via {_listed(most)}")
    if len(usual) == len(_WAYS) and usual["send"] != usual["receive"]:
        yield _differ(f"ranks send via {_listed(usual['send'])}, receive via {_listed(usual['receive'])}")


def _networks_differ(lines: Sequence[Mapping[str, str]]) -> Iterable[Problem]:
    networks = {line["host"]: line["network"] for line in lines if "network" in line}
    links = {line["host"]: " and ".join(_links(line)) for line in lines if "devices" in line}
    for title, chosen in (("network", networks), ("link", links)):
        usual = Counter(chosen.values()).most_common(1)
        odd = [f"{host} {one}" for host, one in sorted(chosen.items()) if one != usual[0][0]]
        if odd:
            yield _differ(f"the {title} is {usual[0][0]}, but not on every host: {', '.join(odd[:_NAMED])}")


def _links(line: Mapping[str, str]) -> list[str]:
    """The kinds of link of the devices that a line lists."""
    return sorted({_LINKS[word] for word in re.findall(r":\d{1,4}/(IB|RoCE)\b", line.get("devices", ""))})


def _differ(text: str) -> Problem:
    return Problem("transports_differ", None, text)


def _listed(paths: Iterable[str]) -> str:
    return " and ".join(sorted(paths))
