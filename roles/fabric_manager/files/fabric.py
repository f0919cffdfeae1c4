"""Tell what is here for NVSwitches: ``fabric.py PACKAGE``, the package that has the fabric manager.

Prints a JSON object: ``driver``, the version of the GPU driver that is installed, as its library is called;
``loaded``, the version that runs; ``package``, the version of PACKAGE, "" where it is not installed in full;
``program``, whether the fabric manager is there, from wherever;
``runs``, whether it is started. Python 3.8 or later, standard library only.
"""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import sys

LIBRARIES = (
    "usr/lib/*-linux-gnu/libnvidia-ml.so.*",
    "usr/lib/*-linux-gnu/nvidia/current/libnvidia-ml.so.*",
    "usr/lib64/libnvidia-ml.so.*",
)
VERSION = re.compile(r"\b\d{3,}\.\d+(?:\.\d+)?\b")
QUERIES = (
    ("dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}"),
    ("rpm", "--query", "--queryformat=installed %{VERSION}"),
)


def main(words: list[str]) -> int:
    """Print what is known."""
    found = {
        "driver": installed("/"),
        "loaded": version(text("/proc/driver/nvidia/version")),
        "package": package(words[0]),
        "program": os.path.exists("/usr/bin/nv-fabricmanager"),
        "runs": runs("nvidia-fabricmanager"),
    }
    print(json.dumps(found))
    return 0


def installed(root: str) -> str:
    """The newest version among the names of the driver's library."""
    names = (os.path.basename(path) for pattern in LIBRARIES for path in glob.glob(root + pattern))
    return max(filter(None, map(version, names)), key=by_number, default="")


def by_number(words: str) -> list[int]:
    """580.95.05 comes before 580.126.09."""
    return [int(part) for part in words.split(".")]


def version(words: str) -> str:
    """The first version of a driver in a text."""
    found = VERSION.search(words)
    return found[0] if found else ""


def package(name: str) -> str:
    """The version of a package as the driver has it, without what the distribution adds."""
    for query in QUERIES:
        try:
            done = subprocess.run(  # noqa: PLW1510 - a package that is not known is an answer
                [*query, name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError:
            continue
        state, _, said = done.stdout.decode("utf-8", "replace").partition(" ")
        if state == "installed":
            return version(said)
    return ""


def runs(unit: str) -> bool:
    """Whether systemd has a unit started; not where there is no systemd."""
    try:
        return subprocess.call(["systemctl", "is-active", "--quiet", unit], stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def text(path: str) -> str:
    """The text of a file; "" where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
