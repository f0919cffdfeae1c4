"""``doctor`` on three real hosts: ready as they are, then broken one way at a time, each named and mended.

What cannot be broken in a lab is tested by recorded output: the clock and the kernel are those of the machine
that all hosts share, and no file server can be mounted in a user namespace (tests/test_diagnosis_os.py,
test_diagnosis_net.py); the machine need not have what delays packets (test_diagnosis_jobs.py).
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hosts import Lab, sh, wait_for

PROCESSES = (  # of the job between hosts, and its folders
    "ps -eo args | grep -E '[o]rted|[m]pirun |[m]pi4py -c|[t]imeout -k|json.loads.[s]ys';"
    " ls -d /tmp/runkit-doctor* 2>/dev/null"
)
KNOWN = {"memlock_session_low"}  # where this machine holds the hosts to less, which provision tells
ROUTED = "10.99.0"  # a network of the hosts beside the one that Ansible uses


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, suffix: str) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("labs") / f"doctor{suffix}") as lab:
        lab.up("--hosts", "3")
        lab.runner("provision", check=0, timeout=600)
        for host in lab.hosts:
            sh(lab, host, "apt-get install -qq --no-install-recommends iproute2 nftables", 180)
        yield lab


def looked(lab: Lab, *words: str) -> dict[str, Any]:
    """What ``doctor --json`` says."""
    done = lab.runner("doctor", "--json", *words, timeout=150)
    assert done.returncode in (0, 1), done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def found(lab: Lab, *words: str) -> set[tuple[str, str]]:
    """(host, code) of findings beyond those that ready hosts have."""
    told = looked(lab, *words)["findings"]
    return {(each["host"], each["code"]) for each in told} - {(h, code) for h in lab.hosts for code in KNOWN}


@contextmanager
def stated(
    lab: Lab, hosts: dict[str, dict[str, object]] | None = None, **variables: object
) -> Iterator[None]:
    """The inventory says so meanwhile, of the cluster and of some hosts."""
    own, path = lab.folder / "group_vars" / "all" / "test.yml", lab.folder / "hosts.yml"
    before = path.read_text()
    document = yaml.safe_load(before)
    for key in variables:
        document["all"]["vars"].pop(key, None)
    for host, values in (hosts or {}).items():
        document["all"]["hosts"][host].update(values)
    path.write_text(yaml.safe_dump(document))
    own.write_text(yaml.safe_dump(variables))
    try:
        yield
    finally:
        own.unlink()
        path.write_text(before)


def left(lab: Lab) -> dict[str, str]:
    """Of the job between hosts, on each host."""
    said = {host: lab.ssh(host, PROCESSES).stdout for host in lab.hosts}
    return {host: text for host, text in said.items() if text}


# --- as they are -----------------------------------------------------------------------------


def test_ready_hosts(three: Lab) -> None:
    done = three.runner("doctor", check=0)
    assert [line for line in done.stdout.splitlines() if line.endswith(": ready")] == [
        f"{host}: ready" for host in three.hosts
    ]
    assert done.stdout.splitlines()[-1].startswith("between 3 hosts (least/median/most): ")
    assert found(three, "--quick") == set()
    assert left(three) == {}


def test_a_login_shell_that_is_not_of_sh(three: Lab) -> None:
    one = three.hosts[1]
    sh(three, one, "apt-get install -qq --no-install-recommends fish >&2; chsh -s /usr/bin/fish runkit", 180)
    try:
        told = found(three)
    finally:
        sh(three, one, "chsh -s /bin/bash runkit")
    assert told == set()


def test_the_limit_of_an_open_connection_is_not_taken_for_the_hosts(three: Lab, tmp_path: Path) -> None:
    """A connection that Ansible keeps has the limits of when it was made; a login has those of now."""
    one, limits = three.hosts[1], "/etc/security/limits.d/zz.conf"
    shared = f"-o ControlMaster=auto -o ControlPersist=60 -o ControlPath={tmp_path}/%C"
    common = yaml.safe_load((three.folder / "hosts.yml").read_text())["all"]["vars"][
        "ansible_ssh_common_args"
    ]
    with stated(three, {one: {"ansible_ssh_common_args": f"{common} {shared}"}}):
        looked(three, "--quick", "--limit", one)
        sh(three, one, f"echo '* - memlock 64' > {limits}")
        try:
            told = looked(three, "--quick", "--limit", one)["findings"]
        finally:
            sh(three, one, f"rm {limits}")
    assert [each["detail"] for each in told if each["code"] == "memlock_session_low"] == [
        "a process that ssh started may lock 64 KiB"
    ]


# --- broken one way at a time ----------------------------------------------------------------


@dataclass(frozen=True)
class Break:
    """How root breaks and mends the second of three hosts: {third} is a name, {a1}, {a3} are addresses."""

    codes: frozenset[str]
    script: str
    mend: str


def broken(codes: str, script: str, mend: str) -> Any:
    return pytest.param(Break(frozenset(codes.split()), script, mend), id=codes.replace(" ", "+"))


KEEP = "cp -p {0} {0}.kept; "
BACK = "cat {0}.kept > {0}; rm {0}.kept"
HOSTS, SWITCH = "/etc/hosts", "/etc/nsswitch.conf"
RUNS = "/home/runkit/.local/state/runkit"  # bench_agent_root of the inventory
DROP = (
    "nft add table inet t; nft 'add chain inet t in {{ type filter hook input priority 0; }}';"
    " nft add rule inet t in "
)
BREAKS = [
    broken("no_route_to_host", "ip route add unreachable {a3}/32", "ip route del unreachable {a3}/32"),
    broken("loopback_down", "ip link set lo down", "ip link set lo up"),
    broken("loopback_blocked", DROP + "iif lo drop", "nft delete table inet t"),
    broken("fsize_session", "echo '* - fsize 1000' > {limits}", "rm {limits}"),
    broken("nofile_session", "echo '* - nofile 40' > {limits}", "rm {limits}"),
    broken(
        "large_packets_lost",
        DROP + "ip saddr {a3} meta length gt 1400 drop",
        "nft delete table inet t",
    ),
    broken("name_unknown", KEEP.format(HOSTS) + f"sed -i.x '/{{third}}/d' {HOSTS}", BACK.format(HOSTS)),
    broken(
        "name_elsewhere",
        KEEP.format(HOSTS) + f"sed -i.x 's/^{{a3}} /10.255.0.9 /' {HOSTS}",
        BACK.format(HOSTS),
    ),
    broken(
        "name_slow",
        KEEP.format(SWITCH)
        + f"sed -i.x 's/^hosts:.*/hosts: dns files/' {SWITCH}; cp -L /etc/resolv.conf /root/resolv || :;"
        " rm -f /etc/resolv.conf; printf 'nameserver {network}.250\\noptions timeout:1 attempts:1\\n'"
        " > /etc/resolv.conf",
        BACK.format(SWITCH) + "; rm /etc/resolv.conf; mv /root/resolv /etc/resolv.conf || :",
    ),
    broken(
        "port_closed",
        DROP + "ip saddr {a3} tcp dport 1024-20000 drop",  # where ranks are; daemons are on others
        "nft delete table inet t",
    ),
    broken(
        "ssh_refused", DROP + "ip saddr {a1} tcp dport 22 reject with tcp reset", "nft delete table inet t"
    ),
    broken(
        "ssh_denied",
        "cd /home/runkit/.ssh; cp -p authorized_keys kept; sed -i '\\|{key}|d' authorized_keys",
        "cd /home/runkit/.ssh; mv kept authorized_keys",
    ),
    broken(
        "virtual_interface_chosen",
        "ip link add docker0 type bridge; ip address add 172.17.0.1/16 dev docker0; ip link set docker0 up",
        "ip link delete docker0",
    ),
    broken(
        "mpi_addresses_several",
        "ip address add {network}.251/32 dev host0",
        "ip address del {network}.251/32 dev host0",
    ),
    broken(
        "mpi_version_differs mpi_path_differs",
        "printf '#!/bin/sh\\necho \"mpirun (Open MPI) 5.0.7\"\\n' > /usr/local/bin/mpirun;"
        " chmod 755 /usr/local/bin/mpirun",
        "rm /usr/local/bin/mpirun",
    ),
    broken(
        "mpi_not_on_path",
        "mkdir -p /usr/local/openmpi/bin; mv /usr/bin/mpirun /usr/local/openmpi/bin/",
        "mv /usr/local/openmpi/bin/mpirun /usr/bin/; rm -r /usr/local/openmpi",
    ),
    broken(
        "login_shell_csh",
        "apt-get install -qq --no-install-recommends tcsh >&2; chsh -s /usr/bin/tcsh runkit",
        "chsh -s /bin/bash runkit",
    ),
    broken("mpi_tmp_not_writable", "chmod 755 /tmp", "chmod 1777 /tmp"),
    broken("shm_not_writable", "chmod 755 /dev/shm", "chmod 1777 /dev/shm"),
    broken(
        "name_files_not_asked",
        KEEP.format(SWITCH) + f"sed -i.x 's/^hosts:.*/hosts: dns/' {SWITCH}",
        BACK.format(SWITCH),
    ),
    broken("mpi_missing", "mv /usr/bin/mpirun /root/", "mv /root/mpirun /usr/bin/"),
    broken(
        "disk_full",
        f"runuser -u runkit -- mkdir -p {RUNS}; mount -t tmpfs -o size=4m none {RUNS};"
        f" dd if=/dev/zero of={RUNS}/full bs=1M count=8 2>/dev/null || :",
        f"umount {RUNS}",
    ),
    broken(
        "packages_half_installed",
        "mkdir -p /tmp/p/DEBIAN; cd /tmp/p/DEBIAN; printf '#!/bin/sh\\nexit 1\\n' > postinst;"
        " chmod 755 postinst; printf 'Package: half-way\\nVersion: 1\\nArchitecture: all\\n"
        "Maintainer: a <a@b.invalid>\\nDescription: its script fails\\n' > control;"
        " dpkg-deb -b /tmp/p /tmp/p.deb; ! dpkg -i /tmp/p.deb",
        "dpkg --purge half-way; rm -r /tmp/p /tmp/p.deb",
    ),
    broken(
        "os_differs",
        "cp -L /etc/os-release /root/release; rm /etc/os-release;"
        " sed 's/^VERSION_ID=.*/VERSION_ID=\"13\"/' /root/release > /etc/os-release",
        "mv /root/release /etc/os-release",
    ),
]


@pytest.mark.parametrize("how", BREAKS)
def test_what_is_broken_is_named(three: Lab, how: Break) -> None:
    first, second, third = three.hosts
    words = {
        **{"third": third, "a1": three.address(first), "a3": three.address(third)},
        "network": three.address(first).rpartition(".")[0],
        "limits": "/etc/security/limits.d/zz.conf",
        "key": three.ssh(first, "cat .ssh/*.pub").stdout.split()[1],
    }
    sh(three, second, how.script.format(**words))
    try:
        told = found(three, "--quick")
    finally:
        sh(three, second, how.mend.format(**words))
    assert told == {(second, code) for code in how.codes}


def test_ssh_of_the_launch_host_that_refuses_its_configuration(three: Lab) -> None:
    first, config = three.hosts[0], "/home/runkit/.ssh/config"
    sh(three, first, f"echo 'Bogus yes' > {config}; chown runkit {config}")
    try:
        told = found(three, "--quick")
    finally:
        sh(three, first, f"rm {config}")
    assert told == {(first, "ssh_config_broken")}


def test_limits_of_memory_where_the_inventory_states_rdma(three: Lab) -> None:
    one, session, service = (
        three.hosts[1],
        "/etc/security/limits.d/zz.conf",
        "/etc/systemd/system.conf.d/zz.conf",
    )
    sh(three, one, f"echo '* - memlock 64' > {session}; mkdir -p /etc/systemd/system.conf.d")
    sh(three, one, f"printf '[Manager]\\nDefaultLimitMEMLOCK=64K\\n' > {service}; systemctl daemon-reexec")
    try:
        with stated(three, cluster_fabric="roce"):
            told = looked(three, "--quick")["findings"]
    finally:
        sh(three, one, f"rm {session} {service}; systemctl daemon-reexec")
    said = {each["code"]: each["detail"] for each in told if each["host"] == one}
    assert said["memlock_session"] == "a process that ssh started may lock 64 KiB"
    assert said["memlock_service"] == "a service may lock 64 KiB"
    assert "rdma_device_missing" in said


def test_a_network_beside_that_one_host_has_no_address_in(three: Lab) -> None:
    """The other hosts are met at host_names_address, and logins from here go to ansible_host."""
    first, second, third = three.hosts
    own = {host: {"host_names_address": f"{ROUTED}.{number}"} for number, host in enumerate(three.hosts, 1)}
    for number, host in ((1, first), (3, third)):
        sh(three, host, f"ip address add {ROUTED}.{number}/24 dev host0")
    try:
        with stated(three, own, cluster_cidr=f"{ROUTED}.0/24"):
            told = found(three, "--quick")
            met = looked(three, "--quick", "--limit", f"{first},{third}")["findings"]
    finally:
        for number, host in ((1, first), (3, third)):
            sh(three, host, f"ip address del {ROUTED}.{number}/24 dev host0")
    assert (second, "no_interface_in_cidr") in told
    assert "port_closed" not in {each["code"] for each in met}
    assert "name_elsewhere" in {each["code"] for each in met}  # of provision with the other addresses


def test_a_host_that_accepts_and_never_answers_costs_its_own_deadline(three: Lab) -> None:
    one = three.hosts[2]
    stop = "systemd-run -q sh -c 'kill -STOP $(cat /run/sshd.pid); sleep 20; kill -CONT $(cat /run/sshd.pid)'"
    sh(three, one, stop)
    time.sleep(0.5)
    began = time.monotonic()
    told = found(three, "--quick")
    took = time.monotonic() - began
    wait_for(lambda: three.ssh(one, "true").returncode == 0, "sshd to go on", 40)
    assert told == {(one, "host_unreachable")}
    assert took < 30


# --- the job between hosts -------------------------------------------------------------------


def test_a_host_whose_link_is_slow(three: Lab) -> None:
    """100 Mbit/s, which is 12.5 MB/s, where the others have some GB/s: a cable that fell back."""
    one = three.hosts[1]
    sh(three, one, "tc qdisc add dev host0 root tbf rate 100mbit burst 32kbit latency 400ms")
    try:
        told = looked(three)
    finally:
        sh(three, one, "tc qdisc del dev host0 root")
    (finding,) = (each for each in told["findings"] if each["code"].startswith("mpi_"))
    assert (finding["host"], finding["code"]) == (one, "mpi_slow_rate")
    assert told["between"]["bytes_per_s"][0] == pytest.approx(12.5e6, rel=0.3)
    assert left(three) == {}


def test_hosts_that_no_job_can_reach_are_left_out(three: Lab) -> None:
    first, second, third = three.hosts
    key = three.ssh(first, "cat .ssh/*.pub").stdout.split()[1]
    sh(
        three,
        second,
        f"cd /home/runkit/.ssh; cp -p authorized_keys kept; sed -i '\\|{key}|d' authorized_keys",
    )
    try:
        told = looked(three)
        bench = three.runner("bench", "--cards", "32")
    finally:
        sh(three, second, "cd /home/runkit/.ssh; mv kept authorized_keys")
    assert told["between"]["hosts"] == [first, third]
    codes = {(each["host"], each["code"]) for each in told["findings"]}
    assert {(second, "ssh_denied"), (second, "mpi_job_left_out")} <= codes
    assert bench.returncode == 2
    line, last = bench.stderr.splitlines()
    assert line.startswith(f"{second}: ssh_denied: ssh from {first} (")
    assert "; run provision once for the whole cluster: it makes that trust" in line
    assert last.startswith(f"runkit: nothing was started: {second} cannot train; see doctor")
    assert not (three.work / "runs").exists() or not list((three.work / "runs").glob("2*"))


def looking(lab: Lab) -> subprocess.Popen[str]:
    """``doctor`` whose ranks run on the second host."""
    started = subprocess.Popen(
        lab.command("doctor", "--json"), cwd=lab.work, env=lab.environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for(lambda: "python" in lab.ssh(lab.hosts[1], "pgrep -a -f '[m]pi4py -c'").stdout, "ranks", 60)
    return started


def test_a_host_that_is_cut_off_meanwhile_is_named_and_the_rest_ends(three: Lab) -> None:
    one = three.hosts[1]
    doctor = looking(three)
    three.cut(one)
    try:
        out, _ = doctor.communicate(timeout=100)
    finally:
        three.join(one)
    assert ("mpi_no_answer", one) in {(each["code"], each["host"]) for each in json.loads(out)["findings"]}
    wait_for(lambda: left(three) == {}, "all of the job to be gone", 40)


def test_a_rank_that_stands_still_is_named_and_no_other(three: Lab) -> None:
    """Wherever it is stopped: before the start, between two meetings or behind the last; in each try."""
    one, unit = three.hosts[1], "runkit-test-stop"
    stop = 'while sleep 0.5; do pid=$(pgrep -o -f "[m]pi4py -c") && kill -STOP $pid; done'
    sh(three, one, f"systemd-run -q --unit {unit} sh -c '{stop}'")
    try:
        told = looked(three)
    finally:
        sh(three, one, f"systemctl stop {unit}")
    named = {each["host"] for each in told["findings"] if each["code"].startswith("mpi_")}
    assert named == {one}
    wait_for(lambda: left(three) == {}, "all of the job to be gone", 40)


def test_a_signal_ends_the_job_everywhere(three: Lab) -> None:
    doctor = looking(three)
    doctor.send_signal(signal.SIGINT)
    assert doctor.wait(20) == 130
    doctor.communicate()
    wait_for(lambda: left(three) == {}, "all of the job to be gone", 20)
