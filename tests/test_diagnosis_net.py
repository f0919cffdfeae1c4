"""Rules of names, interfaces, connections and logins: each finds what is broken, and nothing otherwise.

The hosts are recorded (see os_hosts); connections are tried for real as well, between probes on this machine.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import os_hosts as made
import pytest
from os_hosts import address, altered, broken, cluster, data, found, host

from runner import diagnosis
from runner.diagnosis import views
from runner.diagnosis.model import HostView, Probe, Stated

PROBE = Path(__file__).resolve().parent.parent / "roles" / "doctor_probe" / "files" / "probe.py"


def names(name: str, **changed: Any) -> Probe:
    usual = {each: {"addresses": [address(each)], "error": "", "seconds": 0.001} for each in made.NAMES}
    return data({**usual, name: {"addresses": [address("gpu2")], "error": "", "seconds": 0.001, **changed}})


def interfaces(*more: dict[str, Any]) -> Probe:
    return data([*made.interfaces("gpu3")[:1], *more])


def ssh(err: str, status: int | None = 255, port: int = 22) -> Probe:
    """What the launch host was told by gpu3; the others let it in."""
    fine = {"status": 0, "out": made.LIMITS + made.PLACES, "err": "", "port": 22}
    return data({"gpu2": fine, "gpu3": {"status": status, "out": "", "err": err, "port": port}, "gpu4": fine})


# --- names and interfaces ------------------------------------------------------------------

OWN = made.interface("eth0", address("gpu3"))
UNKNOWN = "Name or service not known"
BROKEN: list[tuple[str, dict[str, Probe], str]] = [
    ("name_unknown", {"names": names("gpu2", addresses=[], error=UNKNOWN)}, f"gpu2: {UNKNOWN} in 0.001 s"),
    ("name_unknown", {"names": names("gpu2", addresses=[], error="no answer", seconds=5.0)}, "no answer in"),
    ("name_slow", {"names": names("gpu2", seconds=0.501)}, "gpu2: 192.168.10.12 in 0.501 s"),
    ("name_loopback", {"names": names("gpu3", addresses=["127.0.1.1"])}, "gpu3: 127.0.1.1"),
    ("name_loopback", {"names": names("node-3", addresses=["127.0.1.1"])}, "node-3: 127.0.1.1"),
    ("name_elsewhere", {"names": names("gpu2", addresses=["192.168.10.99"])}, "gpu2: 192.168.10.99"),
    ("no_interface_in_cidr", {"interfaces": interfaces(made.interface("eth0", "10.1.1.3"))}, "eth0 10.1.1.3"),
    (
        "interfaces_in_cidr",
        {"interfaces": interfaces(OWN, made.interface("eth1", "192.168.10.99"))},
        "eth0 192.168.10.13/24, eth1 192.168.10.99/24",
    ),
    ("interface_missing", {"interfaces": interfaces({**OWN, "ifname": "ens1"})}, "ens1 192.168.10.13/24"),
    ("interface_down", {"interfaces": interfaces({**OWN, "operstate": "DOWN"})}, "eth0 192.168.10.13/24"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "probes", "shown"), BROKEN, ids=[code for code, *_ in BROKEN])
def test_a_broken_host_is_named(code: str, probes: dict[str, Probe], shown: str) -> None:
    assert found(cluster(), code) == []
    (finding,) = found(broken(cluster(), "gpu3", **probes), code)
    assert finding.host == "gpu3"
    assert shown in finding.evidence


def test_names_that_are_fine_are_not_named() -> None:
    """Half a second is quick enough; a second address beside the right one is none of another machine."""
    for probe in (names("gpu2", seconds=0.5), names("gpu2", addresses=["10.0.0.2", "192.168.10.12"])):
        assert diagnosis.diagnose(broken(cluster(), "gpu3", names=probe)) == []


@pytest.mark.parametrize("name", ["docker0", "virbr0", "br-1f2e3d4c5b6a", "cni0", "podman1", "vethd0"])
def test_interfaces_of_containers_may_be_chosen_where_none_is_stated(name: str) -> None:
    probe = interfaces(OWN, made.interface(name, "172.17.0.1", "DOWN"))
    for stated in ({"cidr": ""}, {"interface": ""}):
        (finding,) = found(broken(cluster(**stated), "gpu3", interfaces=probe), "virtual_interface_chosen")
        assert (finding.host, finding.detail) == ("gpu3", f"{name} may be chosen")
    assert diagnosis.diagnose(broken(cluster(), "gpu3", interfaces=probe)) == []
    assert found([altered(host("gpu3", cidr=""), interfaces=probe)], "virtual_interface_chosen") == []
    assert found(cluster(cidr="", interface=""), "virtual_interface_chosen") == []


# --- logins from the launch host -----------------------------------------------------------

CHANGED = f"{'@' * 59}\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n{'@' * 59}\n"
LOGINS = [
    (
        "ssh_host_key_unknown",
        "No ED25519 host key is known for 192.168.10.13 and you have requested strict checking.\n"
        "Host key verification failed.\n",
        "Host key verification failed.",
    ),
    (
        "ssh_host_key_changed",
        f"{CHANGED}IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\nHost key verification failed.\n",
        "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @",
    ),
    ("ssh_denied", "Welcome\nroot@192.168.10.13: Permission denied (publickey).\n", "denied (publickey)."),
    ("ssh_refused", "ssh: connect to host 192.168.10.13 port 22: Connection refused\n", "Connection refused"),
    ("ssh_no_answer", "ssh: connect to host 192.168.10.13 port 22: Connection timed out\n", "timed out"),
    ("ssh_no_answer", "Connection timed out during banner exchange\n", "during banner exchange"),
    ("ssh_no_answer", "ssh: connect to host 192.168.10.13 port 22: No route to host\n", "No route to host"),
    ("ssh_name", "ssh: Could not resolve hostname gpu3: Name or service not known\n", "Could not resolve"),
    ("ssh_fails", "kex_exchange_identification: Connection closed by remote host\n", "kex_exchange"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "err", "shown"), LOGINS, ids=[code for code, *_ in LOGINS])
def test_a_login_that_fails_is_named_by_its_cause(code: str, err: str, shown: str) -> None:
    (finding,) = diagnosis.diagnose(broken(cluster(), "gpu1", ssh=ssh(err)))
    assert (finding.code, finding.host, finding.detail) == (code, "gpu3", "ssh from gpu1")
    assert shown in finding.evidence


def test_a_login_that_hangs_and_one_to_another_port() -> None:
    (finding,) = diagnosis.diagnose(broken(cluster(), "gpu1", ssh=ssh("", None)))
    assert (finding.code, finding.host) == ("ssh_no_answer", "gpu3")
    refused = ssh("ssh: connect to host 192.168.10.13 port 22: Connection refused\n", 255, 2222)
    (finding,) = diagnosis.diagnose(broken(cluster(), "gpu1", ssh=refused))
    assert finding.detail == "ssh from gpu1 tried port 22, and the inventory states 2222"


def test_the_launch_host_really_logs_in(tmp_path: Path) -> None:
    """ssh itself, told by its configuration of a port where nobody listens, as rsh.sh would be."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        (tmp_path / "config").write_text(f"Port {port}\n")
        (tmp_path / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {tmp_path}/config "$@"\n')
        (tmp_path / "ssh").chmod(0o755)
        request = {**request_of("gpu1", made.NAMES[:2], ()), "only": ["ssh"], "is_launch": True}
        words = [sys.executable, PROBE, json.dumps(request)]
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(words, capture_output=True, text=True, env=env, check=True, timeout=30)
    view = views.view("gpu1", json.loads(done.stdout), Stated())
    (finding,) = found([view, HostView("gpu2")], "ssh_refused")
    assert finding.host == "gpu2"
    assert finding.detail == f"ssh from gpu1 tried port {port}, and the inventory states 22"


# --- connections ---------------------------------------------------------------------------


def met(name: str, *cut: tuple[str, str], said: str = "timed out", heard: bool = True) -> Probe:
    """The connections of ``name``; for each pair of ``cut`` the first could not reach the second."""
    told = made.pairs(name, made.NAMES)
    for one, two in cut:
        if one == name:
            told["reached"][two] = {str(port): {"open": False, "said": {said: 4}} for port in made.PORTS}
        if two == name:
            told["heard"] = {
                port: [each for each in names if each != one] for port, names in told["heard"].items()
            }
    return data(told if heard else {**told, "heard": {}})


def closed(*cut: tuple[str, str], said: str = "timed out", heard: bool = True) -> list[tuple[str, str, str]]:
    hosts = [altered(view, pairs=met(view.name, *cut, said=said, heard=heard)) for view in cluster()]
    return [(each.code, each.host, each.detail) for each in diagnosis.diagnose(hosts)]


def test_the_host_that_is_cut_off_is_named_once() -> None:
    others = ("gpu1", "gpu2", "gpu4")
    assert closed(*((one, "gpu3") for one in others)) == [
        ("port_closed", "gpu3", "closed for gpu1, gpu2, gpu4")
    ]
    assert closed(*(("gpu3", two) for two in others)) == [("port_closed", "gpu3", "it reaches no other host")]
    assert closed(("gpu1", "gpu2")) == [("port_closed", "gpu2", "closed for gpu1")]
    assert closed() == []


def test_a_firewall_that_rejects_is_told_from_a_host_that_was_not_there_yet() -> None:
    """Both refuse; where the one heard the other meanwhile, it was there."""
    refused = "Connection refused"
    assert closed(("gpu1", "gpu2"), said=refused) == [("port_closed", "gpu2", "closed for gpu1")]
    assert closed(("gpu1", "gpu2"), said=refused, heard=False) == [
        ("pair_not_met", "gpu2", "nothing is known of gpu1 to gpu2")
    ]
    rejected = closed(("gpu1", "gpu2"), said="No route to host", heard=False)
    assert rejected == [("port_closed", "gpu2", "closed for gpu1")]


def test_a_port_that_is_taken_is_not_a_firewall() -> None:
    told = made.pairs("gpu2", made.NAMES)
    told["ports"] = {"29500": "Address already in use", "46000": ""}
    hosts = broken(cluster(), "gpu2", pairs=data(told))
    tried = made.pairs("gpu1", made.NAMES)
    tried["reached"]["gpu2"]["29500"] = {"open": False, "said": {"timed out": 4}}
    (finding,) = diagnosis.diagnose(broken(hosts, "gpu1", pairs=data(tried)))
    assert (finding.code, finding.host) == ("port_busy", "gpu2")
    assert finding.evidence == "listen on port 29500: Address already in use"
    other = {**told, "ports": {"29500": "", "46000": "Address already in use"}}  # which anybody may have
    assert diagnosis.diagnose(broken(cluster(), "gpu2", pairs=data(other))) == []


# --- connections, for real -----------------------------------------------------------------


def local(name: str) -> str:
    return f"127.0.0.1{name[-1]}"


def request_of(name: str, others: tuple[str, ...], ports: tuple[int, ...], **moved: str) -> dict[str, Any]:
    peers = [
        {"name": each, "address": moved.get(each, local(each)), "port": 22} for each in others if each != name
    ]
    return {"name": name, "address": local(name), "peers": peers, "mpi_ports": ports, "only": ["pairs"]}


def free_ports(count: int) -> tuple[int, ...]:
    """Ports that are free on every address of loopback."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("", 0))
        return tuple(one.getsockname()[1] for one in taken)


@contextmanager
def filtered(where: str, ports: tuple[int, ...]) -> Iterator[None]:
    """Ports that drop whoever comes, as a firewall does: sockets whose queue of connections is full."""
    with ExitStack() as stack:
        for port in ports:
            door = stack.enter_context(socket.socket())
            door.bind((where, port))
            door.listen(0)
            for _ in range(4):
                visitor = stack.enter_context(socket.socket())
                visitor.setblocking(False)
                visitor.connect_ex((where, port))
        time.sleep(0.1)
        yield


def looked(
    requests: list[dict[str, Any]], pause: float = 0.0, programs: dict[str, list[str]] | None = None
) -> list[HostView]:
    """Probes at the same time, one per host, each on an address of its own."""
    running = []
    for request in requests:
        program = (programs or {}).get(request["name"], [str(PROBE)])
        words = [sys.executable, *program, json.dumps(request)]
        running.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        time.sleep(pause)
    out = [each.communicate(timeout=60)[0] for each in running]
    return [
        views.view(request["name"], json.loads(text), Stated())
        for request, text in zip(requests, out, strict=True)
    ]


def test_all_pairs_really_meet_though_they_start_one_after_the_other() -> None:
    ports = free_ports(2)
    hosts = looked([request_of(name, made.NAMES, ports) for name in made.NAMES], 0.4)
    for view in hosts:
        told = view.data("pairs")
        others = sorted({*made.NAMES} - {view.name})
        assert told["heard"] == {str(port): others for port in ports}
        for doors in told["reached"].values():
            for door in doors.values():
                assert door["open"]
                assert abs(door["offset"]) <= door["error"] + 0.001  # it is one clock
                assert door["error"] < 0.5
    assert diagnosis.diagnose(hosts) == []
    assert hosts[-1].data("pairs")["seconds"] < 5  # nobody waits once all have met


def test_a_host_whose_address_is_a_name_is_open_for_all() -> None:
    """Such a name may mean loopback on the host itself, where no peer comes in."""
    (port,) = free_ports(1)
    request = {**request_of("gpu1", made.NAMES[:2], (port,)), "address": "localhost", "deadline_s": 6}
    with subprocess.Popen([sys.executable, PROBE, json.dumps(request)], stdout=subprocess.PIPE) as probe:
        with visitor((local("gpu3"), port)) as connection:
            connection.sendall(b"runkit gpu2\n")
            hello, told = connection.recv(100).split()
        out = probe.communicate(timeout=30)[0]
    assert hello == b"runkit"
    assert abs(float(told) - time.time()) < 30
    assert "gpu2" in views.view("gpu1", json.loads(out), Stated()).data("pairs")["heard"][str(port)]


def visitor(where: tuple[str, int]) -> socket.socket:
    """A connection, as soon as somebody listens there."""
    until = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection(where, timeout=2)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def test_a_clock_that_is_off_is_really_found() -> None:
    """The probe of gpu2 is given a clock of 90 s ahead; the others tell so, within their own error."""
    ports, three = free_ports(1), made.NAMES[:3]
    ahead = "import sys, time; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv.pop(1))\n"
    ahead += "import probe; true = time.time; time.time = lambda: true() + 90; probe.main(sys.argv)"
    programs = {"gpu2": ["-c", ahead, str(PROBE.parent)]}
    hosts = looked([request_of(name, three, ports) for name in three], programs=programs)
    (finding,) = diagnosis.diagnose(hosts)
    assert (finding.code, finding.host) == ("clock_differs", "gpu2")
    assert finding.evidence.startswith(("90.000 s ahead of gpu1", "90.001 s ahead", "89.999 s ahead"))


def test_a_port_that_a_firewall_drops_is_really_found() -> None:
    ports, three = free_ports(2), made.NAMES[:3]
    with filtered("127.0.0.99", ports):
        requests = [{**request_of(name, three, ports, gpu3="127.0.0.99"), "deadline_s": 6} for name in three]
        hosts = looked(requests)
    (finding,) = found(hosts, "port_closed")
    assert (finding.host, finding.detail) == ("gpu3", "closed for gpu1, gpu2")
    assert "timed out" in finding.evidence
    assert f"port {ports[0]}" in finding.evidence


def test_a_port_that_is_really_taken() -> None:
    (port,) = free_ports(1)
    with socket.socket() as taken:
        taken.bind((local("gpu2"), port))
        taken.listen(1)
        hosts = looked(
            [{**request_of(name, made.NAMES[:2], (port,)), "deadline_s": 5} for name in made.NAMES[:2]]
        )
    assert [(each.code, each.host) for each in diagnosis.diagnose(hosts)] == [("port_busy", "gpu2")]
