"""Looking at the hosts of a cluster: what ``doctor`` and ``bench`` ask them, and the job between them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner import containers, diagnosis, launch
from runner.diagnosis import rules_jobs, rules_nccl, views
from runner.diagnosis.model import Finding, HostView, Probe, Stated
from runner.errors import UsageError
from runner.io import jobs, probing
from runner.io.probing import Question
from runner.model import Cluster, Host, Placement

Values = Mapping[str, Mapping[str, Any]]
Cancelled = Callable[[], bool]

# Open MPI's ranks listen on the first ports that are free from 1024 on (btl_tcp_port_min_v4), its daemons and
# NCCL on those that Linux gives to whoever asks for any. One that is taken is left out: for a minute after a
# run those of its ranks are, hence one above them.
OF_RANKS = (1024, 1031, 1087)
EPHEMERAL = (32768, 46000, 60999)
DEADLINE_S = 20.0  # the default of doctor_probe_deadline_s
# Looks behind blocking findings that take no more than a moment: what bench asks before it starts anything.
QUICK = (
    *("session", "limits", "meminfo", "space", "runs_root", "mounts", "interfaces", "loopback", "pairs"),
    *("ssh", "mpi", "python_packages"),
    *("gpu_module", "gpu_module_installed", "gpu_pci", "gpu_query", "gpu_processes"),
    *("gpu_packages_deb", "gpu_packages_rpm", "gpu_fabric_manager", "kernel_modules"),
    *("rdma_ports", "rdma_peer_memory", "docker_info", "container_ways"),
)
MUTUAL = ("pairs",)  # a look that needs the peers to take it at the same time
# Of these rules a finding that blocks ends such a job before it says anything, or hangs it ...
HINDERING = ("reach", "ssh", "mpi", "net", "pairs")
DISTURBED = ("run_active", "mpi_of_host_unfit", "gpu_busy")  # ... and with these nobody wants it
NCCL_S = 180.0
START_S = 20.0  # for a launcher to have all ranks there
SLOT_S = 0.5  # at most, for a pair: 200 round trips and some messages of megabytes, with room for noise
# Of a job that seems to show a slow or a silent host: it stays so, and other work or a lost packet does not.
REPEATS = 3


def look(
    cluster: Cluster,
    hosts: Sequence[Host],
    values: Values,
    cancelled: Cancelled,
    only: Sequence[str] | None = None,
) -> list[HostView]:
    """Ask these hosts, all at once; ``only`` names looks.

    Those that did not end are taken once more: the host may have been busy.
    """
    questions = [question(host, hosts, cluster, values, only) for host in hosts]
    together = secrets.token_hex(8)  # other doctors may look at the same hosts
    questions = [replace(each, request={**each.request, "look": together}) for each in questions]
    seen = _asked(questions, cluster, values, cancelled)
    late = {view.name: _late(view) for view in seen}
    again = [
        replace(each, request={**each.request, "only": late[each.host.name]})
        for each in questions
        if late[each.host.name] and not cancelled()
    ]
    found = {view.name: view.probes for view in _asked(again, cluster, values, cancelled)}
    return [_updated(view, found.get(view.name, {}), late[view.name]) for view in seen]


def _asked(
    questions: Sequence[Question], cluster: Cluster, values: Values, cancelled: Cancelled
) -> list[HostView]:
    answers = probing.ask(questions, cancelled)
    hosts = [each.host for each in questions]
    return [views.view(host.name, answers[host.name], _stated(host, cluster, values)) for host in hosts]


def _updated(view: HostView, found: Mapping[str, Probe], names: Sequence[str]) -> HostView:
    return replace(view, probes={**view.probes, **{name: found[name] for name in names if name in found}})


def _late(view: HostView) -> list[str]:
    """The looks at a host that did not end, and that it can take alone."""
    return [name for name, probe in view.probes.items() if probe.why == "timeout" and name not in MUTUAL]


def question(
    host: Host, hosts: Sequence[Host], cluster: Cluster, values: Values, only: Sequence[str] | None
) -> Question:
    """What one of the hosts is asked, with the others as its peers."""
    own, stated = values[host.name], _stated(host, cluster, values)
    request = {
        "peers": [_peer(each, values[each.name]) for each in hosts if each != host],
        "name": host.name,
        "address": host.for_others,
        "is_launch": host == cluster.hosts[0],
        "mpi_ports": [*dict.fromkeys((cluster.port, *OF_RANKS, *EPHEMERAL))],
        "mpirun": cluster.mpirun,
        "python": cluster.python,
        "data_root": cluster.data_root,
        "agent_root": cluster.agent_root,
        "gpus": stated.has_gpus,
        "rdma": stated.has_rdma,
        "nccl_tests": str(own.get("doctor_probe_nccl_tests") or ""),
        "become": bool(own.get("ansible_become")),
        "only": only,
    }
    return Question(host, own, request, cluster.agent_python, _deadline(host.name, own))


def _deadline(name: str, values: Mapping[str, Any]) -> float:
    stated = values.get("doctor_probe_deadline_s")
    if isinstance(stated, int) and stated < 2:
        raise UsageError(f"{name}: doctor_probe_deadline_s: {stated} is too short; state at least 2 s")
    return float(stated) if isinstance(stated, int) else DEADLINE_S


def _peer(host: Host, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """How the other hosts reach this one."""
    port = values.get("ansible_port")
    return {"name": host.name, "address": host.for_others, "port": int(port) if port else 22}


def _stated(host: Host, cluster: Cluster, values: Values) -> Stated:
    return Stated(
        cards=host.cards,
        card_model=cluster.card_model,
        driver=cluster.driver,
        fabric=cluster.fabric,
        interface=cluster.interface,
        cidr=cluster.cidr,
        address=host.for_others,
        mpi_inside_image=values[host.name].get("mpi_inside_image") is True,
        adapters=cluster.env.get("NCCL_IB_HCA", ""),
        ipv6=cluster.env.get("NCCL_IB_ADDR_FAMILY") == "AF_INET6" or "NCCL_IB_GID_INDEX" in cluster.env,
    )


# --- the job between hosts -------------------------------------------------------------------


def with_job(
    cluster: Cluster, seen: Sequence[HostView], values: Values, cancelled: Cancelled
) -> list[HostView]:
    """The same views; that of the first host has what an MPI job on all of them said, as probe ``job``.

    Hosts with findings that no job survives are left out; it is tried from the launch host alone, which is
    the one that may log in to the others.
    """
    hosts = [host for host in cluster.hosts if host.name in {view.name for view in seen}]
    left_out = _left_out(hosts, cluster.hosts[0], seen)
    fit = [host for host in hosts if host.name not in left_out]
    tries: list[dict[str, Any]] = []
    said = {"left_out": left_out, "tries": tries}
    for _ in range(REPEATS if len(fit) > 1 else 0):
        tries.append(_job(cluster, fit, values, cancelled))
        found = list(rules_jobs.check(_attached(seen, said)))
        if rules_jobs.is_silent(found) and not cancelled():
            tries[-1]["lost"] = _gone(cluster, fit, values, cancelled)
        if cancelled() or not rules_jobs.is_doubtful(found, tries[-1]):
            break
    return _attached(seen, said)


def _gone(cluster: Cluster, hosts: Sequence[Host], values: Values, cancelled: Cancelled) -> dict[str, str]:
    """Hosts that could be looked at before the job, and no longer."""
    short = {name: {**own, "doctor_probe_deadline_s": 3} for name, own in values.items()}
    seen = look(cluster, hosts, short, cancelled, ["session"])
    return {host.name: host.unreachable for host in seen if host.unreachable is not None}


def _left_out(hosts: Sequence[Host], launch_host: Host, seen: Sequence[HostView]) -> dict[str, str]:
    """Hosts that can take no part in the job, and why; all of them where it cannot be."""
    codes: dict[str, str] = {}
    for each in diagnosis.diagnose(seen):
        if each.code in DISTURBED or each.code in diagnosis.blocking(HINDERING):
            codes.setdefault(each.host, each.code)
    whys = {name: f"because of {code}" for name, code in codes.items()}
    everybody = ""
    if launch_host not in hosts:
        everybody = f"the job would start on {launch_host.name}, which was not asked for"
    elif launch_host.name in codes:
        everybody = f"the job would start on {launch_host.name}, which cannot take part"
    elif disturbed := next((name for name, code in codes.items() if code in DISTURBED), ""):
        everybody = f"because of {codes[disturbed]} on {disturbed}"
    elif len(hosts) - len(codes) < 2:
        everybody = "no other host is left for it"
    return {host.name: whys.get(host.name, everybody) for host in hosts if everybody or host.name in whys}


def _attached(
    seen: Sequence[HostView], said: Mapping[str, Any], name: str = rules_jobs.PROBE
) -> list[HostView]:
    """To the first host that could be looked at, where rules find it."""
    first = next((view.name for view in seen if view.unreachable is None), None)
    probe = Probe(("mpirun",), 0, json.dumps(said))
    return [
        replace(view, probes={**view.probes, name: probe}) if view.name == first else view for view in seen
    ]


def _job(cluster: Cluster, hosts: Sequence[Host], values: Values, cancelled: Cancelled) -> dict[str, Any]:
    first, slots = hosts[0], len(hosts) + 4
    deadline = START_S + slots * SLOT_S
    command = [cluster.python, "-m", "mpi4py", "-c", jobs.ranks(), str(SLOT_S), str(deadline)]
    started = launch.between_hosts([Placement(host.name, 1) for host in hosts], cluster, command)
    request = {
        "argv": started.argv,
        "env": started.env,
        "hostfile": started.hostfile,
        "address": first.for_others,
        "deadline_s": deadline,
    }
    answer = jobs.run(first, values[first.name], cluster.agent_python, request, cancelled)
    said = {"why": answer, "err": answer} if isinstance(answer, str) else answer
    return {**said, "hosts": {host.for_others: host.name for host in hosts}, "slot_s": SLOT_S}


# --- nccl-tests ------------------------------------------------------------------------------


def with_nccl(
    cluster: Cluster, seen: Sequence[HostView], values: Values, cancelled: Cancelled
) -> list[HostView]:
    """The same views; where all hosts have cards and nccl-tests, with what that printed, as a probe."""
    unfit = {
        each.host
        for each in diagnosis.diagnose(seen)
        if each.code in (*DISTURBED, "mpi_job_left_out")
        or diagnosis.rules()[each.code].severity == "blocking"
    }
    names = {view.name for view in seen}
    hosts = [host for host in cluster.hosts if host.name in names]
    programs = {view.text(rules_nccl.PROGRAM).strip() for view in seen}
    can_run = cluster.card_model and len(programs) == 1 and programs != {""}
    if not can_run or unfit or hosts[0] != cluster.hosts[0]:
        return [*seen]
    request = _nccl(cluster, hosts, programs.pop())
    answer = jobs.run(hosts[0], values[hosts[0].name], cluster.agent_python, request, cancelled)
    said = {"why": answer, "err": answer} if isinstance(answer, str) else answer
    cards = {host.name: host.cards for host in hosts}
    adapters = cluster.env.get("NCCL_IB_HCA", "")
    return _attached(seen, {**said, "hosts": cards, "adapters": adapters}, rules_nccl.PROBE)


def _nccl(cluster: Cluster, hosts: Sequence[Host], program: str) -> dict[str, Any]:
    request = {"address": hosts[0].for_others, "deadline_s": NCCL_S, "hostfile": "", "env": dict(cluster.env)}
    deadline = ("timeout", "-k", "2", f"{NCCL_S + 5:.0f}")  # of ranks that nobody reaches
    sizes = rules_nccl.sizes(cluster.card_model, [host.cards for host in hosts])
    command = [*deadline, program, *sizes, "-g"]
    if len(hosts) == 1:  # needs no MPI, and may be built without
        return {**request, "argv": [*command, str(hosts[0].cards)]}
    placement = [Placement(host.name, host.cards) for host in hosts]
    env = containers.between_hosts(cluster)  # as training is told
    started = launch.between_hosts(placement, cluster, [*command, "1"], env)
    return {**request, "argv": started.argv, "env": started.env, "hostfile": started.hostfile}


def grave(findings: Sequence[Finding]) -> list[Finding]:
    """Those that keep a host from being ready."""
    return [each for each in findings if diagnosis.rules()[each.code].severity != "info"]
