"""Input that somebody made to break what reads it: fuzzed, growing, without end, or full of markup."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from fuzzing import PIECES, TARGETS, attempt, mutated
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.cli import main
from runner.io.claims import ROWS_LIMIT
from runner.io.sources import File
from runner.published_tables import LIMIT, claims_of

LOG = Path(__file__).parent / "parsers" / "dll_tf_resnet50" / "tf_gpu8_amp_bs64.log"
LONG = 1 << 17
BUDGET_S = 3.0  # linear work on LONG letters takes a tenth of a second, quadratic work minutes

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("target", TARGETS)
def test_changed_input_is_read_or_refused(target: str) -> None:
    dice = random.Random(2031)
    for _ in range(1000 if target in ("report", "table") else 150):
        attempt(target, mutated(dice.choice(TARGETS[target][1]), dice))


@pytest.mark.parametrize("target", TARGETS)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=40)), max_size=20))
@settings(deadline=None, max_examples=60, derandomize=True, database=None)
def test_any_bytes_are_read_or_refused(target: str, parts: list[bytes]) -> None:
    attempt(target, b"".join(parts))


# --- reports that keep a pattern busy ---------------------------------------------------------

BUSY = {
    "spaces for a rule": "| a |\n|--|" + " " * LONG + "x",
    "a rule that breaks off": "| a |\n" + "--|" * (LONG // 3) + "x",
    "brackets": "[" * LONG,
    "brackets of a link": "[a](" * (LONG // 4),
    "counts": "1 " * (LONG // 2) + "x",
    "names": "| cards | AMP |\n|--|--|\n| 8 |" + "**" * (LONG // 2),
    "batch sizes": "batch size " * (LONG // 11),
    "units": "(abc " * (LONG // 5),
    "columns and rows": "| cards |"
    + "a|" * (LONG // 8)
    + "\n|"
    + "--|" * (LONG // 8 + 1)
    + "\n"
    + "|8\n" * (LONG // 8),
    "figures and links": "| cards | AMP |\n|--|--|\n" + "|8|5|\n" * LIMIT + "[8 cards](a.log)\n" * LIMIT,
}


@pytest.mark.parametrize("kind", BUSY)
def test_no_report_keeps_a_pattern_busy(kind: str) -> None:
    began = time.process_time()
    claims_of(BUSY[kind], "report.md")
    assert time.process_time() - began < BUDGET_S * (4 if kind == "figures and links" else 1)


def test_report_of_too_many_figures_is_refused(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "report.md"
    path.write_text("| cards | AMP |\n|--|--|\n" + "|8|5|\n" * (LIMIT + 1))
    assert main(["audit", "--report", str(path), "--logs", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"runkit: {path}: more than {LIMIT} figures or links; split it\n"


def test_table_of_too_many_claims_is_refused(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "claims.csv"
    path.write_text("log,published\n" + "a.log,5\n" * (ROWS_LIMIT + 1))
    assert main(["audit", str(path), "--logs", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"runkit: {path}: more than {ROWS_LIMIT} rows; split it\n"


# --- logs that change while they are read -----------------------------------------------------


def test_log_is_read_as_it_was_when_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\n")
    with File(path).open() as log, path.open("ab") as writer:
        writer.write(b"three\n")
        writer.flush()
        assert log.read(1 << 16) == b"one\ntwo\n"
        assert log.read(1 << 16) == b""


def test_log_that_is_cut_while_it_is_read_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"x" * 3_000_000)
    with File(path).open() as log:
        assert log.read(1000)
        path.write_bytes(b"")
        assert sum(map(len, iter(lambda: log.read(1 << 16), b""))) < 3_000_000


@pytest.mark.timeout(60)
def test_log_that_grows_faster_than_it_is_read_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    argv = ["sh", "-c", "yes 'some line' | head -c 1000000000"]
    with path.open("ab") as file, subprocess.Popen(argv, stdout=file, start_new_session=True) as writer:
        try:
            while path.stat().st_size < 2_000_000:
                time.sleep(0.001)
            with File(path).open() as log:
                most = path.stat().st_size
                read = sum(map(len, iter(lambda: log.read(1 << 18), b"")))
        finally:
            os.killpg(writer.pid, signal.SIGKILL)
    assert 2_000_000 <= read <= most


# --- what a log says is text ------------------------------------------------------------------

NASTY = "{{7*7}}{%x%}<script>\x1b[2J\x9b31m\u202e|`=cmd"


@pytest.mark.parametrize("form", ["md", "html", "csv", "json"])
def test_name_and_words_of_a_log_are_only_shown(form: str, tmp_path: Path, capsys: Capture) -> None:
    data = LOG.read_text("utf-8").replace("images/sec", f"images/sec {NASTY}")
    (tmp_path / f"{NASTY.replace('/', '')}.log").write_text(data)
    assert main(["report", str(tmp_path), "--format", form]) == 0
    said = capsys.readouterr()
    assert "2000.00" in said.out
    assert "7*7" in said.out.replace("\\", "")  # as it stands there, worked out by nobody
    for text in (said.out, said.err):
        assert "\x1b" not in text
    if form != "json":  # which is data, and not for a terminal
        assert all(letter.isprintable() or letter == "\n" for letter in said.out)
    if form in ("md", "html"):
        assert "<script" not in said.out.partition("2000.00")[2]
    if form == "json":
        assert json.loads(said.out)["tables"]
