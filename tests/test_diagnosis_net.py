"""Rules of names, interfaces and logins: each finds what is broken, and nothing otherwise; see os_hosts."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import os_hosts as made
import pytest
from os_hosts import address, altered, broken, cluster, data, found, host, request_of, said

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
    ("name_slow", {"names": names("gpu2", addresses=[], error="no answer", seconds=5.0)}, "no answer in 5.0"),
    ("name_slow", {"names": names("gpu2", addresses=[], error=UNKNOWN, seconds=2.0)}, f"{UNKNOWN} in 2.000"),
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


def test_a_host_with_nothing_but_loopback_has_no_interface() -> None:
    (finding,) = found(broken(cluster(), "gpu3", interfaces=interfaces()), "no_interface_in_cidr")
    assert (finding.host, finding.evidence) == ("gpu3", "loopback alone")
    no_program = Probe(("ip",), why="missing")
    assert found(broken(cluster(), "gpu3", interfaces=no_program), "no_interface_in_cidr") == []


def test_names_that_are_fine_are_not_named() -> None:
    """Half a second is quick enough; a second address beside the right one is none of another machine."""
    for probe in (names("gpu2", seconds=0.5), names("gpu2", addresses=["10.0.0.2", "192.168.10.12"])):
        assert diagnosis.diagnose(broken(cluster(), "gpu3", names=probe)) == []


@pytest.mark.parametrize(
    ("line", "code", "shown"),
    [
        ("hosts: dns", "name_files_not_asked", "/etc/nsswitch.conf: hosts: dns"),
        ("hosts:\tdns # files", "name_files_not_asked", "/etc/nsswitch.conf: hosts: dns"),
        ("hosts: files dns", "name_unknown", "gpu2: "),
        ("hosts: mymachines resolve [!UNAVAIL=return] dns", "name_unknown", "gpu2: "),
    ],
)
def test_names_that_are_unknown_for_one_reason_are_one_finding(line: str, code: str, shown: str) -> None:
    gone = {"addresses": [], "error": UNKNOWN, "seconds": 0.001}
    probes = {
        "names": data(dict.fromkeys(("gpu2", "gpu4"), gone)),
        "nsswitch": said(f"passwd: files\n{line}\n"),
    }
    (finding,) = diagnosis.diagnose(broken(cluster(), "gpu3", **probes))
    assert finding.code == code
    assert " ".join(finding.evidence.split()).startswith(shown)
    assert finding.detail.startswith("gpu2, gpu4")
    assert diagnosis.diagnose(broken(cluster(), "gpu3", nsswitch=probes["nsswitch"])) == []


def test_a_name_without_an_answer_in_time_is_not_called_unknown() -> None:
    """A dead nameserver that is asked before /etc/hosts, where the name stands."""
    late = names("gpu2", addresses=[], error="no answer", seconds=5.0)
    (finding,) = diagnosis.diagnose(broken(cluster(), "gpu3", names=late))
    assert (finding.code, finding.detail) == ("name_slow", "gpu2 has no answer after 5.0 s")
    gone = names("gpu2", addresses=[], error="Temporary failure in name resolution", seconds=2.0)
    both = diagnosis.diagnose(broken(cluster(), "gpu3", names=gone))
    assert {each.code for each in both} == {"name_unknown", "name_slow"}


def test_remedies_fit_whichever_name_and_address_it_is() -> None:
    """The host's own name is none that provision writes; a line of 127.0.0.1 is one that it leaves alone."""
    rules = diagnosis.rules()
    assert "hostnamectl set-hostname" in rules["name_unknown"].remedy
    assert "127.0.0.1" in rules["name_loopback"].remedy


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
    (
        "ssh_denied",
        '/etc/ssh/ssh_config line 5: Deprecated option "useroaming"\nme@gpu3: Permission denied (x).\n',
        "denied (x).",
    ),
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


@pytest.mark.parametrize(
    "words",
    [
        "/home/me/.ssh/config: line 3: Bad configuration option: bogus\n"
        "/home/me/.ssh/config: terminating, 1 bad configuration options\n",
        '/home/me/.ssh/config line 2: no argument after keyword "port"\n',
        "Bad owner or permissions on /home/me/.ssh/config\n",
    ],
)
def test_a_configuration_of_the_launch_host_that_ssh_refuses_is_its_own_fault(words: str) -> None:
    """What OpenSSH 9.2 said; the other hosts were never asked."""
    told = {name: json.loads(ssh(words).out)["gpu3"] for name in made.NAMES[1:]}
    (finding,) = diagnosis.diagnose(broken(cluster(), "gpu1", ssh=data(told)))
    assert (finding.code, finding.host) == ("ssh_config_broken", "gpu1")
    assert "/home/me/.ssh/config" in finding.evidence


def test_a_login_that_ends_without_a_word_is_not_said_to_be_late() -> None:
    """By ForceCommand of sshd on the host, say."""
    (finding,) = diagnosis.diagnose(broken(cluster(), "gpu1", ssh=ssh("", 1)))
    assert (finding.code, finding.evidence) == ("ssh_fails", "it ended with status 1 without a word")


def test_a_login_to_another_sshd_of_the_same_machine() -> None:
    """Such as the machine's own, where the inventory states the port of one in a container."""
    launch = ssh("", 0, 2222).out.replace('"out": ""', '"out": "processes:4026531836\\n/usr/bin/orted\\n"')
    seen = broken(cluster(), "gpu1", ssh=said(launch))
    assert found(broken(seen, "gpu3", session=data({"processes": 4026531836})), "ssh_elsewhere") == []
    (finding,) = found(broken(seen, "gpu3", session=data({"processes": 4026532777})), "ssh_elsewhere")
    assert finding.host == "gpu3"
    assert finding.evidence == "/proc/self/ns/pid: 4026531836, by the inventory's login 4026532777"
    assert finding.detail == (
        "ssh from gpu1 sees other processes than a login at port 2222, which the inventory states"
    )


def test_a_login_sees_the_same_processes_as_the_look_beside_it() -> None:
    """By the words that a login runs, here without one."""
    program = "import sys; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv[1]); import probe\n"
    program += "print(probe.SEEN); print(probe.session({}))"
    done = subprocess.run([sys.executable, "-c", program, str(PROBE.parent)], capture_output=True, text=True)
    words, session = done.stdout.splitlines()
    assert words.startswith("sh -c '")  # csh has no ``command``
    shell = subprocess.run(["sh", "-c", words], capture_output=True, text=True, check=True)
    assert f"\nprocesses:{json.loads(session)['processes']}\n" in shell.stdout


@pytest.mark.parametrize(
    ("shell", "by", "codes"),
    [
        ("/usr/bin/tcsh", "10.0.0.1 4711 10.0.0.2 22", ["login_shell_csh"]),
        ("/bin/csh", "10.0.0.1 4711 10.0.0.2 22", ["login_shell_csh"]),
        ("/bin/tcsh", "", []),
        ("/usr/bin/fish", "10.0.0.1 4711 10.0.0.2 22", []),
    ],
)
def test_a_login_shell_that_does_not_read_words_of_sh(shell: str, by: str, codes: list[str]) -> None:
    session = data({"SHELL": shell, "USER": "me", "SSH_CONNECTION": by})
    named = diagnosis.diagnose(broken(cluster(), "gpu3", session=session))
    assert [(each.host, each.code) for each in named] == [("gpu3", code) for code in codes]
    assert all(each.evidence == f"SHELL={shell} of me" for each in named)


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
