"""What a run would start, as lines that a person can type."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from runner.model import Cell, Cluster
from runner.names import printable


def dry_run(cells: Sequence[Cell], cluster: Cluster, run_dir: str = "RUN_DIR") -> str:
    """Show each cell as the command to type on its launch host, a refused one as its reason.

    ``run_dir`` is the run's folder on the hosts.
    """
    planned = [cell for cell in cells if cell.state == "planned"]
    seconds = sum(cell.estimated_s for cell in planned)
    total = f"# {len(planned)} of {len(cells)} cells would run, about {seconds:.0f} s together"
    return "\n\n".join([*(_cell(cell, cluster, run_dir) for cell in cells), total]) + "\n"


def _cell(cell: Cell, cluster: Cluster, run_dir: str) -> str:
    if cell.state != "planned":
        return f"# {cell.id}: {cell.state}: {printable(cell.reason or '')}"
    hosts = ", ".join(f"{place.host} ({place.ranks})" for place in cell.placement)
    lines = [f"# {cell.id}: about {cell.estimated_s:.0f} s on {hosts}", f"# on {_login(cluster)}:"]
    lines.append(f"cd {_quoted(run_dir)}")
    if cell.hostfile is not None:
        lines += ["# with this hostfile:", *(f"#   {printable(line)}" for line in cell.hostfile.splitlines())]
    lines.append(
        " ".join([*(f"{name}={shlex.quote(text)}" for name, text in cell.env.items()), shlex.join(cell.argv)])
    )
    return "\n".join(lines)


def _login(cluster: Cluster) -> str:
    host = cluster.hosts[0]
    return host.name if host.name == host.address else f"{host.name} ({host.address})"


def _quoted(path: str) -> str:
    """Quote for the shell, but leave a leading ~ for it to expand."""
    return "~/" + shlex.quote(path[2:]) if path.startswith("~/") else shlex.quote(path)
