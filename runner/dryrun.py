"""What a run would start, as lines that a person can type, and as scripts that run without runkit."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from runner import images
from runner.model import Cell, Cluster, Workload
from runner.names import printable


def dry_run(
    cells: Sequence[Cell], cluster: Cluster, run_dir: str = "RUN_DIR", remarks: Sequence[str] = ()
) -> str:
    """Show each cell as the command to type on its launch host, a refused one as its reason.

    ``remarks`` come behind them; ``run_dir`` is the run's folder on the hosts.
    """
    planned = [cell for cell in cells if cell.state == "planned"]
    seconds = sum(cell.estimated_s for cell in planned)
    long = f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds:.0f} s"
    total = f"# {len(planned)} of {len(cells)} cells would run, about {long} together"
    last = "\n".join([*(f"# {printable(text)}" for text in remarks), total])
    return "\n\n".join([*(_cell(cell, cluster, run_dir) for cell in cells), last]) + "\n"


def scripts(cells: Sequence[Cell], cluster: Cluster, workloads: Sequence[Workload]) -> dict[str, str]:
    """Return a folder of scripts, path below it to text: per planned cell ``CELL.sh`` and what it calls.

    The folder stands for the run's folder: it must lie at the same place on all hosts of the cell.
    ``build-WORKLOAD.sh`` makes the image of a host.
    """
    files = {
        f"build-{workload.name}.sh": images.build(workload, cluster.registry)
        for workload in workloads
        if workload.image is not None
    }
    for cell in cells:
        if cell.state == "planned":
            texts = {**cell.scripts, **({} if cell.hostfile is None else {"hostfile": cell.hostfile})}
            files |= {f"cells/{cell.id}/{name}": text for name, text in texts.items()}
            files[f"{cell.id}.sh"] = _script(cell, cluster)
    return files


def _cell(cell: Cell, cluster: Cluster, run_dir: str) -> str:
    if cell.state != "planned":
        return f"# {cell.id}: {cell.state}: {printable(cell.reason or '')}"
    lines = [f"# {cell.id}: about {cell.estimated_s:.0f} s on {_hosts(cell)}", f"# on {_login(cluster)}:"]
    lines.append(f"cd {_quoted(run_dir)}")
    if cell.hostfile is not None:
        lines += ["# with this hostfile:", *(f"#   {printable(line)}" for line in cell.hostfile.splitlines())]
    lines.append(_command(cell))
    hosts = [place.host for place in cell.placement]
    for name, text in cell.scripts.items():
        where = hosts if name == "node.sh" and not cell.scripts.get("peer.sh") else hosts[:1]
        where = hosts[1:] if name == "peer.sh" else where
        lines += ["", f"# cells/{cell.id}/{name}, on {', '.join(where)}:", *text.splitlines()[1:]]
    return "\n".join(lines)


def _script(cell: Cell, cluster: Cluster) -> str:
    logs = f"cells/{cell.id}/logs"
    lines = [
        "#!/bin/sh",
        f"# {cell.id}: about {cell.estimated_s:.0f} s on {_hosts(cell)}.",
        f"# To be started on {_login(cluster)}; this folder lies at the same place on all of these hosts.",
        "set -eu",
        'cd -- "$(dirname -- "$0")"',
        f'export RUNKIT_RUN="${{RUNKIT_RUN:-by-hand}}" RUNKIT_CELL={shlex.quote(cell.id)}',
        'export TMPDIR="${TMPDIR:-/tmp}"',
        *(f"export {name}={shlex.quote(text)}" for name, text in cell.env.items()),
        f"if [ -e {logs} ]; then",  # shim.sh appends, and two starts in one log are none
        f"    echo 'error: {logs} is of an earlier start; move it away' >&2",
        "    exit 1",
        "fi",
        f"mkdir -p {logs}",
        f"exec {shlex.join(cell.argv)}",
    ]
    return "\n".join(lines) + "\n"


def _hosts(cell: Cell) -> str:
    return ", ".join(f"{place.host} ({place.ranks})" for place in cell.placement)


def _command(cell: Cell) -> str:
    env: Mapping[str, str] = cell.env
    return " ".join([*(f"{name}={shlex.quote(text)}" for name, text in env.items()), shlex.join(cell.argv)])


def _login(cluster: Cluster) -> str:
    host = cluster.hosts[0]
    return host.name if host.name == host.address else f"{host.name} ({host.address})"


def _quoted(path: str) -> str:
    """Quote for the shell, but leave a leading ~ for it to expand."""
    return "~/" + shlex.quote(path[2:]) if path.startswith("~/") else shlex.quote(path)
