"""Launchers: how the ranks of a cell are started. Pure: placement and command in, argv and environment out.

The agent starts the argv on the launch host, with the run's folder as working directory; so ``shim.sh``
and the workload's files are named relative to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from runner import containers
from runner.model import Cluster, Placement, Start

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
    scripts: Mapping[str, str] = field(default_factory=dict)  # file name in the cell's folder to its text


@dataclass(frozen=True, slots=True)
class Launcher:
    """A way to start ranks. ``many_hosts``: whether it can start them on more than one host.

    ``contained``: in containers of the image. ``per_host``: it starts one process on each host, and the
    framework's own launcher starts the rest.
    """

    start: Callable[[Start, Cluster], Launch]
    many_hosts: bool
    contained: bool = False
    per_host: bool = False


def mpirun(start: Start, cluster: Cluster) -> Launch:
    """One rank per card, by Open MPI 4.1 or 5.

    Every option is one that both accept. The transports are named, because opening all of them costs a second
    per start: ``vader`` is shared memory (5 knows it as ``sm`` too, 4.1 does not), ``tcp`` joins hosts.
    A single host is "localhost": no name service is asked for it.
    """
    env, many = _env(cluster), len(start.placement) > 1
    exported = (*env, *(AGENT_MARKS if many else ()))
    words = _options(start.placement, cluster, f"cells/{start.cell}/hostfile", exported)
    argv = (cluster.mpirun, *words, *_shimmed(start))
    return Launch(argv, {**env, **AS_ROOT}, _hostfile(start.placement, cluster) if many else None)


def _options(
    placement: Sequence[Placement], cluster: Cluster, hostfile: str, exported: Sequence[str]
) -> list[str]:
    many = len(placement) > 1
    options = [
        ("-np", str(sum(place.ranks for place in placement))),
        ("--hostfile", hostfile) if many else ("--host", f"localhost:{placement[0].ranks}"),
        ("--map-by", "slot"),  # ranks count up host by host
        ("--bind-to", "none"),  # frameworks bind their own threads; process slots share the cores
        ("--mca", "pml", "ob1"),
        ("--mca", "btl", "self,vader,tcp" if many else "self,vader"),
        *([] if cluster.card_model else [("--mca", "mpi_yield_when_idle", "1")]),
        *(_between_hosts(cluster) if many else []),
        *(("-x", name) for name in exported),
    ]
    return [word for option in options for word in option]


def between_hosts(
    placement: Sequence[Placement],
    cluster: Cluster,
    command: Sequence[str],
    more: Mapping[str, str] | None = None,
) -> Launch:
    """As ``mpirun`` for cells, without the agent's marks and shim: what doctor tries between hosts.

    The daemons stay where their login started them, so that a deadline around that login ends them too.
    ``more`` is environment for every rank.
    """
    env = {**_env(cluster), **(more or {})}
    words = _options(placement, cluster, "hostfile", tuple(env))
    argv = (cluster.mpirun, *words, "--leave-session-attached", *command)
    return Launch(argv, {**env, **AS_ROOT}, _hostfile(placement, cluster))


def _between_hosts(cluster: Cluster) -> list[tuple[str, str, str]]:
    """Straight from the launch host to each other, as no other way is trusted; over the network stated.

    Version 5 has other names for ``oob_tcp_if_include`` and ``plm_rsh_*``, and takes these too.
    """
    ways = [("--mca", "plm_rsh_agent", RSH), ("--mca", "plm_rsh_no_tree_spawn", "1")]
    networks = ("btl_tcp_if_include", "oob_tcp_if_include") if cluster.cidr else ()
    return ways + [("--mca", name, cluster.cidr) for name in networks]


def container(start: Start, cluster: Cluster) -> Launch:
    """One container on one host; what runs in it may start more there, as frameworks' own launchers do."""
    scripts = {containers.NODE: containers.node(start, cluster, [start.command])}
    argv = (*SHIM, start.cell, "sh", f"cells/{start.cell}/{containers.NODE}")
    return Launch(argv, UNBUFFERED, scripts=scripts)


def container_nodes(start: Start, cluster: Cluster) -> Launch:
    """One container on each host, started by the hosts' own mpirun, here for its care of processes alone.

    The framework's launcher in each container is told by its arguments which host it is on.
    """
    hosts = tuple(Placement(place.host, 1) for place in start.placement)
    node = ("sh", f"cells/{start.cell}/{containers.NODE}")
    made = mpirun(Start(start.cell, hosts, node), cluster)
    return replace(made, scripts={containers.NODE: containers.node(start, cluster, [start.command])})


def container_mpi(start: Start, cluster: Cluster) -> Launch:
    """One rank per card, by the image's own mpirun (Open MPI 3 or later), since versions do not mix.

    It runs in a container on the launch host. On each other host its daemon runs in a container too, which
    ``rsh.sh`` starts there: it lives as long as the daemon, and no host needs a second SSH server.
    """
    many, hostfile = len(start.placement) > 1, f"{containers.FOLDER}/cells/{start.cell}/hostfile"
    tcp = [("--mca", name, cluster.cidr) for name in ("btl_tcp_if_include", "oob_tcp_if_include")]
    options = [
        ("--allow-run-as-root",),
        ("-np", str(sum(place.ranks for place in start.placement))),
        ("--hostfile", hostfile) if many else ("--host", f"localhost:{start.placement[0].ranks}"),
        ("--map-by", "slot"),
        ("--bind-to", "none"),
        ("--mca", "pml", "ob1"),  # MPI only joins the ranks; the gradients go by NCCL
        ("--mca", "btl", "^openib"),
        *(tcp if many and cluster.cidr else []),
        *([("--mca", "plm_rsh_agent", f"sh {containers.FOLDER}/rsh.sh")] if many else []),
        *([("--mca", "plm_rsh_no_tree_spawn", "1")] if many else []),
        *([("--leave-session-attached",)] if many else []),  # a daemon that detaches would end its container
    ]
    rank = ("sh", f"{containers.FOLDER}/shim.sh", start.cell, *start.command)
    script = containers.first if many else containers.node
    scripts = {containers.NODE: script(start, cluster, [("mpirun",), *options, rank])}
    if many:
        scripts[containers.PEER] = containers.peer(start, cluster)
    argv = ("sh", f"cells/{start.cell}/{containers.NODE}")
    return Launch(argv, UNBUFFERED, _hostfile(start.placement, cluster) if many else None, scripts)


def local(start: Start, cluster: Cluster) -> Launch:
    """One process on the launch host, without MPI; a framework's own launcher may start more from there."""
    return Launch(_shimmed(start), _env(cluster))


LAUNCHERS: Mapping[str, Launcher] = {
    "mpirun": Launcher(mpirun, many_hosts=True),
    "local": Launcher(local, many_hosts=False, per_host=True),
    "container": Launcher(container, many_hosts=False, contained=True, per_host=True),
    "container_mpi": Launcher(container_mpi, many_hosts=True, contained=True),
    "container_nodes": Launcher(container_nodes, many_hosts=True, contained=True, per_host=True),
}


def _shimmed(start: Start) -> tuple[str, ...]:
    return (*SHIM, start.cell, *start.command)


def _env(cluster: Cluster) -> dict[str, str]:
    return dict(UNBUFFERED) if cluster.card_model else {**ONE_THREAD, **UNBUFFERED}


def _hostfile(placement: Sequence[Placement], cluster: Cluster) -> str:
    """By address; as a list behind ``--host``, 5.0.7 counts one slot for the launch host whatever it says."""
    addresses = {host.name: host.for_others for host in cluster.hosts}
    return "".join(f"{addresses[place.host]} slots={place.ranks}\n" for place in placement)
