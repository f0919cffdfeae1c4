"""The folder of a run on the controller: the one place that knows its names.

See docs/contracts.md. Everything but the derived files is listed in SHA256SUMS, in the format of sha256sum.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from runner.errors import StorageError, UsageError
from runner.io.files import read_json, write_bytes, write_json

RUN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")
# What Open MPI says of its own help texts, and the line of one that names a host.
HELP = re.compile(r'Set MCA parameter "|more process(?:es)? ha(?:s|ve) sent help message')
LOST = re.compile(r"Remote daemon: \S{1,60} on node ([A-Za-z0-9.:_-]{1,255})")
RANK_COUNTS = ("rank", "local_rank", "world_size", "pid", "memlock_kib", "nofile", "started")
DERIVED = {
    "SHA256SUMS",
    "results.json",
    "results.csv",
    "report.md",
    "report.html",
    "evidence.json",
    "result.json",
}


class RunDir:
    """``runs/<run-id>``. Readers raise UsageError where something is missing or not ours."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def run(self) -> str:
        """The run's id, which is the name of its folder."""
        return self.path.name

    @property
    def plan(self) -> Path:
        """What was planned."""
        return self.path / "plan.json"

    @property
    def workload(self) -> Path:
        """The workloads' files, as they are staged."""
        return self.path / "workload"

    @property
    def stop(self) -> Path:
        """There while ``stop`` was asked for: a controller that is still staging must not miss it."""
        return self.path / ".stop"

    def cell(self, cell: str) -> Path:
        """The folder of a cell."""
        return self.path / "cells" / cell

    def log(self, name: str) -> Path:
        """Where Ansible's output of a playbook is kept."""
        return self.path / "ansible" / f"{name}.log"

    def read_plan(self) -> dict[str, Any]:
        """The plan as written."""
        return read_json(self.plan, "runkit/plan", 1)

    def write_plan(self, body: Mapping[str, Any]) -> None:
        """Write the plan, and make the folder with it."""
        write_json(self.plan, "runkit/plan", 1, body)

    def remove(self) -> None:
        """Take the folder of a run that never began away."""
        shutil.rmtree(self.path)

    def journal(self) -> list[dict[str, Any]]:
        """The agent's events in order; none where nothing was collected yet."""
        try:
            whole = (self.path / "journal.jsonl").read_text("utf-8").rpartition("\n")[0]
            events = [json.loads(line) for line in whole.splitlines()]
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{self.path / 'journal.jsonl'}: cannot be read: {error}; collect it again"
            ) from error
        return events

    def facts(self) -> dict[str, dict[str, Any]]:
        """Host name to what the host said of itself."""
        return {
            path.stem: read_json(path, "runkit/facts", 1)
            for path in sorted((self.path / "facts").glob("*.json"))
        }

    def ranks(self, cell: str) -> list[dict[str, Any]]:
        """What the shim wrote for each rank of a cell that started; what it could not tell is None."""
        paths = sorted(self.cell(cell).glob("logs/*/rank-*.txt"))
        return [_rank(path.read_text("utf-8", "replace"), path.parent.name) for path in paths]

    def last_words(self, cell: str) -> list[tuple[str, str]]:
        """(who, last line of its stderr) of the ranks, the scripts of containers, and the launcher."""
        logs = self.cell(cell) / "logs"
        paths = [*sorted(logs.glob("*/rank-*.stderr")), *sorted(logs.glob("*/node.stderr"))]
        paths.append(logs / "launcher.stderr")
        said = ((re.sub(r"^rank-0*(\d+)$", r"rank \1", path.stem), _last_line(path)) for path in paths)
        return [(who, line) for who, line in said if line]

    def write_sums(self, known: Mapping[str, str]) -> None:
        """List everything that is not derived with its SHA-256; ``known`` need not be worked out."""
        names = [str(path.relative_to(self.path)) for path in self._originals()]

        def digest(name: str) -> str:
            return known[name] if name in known else sha256(self.path / name)

        with ThreadPoolExecutor() as pool:  # hashing leaves the other threads their turn
            sums = zip(pool.map(digest, names), names, strict=True)
            lines = [f"{digest}  {name}\n" for digest, name in sums]
        write_bytes(self.path / "SHA256SUMS", "".join(lines).encode())

    def wrong_sums(self) -> list[str]:
        """The files that are not, or no longer, what SHA256SUMS says; empty where it says nothing yet."""
        try:
            text = (self.path / "SHA256SUMS").read_text("utf-8")
        except FileNotFoundError:
            return []
        wrong = []
        for line in text.splitlines():
            digest, _, name = line.partition("  ")
            path = self.path / name
            if not path.is_file() or sha256(path) != digest:
                wrong.append(name)
        return wrong

    def _originals(self) -> Iterator[Path]:
        for folder, folders, names in os.walk(self.path):
            folders.sort()
            for name in sorted(names):
                path = Path(folder) / name
                if (
                    name not in DERIVED
                    and not name.startswith(".")
                    and path.is_file()
                    and not path.is_symlink()
                ):
                    yield path


def create(runs: Path, run: str) -> RunDir:
    """A new folder. Raises StorageError where it cannot be made."""
    try:
        (runs / run).mkdir(parents=True)
    except OSError as error:
        raise StorageError(
            f"{runs / run}: cannot be made: {error.strerror}; change to a folder you can write"
        ) from error
    return RunDir(runs / run)


def find(name: str) -> RunDir:
    """A run by its id under ``runs/`` of the current directory, or by its path."""
    if not name.strip():
        raise UsageError("RUN: is empty; name a run under runs/, or the path of its folder")
    path = Path(name) if os.sep in name or Path(name, "plan.json").exists() else Path("runs") / name
    if not path.is_dir():
        known = sorted(entry.name for entry in Path("runs").glob("*") if entry.is_dir())
        have = f"the newest there is {known[-1]}" if known else "there is none"
        raise UsageError(f"{path}: no such run; {have}")
    if not RUN_ID.fullmatch(path.resolve().name):
        raise UsageError(f"{path}: not the name of a run")
    return RunDir(path.resolve() if path.name in ("", ".", "..") else path)


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _rank(text: str, host: str) -> dict[str, Any]:
    said = dict(line.partition("=")[::2] for line in text.splitlines())
    counts = {key: int(said[key]) if said.get(key, "").isdecimal() else None for key in RANK_COUNTS}
    blocks, _, size = said.get("shm_bytes", "").partition("*")
    return {
        "host": host,
        "hostname": said.get("hostname") or None,
        "devices": said.get("devices") or None,
        **counts,
        "shm_bytes": int(blocks) * int(size) if blocks.isdecimal() and size.isdecimal() else None,
    }


def _last_line(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - 4096))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
    if lost := LOST.findall(text):
        return f"lost its daemon on {lost[-1]}"
    lines = [line.strip() for line in text.splitlines() if line.strip(" \t-") and not HELP.search(line)]
    return "".join(char for char in lines[-1] if char.isprintable())[:300] if lines else ""
