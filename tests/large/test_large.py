"""Logs of gigabytes and folders of 100,000 files, in bounded memory and time: ``make test-large``.

Each reads through the command line, in a process of its own, whose peak memory and time are printed with -s.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
LOG = ROOT / "tests/parsers/dll_tf_resnet50/tf_gpu8_amp_bs64.log"
NAME = "tf_gpu8_amp_bs64.log"
MEGABYTE = 1 << 20
RATE = 2000.0  # of LOG, by the family's rule; see its pair
MOST_MIB = 100  # of memory, the interpreter with all its modules included
MOST_S = 120

pytestmark = pytest.mark.timeout(900)


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


def run(*words: object) -> Ended:
    """Run a command, and check what it took of memory and time."""
    began = time.monotonic()
    argv = [sys.executable, "-c", WATCHED, *map(str, words)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    took, peak = time.monotonic() - began, int(done.stderr.rpartition("peak ")[2]) // 1024
    print(f"{words[0]}: {took:.1f} s, {peak} MiB", file=sys.stderr)
    assert took < MOST_S
    assert peak < MOST_MIB
    return Ended(done.returncode, done.stdout, done.stderr.rpartition("peak ")[0])


WATCHED = """
import resource, sys
from runner.cli import main
try:
    status = main(sys.argv[1:])
finally:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    print("peak", max(resource.getrusage(kind).ru_maxrss for kind in kinds), file=sys.stderr)
sys.exit(status)
"""


def parsed(path: Path) -> dict[str, Any]:
    """What is found in a log; a record that broke off counts as a run of its own, of no records."""
    done = run("parse", path, "--json")
    assert done.status == 0, done.err
    found: dict[str, Any] = max(json.loads(done.out), key=lambda run: int(run["records"]))
    assert found["rate"] == RATE
    return found


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A place for a large file, which is gone afterwards."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    yield tmp_path / NAME
    (tmp_path / NAME).unlink(missing_ok=True)


def test_line_of_two_gigabytes(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(2048):
            file.write(b"y" * MEGABYTE)
        file.write(b"\n" + LOG.read_bytes())
    parsed(path)


def test_line_of_two_gigabytes_that_holds_the_words_of_records(path: Path) -> None:
    piece = b"DLL 2031-05-06 07:08:09.1 - (0, 10) total_ips : "
    with path.open("wb") as file:
        for _ in range(2048):
            file.write(piece * (MEGABYTE // len(piece)))
        file.write(b"\n" + LOG.read_bytes())
    assert "line_too_long" in [problem["code"] for problem in parsed(path)["problems"]]


def test_file_of_five_gigabytes_that_is_mostly_a_hole(path: Path) -> None:
    with path.open("wb") as file:
        file.write(LOG.read_bytes()[:100])
        file.seek(5 << 30)
        file.write(b"\n" + LOG.read_bytes())
    assert os.stat(path).st_size > 5 << 30
    parsed(path)


def test_five_gigabytes_of_lines(path: Path) -> None:
    line = b"INFO: step without any figure that a family knows, as programs write them by the thousand\n"
    with path.open("wb") as file:
        for _ in range(5120):
            file.write(line * (MEGABYTE // len(line)))
        file.write(LOG.read_bytes())
    parsed(path)


def test_bomb_of_twenty_gigabytes(path: Path) -> None:
    packer = zlib.compressobj(9, wbits=31)
    member = b"".join(packer.compress(bytes(MEGABYTE)) for _ in range(1024)) + packer.flush()
    path.write_bytes(member * 20)
    done = run("parse", path)
    assert done.status == 2
    assert done.err.splitlines() == [
        f"runkit: {path}: unpacks to more than 16 GiB; unpack what is needed of it and name that"
    ]


def test_hundred_thousand_files(tmp_path: Path) -> None:
    for number in range(100_000):
        os.close(os.open(tmp_path / f"{number}.log", os.O_CREAT | os.O_WRONLY))
    done = run("parse", tmp_path)
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert "more than 10000 files or 32 levels; name a folder that holds only logs" in line
