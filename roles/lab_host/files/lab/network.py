"""The lab's own network: a bridge without a way out, and on it a proxy through which packages come."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from pathlib import Path

import cgroup
import names
import traces
from names import Lab, LabError

CONFIGURATION = """\
CacheDir: {cache}
LogDir: {log}
SupportDir: /usr/lib/apt-cacher-ng
BindAddress: {address}
Port: {port}
ForeGround: 1
VerboseLog: 0
ReportPage:
"""


def up(lab: Lab) -> bool:
    """Bridge and proxy are there; True where one was made. Raises LabError."""
    made = False
    if not Path("/sys/class/net", lab.bridge).exists():
        _ip("link", "add", lab.bridge, "type", "bridge")
        _ip("address", "add", f"{lab.gateway}/24", "dev", lab.bridge)
        made = True
    _ip("link", "set", lab.bridge, "up")
    for link in traces.links(lab.name):  # a cable that was taken out, a bridge that was made anew
        if link != lab.bridge:
            _ip("link", "set", link, "master", lab.bridge, "up")
    if not proxy_is_up(lab):
        _start_proxy(lab)
        made = True
    return made


def proxy_is_up(lab: Lab) -> bool:
    """Whether the package proxy runs."""
    return bool(traces.inside(lab.name, "proxy"))


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"ip {' '.join(words)} failed: {done.stderr.strip()}")


def _start_proxy(lab: Lab) -> None:
    folder = names.folder(lab.name) / "proxy"
    cache = names.CACHE / "packages"
    for path in (folder, cache):
        path.mkdir(parents=True, exist_ok=True)
    configuration = folder / "acng.conf"
    configuration.write_text(
        CONFIGURATION.format(cache=cache, log=folder, address=lab.gateway, port=names.PORT)
    )
    user = pwd.getpwnam("apt-cacher-ng")  # its package makes the user
    for path in (folder, cache):
        os.chown(path, user.pw_uid, user.pw_gid)
    command = [
        "setpriv",
        f"--reuid={user.pw_uid}",
        f"--regid={user.pw_gid}",
        "--clear-groups",
        "apt-cacher-ng",
    ]
    with (folder / "output").open("wb") as log:
        cgroup.start(
            cgroup.Place(lab.name, "proxy"), [*command, "-c", str(folder)], {names.MARK: lab.name}, log
        )
    deadline = time.monotonic() + 5
    while not cgroup.answers(lab.gateway, names.PORT):
        if time.monotonic() > deadline or not proxy_is_up(lab):
            said = (folder / "output").read_text("utf-8", "replace").strip().splitlines()
            raise LabError(f"the package proxy does not start: {said[-1] if said else 'without a word'}")
        time.sleep(0.05)
