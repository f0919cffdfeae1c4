"""The head of a staged run, a zip file that Python runs (PEP 441): unpacks itself and describes the host.

usage: python3 stage.pyz RUN_DIR HOST

Exit status 1, with one line that says why, where this host cannot find the others of the run in time.
Standard library only, Python 3.8 or later.
"""

import contextlib
import json
import os
import platform
import re
import socket
import subprocess
import sys
import threading
import time
import zipfile
from typing import Any, Dict, Iterator, Optional, Sequence, Tuple

LOOK_UP_S = 2.0  # a name service that needs longer makes a start of MPI last minutes


def main(stage: str, run_dir: str, host: str) -> int:
    with zipfile.ZipFile(stage) as archive:
        archive.extractall(run_dir)
        work = json.loads(archive.read("work.json"))
    with open(os.path.join(run_dir, "host"), "w", encoding="utf-8") as stream:
        stream.write(host + "\n")
    with open(os.path.join(run_dir, "facts.json"), "w", encoding="utf-8") as stream:
        json.dump(facts(host, work), stream)
    wrong = unknown_hosts(work["hosts"]) if len(work["hosts"]) > 1 else None
    if wrong:
        print("%s; set it right with: %s" % (wrong, work["remedy"]), file=sys.stderr)
    return 1 if wrong else 0


def facts(host: str, work: Dict[str, Any]) -> Dict[str, Any]:
    """What this machine is; every value as the machine states it, None where it does not."""
    release = dict(_pairs("/etc/os-release", "="))
    memory = dict(_pairs("/proc/meminfo", ":")).get("MemTotal", "").split()
    models = [value for key, value in _pairs("/proc/cpuinfo", ":") if key == "model name"]
    return {
        "schema": "runkit/facts",
        "version": 1,
        "host": host,
        "hostname": platform.node(),
        "os": release.get("PRETTY_NAME"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu": models[0] if models else None,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_kib": int(memory[0]) if memory else None,
        "python": platform.python_version(),
        "mpi": _first_line([work["mpirun"], "--version"]),
    }


def _pairs(path: str, separator: str) -> Iterator[Tuple[str, str]]:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as stream:
        for line in stream:
            key, found, value = line.partition(separator)
            if found:
                yield key.strip(), value.strip().strip('"')


def _first_line(argv: Sequence[str]) -> Optional[str]:
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    try:
        done = subprocess.run(
            argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return (done.stdout.decode("utf-8", "replace").splitlines() or [""])[0].strip() or None


def unknown_hosts(hosts: Sequence[Dict[str, str]]) -> Optional[str]:
    """What this host cannot look up as launchers do, in time; None where all is well.

    Names of all hosts and its own must be known. Addresses need no name, but the answer must not take long.
    """
    wanted = {host["name"]: host["address"] for host in hosts}
    wanted.update({host["address"]: "" for host in hosts}, **{platform.node(): ""})
    found: Dict[str, Any] = {}
    for name in wanted:
        threading.Thread(target=_look_up, args=(name, found), daemon=True).start()
    deadline = time.monotonic() + LOOK_UP_S
    while len(found) < len(wanted) and time.monotonic() < deadline:
        time.sleep(0.01)
    for name, address in wanted.items():
        answer = found.get(name, "slow")
        if answer == "slow":
            return "looking up %s takes more than %g s" % (name, LOOK_UP_S)
        if answer is None and not _is_address(name):
            return "%s is not known by name" % name
        if _is_address(address) and address not in answer:
            return "%s is %s by name, and %s in the inventory" % (name, " ".join(sorted(answer)), address)
    return None


def _look_up(name: str, found: Dict[str, Any]) -> None:
    try:
        if _is_address(name):
            found[name] = {socket.gethostbyaddr(name)[0]}
        else:
            found[name] = {entry[4][0] for entry in socket.getaddrinfo(name, None, socket.AF_INET)}
    except OSError:
        found[name] = None


def _is_address(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9]+(\.[0-9]+){3}", text))


if __name__ == "__main__":
    sys.exit(main(sys.argv[0], os.path.abspath(os.path.expanduser(sys.argv[1])), sys.argv[2]))
