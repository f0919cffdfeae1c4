"""Reboots, and what is there for GPUs besides their driver, on two real hosts without any.

Stand-ins, for no GPU is here: a plain file called /dev/nvidia0 that a program has open, a tree of PCI
devices, packages of NVIDIA's names, what a loaded driver shows. Debian's nvidia-persistenced is the real one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hosts import ROOT, Lab, recap, sh
from standins import NVIDIA, Package, StandIns
from test_provision import variables

pytestmark = pytest.mark.gpu_hosts

BOOT = "cat /proc/sys/kernel/random/boot_id"
ASK = "touch /run/reboot-required; echo linux-image-amd64 >/run/reboot-required.pkgs"
ROLES = "host_reboot,fabric_manager,gpu_persistence"
PERSISTENCE = "nvidia-persistenced"
STATED = "gpu_hardware_pci: /root/pci\n"


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


# --- fabric manager and persistence --------------------------------------------------------


def provisioned(lab: Lab, tags: str, *words: str, check: int) -> subprocess.CompletedProcess[str]:
    return lab.runner("provision", "--tags", tags, *words, check=check, timeout=280)


UNIT = """\
[Unit]
Description=Stand-in
{more}
[Service]
ExecStart={start}
[Install]
WantedBy=multi-user.target
"""
UNITS = "/usr/lib/systemd/system/{}.service"
SLEEPS = "#!/bin/sh\nexec sleep infinity\n"


def fabric_manager(version: str) -> Package:
    unit = UNIT.format(more="", start="/usr/bin/nv-fabricmanager")
    files = {"/usr/bin/nv-fabricmanager": SLEEPS, UNITS.format("nvidia-fabricmanager"): unit}
    return Package("nvidia-fabricmanager", version, files=files)


def driver(version: str) -> Package:
    """A library that is called as that of a driver is; its daemon is started as Ubuntu does it."""
    start = "/usr/bin/nvidia-persistenced --user nobody --no-persistence-mode --verbose"
    unit = UNIT.format(more="StopWhenUnneeded=true", start=start)
    files = {
        f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{version.removesuffix('-1')}": "",
        "/usr/bin/nvidia-persistenced": SLEEPS,
        UNITS.format("nvidia-persistenced"): unit,
    }
    return Package("cuda-drivers", version, files=files)


PACKAGES = [
    driver("580.95.05-1"),
    driver("580.126.09-1"),
    *(fabric_manager(version) for version in ("570.1.2-1", "580.95.05-1", "580.126.09-1", "590.48.01-1")),
]


def pci(lab: Lab, host: str, switches: int) -> None:
    """GPUs and NVSwitches of an HGX H100 on the bus, as many as the host has cards."""
    devices = {f"0000:{n:02x}:00.0": ("0x10de", "0x2330", "0x030200") for n in range(64)}
    devices |= {f"0001:{n:02x}:00.0": ("0x10de", "0x22a3", "0x068000") for n in range(switches)}
    lines = [
        f"mkdir -p /root/pci/{at}; cd /root/pci/{at}; echo {a} >vendor; echo {b} >device; echo {c} >class"
        for at, (a, b, c) in devices.items()
    ]
    sh(lab, host, "rm -rf /root/pci\n" + "\n".join(lines))


def is_held(lab: Lab, host: str) -> str:
    query = "dpkg-query -W -f '${db:Status-Abbrev} ${Version}' nvidia-fabricmanager"
    return sh(lab, host, query).strip()


@pytest.fixture(scope="module")
def switched(pair: Lab) -> Iterator[StandIns]:
    """The first host has NVSwitches and NVIDIA's repository, the second none and Debian's packages."""
    first, second = pair.hosts
    pci(pair, first, 4)
    pci(pair, second, 0)
    cluster = pair.folder / "group_vars" / "all" / "cluster.yml"
    cluster.write_text(cluster.read_text().replace('cluster_card_model: ""', "cluster_card_model: H100"))
    with StandIns(pair, PACKAGES) as repository, variables(pair, STATED):
        source = f"deb [trusted=yes] {repository.url}/{NVIDIA}/debian12/x86_64/ /"
        sh(pair, first, f"echo '{source}' >/etc/apt/sources.list.d/standin.list")
        provisioned(pair, "package_sources", check=0)
        yield repository


def test_check_of_bare_hosts_with_cards_completes(pair: Lab, switched: StandIns) -> None:
    first, second = pair.hosts
    done = provisioned(pair, ROLES, "--check", check=0)
    assert f"{first}: fabric_manager: Install | Install it of exactly" in done.stdout
    for host in pair.hosts:
        assert re.search(
            rf"^(\w+, )*{host}(, \w+)*: gpu_persistence: Daemon \| Install it$", done.stdout, re.M
        )
    assert "+ExecCondition=/sbin/modprobe --quiet nvidia" in done.stdout
    assert not told(done.stdout, second) or "fabric_manager" not in "".join(told(done.stdout, second))


def test_a_fabric_manager_without_a_driver_is_refused(pair: Lab, switched: StandIns) -> None:
    first, second = pair.hosts
    sh(pair, second, "ln -s /bin/true /usr/bin/nv-fabricmanager")
    done = provisioned(pair, "fabric_manager", check=1)
    assert told(done.stderr, first) == [
        f"runkit: {first}: fabric_manager: the fabric manager must be of the driver's version, and no driver "
        "is installed; provision without --tags, or with --tags gpu_driver,fabric_manager"
    ]
    assert told(done.stderr, second) == [
        f"{second}: has a fabric manager and no NVSwitch: it fails at each start; systemctl disable --now "
        "nvidia-fabricmanager, or remove its package"
    ]
    assert sh(pair, second, "ls /usr/bin/nv-fabricmanager")
    assert recap(done.stdout) == {first: (0, 0, 1), second: (0, 0, 0)}


def test_it_is_of_exactly_the_drivers_version_and_held(pair: Lab, switched: StandIns) -> None:
    first, second = pair.hosts
    sh(pair, second, "rm -f /usr/bin/nv-fabricmanager")
    sh(pair, second, "sed -i 's/main/main contrib non-free/' /etc/apt/sources.list; apt-get update")
    sh(pair, first, "apt-get install -y cuda-drivers=580.95.05-1")
    done = provisioned(pair, ROLES, check=0)
    assert told(done.stderr, first) == [
        f"{first}: nvidia-fabricmanager 580.95.05 starts with the host, not now: this is a container, which "
        "loads no driver"
    ]
    assert is_held(pair, first) == "hi  580.95.05-1"
    for host, unit in ((first, "nvidia-fabricmanager"), (first, PERSISTENCE), (second, PERSISTENCE)):
        assert sh(pair, host, f"systemctl is-enabled {unit}") == "enabled\n"
    again = provisioned(pair, ROLES, check=0)
    assert recap(again.stdout) == dict.fromkeys(pair.hosts, (0, 0, 0))


def test_the_daemon_is_passed_over_while_no_driver_is_loaded(pair: Lab, switched: StandIns) -> None:
    """The real one of Debian fails without its drop-in."""
    second = pair.hosts[1]
    start = (
        f"systemctl start {PERSISTENCE} || true; systemctl show --value --property=ActiveState {PERSISTENCE}"
    )
    assert sh(pair, second, start) == "inactive\n"
    away = "/etc/systemd/system/nvidia-persistenced.service.d"
    sh(pair, second, f"mv {away} /root/away; systemctl daemon-reload")
    assert sh(pair, second, start) == "failed\n"
    sh(pair, second, f"mv /root/away {away}; systemctl daemon-reload; systemctl reset-failed")


def test_it_follows_the_driver(pair: Lab, switched: StandIns) -> None:
    first = pair.hosts[0]
    sh(pair, first, "apt-get install -y cuda-drivers=580.126.09-1")
    done = provisioned(pair, "fabric_manager", "--limit", first, check=0)
    assert recap(done.stdout)[first][0] > 0
    assert is_held(pair, first) == "hi  580.126.09-1"
    again = provisioned(pair, "fabric_manager", "--limit", first, check=0)
    assert recap(again.stdout)[first] == (0, 0, 0)


def test_both_run_where_the_driver_is_loaded(pair: Lab, switched: StandIns) -> None:
    """With stand-ins for what a loaded driver shows, and a word of the test that this is no container."""
    first = pair.hosts[0]
    sh(
        pair,
        first,
        """
        mount -t tmpfs none /proc/driver && mkdir /proc/driver/nvidia
        echo "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.126.09  Tue" >/proc/driver/nvidia/version
        printf '#!/bin/sh\nexit 0\n' >/usr/sbin/modprobe
        printf '#!/bin/sh\ncat /root/mode\n' >/usr/bin/nvidia-smi
        chmod +x /usr/sbin/modprobe /usr/bin/nvidia-smi
        printf 'Enabled\nDisabled\n' >/root/mode
        """,
    )
    wrong = play(pair, first)
    assert "nvidia-smi --query-gpu=persistence_mode says Enabled, Disabled; see journalctl -u" in wrong.stdout
    sh(pair, first, "printf 'Enabled\nEnabled\n' >/root/mode")
    assert f"{first} : ok=" in re.sub(" +", " ", play(pair, first, check=0).stdout)
    for unit in ("nvidia-fabricmanager", PERSISTENCE):
        assert sh(pair, first, f"systemctl is-active {unit}") == "active\n"
    line = sh(pair, first, "systemctl show --property=ExecStart nvidia-persistenced")
    assert "--user nobody --persistence-mode --verbose" in line
    assert " changed=0 " in play(pair, first, check=0).stdout


def play(lab: Lab, host: str, check: int | None = None) -> subprocess.CompletedProcess[str]:
    """The playbook itself, which takes a variable of a role from the command line."""
    options = [
        "-i",
        str(lab.folder),
        "--limit",
        host,
        "--tags",
        ROLES,
        "-e",
        '{"gpu_hardware_container": false}',
    ]
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), *options, "playbooks/provision.yml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert check is None or done.returncode == check, done.stdout + done.stderr
    return done
