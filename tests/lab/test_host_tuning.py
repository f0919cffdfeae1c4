"""``host_tuning`` on a real host: set, set otherwise, taken out; undone, the host is as it was.

The kernel of a rehearsal host is that of the machine around it, which takes network settings of its own only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hosts import Lab

pytestmark = [pytest.mark.gpu_hosts, pytest.mark.xdist_group("tuning")]

RECORD = "/var/lib/runkit/tuning.json"
# What must be as it was: packages, services, settings of the kernel, and all files that are not named here.
# A package leaves its system user behind, and what dpkg and apt keep for themselves says when it was.
OTHERS = r"! -regex '/etc/\(ld.so.cache\|g?\(passwd\|shadow\|group\)-?\|sub[ug]id-?\)'"
STATE = rf"""
dpkg-query -W -f '${{db:Status-Abbrev}} ${{Package}} ${{Version}}\n' | sort
apt-mark showhold; apt-mark showauto
systemctl list-unit-files --no-legend --no-pager --plain --type=service
cat /proc/sys/net/core/somaxconn /proc/sys/net/ipv4/ip_local_port_range /proc/sys/net/ipv4/tcp_fastopen
find /etc /usr/lib/systemd /usr/lib/tuned /var/lib/runkit /run/runkit-tuning -xdev \
    {OTHERS} ! -type d -printf '%p %m %l\n' 2>/dev/null | sort
find /etc -xdev -type f {OTHERS} -exec sha256sum {{}} + | sort -k 2
"""
TUNED = {
    "host_tuning_profile": "hpc-compute",
    "host_tuning_irqbalance_off": True,
    "host_tuning_nfs_read_ahead": 15380,
    "host_tuning_kernel_hold": True,
    "host_tuning_sysctl": {
        "net.core.somaxconn": 1024,
        "net.ipv4.ip_local_port_range": "20000 40000",
        "sunrpc.tcp_max_slot_table_entries": 128,
    },
}
# A stand-in for the package of a kernel.
KERNEL = """
mkdir -p /root/kernel/DEBIAN
echo 'Package: linux-image-stand-in
Version: 1
Architecture: all
Maintainer: nobody
Description: stand-in' > /root/kernel/DEBIAN/control
dpkg-deb --build /root/kernel /root/kernel.deb && dpkg --install /root/kernel.deb
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, suffix: str) -> Iterator[Lab]:
    """One host of Debian 13 that knows of packages, has irqbalance, and a kernel's package to hold."""
    with Lab(tmp_path_factory.mktemp("labs") / f"tune{suffix}") as lab:
        lab.up("--hosts", "1", "--release", "trixie")
        lab.runner("provision", "--tags", "package_sources", check=0)
        sh(lab, f"apt-get install --yes --no-install-recommends irqbalance; {KERNEL}", timeout=120)
        yield lab


@pytest.fixture(scope="module")
def before(lab: Lab) -> str:
    return sh(lab, STATE)


def sh(lab: Lab, script: str, timeout: float = 60) -> str:
    done = lab.sudo(lab.hosts[0], script, timeout=timeout)
    assert done.returncode == 0, f"{script}: {done.stderr}"
    return done.stdout


def tune(lab: Lab, wanted: dict[str, Any], *words: str, check: int | None = 0) -> tuple[int, str, str]:
    """Provision with these variables: how many tasks changed something, and what was said and shown."""
    path = lab.folder / "group_vars" / "all" / "tuning.yml"
    path.write_text(yaml.safe_dump(wanted))
    done = lab.runner("provision", *(words or ("--tags", "host_tuning")), check=check, timeout=200)
    changed = re.search(r" changed=(\d+) ", done.stdout)
    assert changed is not None
    return int(changed[1]), done.stderr, done.stdout


def undo(lab: Lab, wanted: dict[str, Any]) -> int:
    return tune(lab, wanted, "--tags", "undo_tuning")[0]


def test_nothing_is_on_and_nothing_is_undone(lab: Lab, before: str) -> None:
    assert tune(lab, {})[0] == 0
    assert undo(lab, {}) == 0
    assert sh(lab, STATE) == before
    done = lab.runner("provision", "--tags", "undo_tunin")
    assert (done.returncode, "nearest: undo_tuning" in done.stderr) == (2, True)


def test_tuned_and_undone(lab: Lab, before: str) -> None:
    changed, _, shown = tune(lab, TUNED, "--check", "--tags", "host_tuning")
    assert changed == 1
    for line in ("package tuned", "    +1024", "sysctl net.core.somaxconn", "service irqbalance"):
        assert line in shown
    assert sh(lab, STATE) == before

    assert tune(lab, TUNED)[0] == 1
    assert sh(lab, "tuned-adm active").strip() == "Current active profile: hpc-compute"
    assert sh(lab, "systemctl is-enabled tuned irqbalance || true") == "enabled\ndisabled\n"
    assert sh(lab, "apt-mark showhold") == "linux-image-stand-in\n"
    assert sh(lab, "cat /proc/sys/net/core/somaxconn") == "1024\n"
    assert sh(lab, "cat /proc/sys/net/ipv4/ip_local_port_range").split() == ["20000", "40000"]
    kept = sh(lab, "cat /etc/modprobe.d/runkit-tuning.conf /etc/sysctl.d/90-runkit-tuning.conf")
    assert kept.startswith("options sunrpc tcp_max_slot_table_entries=128\nnet.core.somaxconn = 1024\n")
    assert sh(lab, f"stat -c '%a %U' {RECORD}") == "600 root\n"
    assert tune(lab, TUNED)[0] == 0
    _, said, _ = tune(lab, {**TUNED, "host_tuning_profile": "no-such"}, check=1)
    assert "host_tuning: tuned-adm profile no-such: " in said

    changed, said, _ = tune(lab, TUNED, "--tags", "undo_tuning")
    assert changed == 1
    assert "take host_tuning_* out of the inventory" in said
    assert sh(lab, STATE) == before
    assert undo(lab, TUNED) == 0


def test_set_twice_taken_out_and_undone(lab: Lab, before: str) -> None:
    first, second = ({"host_tuning_sysctl": {"net.core.somaxconn": n}} for n in (1024, 2048))
    both = {"host_tuning_irqbalance_off": True, **second}
    tune(lab, {"host_tuning_irqbalance_off": True, **first})
    tune(lab, both)
    assert json.loads(sh(lab, f"cat {RECORD}"))["before"][1]["before"] == "4096"
    sh(lab, "echo 3000 > /proc/sys/net/core/somaxconn")  # by hand, and set again
    assert tune(lab, both)[0] == 1
    # What is no longer asked for does not stay, and is told.
    changed, said, _ = tune(lab, second)
    assert (changed, "what was before is back: service irqbalance" in said) == (1, True)
    assert sh(lab, "systemctl is-enabled irqbalance") == "enabled\n"
    assert sh(lab, "cat /proc/sys/net/core/somaxconn") == "2048\n"
    assert undo(lab, {}) == 1
    assert sh(lab, STATE) == before


def test_what_the_machine_does_not_take_is_one_sentence(lab: Lab, before: str) -> None:
    sysctl = {"vm.swappiness": 10, "net.core.somaxconn": 1024, "net.core.no_such": 1}
    for wanted, sentences in (
        ({"host_tuning_sysctl": sysctl}, ["vm.swappiness is not taken (", "net.core.no_such is no setting"]),
        ({"host_tuning_acs_off": True}, ["host_tuning_acs_off: this host is a guest"]),
    ):
        _, said, _ = tune(lab, wanted, check=1)
        lines = [line for line in said.splitlines() if line.startswith("runkit: ")]
        assert len(lines) == 1, said
        assert [sentence in lines[0] for sentence in sentences] == [True] * len(sentences), lines
    # The rest was set, and is undone whatever the inventory says now.
    assert sh(lab, "cat /proc/sys/net/core/somaxconn") in ("1024\n", "4096\n")
    undo(lab, {})
    assert sh(lab, STATE) == before
