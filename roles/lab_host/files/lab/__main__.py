"""A rehearsal cluster on this machine.

usage: python3 lab check                                    what this machine lacks
       python3 lab plan NAME FOLDER HOSTS RELEASES          decide, or find what was decided; "" is a default
       python3 lab root MIRROR RELEASE...                   the root file systems of these are there
       python3 lab network NAME                             bridge and package proxy are there
       python3 lab host NAME HOST                           the host runs
       python3 lab status NAME                              what there is, as JSON
       python3 lab down NAME FOLDER | purge                 nothing is left; `purge` removes the caches

`root`, `network`, `host` and `down` print "changed" where they changed something.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import check
import host
import limits
import names
import network
import plan
import root
import traces
from names import Lab, LabError


def main(words: list[str]) -> int:
    """Do one thing; a LabError is one line and status 1."""
    command = COMMANDS.get(words[0]) if words else None
    if command is None:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        said = command(*words[1:])
    except LabError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    except OSError as error:
        advice = "see that it can be written to, then do it again; lab down ends what was begun"
        print(f"{error.filename}: {error.strerror}; {advice}", file=sys.stderr)
        return 1
    if said:
        print(said)
    return 0


def _check() -> str:
    if lacking := check.missing():
        print("\n".join(lacking), file=sys.stderr)
        raise LabError("")
    return ""


def _plan(name: str, folder: str, count: str, releases: str) -> str:
    lab = plan.make(
        names.checked_name(name),
        Path(folder),
        int(count) if count else None,
        releases.split(",") if releases else [],
    )
    return json.dumps(asdict(lab))


def _root(mirror: str, *releases: str) -> str:
    made = [root.make(release, mirror) for release in releases]
    return "changed" if any(made) else ""


def _network(name: str) -> str:
    limits.allow(sum(len(lab.hosts) for lab in map(names.read, names.known()) if lab))
    return "changed" if network.up(_lab(name)) else ""


def _host(name: str, which: str) -> str:
    lab = _lab(name)
    with names.locked(names.disk(name, which)):
        return "changed" if host.up(lab, lab.host(which)) else ""


def _lab(name: str) -> Lab:
    lab = names.read(name)
    if lab is None:
        raise LabError(f"lab {name}: there is none; lab up makes it")
    return lab


def _status(name: str) -> str:
    lab, left = names.read(names.checked_name(name)), traces.find(name)
    hosts = [
        {**asdict(each), "state": _state(name, each.name, each.address)}
        for each in (lab.hosts if lab else ())
    ]
    parts = {
        "bridge": "up" if lab and Path("/sys/class/net", lab.bridge).exists() else "missing",
        "proxy": "up" if lab and network.proxy_is_up(lab) else "missing",
    }
    return json.dumps(
        {"name": name, "folder": lab.folder if lab else None, "hosts": hosts, **parts, "left": asdict(left)}
    )


def _state(name: str, which: str, address: str) -> str:
    if traces.leader(name, which) is None:
        return "off"
    if not traces.is_attended(name, which):
        return "unattended"
    return "up" if host.greets(address) else "silent"


def _down(name: str, folder: str) -> str:
    lab, before = names.read(names.checked_name(name)), traces.find(name)
    if lab and lab.folder != folder and Path(lab.folder).is_dir():
        raise LabError(f"lab {name} is that of {lab.folder}; end it there: lab down -i {lab.folder}")
    traces.remove(name)
    limits.restore()
    plan.forget(Path(folder))
    return "changed" if before else ""


def _purge() -> str:
    if up := [name for name in names.known() if traces.find(name)]:
        raise LabError(f"lab {up[0]} still uses the caches; lab down it first")
    was = names.CACHE.exists()
    shutil.rmtree(names.CACHE, ignore_errors=True)
    return "changed" if was else ""


COMMANDS: dict[str, Callable[..., str]] = {
    "check": _check,
    "plan": _plan,
    "root": _root,
    "network": _network,
    "host": _host,
    "status": _status,
    "down": _down,
    "purge": _purge,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
