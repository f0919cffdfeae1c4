"""``doctor``: look at the hosts, change nothing, and name what is wrong."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import Interrupted, UsageError
from runner.names import hint, shown

if TYPE_CHECKING:
    from runner.diagnosis.model import Finding, HostView
    from runner.model import Cluster, Host

HELP = "look at the hosts, change nothing, and name what is wrong with cause and remedy"
EXAMPLE = "python -m runner -i lab doctor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``doctor``."""
    parser.add_argument("--limit", metavar="HOSTS", default="", help="only these hosts, with commas between")
    parser.add_argument(
        "--quick", action="store_true", help="look at each host alone: no MPI job between them, no nccl-tests"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object: hosts and findings")


def run(args: argparse.Namespace) -> int:
    """Return 0 where every host is ready, 1 with findings, 2 where no host could be looked at."""
    from runner import diagnosis, looking
    from runner.io import ansible, inventory
    from runner.io.signals import Signals
    from runner.io.terminal import Display

    cluster = inventory.outline(args.inventory)
    hosts = _chosen(args.limit, cluster)
    ansible.refuse_closed_vaults(Path(cluster.path))
    values = inventory.hostvars(Path(cluster.path), ansible.inventory_list)
    display = Display(sys.stderr)
    if sys.stderr.isatty():
        display.show(f"looking at {len(hosts)} host{'s' * (len(hosts) > 1)}")
    with Signals() as signals:
        seen = looking.look(cluster, hosts, values, lambda: signals.count > 0)
        if len(hosts) > 1 and not args.quick and not signals.count:
            if sys.stderr.isatty():
                display.show(f"an MPI job between {len(hosts)} hosts")
            seen = looking.with_job(cluster, seen, values, lambda: signals.count > 0)
        if not args.quick and not signals.count:
            if sys.stderr.isatty():
                display.show("nccl-tests, where all hosts have them")
            seen = looking.with_nccl(cluster, seen, values, lambda: signals.count > 0)
    display.clear()
    if signals.count:
        raise Interrupted(signals.last, f"doctor ended by {signals.name}")
    findings = diagnosis.diagnose(seen)
    if args.json:
        # What a host said may hold half a character or a terminal's orders: all but ASCII is escaped.
        print(json.dumps(_document(cluster, seen, findings), indent=1))
    else:
        print("\n".join(_lines(seen, findings)))
    return _status(seen, findings)


def _chosen(text: str, cluster: Cluster) -> list[Host]:
    """The hosts of ``--limit`` in inventory order, all where none is named."""
    names = [word.strip() for word in text.split(",")] if text else []
    known = [host.name for host in cluster.hosts]
    for name in names:
        if name not in known:
            named = shown(name) if name else "'' (an empty word)"
            raise UsageError(f"--limit {named}: no such host; {hint(name, known)}")
    return [host for host in cluster.hosts if not names or host.name in names]


def _lines(seen: Sequence[HostView], findings: Sequence[Finding]) -> list[str]:
    """Two lines per finding; a host without one that matters has a line that says so."""
    from runner import diagnosis, looking
    from runner.diagnosis import rules_jobs
    from runner.diagnosis.views import evidence

    lines = []
    for host in seen:
        own = [each for each in findings if each.host == host.name]
        if not looking.grave(own):
            lines.append(f"{host.name}: ready")
        for each in own:
            rule = diagnosis.rules()[each.code]
            said = f"{evidence(each.detail)}; {rule.cause}; {rule.remedy}"
            lines += [f"{host.name}: {rule.severity} {rule.code}: {said}", f"    {evidence(each.evidence)}"]
    return [*lines, *_between(rules_jobs.figures(seen))]


def _between(figures: Mapping[str, Any] | None) -> list[str]:
    """A line about the job between hosts: least, median, most of the pairs."""
    if figures is None or not figures["bytes_per_s"] or not figures["latency_s"]:
        return []
    latency = "/".join(f"{each * 1e6:.0f}" for each in figures["latency_s"])
    rate = "/".join(f"{each / 1e9:.2f}" for each in figures["bytes_per_s"])
    line = f"between {len(figures['hosts'])} hosts (least/median/most): {latency} us, {rate} GB/s"
    summed = figures["all_reduce_s"]
    return [line + (f"; all-reduce of 256 KiB in {summed * 1e3:.0f} ms" if summed is not None else "")]


def _document(cluster: Cluster, seen: Sequence[HostView], findings: Sequence[Finding]) -> dict[str, Any]:
    from runner import diagnosis, looking
    from runner.diagnosis import rules_jobs

    def state(host: HostView) -> str:
        if host.unreachable is not None:
            return "unreachable"
        return "findings" if looking.grave([each for each in findings if each.host == host.name]) else "ready"

    return {
        "schema": "runkit/doctor",
        "version": 1,
        "cluster": cluster.name,
        "hosts": [{"name": host.name, "state": state(host)} for host in seen],
        "findings": diagnosis.document(findings),
        "between": rules_jobs.figures(seen),
    }


def _status(seen: Sequence[HostView], findings: Sequence[Finding]) -> int:
    from runner import looking

    if all(host.unreachable is not None for host in seen):
        print("runkit: no host could be looked at", file=sys.stderr)
        return 2
    return 1 if looking.grave(findings) else 0
