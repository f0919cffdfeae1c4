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
    from runner.diagnosis.model import Finding, HostView, Stated
    from runner.io.probing import Question
    from runner.model import Cluster, Host

HELP = "look at the hosts, change nothing, and name what is wrong with cause and remedy"
EXAMPLE = "python -m runner -i lab doctor"

Values = Mapping[str, Mapping[str, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``doctor``."""
    parser.add_argument("--limit", metavar="HOSTS", default="", help="only these hosts, with commas between")
    parser.add_argument("--json", action="store_true", help="print a JSON object: hosts and findings")


def run(args: argparse.Namespace) -> int:
    """Return 0 where every host is ready, 1 with findings, 2 where no host could be looked at."""
    from runner import diagnosis
    from runner.diagnosis import views
    from runner.io import ansible, inventory, probing
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
        questions = [_question(host, hosts, cluster, values) for host in hosts]
        answers = probing.ask(questions, lambda: signals.count > 0)
    display.clear()
    if signals.count:
        raise Interrupted(signals.last, f"doctor ended by {signals.name}")
    seen = [views.view(host.name, answers[host.name], _stated(host, cluster, values)) for host in hosts]
    findings = diagnosis.diagnose(seen)
    if args.json:
        print(json.dumps(_document(cluster, seen, findings), indent=1, ensure_ascii=False))
    else:
        print("\n".join(_lines(seen, findings)))
    return _status(seen, findings)


def _chosen(text: str, cluster: Cluster) -> list[Host]:
    """The hosts of ``--limit`` in inventory order, all where none is named."""
    names = [word.strip() for word in text.split(",")] if text else []
    known = [host.name for host in cluster.hosts]
    for name in names:
        if name not in known:
            raise UsageError(f"--limit {shown(name)}: no such host; {hint(name, known)}")
    return [host for host in cluster.hosts if not names or host.name in names]


def _question(host: Host, hosts: Sequence[Host], cluster: Cluster, values: Values) -> Question:
    from runner.io.probing import Question

    own, stated = values[host.name], _stated(host, cluster, values)
    request = {
        "peers": [_peer(each, values[each.name]) for each in hosts if each != host],
        "name": host.name,
        "address": _address(host, own),
        "is_launch": host == cluster.hosts[0],
        "mpi_ports": [cluster.port, *EPHEMERAL],
        "interfaces_cidr": cluster.cidr,
        "interface": cluster.interface,
        "mpirun": cluster.mpirun,
        "data_root": cluster.data_root,
        "agent_root": cluster.agent_root,
        "gpus": stated.has_gpus,
        "rdma": stated.has_rdma,
        "become": bool(own.get("ansible_become")),
    }
    return Question(host, own, request, cluster.agent_python, _deadline(own))


EPHEMERAL = (32768, 46000, 60999)  # of the ports that Linux gives to whoever asks for any, as MPI and NCCL do
DEADLINE_S = 20.0  # the default of doctor_probe_deadline_s


def _deadline(values: Mapping[str, Any]) -> float:
    stated = values.get("doctor_probe_deadline_s")
    return float(stated) if isinstance(stated, int) and stated > 1 else DEADLINE_S


def _peer(host: Host, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """How the other hosts reach this one."""
    port = values.get("ansible_port")
    return {"name": host.name, "address": _address(host, values), "port": int(port) if port else 22}


def _address(host: Host, values: Mapping[str, Any]) -> str:
    return str(values.get("host_names_address") or host.address)


def _stated(host: Host, cluster: Cluster, values: Values) -> Stated:
    from runner.diagnosis.model import Stated

    return Stated(
        cards=host.cards,
        card_model=cluster.card_model,
        driver=cluster.driver,
        fabric=cluster.fabric,
        interface=cluster.interface,
        cidr=cluster.cidr,
        address=_address(host, values[host.name]),
        mpi_inside_image=values[host.name].get("mpi_inside_image") is True,
    )


def _lines(seen: Sequence[HostView], findings: Sequence[Finding]) -> list[str]:
    """Two lines per finding; a host without one that matters has a line that says so."""
    from runner import diagnosis
    from runner.diagnosis.views import evidence

    lines = []
    for host in seen:
        own = [each for each in findings if each.host == host.name]
        if not _grave(own):
            lines.append(f"{host.name}: ready")
        for each in own:
            rule = diagnosis.rules()[each.code]
            said = f"{evidence(each.detail)}; {rule.cause}; {rule.remedy}"
            lines += [f"{host.name}: {rule.severity} {rule.code}: {said}", f"    {evidence(each.evidence)}"]
    return lines


def _grave(findings: Sequence[Finding]) -> list[Finding]:
    """Those that keep a host from being ready."""
    from runner import diagnosis

    return [each for each in findings if diagnosis.rules()[each.code].severity != "info"]


def _document(cluster: Cluster, seen: Sequence[HostView], findings: Sequence[Finding]) -> dict[str, Any]:
    from runner import diagnosis

    def state(host: HostView) -> str:
        if host.unreachable is not None:
            return "unreachable"
        return "findings" if _grave([each for each in findings if each.host == host.name]) else "ready"

    return {
        "schema": "runkit/doctor",
        "version": 1,
        "cluster": cluster.name,
        "hosts": [{"name": host.name, "state": state(host)} for host in seen],
        "findings": diagnosis.document(findings),
    }


def _status(seen: Sequence[HostView], findings: Sequence[Finding]) -> int:
    if all(host.unreachable is not None for host in seen):
        print("runkit: no host could be looked at", file=sys.stderr)
        return 2
    return 1 if _grave(findings) else 0
