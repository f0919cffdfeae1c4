"""Tell why this host must be rebooted: ``due.py [driver]``, with ``driver`` also for the driver of its GPUs.

Prints a JSON object: ``driver``, reasons why the GPU driver does not run, or not as it is installed; and
``system``, those of other software; ``boot``, the id of this boot. A reason is a part of a sentence.
Python 3.8 or later, standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys

ASK_S = 60.0  # for another program to answer
MOST = 5  # packages that a reason names
# The file of the driver's module; Debian calls it after the series. Its others are nvidia-drm, nvidia-uvm ...
MODULE = re.compile(r"(\S+/nvidia(?:-(?:current|legacy|open|tesla)[a-z0-9-]*)?\.ko(?:\.[a-z0-9]+)?):")
PARTS = re.compile(r"-(?:drm|modeset|peermem|uvm)\.ko")
VERSION = re.compile(r"\b\d{3,}\.\d+(?:\.\d+)?\b")


def main(words: list[str]) -> int:
    """Print what is known."""
    found = {
        "driver": driver("/") if words == ["driver"] else [],
        "system": asked_for("/run/reboot-required") + needs_restarting(),
        "boot": text("/proc/sys/kernel/random/boot_id").strip(),
    }
    print(json.dumps(found))
    return 0


# --- the GPU driver ------------------------------------------------------------------------


def driver(root: str) -> list[str]:
    """Why the driver that is installed does not run; no reason where it does, or none is installed."""
    running = text(root + "proc/sys/kernel/osrelease").strip()
    installed = {kernel: modules(root, kernel) for kernel in listed(root + "lib/modules")}
    versions = sorted({version(path) for path in installed.get(running, [])} - {""})
    if not versions:
        others = printable(", ".join(kernel for kernel, paths in installed.items() if paths))
        return [f"the GPU driver is there for kernel {others}, and {running} runs"] if others else []
    there = printable(" or ".join(versions))
    loaded = VERSION.search(text(root + "proc/driver/nvidia/version"))
    if loaded:
        differs = loaded[0] not in versions
        return [f"GPU driver {loaded[0]} is loaded, and {there} is installed"] if differs else []
    if os.path.isdir(root + "sys/module/nouveau"):
        return [f"nouveau is loaded in the place of GPU driver {there}"]
    return [f"GPU driver {there} is installed and not loaded"]


def modules(root: str, kernel: str) -> list[str]:
    """The files of the driver's module for a kernel, of those that modprobe knows."""
    folder = root + "lib/modules/" + kernel
    found = map(MODULE.match, text(folder + "/modules.dep").splitlines())
    return [os.path.join(folder, each[1]) for each in found if each and not PARTS.search(each[1])]


def version(path: str) -> str:
    """What a module says its version is; "" where it says none."""
    return output("modinfo", "-F", "version", path).strip()


# --- the system ----------------------------------------------------------------------------


def asked_for(path: str) -> list[str]:
    """As Debian and Ubuntu have it: packages make a file, and put their names into another."""
    return reason(text(path + ".pkgs").split() or [path]) if os.path.exists(path) else []


def needs_restarting() -> list[str]:
    """As Enterprise Linux has it. Not by its status: that of a dnf without this command is the same."""
    said = output("dnf", "needs-restarting", "-r")
    named = [line.split("*", 1)[1].strip() for line in said.splitlines() if line.lstrip().startswith("*")]
    return reason(named or ["dnf needs-restarting"]) if "Reboot is required" in said else []


def reason(packages: list[str]) -> list[str]:
    """The sentence of what asks for a reboot."""
    named = sorted({printable(each) for each in packages})
    more = [f"{len(named) - MOST} more"] if len(named) > MOST else []
    return ["asked for by " + ", ".join(named[:MOST] + more)]


# --- all of it -----------------------------------------------------------------------------


def output(*argv: str) -> str:
    """What a program prints; "" where it is not there or does not answer."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(  # noqa: PLW1510 - a status other than 0 is an answer
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ASK_S,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
        )
        return done.stdout.decode("utf-8", "replace")
    return ""


def text(path: str) -> str:
    """The text of a file; "" where there is none."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read()
    return ""


def listed(folder: str) -> list[str]:
    """The names in a folder, sorted; none where it is not there."""
    with contextlib.suppress(OSError):
        return sorted(os.listdir(folder))
    return []


def printable(words: str) -> str:
    """What a terminal shows as it is."""
    return "".join(letter if letter.isprintable() else "?" for letter in words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
