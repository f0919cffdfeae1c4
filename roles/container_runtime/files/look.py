"""Look at what the host has of containers: ``look.py USER,... PACKAGE...``; nothing is changed.

Prints a JSON object: ``packages``, those of the arguments that are installed, with their versions; ``held``,
those that dpkg does not upgrade; ``daemon``, the text of docker's configuration, null where there is none;
``stale``, whether docker runs since before that was written; ``running``, the names of docker's containers,
or that it does not say; ``memlock``, whether a container may be granted unlimited locked memory;
``driver``, whether NVIDIA's is loaded and of the version that is installed; ``cdi``, the files that
describe its GPUs; ``flagged``, whether the service that makes these was told to keep them readable for old
engines; ``unknown``, those of the users that are not there; ``outside``, those that are not in the group
docker.
Python 3.8 or later, standard library only.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

DAEMON = "/etc/docker/daemon.json"
PID = "/run/docker.pid"
DRIVER = "/proc/driver/nvidia/version"
FLAG = "/etc/systemd/system/nvidia-cdi-refresh.service.d/runkit.conf"
SNAP = "/snap/bin/docker"
PATIENCE_S = 10
SMI_S = 60  # without persistence it starts every GPU first
MISMATCH = 18  # the status of nvidia-smi where another version is loaded than is installed
DPKG = (
    "dpkg-query",
    "--show",
    "--showformat",
    "${Package} ${Version} ${db:Status-Want} ${db:Status-Status}\n",
)
RPM = ("rpm", "--query", "--queryformat", "%{NAME} %{VERSION}-%{RELEASE} install installed\n")
CAP_SYS_RESOURCE = 24


def said(argv, late=""):
    """Return what a program prints; "" where it is not there, ``late`` where it does not end."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return late
    except OSError:
        return ""
    return done.stdout


def text(path):
    """Return what is in a file; None where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(1000000)
    except FileNotFoundError:
        return None


def running():
    """Return the names of docker's containers; where it hangs there may be some."""
    listed = ["docker", "ps", "--format", "{{.Names}}"]
    names = said(listed, "(docker ps does not answer)") if os.path.exists(PID) else ""
    return sorted(names.splitlines())


def stale():
    """Whether docker runs and its configuration was written after its start, though not in the future."""
    try:
        return os.path.getmtime(PID) < os.path.getmtime(DAEMON) <= time.time()
    except FileNotFoundError:
        return False


def driver():
    """Whether NVIDIA's driver is loaded and programs can talk to it."""
    if not os.path.exists(DRIVER):
        return False
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], stdin=subprocess.DEVNULL, capture_output=True, timeout=SMI_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return done.returncode != MISMATCH


def packages(names):
    """Return name to version of those of ``names`` that are installed, and those that are held."""
    query = DPKG if shutil.which("dpkg-query") else RPM
    lines = [line.split() for line in said([*query, *names]).splitlines()]
    there = [words for words in lines if len(words) == 4 and words[3] == "installed"]
    found = {words[0]: words[1] for words in there}
    if os.path.exists(SNAP):
        found["docker (a snap)"] = "of its own"
    return found, sorted(words[0] for words in there if words[2] == "hold")


def memlock():
    """Whether a process may raise its limit: the first one has none, or root may exceed it.

    CAP_SYS_RESOURCE counts in the first user namespace only; containers such as a rehearsal's hosts lack it.
    """
    hard = re.search(r"Max locked memory\s+\S+\s+(\S+)", text("/proc/1/limits") or "")
    if hard and hard.group(1) == "unlimited":
        return True
    powers = re.search(r"CapEff:\s*([0-9a-f]+)", text("/proc/self/status") or "")
    first = (text("/proc/self/uid_map") or "").split() == ["0", "0", "4294967295"]
    return bool(first and powers and int(powers.group(1), 16) >> CAP_SYS_RESOURCE & 1)


def strangers(names):
    """Return those of ``names`` that are no users of the host, and those that are not in the group docker."""
    groups = {name: said(["id", "--name", "--groups", name]).split() for name in names}
    unknown = [name for name in names if not groups[name]]
    return unknown, [name for name in names if "docker" not in groups[name]]


def main(users, *names):
    """Look at everything and tell."""
    found, held = packages(names)
    specs = glob.glob("/etc/cdi/*") + glob.glob("/var/run/cdi/*")
    unknown, outside = strangers([name for name in users.split(",") if name])
    answer = {
        "packages": found,
        "held": held,
        "daemon": text(DAEMON),
        "running": running(),
        "memlock": memlock(),
        "stale": stale(),
        "driver": driver(),
        "cdi": sorted(path for path in specs if "nvidia.com/gpu" in (text(path) or "")),
        "flagged": os.path.exists(FLAG),
        "unknown": unknown,
        "outside": outside,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
