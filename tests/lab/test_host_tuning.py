"""``host_tuning`` on a real host: set, set otherwise, taken out, broken off; undone, the host is as it was.

The kernel of a rehearsal host is that of the machine around it, which takes network settings of its own only.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hosts import Lab

pytestmark = pytest.mark.gpu_hosts

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
# Ends what starts apt-get, once it is there.
KILL = """
nohup sh -c 'until pid=$(pgrep -xo apt-get); do sleep 0.05; done; read -r _ _ _ parent _ < /proc/$pid/stat
    kill -KILL $parent' > /dev/null 2>&1 &
"""
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
# Answers as the driver does of two V100, and keeps what it is told until /run/clocks goes.
NVIDIA_SMI = textwrap.dedent(
    """\
    #!/usr/bin/python3
    import os, sys
    words = sys.argv[1:]
    with open("/root/nvidia-smi.log", "a") as log:
        log.write(" ".join(words) + "\\n")
    def clocks(uuid):
        return open("/run/" + uuid).read() if os.path.exists("/run/" + uuid) else "877, 1290"
    if words[0].startswith("--query-gpu="):
        for uuid, name in (("GPU-a", "Tesla V100-SXM2-32GB"), ("GPU-b", "Tesla V100-SXM2-16GB")):
            print(uuid, name, clocks(uuid), "877, 1290", sep=", ")
    elif words[2] in ("-ac", "-rac"):
        with open("/run/" + words[1], "w") as file:
            file.write(words[3].replace(",", ", ") if words[2] == "-ac" else "877, 1290")
    """
)


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
    sysctl = {"vm.swappiness": 10, "net.core.somaxconn": 1024}
    for wanted, sentences in (
        ({"host_tuning_sysctl": sysctl}, ["vm.swappiness is not taken ("]),
        ({"host_tuning_sysctl": {**sysctl, "net.core.no_such": 1}}, ["net.core.no_such is no setting"]),
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


def test_broken_off_and_undone(lab: Lab, before: str) -> None:
    """Ended by force in the middle, here between two settings: what was begun is on record."""
    path = lab.folder / "group_vars" / "all" / "tuning.yml"
    path.write_text(yaml.safe_dump(TUNED))
    sh(lab, KILL)
    done = lab.runner("provision", "--tags", "host_tuning", timeout=200)
    assert done.returncode == 1, done.stdout + done.stderr
    sh(lab, f"test -s {RECORD}")
    undo(lab, TUNED)
    assert sh(lab, STATE) == before


def test_clocks_of_the_stated_model_never_under_a_computation(lab: Lab, before: str, tmp_path: Path) -> None:
    wanted = {"host_tuning_gpu_clocks": {"Tesla V100-SXM2-32GB": "-ac 877,1530"}}
    locked = {"host_tuning_gpu_clocks": {"Tesla V100-SXM2-32GB": "-lgc 1380"}}
    changed, said, _ = tune(lab, wanted)
    assert (changed, "nvidia-smi does not answer" in said) == (0, True)
    _, said, _ = tune(lab, {"host_tuning_gpu_clocks": {"Tesla V100-SXM2-32GB": "-r"}}, check=1)
    assert "-r sets no clocks" in said

    sh(lab, f"cat > /usr/local/bin/nvidia-smi <<'END'\n{NVIDIA_SMI}END\nchmod 755 /usr/local/bin/nvidia-smi")
    sh(lab, "touch /dev/nvidia0; systemd-run --quiet --unit busy sh -c 'exec sleep 900 < /dev/nvidia0'")
    _, said, _ = tune(lab, wanted, check=1)
    assert "sleep (process " in said
    assert "-ac" not in sh(lab, "cat /root/nvidia-smi.log")
    sh(lab, "systemctl stop busy")

    assert [tune(lab, wanted)[0] for _ in range(2)] == [1, 0]
    sh(lab, "rm /run/GPU-a")  # as after a reboot
    assert tune(lab, wanted)[0] == 1
    assert tune(lab, locked)[0] == 1
    assert tune(lab, locked)[0] == 0
    assert undo(lab, wanted) == 1
    told = [line for line in sh(lab, "cat /root/nvidia-smi.log").splitlines() if not line.startswith("--")]
    assert told == [
        "-i GPU-a -ac 877,1530",
        "-i GPU-a -ac 877,1530",
        "-i GPU-a -rac",
        "-i GPU-a -lgc 1380",
        "-i GPU-a -rgc",
    ]
    sh(lab, "rm -f /usr/local/bin/nvidia-smi /dev/nvidia0 /root/nvidia-smi.log /run/GPU-a")
    assert sh(lab, STATE) == before
