"""What comes home from a host is hostile: only what a run writes is taken, and only with its checksum."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from runner.errors import HostError
from runner.io.archive import unpack

AGENT = Path(__file__).resolve().parents[1] / "roles" / "bench_agent" / "files" / "agent.py"
CELL = "digits.throughput.c01.fp32.bs32.r1"
LOG = f"cells/{CELL}/logs/lab1/rank-0000.stdout"


def pack(folder: Path, *members: tuple[str, bytes | None], sums: bool = True) -> Path:
    """An archive as agent.py writes it; a member without content is a symbolic link to /etc/passwd."""
    path = folder / "lab1.tar"
    text = "".join(f"{hashlib.sha256(data or b'').hexdigest()}  {name}\n" for name, data in members).encode()
    with tarfile.open(path, "w") as tar:
        for name, data in (*members, *([("SHA256SUMS", text)] if sums else [])):
            member = tarfile.TarInfo(name)
            if data is None:
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            member.size = len(data or b"")
            tar.addfile(member, io.BytesIO(data or b""))
    return path


def take(archive: Path, *rest: Any) -> dict[str, str]:
    with archive.open("rb") as stream:
        return unpack(stream, *rest)


def test_takes_what_a_run_writes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    good = pack(tmp_path, ("journal.jsonl", b"{}\n"), ("facts.json", b"{}"), (LOG, b"x\n"))
    digests = take(good, "lab1", run, [CELL])
    assert digests[LOG] == hashlib.sha256(b"x\n").hexdigest()
    found = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    assert found == [LOG, "facts/lab1.json", "journal.jsonl"] == sorted(digests)


@pytest.mark.parametrize(
    "name",
    [
        "../plan.json",
        "/etc/cron.d/x",
        "plan.json",
        "cells/../../x",
        f"cells/{CELL}/logs/lab2/rank-0000.stdout",
        f"cells/{CELL}/logs/lab1/../../../../x",
        f"cells/{CELL}/logs/lab1/a\nb",
        f"cells/{CELL}/result.json",
        "cells/other/logs/lab1/rank-0000.stdout",
        "results.json",
    ],
)
def test_refuses_other_names(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    bad = pack(tmp_path, (LOG, b"x\n"), (name, b"evil"))
    with pytest.raises(HostError, match="is nothing that a run writes; nothing was taken"):
        take(bad, "lab1", run, [CELL])
    assert list(run.iterdir()) == []


def test_refuses_links(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="is not a regular file"):
        take(pack(tmp_path, (LOG, None)), "lab1", tmp_path / "run", [CELL])


@pytest.mark.parametrize("fault", ["no sums", "changed", "cut"])
def test_refuses_what_does_not_match_its_checksum(tmp_path: Path, fault: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    path = pack(tmp_path, (LOG, b"rate=100\n" * 500), sums=fault != "no sums")
    if fault == "changed":
        with tarfile.open(path) as tar:
            members = [(name, (tar.extractfile(name) or io.BytesIO()).read()) for name in tar.getnames()]
        members[0] = (LOG, b"rate=999\n" * 500)
        path = pack(tmp_path, *members, sums=False)
    if fault == "cut":
        path.write_bytes(path.read_bytes()[:513])
    with pytest.raises(HostError, match=r"lab1.*collect again"):
        take(path, "lab1", run, [CELL])
    assert list(run.iterdir()) == []


def test_what_a_container_leaves_keeps_nothing_else_from_coming_home(tmp_path: Path) -> None:
    """Packed by the agent itself: folders and odd names of a host's logs are named, and stay there."""
    host, run = tmp_path / "host", tmp_path / "run"
    names = [LOG, *(str(Path(LOG).parent / name) for name in ("a b", "-x", "x\ny", "own/file"))]
    names.append(f"cells/{CELL}/earlier-1/lab1/.hidden")
    for name in names:
        (host / name).parent.mkdir(parents=True, exist_ok=True)
        (host / name).write_text("x\n")
    packed = subprocess.run([sys.executable, AGENT, "pack", host], capture_output=True, check=True)
    assert packed.stderr == b""
    (tmp_path / "tar").write_bytes(packed.stdout)
    taken = take(tmp_path / "tar", "lab1", run, [CELL])
    left = str(Path(LOG).with_name("left-there.txt"))
    assert set(taken) == {LOG, left, f"cells/{CELL}/earlier-1/lab1/left-there.txt"}
    name = "its name has more than letters, digits, . _ and -"
    said = [f"'-x': {name}", f"'a b': {name}", "'own': a folder", f"'x\\ny': {name}"]
    assert (run / left).read_text().splitlines() == said


def test_a_cell_tried_again_replaces_its_logs(tmp_path: Path) -> None:
    run = tmp_path / "run"
    stale = f"cells/{CELL}/logs/lab1/rank-0001.stdout"
    take(pack(tmp_path, (LOG, b"first\n"), (stale, b"first\n")), "lab1", run, [CELL])
    earlier = f"cells/{CELL}/earlier-1/lab1/rank-0001.stdout"
    take(pack(tmp_path, (LOG, b"second\n"), (earlier, b"first\n")), "lab1", run, [CELL])
    assert (run / LOG).read_text() == "second\n"
    assert not (run / stale).exists()
    assert (run / earlier).read_text() == "first\n"
