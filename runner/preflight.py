"""What ``bench`` looks at before it starts anything: findings that block, of the hosts that it would use."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from runner import diagnosis, looking
from runner.diagnosis.model import Finding
from runner.diagnosis.views import evidence
from runner.errors import Interrupted, NotReady, UsageError
from runner.io import ansible, inventory
from runner.io.signals import Signals
from runner.io.yamlfile import place
from runner.model import Cell, Cluster


def check(cluster: Cluster, folder: Path, cells: Sequence[Cell]) -> None:
    """Tell each finding in a line on standard error, then raise NotReady; else return.

    This machine alone is not looked at: what can be missing there, the agent says as quickly. ``folder`` is
    the cluster's, whose variables say how to log in.
    """
    used = {place.host for cell in cells if cell.state == "planned" for place in cell.placement}
    hosts = [host for host in cluster.hosts if host.name in used]
    if all(host.connection == "local" for host in hosts):
        return
    values = inventory.hostvars(folder, ansible.inventory_list)
    if gone := [host.name for host in hosts if host.name not in values]:
        said = f"the run uses {', '.join(gone)}, which this inventory no longer has"
        raise UsageError(f"{place(folder)}: {said}; put it back, or start a new run")
    with Signals() as signals:
        seen = looking.look(cluster, hosts, values, lambda: signals.count > 0, looking.QUICK)
    if signals.count:
        raise Interrupted(signals.last, f"bench ended by {signals.name} before anything was started")
    found = [each for each in diagnosis.diagnose(seen) if _stops(each, cluster, cells)]
    for each in found:
        rule = diagnosis.rules()[each.code]
        said = f"{each.host}: {rule.code}: {evidence(each.detail)} ({evidence(each.evidence)}); {rule.remedy}"
        print(said, file=sys.stderr)
    if found:
        names = ", ".join(dict.fromkeys(each.host for each in found))
        raise NotReady(f"nothing was started: {names} cannot train; see doctor, or start with --no-preflight")


def _stops(finding: Finding, cluster: Cluster, cells: Sequence[Cell]) -> bool:
    """Whether it keeps these cells from running: not the hosts' MPI where none of them uses it."""
    if finding.code in diagnosis.blocking(("mpi",)):
        return any(cluster.mpirun in cell.argv for cell in cells)
    if finding.code in diagnosis.blocking(("container",)):
        return any(cell.scripts for cell in cells)
    return diagnosis.rules()[finding.code].severity == "blocking"
