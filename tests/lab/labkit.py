"""The kit of the tests of whole runs, on a lab: the same workload to break, a hand on every host."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml
from hosts import Lab
from kit import Kit, wait_for

# What of a run is on a host: process id to kind, and the folders for what is not to be left.
LOOK = """
import glob, json, os, sys
runs = [run.encode() for run in sys.argv[1:]]
found = {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as line, open(f"/proc/{pid}/environ", "rb") as environ:
            words, marks = line.read().split(b"\\0"), environ.read()
    except OSError:
        continue
    text = b" ".join(words)
    if b"agent.py" in b" ".join(words[1:2]) and any(run in text for run in runs):
        found[pid] = words[2].decode()
    elif any(b"RUNKIT_RUN=" + run in marks for run in runs):
        found[pid] = next((kind for kind in ("mpirun", "orted", "trainer") if kind.encode() in text), "?")
folders = [pattern.format(run) for run in sys.argv[1:] for pattern in ("/tmp/runkit-{}", "/dev/shm/*{}*")]
left = [path for folder in folders for path in glob.glob(folder)]
print(json.dumps({"pids": found, "scratch": left}))
"""


class LabKit(Kit):
    """Runs of the trainer on a lab. The cluster is a copy of the lab's folder, with its own agent root."""

    def __init__(self, folder: Path, lab: Lab) -> None:
        self.folder, self.lab = folder, lab
        self.cluster = folder / "cluster"
        shutil.copytree(lab.folder, self.cluster, ignore=shutil.ignore_patterns(".ssh"))
        self.first = lab.hosts[0]
        self.home = f"kit-{time.time_ns()}"
        self.furnish(f"~/{self.home}")

    def vary_host(self, host: str, **variables: object) -> None:
        path = self.cluster / "hosts.yml"
        document = yaml.safe_load(path.read_text())
        document["all"]["hosts"][host].update(variables)
        path.write_text(yaml.safe_dump(document))

    def look(self) -> dict[str, dict[str, dict[str, str]]]:
        """What each host in reach has of this kit's runs: see LOOK."""

        def ask(host: str) -> tuple[str, str]:
            done = self.lab.ssh(host, "python3", "-", *self.runs(), stdin=LOOK)
            return host, done.stdout

        with ThreadPoolExecutor() as pool:
            return {host: json.loads(said) for host, said in pool.map(ask, self.lab.hosts) if said}

    def pids(self, host: str, kind: str) -> list[str]:
        return [pid for pid, what in self.look()[host]["pids"].items() if what == kind]

    def everybody(self) -> list[str]:
        """HOST:KIND of every process that is there."""
        return [f"{host}:{kind}" for host, found in self.look().items() for kind in found["pids"].values()]

    def kill(self, host: str, kind: str, signal: str = "KILL") -> None:
        pids = self.pids(host, kind)
        assert pids, f"no {kind} on {host}"
        done = self.lab.ssh(host, "kill", f"-{signal}", *pids)
        assert done.returncode == 0, done.stderr

    def on_first(self, path: str) -> str:
        """A file of the runs on the launch host, a pattern below the agent's root."""
        return self.lab.ssh(self.first, f"cat {self.home}/{path} 2>/dev/null").stdout

    def events(self) -> list[Mapping[str, object]]:
        return [json.loads(line) for line in self.on_first("*/journal.jsonl").splitlines()]

    def ended(self) -> Mapping[str, object]:
        """The newest end of a cell."""
        return [event for event in self.events() if event["event"] == "cell_ended"][-1]

    def printed(self) -> bytes:
        return self.on_first("*/cells/*/logs/*/rank-0000.stdout").encode()

    def gone(self, seconds: float = 10) -> None:
        """Nothing of the runs is left on any host that can be reached."""
        wait_for(lambda: not self.everybody(), f"all processes to be gone, not {self.everybody()}", seconds)
        assert [found["scratch"] for found in self.look().values() if found["scratch"]] == []

    def close(self) -> None:
        for process in self.started:
            with process:
                process.kill()
        if any(self.lab.state(host) == "off" for host in self.lab.hosts):
            self.lab.boot()
        for host in self.lab.hosts:
            self.lab.join(host)
        for run in self.runs():
            subprocess.run(
                self.command("stop", run), cwd=self.folder, env=self.environment(), capture_output=True
            )
        for host in self.lab.hosts:
            self.lab.ssh(host, "rm", "-rf", self.home)
