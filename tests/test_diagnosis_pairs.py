"""Rules of connections: who is cut off is named, and nothing otherwise.

The hosts are recorded (see os_hosts); connections are tried for real as well, between probes on this machine.
"""

from __future__ import annotations

import json
import signal
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
from os_hosts import altered, broken, cluster, data, found, local, request_of

from runner import diagnosis
from runner.diagnosis import views
from runner.diagnosis.model import HostView, Probe, Stated

PROBE = Path(__file__).resolve().parent.parent / "roles" / "doctor_probe" / "files" / "probe.py"


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


def closed(
    *cut: tuple[str, str], said: str = "timed out", heard: bool = True, hosts: int = 4
) -> list[tuple[str, str, str]]:
    seen = cluster()[:hosts]
    seen = [altered(view, pairs=met(view.name, *cut, said=said, heard=heard)) for view in seen]
    return [(each.code, each.host, each.detail) for each in diagnosis.diagnose(seen)]


def test_the_host_that_is_cut_off_is_named_once() -> None:
    others = ("gpu1", "gpu2", "gpu4")
    assert closed(*((one, "gpu3") for one in others)) == [
        ("port_closed", "gpu3", "closed for gpu1, gpu2, gpu4")
    ]
    assert closed(*(("gpu3", two) for two in others)) == [("port_closed", "gpu3", "it reaches no other host")]
    assert closed(("gpu1", "gpu2")) == [("port_closed", "gpu2", "closed for gpu1")]
    assert closed(("gpu1", "gpu2"), hosts=2) == [("port_closed", "gpu2", "closed for gpu1")]
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


def unlike(**rows: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Findings where all that a host, by its name, says of each port of the other one is so."""
    seen = cluster()
    for ways, row in rows.items():
        one, two = ways.split("_")
        (host,) = (view for view in seen if view.name == one)
        told = host.data("pairs")
        told["reached"][two] = {str(port): row for port in made.PORTS}
        seen = broken(seen, one, pairs=data(told))
    return [(each.code, each.host, each.detail) for each in diagnosis.diagnose(seen)]


@pytest.mark.parametrize("why", ["No route to host", "Invalid argument", "Permission denied"])
def test_what_the_own_kernel_refuses_is_of_that_host_alone(why: str) -> None:
    """By routes of type unreachable, blackhole and prohibit; the other host's tries find no answer."""
    refused = {"open": False, "said": {why: 20}, "here": why}
    late = {"open": False, "said": {"timed out": 7}}
    named = [("no_route_to_host", "gpu2", "its own kernel refuses gpu3")]
    assert unlike(gpu2_gpu3=refused, gpu3_gpu2=late) == named
    assert unlike(gpu2_gpu3=refused) == named
    assert unlike(gpu2_gpu3={**refused, "open": True}) == []  # a route that came a moment later
    shut = unlike(gpu2_gpu3={**refused, "here": ["?"]})
    assert [code for code, _, _ in shut] in (["port_closed"], ["port_closed"] * 2)


def test_large_packets_that_stay_on_the_way() -> None:
    met = {"open": True, "said": {}, "offset": 0.0, "error": 0.001}
    lost, fine = {**met, "stalled": True}, {**met, "stalled": False}
    code = "large_packets_lost"
    assert unlike(gpu1_gpu2=lost, gpu3_gpu2=lost, gpu2_gpu1=fine) == [
        (code, "gpu2", "no large packets from gpu1, gpu3")
    ]
    assert unlike(gpu2_gpu1=lost, gpu2_gpu3=lost, gpu2_gpu4=lost) == [
        (code, "gpu2", "its large packets reach no other host")
    ]
    assert unlike(gpu1_gpu2=fine) == unlike(gpu1_gpu2={**met, "stalled": "?"}) == []
    told = made.pairs("gpu1", made.NAMES)
    told["reached"]["gpu2"][str(made.PORTS[0])] = lost  # of one connection it may be chance
    assert found(broken(cluster(), "gpu1", pairs=data(told)), code) == []


def test_loopback_that_is_down() -> None:
    """Recorded with iproute2 6.1: set down, lo keeps its address."""
    down = made.interface("lo", "127.0.0.1", "DOWN", "LOOPBACK")
    for flags, named in ((["LOOPBACK"], ["loopback_down"]), (["LOOPBACK", "UP", "LOWER_UP"], [])):
        rows = [{**down, "flags": flags}, *made.interfaces("gpu3")[1:]]
        told = diagnosis.diagnose(broken(cluster(), "gpu3", interfaces=data(rows)))
        assert [each.code for each in told if each.host == "gpu3"] == named


# --- connections, for real -----------------------------------------------------------------


def free_ports(count: int) -> tuple[int, ...]:
    """Ports that are free on every address of loopback."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("", 0))
        return tuple(one.getsockname()[1] for one in taken)


def test_a_host_that_does_not_let_itself_in() -> None:
    """As the look gives it where nftables drops what comes over lo."""
    told = data([{"address": "127.0.0.1", "error": "timed out"}])
    (finding,) = diagnosis.diagnose(broken(cluster(), "gpu3", loopback=told))
    assert (finding.code, finding.host) == ("loopback_blocked", "gpu3")
    assert finding.evidence == "gpu3 -> 127.0.0.1: timed out"


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
                assert door["error"] < 1.0
    assert diagnosis.diagnose(hosts) == []
    assert hosts[-1].data("pairs")["seconds"] < 8  # nobody waits once all have met


def used_a_moment_ago(where: tuple[str, int]) -> None:
    """A port as Open MPI's ranks leave it: their sockets let nobody else listen there for another minute."""
    with socket.socket() as door:
        door.bind(where)
        door.listen(1)
        with socket.create_connection(where) as visitor:
            door.accept()[0].close()
            assert visitor.recv(1) == b""
    with socket.socket() as later, pytest.raises(OSError, match="already in use"):
        later.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        later.bind(where)


def test_nobody_waits_for_a_port_that_a_peer_says_it_could_not_open() -> None:
    """A doctor or bench right after a run took all the time there is for connections, 10 s."""
    first, second = free_ports(2)
    used_a_moment_ago((local("gpu2"), second))
    hosts = looked([request_of(name, made.NAMES, (first, second)) for name in made.NAMES])
    told = {view.name: view.data("pairs") for view in hosts}
    assert told["gpu2"]["ports"] == {str(first): "", str(second): "Address already in use"}
    assert not told["gpu1"]["reached"]["gpu2"][str(second)]["open"]
    assert max(each["seconds"] for each in told.values()) < 8
    assert diagnosis.diagnose(hosts) == []


@contextmanager
def another_doctor(opened: int, shut: int) -> Iterator[None]:
    """It looks at gpu2, too, and has one of the ports there."""
    words = [sys.executable, "-c", OTHER, str(PROBE.parent), local("gpu2"), str(opened), str(shut)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        yield
        other.terminate()


def test_what_another_doctor_could_not_open_is_not_taken_for_what_the_own_one_could_not() -> None:
    """Its own doctor there may open it a moment later: the peer goes on trying."""
    first, second = free_ports(2)
    with another_doctor(first, second):
        own = {**request_of("gpu1", made.NAMES[:2], (first, second)), "look": "own", "deadline_s": 6}
        (view,) = looked([own])
    assert view.data("pairs")["reached"]["gpu2"][str(second)]["said"]["Connection refused"] > 3


OTHER = """
import sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import probe
probe.Door(sys.argv[2], int(sys.argv[3]), "other").start([int(sys.argv[4])])
print("open", flush=True)
time.sleep(60)
"""


LATE = """
import json, socket, sys, threading, time
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import probe
request = json.loads(sys.argv[2])
(peer,), (port,), connect = request["peers"], request["mpi_ports"], socket.create_connection
probe.PAIRS_S = 1.0
end = time.monotonic() + probe.PAIRS_S

def refused(where, **more):
    if where[0] == peer["address"] and time.monotonic() < end:
        raise ConnectionRefusedError(111, "Connection refused")
    return connect(where, **more)

socket.create_connection = refused
probe.Door(peer["address"], port).start()
threading.Thread(target=probe.reach, args=(peer["name"], request["address"], port, end, set())).start()
print(probe.pairs(request))
"""


def test_a_host_that_starts_when_the_tries_of_another_are_nearly_over_is_not_behind_a_firewall() -> None:
    """All tries were refused; then it came itself, and by now its ports are open: once more."""
    request = request_of("gpu1", made.NAMES[:2], free_ports(1))
    words = [sys.executable, "-c", LATE, str(PROBE.parent), json.dumps(request)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)
    (door,) = json.loads(done.stdout)["reached"]["gpu2"].values()
    assert door["open"]
    assert json.loads(done.stdout)["seconds"] < 3


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


def test_who_comes_from_the_look_of_another_doctor_is_told_the_time_and_not_taken_for_a_peer() -> None:
    """Else ports would close before the own look's peers come, who would find them shut."""
    (port,) = free_ports(1)
    request = {**request_of("gpu1", made.NAMES[:2], (port,)), "look": "own", "deadline_s": 5}
    with subprocess.Popen([sys.executable, PROBE, json.dumps(request)], stdout=subprocess.PIPE) as probe:
        with visitor((local("gpu1"), port)) as connection:
            connection.sendall(b"runkit gpu2 other\n")
            assert connection.recv(100).startswith(b"runkit ")
        told = views.view("gpu1", json.loads(probe.communicate(timeout=30)[0]), Stated()).data("pairs")
    assert told["heard"] == {str(port): []}
    assert told["seconds"] > 1


def test_a_peer_that_is_too_busy_to_speak_at_once_is_heard() -> None:
    """Who was not, was waited for till the time was over: of 32 probes on two cores some always were."""
    (port,) = free_ports(1)
    request = {**request_of("gpu1", made.NAMES[:2], (port,)), "deadline_s": 7}
    with subprocess.Popen([sys.executable, PROBE, json.dumps(request)], stdout=subprocess.PIPE) as probe:
        with visitor((local("gpu1"), port)) as connection:
            time.sleep(1.5)
            connection.sendall(b"runkit gpu2\n")
            assert connection.recv(100).startswith(b"runkit ")
        told = views.view("gpu1", json.loads(probe.communicate(timeout=30)[0]), Stated()).data("pairs")
    assert told["heard"] == {str(port): ["gpu2"]}


def test_a_port_that_another_doctor_has_is_not_called_taken() -> None:
    first, second = free_ports(2)
    with another_doctor(first, second):
        hosts = looked([request_of(name, made.NAMES[:2], (first, second)) for name in made.NAMES[:2]])
    assert hosts[1].data("pairs")["ports"] == {str(first): "Address already in use", str(second): ""}
    assert hosts[1].data("pairs")["doctor"] is True
    assert found(hosts, "port_busy") == []


def test_a_host_really_lets_itself_in_or_not() -> None:
    """In a network namespace of its own lo is down: there is no way to 127.0.0.1."""
    assert tried("json.loads(probe.loopback({'address': '127.0.0.2'}))") == []
    apart = ("unshare", "--map-root-user", "--net")
    (said,) = tried("json.loads(probe.loopback({'address': 'gpu1.example'}))", *apart)
    assert said == {"address": "127.0.0.1", "error": "Network is unreachable"}


def test_a_probe_ends_with_whoever_asked_for_it() -> None:
    """Else it kept its ports, and the next doctor took them for another program's."""
    request = {**request_of("gpu1", made.NAMES[:2], free_ports(1)), "only": ["pairs"]}
    with subprocess.Popen([sys.executable, PROBE, json.dumps(request)], stdout=subprocess.PIPE) as probe:
        visitor((local("gpu1"), request["mpi_ports"][0])).close()
        assert probe.stdout is not None
        probe.stdout.close()
        assert probe.wait(timeout=4) == 128 + signal.SIGHUP


TRY = """
import json, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import probe, time
print(json.dumps(%s))
"""


def tried(expression: str, *before: str) -> Any:
    """What a function of the probe gives."""
    words = [*before, sys.executable, "-c", TRY % expression, str(PROBE.parent)]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout)


def test_a_network_without_a_route_is_really_told_from_a_port_that_refuses() -> None:
    """In a network namespace of its own there is none at all."""
    (port,) = free_ports(1)
    expression = f"probe.reach('a', '%s', {port}, time.monotonic() + 0.3, set())"
    assert tried(expression % "192.0.2.7", "unshare", "--map-root-user", "--net")["here"]
    refused = tried(expression % "127.0.0.1")
    assert ("here" in refused, [*refused["said"]]) == (False, ["Connection refused"])


def test_large_packets_really_come_through_though_the_peer_is_busy() -> None:
    """Its kernel takes them; the program looks at nothing."""
    with (
        socket.create_server(("127.0.0.1", 0)) as door,
        socket.create_connection(door.getsockname()) as connection,
    ):
        own = connection.fileno()
        words = [sys.executable, "-c", LARGE, str(PROBE.parent), str(own)]
        done = subprocess.run(words, pass_fds=[own], capture_output=True, text=True, check=True, timeout=30)
    assert json.loads(done.stdout) == {"stalled": False}


LARGE = """
import json, socket, sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import probe
print(json.dumps(probe.large(socket.socket(fileno=int(sys.argv[2])), time.monotonic() + 9)))
"""


def test_a_clock_that_is_off_is_really_found() -> None:
    """The probe of gpu2 is given a clock of 90 s ahead; the others tell so, within their own error."""
    ports, three = free_ports(1), made.NAMES[:3]
    ahead = "import sys, time; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv.pop(1))\n"
    ahead += "import probe; true = time.time; time.time = lambda: true() + 90; probe.main(sys.argv)"
    programs = {"gpu2": ["-c", ahead, str(PROBE.parent)]}
    hosts = looked([request_of(name, three, ports) for name in three], programs=programs)
    (finding,) = diagnosis.diagnose(hosts)
    assert (finding.code, finding.host) == ("clock_differs", "gpu2")
    words = finding.evidence.split()
    assert words[1:5] == ["s", "ahead", "of", "gpu1,"]
    assert abs(float(words[0]) - 90) <= float(words[-2]) + 0.001


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
        hosts = looked([request_of(name, made.NAMES[:2], (port,)) for name in made.NAMES[:2]])
    assert [(each.code, each.host) for each in diagnosis.diagnose(hosts)] == [("port_busy", "gpu2")]
