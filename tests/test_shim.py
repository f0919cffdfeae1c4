"""The shim: one rank's own record, and its output in files of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from kit import ROOT

SHIM = ROOT / "roles" / "bench_agent" / "files" / "shim.py"
spec = importlib.util.spec_from_file_location("shim", SHIM)
assert spec is not None
assert spec.loader is not None
shim = importlib.util.module_from_spec(spec)
spec.loader.exec_module(shim)


@given(st.none() | st.integers() | st.text())
def test_json_by_hand_is_json(value: object) -> None:
    assert json.loads(shim._json(value)) == value


def run(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / "host").write_text("lab1\n")
    return subprocess.run(
        [sys.executable, "-I", "-S", str(SHIM), *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
    )


def test_record_and_output(tmp_path: Path) -> None:
    rank = {"OMPI_COMM_WORLD_RANK": "13", "OMPI_COMM_WORLD_LOCAL_RANK": "5", "OMPI_COMM_WORLD_SIZE": "16"}
    code = "import os, sys; print(os.getpid()); print('odd', file=sys.stderr)"
    done = run(tmp_path, "c", "--", sys.executable, "-c", code, **rank, CUDA_VISIBLE_DEVICES='5,"é"')
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    folder = tmp_path / "cells" / "c" / "logs" / "lab1"
    record = json.loads((folder / "rank-0013.json").read_text())
    assert [record[key] for key in ("host", "rank", "local_rank", "world_size")] == ["lab1", 13, 5, 16]
    assert record["devices"] == '5,"é"'
    assert (folder / "rank-0013.stdout").read_text() == f"{record['pid']}\n"
    assert (folder / "rank-0013.stderr").read_text() == "odd\n"


def test_command_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path, "c", "--", "/nowhere/python", "train.py")
    assert done.returncode == 1
    said = (tmp_path / "cells" / "c" / "logs" / "lab1" / "rank-0000.stderr").read_text()
    assert said == "shim.py: /nowhere/python: No such file or directory\n"
