"""What runs in a container: the lines of ``docker run``, as scripts in the cell's folder. Pure.

A script is what a person would type, and the very thing that runs. Where a word is known only on the host,
its text has a shell variable: ``variable`` marks it, ``word`` quotes all the rest.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from runner.model import Cluster, Start

NODE = "node.sh"  # starts the container of a host
PEER = "peer.sh"  # starts the container of another host, around the daemon of the launch host's mpirun
FOLDER = "/runkit"  # the run's folder, as it is called in the container
SCRATCH = "/tmp/runkit"  # noqa: S108 - in the container, which is new for each cell
# What ssh must know to reach a host as it does here; every version of it has these words.
SSH_WAY = (
    *("hostname", "port", "user", "hostkeyalias", "proxyjump"),
    *("identityfile", "identitiesonly", "userknownhostsfile"),
)
RDMA = ("infiniband", "roce")
_VARIABLE = re.compile("\x01([A-Za-z_]+)\x01")


def variable(name: str) -> str:
    """Text that becomes the value of a shell variable."""
    return f"\x01{name}\x01"


def logs_of(cell: str) -> str:
    """The folder of a cell's logs on the host where the script runs, as it is called in the container."""
    return f"{FOLDER}/cells/{cell}/logs/{variable('host')}"


def word(text: str) -> str:
    """Quote ``text`` for a POSIX shell, its variables aside."""
    if not _VARIABLE.search(text):
        return shlex.quote(text)
    pieces = _VARIABLE.split(text)
    literal = [re.sub(r'([\\"$`])', r"\\\1", piece) for piece in pieces[::2]]
    names = [f"${{{name}}}" for name in pieces[1::2]]
    return '"' + "".join(a + b for a, b in zip(literal, [*names, ""], strict=True)) + '"'


def node(start: Start, cluster: Cluster, groups: Iterable[Sequence[str]]) -> str:
    """The script that runs a command, in groups of words that stand together, in the container of a host."""
    what = "# Runs in the run's folder, on each host of the cell."
    return _script(start, cluster, [what], _lines(groups))


def first(start: Start, cluster: Cluster, groups: Iterable[Sequence[str]]) -> str:
    """Like ``node``, of a cell on several hosts, where the command starts the other hosts' containers.

    In the container it reaches them by the address, port, user, key and known host keys that ssh takes here:
    its own ssh has none of them, and may be of another version.
    """
    way = [
        "# Runs in the run's folder, on the launch host.",
        "while read -r address _; do",
        '    echo "Host $address"',
        f'    ssh -nT -G "$address" | sed -n -E "s|~/|$HOME/|g; /^({"|".join(SSH_WAY)}) /p"',
        f"done <{word(f'cells/{start.cell}/hostfile')} >ssh_config",
    ]
    keys = f"{variable('HOME')}/.ssh"
    options = [_bind(keys, keys, True), '--env RUNKIT_HOST_FOLDER="$PWD"']
    return _script(start, cluster, way, _lines(groups), options)


def peer(start: Start, cluster: Cluster) -> str:
    """The script that runs the command line in its first argument in the container of another host."""
    what = "# Runs in the run's folder on each host but the launch host, which calls it through rsh.sh."
    return _script(start, cluster, [what], ['sh -c "$1"'])


def _script(
    start: Start, cluster: Cluster, steps: Sequence[str], command: Sequence[str], more: Sequence[str] = ()
) -> str:
    """The first of ``steps`` is the comment at the head, the others come before the container."""
    what, *before = steps
    lines = ["exec docker run", *_options(start, cluster), *more, word(start.image), *command]
    logs = f"cells/{start.cell}/logs/$host"
    head = [
        "#!/bin/sh",
        f"# Cell {start.cell}.",
        what,
        "set -eu",
        ': "${RUNKIT_RUN:=by-hand}"',
        "host=$(cat host 2>/dev/null || uname -n)",
        f'mkdir -p "{logs}"',
        *_needed(start, cluster, f"{logs}/node.stderr"),
    ]
    return "\n".join([*head, *before, " \\\n    ".join(lines), ""])


def _needed(start: Start, cluster: Cluster, file: str) -> list[str]:
    """Lines that end the script where a data set is missing; what they say is the reason of the cell."""
    assert start.container is not None
    if not start.container.mounts:
        return []
    workload = start.cell.partition(".")[0]
    remedy = shlex.join(("python", "-m", "runner", "-i", cluster.name, "data", workload))
    return [
        "need() {",
        '    [ -e "$1" ] && return',
        f'    set -- "error: $host has no $1; prepare it with:" {word(remedy)}',
        f'    printf \'%s %s\\n\' "$@" | tee "{file}" >&2',
        "    exit 1",
        "}",
        *dict.fromkeys(f"need {word(_parts(mount)[0])}" for mount in start.container.mounts),
    ]


def _parts(mount: str) -> tuple[str, str, bool]:
    """Path on the host, path in the container, whether it is for reading only."""
    host, _, inside = mount.removesuffix(":ro").rpartition(":")
    return host, inside, mount.endswith(":ro")


def _bind(host: str, inside: str, read_only: bool) -> str:
    """The option that mounts a path. ``--volume`` would make an empty folder, root's, of one that is missing.

    Docker reads the value as a line of CSV: a field with a comma or quote is quoted, its quotes doubled.
    """
    fields = ["type=bind", f"source={host}", f"target={inside}", *(["readonly"] if read_only else [])]
    quoted = ['"' + each.replace('"', '""') + '"' if set(each) & set(',"') else each for each in fields]
    return f"--mount {word(','.join(quoted))}"


def _options(start: Start, cluster: Cluster) -> list[str]:
    assert start.container is not None, "the catalogue refuses a contained variant without a container"
    many = len(start.placement) > 1
    words = [
        *('--rm --name "runkit-$RUNKIT_RUN"', '--label "runkit.run=$RUNKIT_RUN"'),
        *("--gpus all", "--network host", "--uts host"),
        *_grouped(start.container.options),
        *(["--device /dev/infiniband", "--cap-add IPC_LOCK"] if many and cluster.fabric in RDMA else []),
        f'--volume "$PWD:{FOLDER}" --volume {SCRATCH}',  # the second is empty, and goes with the container
        *(_bind(*_parts(mount)) for mount in start.container.mounts),
        f'--env RUNKIT_RUN="$RUNKIT_RUN" --env RUNKIT_CELL={word(start.cell)} --env RUNKIT_FOLDER={FOLDER}',
    ]
    if many:
        words += ['--env OMPI_COMM_WORLD_RANK="${OMPI_COMM_WORLD_RANK:-0}"'] if _told(start) else []
    words += [f"--env {name}={word(value)}" for name, value in environment(start, cluster).items()]
    return [*words, f"--workdir {word(start.container.workdir)}"]


def _told(start: Start) -> bool:
    return any("OMPI_COMM_WORLD_RANK" in text for text in start.command)


def _lines(groups: Iterable[Sequence[str]]) -> list[str]:
    return [" ".join(map(word, group)) for group in groups]


def _grouped(options: Sequence[str]) -> list[str]:
    """An option and its value on one line."""
    lines: list[str] = []
    for option in options:
        if lines and not option.startswith("-"):
            lines[-1] += f" {word(option)}"
        else:
            lines.append(word(option))
    return lines


def environment(start: Start, cluster: Cluster) -> Mapping[str, str]:
    """What every process in the container finds in its environment; what the cluster states wins."""
    assert start.container is not None
    env = {"PYTHONUNBUFFERED": "1", **start.container.env}
    cards = {host.name: host.cards for host in cluster.hosts}
    first = start.placement[0]
    if first.ranks < cards[first.host]:
        env["CUDA_VISIBLE_DEVICES"] = devices(first.ranks)
    if sum(place.ranks for place in start.placement) > 1:  # in files of their own: the metric log stays clean
        env |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV"}
        env["NCCL_DEBUG_FILE"] = f"{FOLDER}/cells/{start.cell}/logs/{variable('host')}/nccl.%h.%p"
    return {**env, **(between_hosts(cluster) if len(start.placement) > 1 else cluster.env)}


def between_hosts(cluster: Cluster) -> Mapping[str, str]:
    """What NCCL is told of the network between hosts; what the cluster states wins."""
    env = {"NCCL_SOCKET_IFNAME": cluster.interface} if cluster.interface else {}
    env |= {"NCCL_IB_DISABLE": "1"} if cluster.fabric == "ethernet" else {}
    return {**env, **cluster.env}


def devices(count: int) -> str:
    """The first cards of a host, as CUDA_VISIBLE_DEVICES wants them."""
    return ",".join(map(str, range(count)))
