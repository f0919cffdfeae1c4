"""Folders of one process: none is left by one that was killed, and none is taken from one that lives."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from kit import ROOT

from runner.io import private

HOLD = """
import time
from runner.io import private
with private.folder() as own:
    print(own, flush=True)
    time.sleep(99)
"""


def holder(where: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process with a folder of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(where)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_killed_ones_are_swept_and_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (lives, of_living), (killed, of_killed) = holder(tmp_path), holder(tmp_path)
    with lives, killed:
        killed.kill()
        killed.wait()
        (of_killed / "secret").write_text("x")
        young, precious = tmp_path / f"{private.PREFIX}young", tmp_path / "precious"
        young.mkdir()
        precious.mkdir()
        (tmp_path / f"{private.PREFIX}link").symlink_to(precious)
        (tmp_path / f"{private.PREFIX}file").write_text("")
        past = time.time() - 61
        for path in (of_living, of_killed, precious, tmp_path / f"{private.PREFIX}file"):
            os.utime(path, (past, past))
        with private.folder() as own:
            assert own.stat().st_mode & 0o777 == 0o700
            assert not of_killed.exists()
        assert not own.exists()
        assert [path.exists() for path in (of_living, young, precious)] == [True] * 3
        assert (tmp_path / f"{private.PREFIX}file").exists()
        lives.kill()
