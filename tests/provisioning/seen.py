"""What scripts of roles see on a host that is a file of facts, where they ask programs that are not there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from provisioning.host import Host

ROLES = Path(__file__).resolve().parents[2] / "roles"


def run(text: str, words: list[str]) -> dict[str, Any]:
    """Run a script by its text, as Ansible does; ``words`` begin with "-"."""
    done = subprocess.run([sys.executable, *words], input=text, capture_output=True, text=True)
    return {"rc": done.returncode, "stdout": done.stdout.rstrip("\n"), "stderr": done.stderr}


def _driver(host: Host, words: list[str]) -> dict[str, Any]:
    """Of the role gpu_driver: files by the script itself; packages and the module from the facts."""
    text = (ROLES / "gpu_driver" / "files" / "driver_state.py").read_text()
    ran = json.loads(run(text, ["-", *words, str(host.root)])["stdout"])
    ran["ofed"] |= "ofed_info -s" in host.commands
    return {**ran, "packages": dict(host.installed), "held": host.held, "module": dict(host.module)}


def _containers(host: Host, words: list[str]) -> dict[str, Any]:
    """Of the role container_runtime; nothing runs on a host that is a file."""
    packages = words[1:]
    return {
        "packages": {name: host.installed[name] for name in packages if name in host.installed},
        "held": [name for name in packages if name in host.held],
        "daemon": host.text("etc/docker/daemon.json") or None,
        "stale": False,
        "running": [],
        "memlock": True,
        "driver": (host.root / "proc/driver/nvidia/version").exists(),
        "unknown": [],
        "outside": [],
        "cdi": [str(path)[len(str(host.root)) :] for path in host.root.glob("etc/cdi/*")],
        "flagged": (host.root / "etc/systemd/system/nvidia-cdi-refresh.service.d/runkit.conf").exists(),
        **json.loads(host.scripts.get("look.py", "{}")),  # what a host says besides
    }


def _room(_: Host, words: list[str]) -> dict[str, Any]:
    """Of the role package_sources: nothing stands in the way."""
    return {"held": "", "readonly": [], "free": dict.fromkeys(words[1:], 100000), "half": [], "age_s": 0}


def _fabric(host: Host, words: list[str]) -> dict[str, Any]:
    """Of the role fabric_manager; the driver's library is of the module's version."""
    loaded = re.search(r"\d{3}\.\d+\.\d+", host.text("proc/driver/nvidia/version"))
    return {
        "driver": host.module.get("version", ""),
        "loaded": loaded[0] if loaded else "",
        "package": host.installed.get(words[0], "").partition("-")[0],
        "program": (host.root / "usr/bin/nv-fabricmanager").exists(),
        "runs": host.units.get("nvidia-fabricmanager", {}).get("active", False),
    }


SEEN: Mapping[str, Callable[[Host, list[str]], dict[str, Any]]] = {
    "driver_state.py": _driver,
    "fabric.py": _fabric,
    "look.py": _containers,
    "state.py": _room,
}
