"""Bytes of any kind to lines: what is stripped, split, kept apart, cut off and refused."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import UsageError
from runner.io.logfolders import walk
from runner.io.logs import LINE_LIMIT, Log
from runner.model import Line

ROOT = Path(__file__).parents[1]


def read(path: Path, data: bytes) -> tuple[Log, list[Line]]:
    path.write_bytes(data)
    log = Log(path, path.name)
    return log, list(log)


BYTES = {
    "both breaks, numbered by newline": (b"a\rb\r\nc\n\n\nd", [(1, "a"), (1, "b"), (2, "c"), (5, "d")]),
    "no final newline": (b"a\nb", [(1, "a"), (2, "b")]),
    "NUL": (b"\0a\0b\0\n", [(1, "ab")]),
    "colours": (b"\x1b[32;1mgreen\x1b[0m \x1b[K\x1b]0;title\x07end\n", [(1, "green end")]),
    "lone escapes": (b"a\x1b[\x1b\x1b", [(1, "a")]),
    "byte order mark": (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", [(1, "a"), (2, "\ufeffb")]),
    "not UTF-8": (b"caf\xe9 1\n", [(1, "caf\ufffd 1")]),
    "Chinese in GBK": ("训练 ips: 5\n".encode("gbk"), [(1, "训练 ips: 5")]),
    "a torn block before a record": ("█".encode()[:2] + b"ips: 5\n", [(1, "\ufffdips: 5")]),
}


@pytest.mark.parametrize(("data", "lines"), BYTES.values(), ids=BYTES)
def test_bytes_to_lines(data: bytes, lines: list[tuple[int, str]], tmp_path: Path) -> None:
    log, found = read(tmp_path / "a.log", data)
    assert [(line.number, line.text) for line in found] == lines
    assert log.sha256 == hashlib.sha256(data).hexdigest()


STAMP = "Wed Jun  1 12:19:09 2022"
TAGS = {
    "Open MPI 4": ("[1,3]<stderr>:text", [(3, "stderr", "text")]),
    "Open MPI 4, stamped": (f"{STAMP}[1,0]<stdout>:text", [(0, "stdout", "text")]),
    "Open MPI 5": ("[1,3]<stdout>: text", [(3, "stdout", "text")]),
    "Open MPI 5, stamped": (f"[{STAMP}][1,12]<stdout>: text", [(12, "stdout", "text")]),
    "Open MPI 5, stamped only": (f"[{STAMP}]<stdout>: text", [(None, "stdout", "text")]),
    "Open MPI 5, with host": ("[1,0][node-1:4711]<stdout>: text", [(0, "stdout", "text")]),
    "Open MPI 5, with job": ("[prterun-node-1-4711@1,5]<stderr>: text", [(5, "stderr", "text")]),
    "several": (
        f"[1,5]<stderr>:[[1,0]<stdout>:x{STAMP}[1,1]<stdout>:y",
        [(5, "stderr", "["), (0, "stdout", "x"), (1, "stdout", "y")],
    ),
    "after a progress bar": (
        f"30%|# {STAMP}[1,0]<stdout>:text",
        [(None, None, "30%|# "), (0, "stdout", "text")],
    ),
    "behind a whole progress bar": (
        "Step:  30%|# | 342/1147 [04:50<09:42,  1.38it/s, loss=2]rate 5 [1:02] 3/s",
        [
            (None, None, "Step:  30%|# | 342/1147 [04:50<09:42,  1.38it/s, loss=2]"),
            (None, None, "rate 5 [1:02] 3/s"),
        ],
    ),
    "behind a bar with a tag": (
        "[1,2]<stderr>:342it [1:04:50, 2.50s/it]rate 5",
        [(2, "stderr", "342it [1:04:50, 2.50s/it]"), (2, "stderr", "rate 5")],
    ),
    "glued to the end": (f"[1,0]<stdout>:rate 5 {STAMP}[1,1]<stdout>:", [(0, "stdout", "rate 5 ")]),
    "Open MPI 5, rank only": ("[7]<stdout>: text", [(7, "stdout", "text")]),
    "before a carriage return": (
        "[1,3]<stderr>:10%|#\r20%|##\rrate 5[1,1]<stdout>:\rrate 6",
        [(3, "stderr", "10%|#"), (3, "stderr", "20%|##"), (3, "stderr", "rate 5"), (1, "stdout", "rate 6")],
    ),
    "none": ("a[1]<b>: c", [(None, None, "a[1]<b>: c")]),
}


@pytest.mark.parametrize(("text", "lines"), TAGS.values(), ids=TAGS)
def test_mpi_tags_become_rank_and_stream(text: str, lines: list[object], tmp_path: Path) -> None:
    _, found = read(tmp_path / "a.log", text.encode() + b"\n")
    assert [(line.rank, line.stream, line.text) for line in found] == lines


def test_tags_as_the_installed_mpi_writes_them(tmp_path: Path) -> None:
    mpirun = Path(sys.executable).with_name("mpirun")
    if not mpirun.exists():
        pytest.skip("no mpirun beside this Python; install requirements.txt")
    argv = [
        mpirun,
        "-np",
        "2",
        "--oversubscribe",
        "--output",
        "tag,timestamp",
        "sh",
        "-c",
        "echo rate 5; echo oops >&2",
    ]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    said = subprocess.run(argv, env=os.environ | root, capture_output=True, check=True, timeout=60)
    _, found = read(tmp_path / "a.log", said.stdout + said.stderr)
    wanted = [
        (rank, stream, text) for rank in (0, 1) for stream, text in (("stderr", "oops"), ("stdout", "rate 5"))
    ]
    assert sorted((line.rank, line.stream, line.text) for line in found) == wanted


def test_replaced_and_dropped_is_told(tmp_path: Path) -> None:
    long = b"x" * (LINE_LIMIT + 1)
    log, found = read(tmp_path / "a.log", b"fine\n\xff\n" + long + b"\n\xfe\n" + long[1:] + b"\n" + long)
    assert [len(line.text) for line in found] == [4, 1, LINE_LIMIT, 1, LINE_LIMIT, LINE_LIMIT]
    assert [(problem.code, problem.line) for problem in log.problems] == [
        ("decode_errors", 2),
        ("line_too_long", 3),
    ]
    assert ": 2;" in log.problems[0].detail
    assert ": 2;" in log.problems[1].detail
    log, _ = read(tmp_path / "b.log", "a\n训练\n".encode("gb18030"))
    assert [(problem.code, problem.line) for problem in log.problems] == [("gbk_text", 2)]


PARTS = [b"a", b"\n", b"\r", b"\0", b"\x1b[m", "é".encode(), b"\xff", b"b" * 70_000]


@given(st.lists(st.sampled_from(PARTS), max_size=30))
@settings(deadline=None, max_examples=50)
def test_where_a_read_ends_makes_no_difference(parts: list[bytes]) -> None:
    data = b"".join(parts)  # up to 2 MB, many reads; held against the same thing done in one piece
    with tempfile.TemporaryDirectory() as folder:
        _, lines = read(Path(folder) / "a.log", data)
    wanted = []
    for number, line in enumerate(data.split(b"\n"), 1):
        for piece in line.split(b"\r"):
            kept = piece[: LINE_LIMIT + 1].replace(b"\0", b"").replace(b"\x1b[m", b"")[:LINE_LIMIT]
            wanted.append((number, kept.decode("utf-8", "replace")))
    assert [(line.number, line.text) for line in lines] == [entry for entry in wanted if entry[1]]


# --- what is no log --------------------------------------------------------------------------


@pytest.mark.timeout(10)
def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/null"), Path("/dev/zero")):
        with pytest.raises(UsageError, match="not a regular file"):  # and does not wait for a writer
            list(Log(path, path.name))
    with pytest.raises(UsageError, match="missing: cannot be read: No such file"):
        list(Log(tmp_path / "missing", "missing"))


def test_folder_is_walked_without_links(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    (folder / "deep").mkdir(parents=True)
    (tmp_path / "outside.log").write_text("x")
    for name in ("b.log", "deep/a.log", ".hidden"):
        (folder / name).write_text("x")
    (folder / "loop").symlink_to(folder)
    (folder / "out.log").symlink_to(tmp_path / "outside.log")
    os.mkfifo(folder / "fifo")
    assert [log.name for log in walk(folder)] == ["b.log", "deep/a.log"]
    (tmp_path / "named").symlink_to(folder)  # a link that the user names is followed
    assert [log.name for log in walk(tmp_path / "named")] == ["b.log", "deep/a.log"]


def test_folder_without_end_is_refused(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 40)
    deep.mkdir(parents=True)
    with pytest.raises(UsageError, match="levels"):
        walk(tmp_path)
