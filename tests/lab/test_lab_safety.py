"""Nothing in a lab host can change the machine it runs on: tried inside as root, looked at from outside."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Lab

PYTHON = "python3 -c 'import ctypes, os, sys; libc = ctypes.CDLL(None, use_errno=True); %s'"
FAILS = "sys.exit(0 if {call} == 0 else os.strerror(ctypes.get_errno()))"

# What is tried, each a shell script that root runs in a host; its exit status says whether it thinks it did.
ATTEMPTS = {
    "set the clock": "date --set 2030-01-01",
    "set the clock by its system call": PYTHON % "import time; time.clock_settime(0, 1)",
    "slew the clock": PYTHON
    % FAILS.format(call="libc.adjtimex(ctypes.create_string_buffer(bytes([1]) + bytes(207)))"),
    "load a module": PYTHON % FAILS.format(call='libc.syscall(175, b"x" * 64, 64, b"")'),
    "unload a module": PYTHON % FAILS.format(call='libc.syscall(176, b"overlay", 0)'),
    "write a sysctl": "echo 33 > /proc/sys/vm/swappiness",
    "write a sysctl after remounting": "mount -o remount,rw /proc/sys; echo 33 > /proc/sys/vm/swappiness",
    "write a sysctl through another proc": "mount -t proc proc /mnt; echo 33 > /mnt/sys/vm/swappiness",
    "name a program for core dumps": "umount /proc/sys; echo '|/x' > /proc/sys/kernel/core_pattern",
    "press SysRq": "mount -t proc proc /mnt; echo h > /mnt/sysrq-trigger",
    "have the kernel call a program": "mount -t cgroup -o memory none /mnt; echo /x > /mnt/release_agent",
    "change a kernel parameter in sysfs": "mount -t sysfs none /mnt; echo 1 > /mnt/module/*/parameters/time",
    "clear the kernel log": PYTHON % FAILS.format(call="libc.syscall(103, 5, 0, 0)"),
    "open the machine's kernel log": "mknod /root/kmsg c 1 11; echo evil > /root/kmsg",
    "make the root disk's device": "mknod /root/disk b {major} {minor}; head -c 1 /root/disk",
    "make the memory's device": "mknod /root/mem c 1 1; head -c 1 /root/mem",
    "take a loop device": "mknod /root/loop b 7 7; dd if=/dev/zero of=/root/loop count=1",
    "swap": "truncate -s 2M /root/swap; chmod 600 /root/swap; mkswap /root/swap; swapon /root/swap",
    "open the debug file system": "mount -t debugfs none /mnt; ls /mnt/*",
    "permit all devices": "mount -t cgroup -o devices none /mnt; echo 'a *:* rwm' > /mnt/devices.allow",
    "end the machine": PYTHON % FAILS.format(call="libc.syscall(169, 0xfee1dead, 672274793, 0, 0)"),
    "read an I/O port": PYTHON % FAILS.format(call="libc.syscall(172, 3)"),
    "signal a process outside": "kill -KILL {outside}",
    "enter a namespace outside": "nsenter --target {outside} --net true",
    "see an interface outside": "ip link show eth0 || ip link show rk-{lab}",
    "find a file outside": "ls {folder}/hosts.yml",
    "change what all processes may map": "echo 1 > /proc/sys/vm/max_map_count",
}


def machine() -> dict[str, object]:
    """What must stay as it is."""
    sysctls = {}
    for folder, _, files in os.walk("/proc/sys"):
        for name in files:
            path = Path(folder, name)
            # An interface of another test, beside this one, may be gone by now.
            with contextlib.suppress(OSError):
                if path.stat().st_mode & 0o600 == 0o600:
                    sysctls[str(path)] = path.read_bytes()
    changing = (
        "fs/binfmt_misc",
        # One setting by its two names; `lab up` of another test, beside this one, raises it.
        "fs/inotify/max_user_instances",
        "user/max_inotify_instances",
        "net/",
        "kernel/random",
        "kernel/ns_last_pid",
        "kernel/sched_domain",
        "fs/epoll",
    )
    kept = {
        path: text
        for path, text in sysctls.items()
        if not path.removeprefix("/proc/sys/").startswith(changing)
    }
    listed = Path("/proc/modules")  # a kernel may have none
    modules = [line.split()[0] for line in listed.read_text().splitlines()] if listed.exists() else []
    return {
        "sysctls": kept,
        "modules": sorted(modules),
        "swaps": Path("/proc/swaps").read_text(),
        "clock": round((time.time() - time.monotonic()) / 30),
        "hostname": os.uname().nodename,
        "release agents": [path.read_text() for path in Path("/sys/fs/cgroup").glob("*/release_agent")],
        "devices": [path.read_text() for path in Path("/sys/fs/cgroup").glob("devices/devices.list")],
    }


@pytest.fixture(scope="module")
def outside() -> Iterator[int]:
    """A process of the machine, which must live on; its id is one that no process in a host has."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        assert process.poll() is None, "it was ended"
        process.kill()


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_nothing_inside_changes_the_machine(bare: Lab, outside: int, attempt: str) -> None:
    disk = os.stat("/").st_dev
    script = ATTEMPTS[attempt].format(
        major=os.major(disk), minor=os.minor(disk), outside=outside, lab=bare.name, folder=bare.folder
    )
    before = machine()
    # In mounts of its own, so that the host stays whole for the next attempt.
    done = bare.sudo(bare.hosts[0], f"unshare --mount sh -e <<'END'\n{script}\nEND\n")
    assert done.returncode != 0, done.stdout
    assert machine() == before
    assert bare.ssh(bare.hosts[0], "true").returncode == 0 or attempt == "end the machine"
    log = subprocess.run(["dmesg"], capture_output=True, text=True).stdout
    assert "evil" not in log


def test_the_attempts_can_succeed() -> None:
    """What a host is refused is not impossible as such: root of the machine itself may."""
    steps = (
        "mknod /dev/shm/trial b 7 7; rm /dev/shm/trial",
        "cp /proc/sys/vm/swappiness /dev/shm/trial; cat /dev/shm/trial > /proc/sys/vm/swappiness",
        "rm /dev/shm/trial; nsenter --target $$ --net true",
    )
    done = subprocess.run(["sh", "-ec", "; ".join(steps)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_disk_that_a_host_prepared_does_not_lead_outside(bare: Lab, tmp_path: Path) -> None:
    """A link that root in a host puts in place of a file that the lab wrote is not written through."""
    host, bait = bare.hosts[1], tmp_path / "bait"
    bait.write_text("as it was")
    bare.sudo(host, f"ln -sf {bait} /etc/hostname; sync")
    bare.power_off(host)
    bare.boot()
    assert bare.ssh(host, "readlink /etc/hostname").stdout.strip() == str(bait)
    assert bait.read_text() == "as it was"
