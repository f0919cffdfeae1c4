"""Launchers: how the ranks of a cell are started. Pure: placement and command in, argv and environment out.

The agent starts the argv on the launch host, with the run's folder as working directory; so ``shim.sh``
and the workload's files are named relative to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from runner.model import Cluster, Placement

SHIM = ("sh", "shim.sh")  # wraps each rank: records who it is, then becomes the command
RSH = "sh rsh.sh"  # reaches the other hosts: what it starts there carries the agent's marks

# Where ranks share cores, threads within a rank only get in the way of the other ranks.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# Buffered output would reach the logs, and the agent that watches them, minutes late.
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
AGENT_MARKS = ("RUNKIT_RUN", "RUNKIT_CELL")  # the agent sets them, and finds every process of a run by them


@dataclass(frozen=True, slots=True)
class Launch:
    """What the agent starts: ``hostfile`` is the text of the hostfile, None where argv says it all."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    hostfile: str | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """What is to be started: ``command`` on the hosts of ``placement``, for the cell of that id."""

    cell: str
    placement: Sequence[Placement]
    command: Sequence[str]


@dataclass(frozen=True, slots=True)
class Launcher:
    """A way to start ranks. ``many_hosts``: whether it can start them on more than one host."""

    start: Callable[[Start, Cluster], Launch]
    many_hosts: bool


def mpirun(start: Start, cluster: Cluster) -> Launch:
    """One rank per card, by Open MPI 4.1 or 5.

    Every option is one that both accept. The transports are named, because opening all of them costs a second
    per start: ``vader`` is shared memory (5 knows it as ``sm`` too, 4.1 does not), ``tcp`` joins hosts.
    A single host is "localhost": no name service is asked for it.
    """
    env = _env(cluster)
    many, hostfile = len(start.placement) > 1, f"cells/{start.cell}/hostfile"
    exported = (*env, *(AGENT_MARKS if many else ()))
    options = [
        ("-np", str(sum(place.ranks for place in start.placement))),
        ("--hostfile", hostfile) if many else ("--host", f"localhost:{start.placement[0].ranks}"),
        ("--map-by", "slot"),  # ranks count up host by host
        ("--bind-to", "none"),  # frameworks bind their own threads; process slots share the cores
        ("--mca", "pml", "ob1"),
        ("--mca", "btl", "self,vader,tcp" if many else "self,vader"),
        *([] if cluster.card_model else [("--mca", "mpi_yield_when_idle", "1")]),
        *(_between_hosts(cluster) if many else []),
        *(("-x", name) for name in exported),
    ]
    words = [word for option in options for word in option]
    argv = (cluster.mpirun, *words, *_shimmed(start))
    return Launch(argv, {**env, **AS_ROOT}, _hostfile(start.placement, cluster) if many else None)


def _between_hosts(cluster: Cluster) -> list[tuple[str, str, str]]:
    """Straight from the launch host to each other, as no other way is trusted; over the network stated.

    Version 5 has other names for ``oob_tcp_if_include`` and ``plm_rsh_*``, and takes these too.
    """
    ways = [("--mca", "plm_rsh_agent", RSH), ("--mca", "plm_rsh_no_tree_spawn", "1")]
    networks = ("btl_tcp_if_include", "oob_tcp_if_include") if cluster.cidr else ()
    return ways + [("--mca", name, cluster.cidr) for name in networks]


def local(start: Start, cluster: Cluster) -> Launch:
    """One process on the launch host, without MPI; a framework's own launcher may start more from there."""
    return Launch(_shimmed(start), _env(cluster))


LAUNCHERS: Mapping[str, Launcher] = {
    "mpirun": Launcher(mpirun, many_hosts=True),
    "local": Launcher(local, many_hosts=False),
}


def _shimmed(start: Start) -> tuple[str, ...]:
    return (*SHIM, start.cell, *start.command)


def _env(cluster: Cluster) -> dict[str, str]:
    return dict(UNBUFFERED) if cluster.card_model else {**ONE_THREAD, **UNBUFFERED}


def _hostfile(placement: Sequence[Placement], cluster: Cluster) -> str:
    """By address; as a list behind ``--host``, 5.0.7 counts one slot for the launch host whatever it says."""
    addresses = {host.name: host.address for host in cluster.hosts}
    return "".join(f"{addresses[place.host]} slots={place.ranks}\n" for place in placement)
