"""Reboots, and what is there for GPUs besides their driver, on two real hosts without any.

Stand-ins, for no GPU is here: a plain file called /dev/nvidia0 that a program has open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hosts import Lab, recap, sh
from test_provision import variables

pytestmark = [pytest.mark.gpu_hosts, pytest.mark.xdist_group("gpu services")]

BOOT = "cat /proc/sys/kernel/random/boot_id"
ASK = "touch /run/reboot-required; echo linux-image-amd64 >/run/reboot-required.pkgs"
ROLES = "host_reboot,fabric_manager,gpu_persistence"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, suffix: str) -> Iterator[Lab]:
    """One host of each release."""
    with Lab(tmp_path_factory.mktemp("labs") / f"gsv{suffix}") as lab:
        lab.up("--hosts", "2", "--release", "bookworm,trixie")
        yield lab


def boots(lab: Lab) -> dict[str, str]:
    return {host: sh(lab, host, BOOT).strip() for host in lab.hosts}


def told(text: str, host: str) -> list[str]:
    """What is told of a host, apart from its recap."""
    start = re.compile(rf"(?:runkit: )?(?:\w+, )*{host}(?:, \w+)*: ")
    return [each for each in text.splitlines() if start.match(each)]


def stamp(lab: Lab, host: str, what: str) -> int:
    """A time that systemd keeps, in microseconds of the machine's clock, which both hosts share."""
    return int(sh(lab, host, f"systemctl show --value --property={what}"))


@contextmanager
def program(lab: Lab, host: str) -> Iterator[int]:
    """A program that has something open that is called as the device of a GPU is; its process id there."""
    run = "tail -f /dev/nvidia0 --pid=1 s3cret-argument"
    sh(lab, host, f"touch /dev/nvidia0; systemd-run --quiet --unit=computing --uid=runkit {run}")
    try:
        yield int(sh(lab, host, "systemctl show --property=MainPID --value computing"))
    finally:
        sh(lab, host, "systemctl stop computing; rm /dev/nvidia0")


# --- reboots -------------------------------------------------------------------------------


def test_nothing_is_told_and_nothing_done_where_no_reboot_is_due(pair: Lab) -> None:
    before = boots(pair)
    with variables(pair, "host_reboot_allowed: true\n"):
        done = pair.runner("provision", "--tags", ROLES, check=0)
    assert [told(done.stderr, host) for host in pair.hosts] == [[], []]
    assert recap(done.stdout) == dict.fromkeys(pair.hosts, (0, 0, 0))
    assert boots(pair) == before


def test_a_reboot_that_is_due_is_told_and_not_done_unless_allowed(pair: Lab) -> None:
    first = pair.hosts[0]
    before = boots(pair)
    sh(pair, first, ASK)
    done = pair.runner("provision", "--tags", "host_reboot", check=0)
    assert told(done.stderr, first) == [
        f"{first}: a reboot is due, asked for by linux-image-amd64; reboot it, or provision again with "
        "host_reboot_allowed: true"
    ]
    assert recap(done.stdout) == dict.fromkeys(pair.hosts, (0, 0, 0))
    with variables(pair, "host_reboot_allowed: true\n"):
        done = pair.runner("provision", "--tags", "host_reboot", "--check", check=0)
    assert told(done.stderr, first) == [f"{first}: would be rebooted, asked for by linux-image-amd64"]
    assert told(done.stdout, first) == [f"{first}: host_reboot: Reboot | Reboot"]
    assert boots(pair) == before


def test_a_host_that_is_in_use_is_not_rebooted_and_holds_up_no_other(pair: Lab) -> None:
    first, second = pair.hosts
    before = boots(pair)
    for host in pair.hosts:
        sh(pair, host, ASK)
    with program(pair, first) as pid, variables(pair, "host_reboot_allowed: true\n"):
        done = pair.runner("provision", "--tags", "host_reboot", check=1)
        assert told(done.stderr, first) == [
            f"runkit: {first}: host_idle: tail (process {pid} of runkit) uses /dev/nvidia0: what would "
            "change now would break it; end it or wait, then provision again"
        ]
        assert "s3cret" not in done.stdout + done.stderr
        assert "s3cret" not in (pair.work / "runs" / f"provision-{pair.name}.log").read_text()
        assert sh(pair, first, "systemctl is-active computing") == "active\n"
    after = boots(pair)
    assert after[first] == before[first]
    assert after[second] != before[second]
    assert recap(done.stdout) == {first: (0, 0, 1), second: (1, 0, 0)}


def test_hosts_are_rebooted_one_after_the_other(pair: Lab) -> None:
    first, second = pair.hosts
    before = boots(pair)
    for host in pair.hosts:
        sh(pair, host, ASK)
    with variables(pair, "host_reboot_allowed: true\n"):
        done = pair.runner("provision", "--tags", "host_reboot", check=0)
        assert recap(done.stdout) == dict.fromkeys(pair.hosts, (1, 0, 0))
        again = pair.runner("provision", "--tags", "host_reboot", check=0)
    after = boots(pair)
    assert [after[host] != before[host] for host in pair.hosts] == [True, True]
    back = stamp(pair, first, "ActiveEnterTimestampMonotonic ssh")
    assert back < stamp(pair, second, "UserspaceTimestampMonotonic")
    assert recap(again.stdout) == dict.fromkeys(pair.hosts, (0, 0, 0))
    assert boots(pair) == after
    assert [sh(pair, host, "ls /run | grep reboot || true") for host in pair.hosts] == ["", ""]


def test_after_a_host_that_does_not_come_back_no_other_is_rebooted(pair: Lab) -> None:
    first, second = pair.hosts
    before = boots(pair)
    for host in pair.hosts:
        sh(pair, host, ASK)
    away = "/etc/systemd/system/reboot.target"
    sh(pair, first, f"ln -s /lib/systemd/system/poweroff.target {away}; systemctl daemon-reload")
    with variables(pair, "host_reboot_allowed: true\nhost_reboot_timeout: 4\n"):
        done = pair.runner("provision", "--tags", "host_reboot", check=1)
    pair.boot()
    sh(pair, first, f"rm {away}; systemctl daemon-reload")
    assert told(done.stderr, first)[-1] == (
        f"runkit: {first}: host_reboot: was told to reboot and did not come back within 4 s; look at its "
        f"console, and provision again once it is up; not rebooted after that: {second}"
    )
    assert recap(done.stdout) == {first: (0, 0, 1), second: (0, 0, 0)}
    assert boots(pair)[second] == before[second]
    sh(pair, second, "rm /run/reboot-required*")
