"""What the tests of whole runs share: a cluster of their own on this machine, and a hand on its processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
TRAINER = """\
title: A training that can go wrong
framework: none
model: none
unit: images/sec
family: runkit
log_name: trainer_{cards}.log
precisions: [fp32]
batch_sizes: [32]
cards: [1, 2]
modes:
  throughput: {estimated_s: 2}
variants:
  - launcher: mpirun
    argv: ["{python}", -m, mpi4py, "{files}/trainer.py"]
deadlines: {start_s: 30, progress_s: 4, total_s: 60}
files: [trainer/trainer.py]
"""


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """``python -m runner`` with these words, from the checkout."""
    argv = [sys.executable, "-m", "runner", *map(str, words)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)


class Kit:
    """A private cluster (its agents live under ``root``), a workload to break, and ``python -m runner``."""

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self.folder = folder
        self.root = root or folder / "agent"
        self.cluster = folder / "cluster"
        shutil.copytree(ROOT / "inventory" / "local", self.cluster)
        self.furnish(str(self.root))

    def furnish(self, agent_root: str) -> None:
        """What a kit needs beside its cluster: the workload, and a place for the agents."""
        self.vary_cluster(bench_agent_root=agent_root)
        self.workload = self.folder / "trainer.yml"
        (self.folder / "trainer").mkdir()
        shutil.copy(ROOT / "tests" / "programs" / "trainer.py", self.folder / "trainer" / "trainer.py")
        self.started: list[subprocess.Popen[str]] = []
        self.always: tuple[str, ...] = ()  # words that every `bench` gets
        self.train()

    def vary_cluster(self, **variables: object) -> None:
        path = self.cluster / "group_vars" / "all" / "cluster.yml"
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **variables}))

    def train(self, *argv: str, **keys: object) -> None:
        """Let the workload be the trainer with these arguments; ``keys`` replace keys of its file."""
        document = {**yaml.safe_load(TRAINER), **keys}
        document["variants"][0]["argv"] += argv
        self.workload.write_text(yaml.safe_dump(document))

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "runner", "-i", str(self.cluster), *words]

    def environment(self, **extra: str) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), **extra}

    def runner(self, *words: str, timeout: float = 90, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=self.environment(**env),
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def bench(self, *words: str, timeout: float = 90, **env: str) -> subprocess.CompletedProcess[str]:
        return self.runner("bench", "-w", str(self.workload), *self.always, *words, timeout=timeout, **env)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """``bench`` in the background, in a process group of its own."""
        started = subprocess.Popen(
            self.command("bench", "-w", str(self.workload), *self.always, *words),
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(started)
        return started

    def runs(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("runs/*"))

    def run(self) -> Path:
        (name,) = self.runs()
        return self.folder / "runs" / name

    def events(self) -> list[Mapping[str, object]]:
        """The agent's own journal, on its host."""
        lines = [line for path in self.root.glob("*/journal.jsonl") for line in path.read_text().splitlines()]
        return [json.loads(line) for line in lines]

    def states(self) -> dict[str, str]:
        """Cell to state, as in results.json."""
        document = json.loads((self.run() / "results.json").read_text())
        return {result["cell"].split(".")[2]: result["state"] for result in document["results"]}

    def reasons(self) -> dict[str, str]:
        document = json.loads((self.run() / "results.json").read_text())
        return {result["cell"].split(".")[2]: result["reason"] for result in document["results"]}

    def agent(self) -> int:
        """Process id of the agent that is working."""
        return int(json.loads((self.root / "lock").read_text())["pid"])

    def alive(self) -> list[int]:
        """Every process that a run of this kit left: ranks, launchers, agents, followers."""
        mine = [str(self.root).encode(), *(b"RUNKIT_RUN=" + run.encode() for run in self.runs())]
        return [pid for pid in processes() if any(mark in traces(pid) for mark in mine)]

    def marked(self) -> list[int]:
        """Launchers, ranks and what they started."""
        marks = [b"RUNKIT_RUN=" + run.encode() for run in self.runs()]
        return [pid for pid in processes() if any(mark in traces(pid) for mark in marks)]

    def ranks(self) -> list[int]:
        return [pid for pid in self.marked() if b"trainer.py" in traces(pid)]

    def printed(self) -> bytes:
        """What the cells' rank 0 wrote so far."""
        return b"".join(path.read_bytes() for path in self.root.glob("*/cells/*/logs/*/rank-0000.stdout"))

    def training(self) -> bool:
        return b"runkit step" in self.printed()

    def close(self) -> None:
        for process in self.started:
            with process:
                process.kill()
        for pid in self.alive():
            os.kill(pid, signal.SIGKILL)


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def traces(pid: int) -> bytes:
    """Command line and environment of a process; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() + b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def wait_for(true: Callable[[], object], what: str, seconds: float = 30) -> float:
    """Seconds until ``true()`` holds; fails the test where it does not."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, f"{what}: not within {seconds} s"
        time.sleep(0.05)
    return time.monotonic() - began
