"""Results and logs to tables to documents: made-up results as golden files."""

from __future__ import annotations

import csv
import io
import json
import re
import string
from pathlib import Path
from typing import Any

import pytest

from runner.cli import main
from runner.io.logfolders import walk
from runner.messages import LANGUAGES, messages
from runner.model import Result, Table
from runner.render import csv_text, html, json_text, markdown
from runner.tables import tables

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests/reports/digits"
LOGS = ROOT / "tests/parsers"
TEMPLATE = (ROOT / "reports/templates/report.html.j2").read_text("utf-8")

Capture = pytest.CaptureFixture[str]


# --- results ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["md", "html", "csv", "json"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_report_of_a_run(form: str, language: str, capsys: Capture) -> None:
    assert main(["report", str(GOLDEN), "--format", form, "--lang", language]) == 0
    name = f"report.{form}" if language == "en" else f"report.{language}.{form}"
    assert capsys.readouterr().out == (GOLDEN / name).read_text("utf-8")


def test_several_formats_and_languages_become_files(tmp_path: Path) -> None:
    args = ["--format", "md,html,csv,json", "--lang", "en,zh", "--output", str(tmp_path / "new")]
    assert main(["report", str(GOLDEN), *args]) == 0
    made = {path.name: path.read_text("utf-8") for path in (tmp_path / "new").iterdir()}
    assert len(made) == 8
    assert made["report.zh.html"] == (GOLDEN / "report.zh.html").read_text("utf-8")
    assert made["report.en.csv"] == (GOLDEN / "report.csv").read_text("utf-8")


def result(cards: int, rate: float | None, repeat: int = 1, state: str = "measured", **more: Any) -> Result:
    name = f"made.{cards}.{repeat}"
    return Result(
        name, "made", "throughput", cards, "fp32", 8, repeat, state, None, "images/sec", rate, **more
    )


def test_numbers_keep_full_precision_until_they_are_shown() -> None:
    # 0.996 / 0.004 = 249; of the figures as they are shown, 1.00 and 0.00, it could not be taken
    results = [result(1, 0.004), result(8, 0.9, 1), result(8, 0.996, 2), result(8, 2.0, 3)]
    results.append(result(8, 70.0, 4, state="failed"))  # what failed has no part in it
    _, everything = tables(results)
    assert everything.rows == (("1", "-", "0.00", "-", "1.00"), ("8", "-", "1.00", "-", "249.00"))


def test_speed_up_needs_one_card_of_the_same_kind() -> None:
    assert tables([result(8, 5.0)])[1].rows == (("8", "-", "5.00", "-", "-"),)
    assert tables([result(1, None, state="failed"), result(8, 5.0)])[1].rows[1][-1] == "-"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rule": "summary"}, "averaging (summary / mean:skip=5)"),
        ({"hardware": {"cpu": "A * 4, B * 4"}}, "hardware (cpu A * 4, B * 4 / cpu A * 4)"),
        ({"hardware": {"driver": "470.83.01"}}, None),  # of 1 card the driver is not known
        ({}, None),
    ],
)
def test_speed_up_of_what_is_not_like_for_like_is_marked(change: dict[str, Any], says: str | None) -> None:
    same: dict[str, Any] = {"rule": "mean:skip=5", "hardware": {"cpu": "A * 4"}}
    _, table = tables([result(1, 2.0, **same), result(8, 15.0, **{**same, **change})])
    assert table.rows[1][-1] == ("7.50‡" if says else "7.50")
    assert table.notes == ((f"‡ cards 8, FP32(BS=8): not like for like with 1 card: {says}",) if says else ())
    assert "|      7.50‡ |" in markdown([table]) or not says  # numbers stay at the right


def test_shared_note_stands_under_each_table() -> None:
    made = tables([result(1, 5.0), result(8, None, state="lost")], "all cards share one machine")
    assert len(made) == 2
    assert all(table.notes[-1] == "all cards share one machine" for table in made)


# --- documents -------------------------------------------------------------------------------

SCRIPT = "=1+1|`<script>alert(1)</script>\x1b[31m"
NASTY = Table("a <b> | title", ("Cards", "Log"), (("1", SCRIPT),), ("[note](javascript:x)",))


def test_what_logs_say_is_escaped() -> None:
    page = html([NASTY], "<title>", "en", TEMPLATE)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<title>&lt;title&gt;</title>" in page
    pipes = markdown([NASTY])
    assert "<" not in pipes
    assert "=1+1\\|\\`&lt;script&gt;" in pipes
    assert "\\[note\\](javascript:x)" in pipes
    assert "| \\_a_b\\_ \\~\\~c |" in markdown([Table("t", ("Log",), (("_a_b_ ~~c",),))])
    sheet = list(csv.reader(io.StringIO(csv_text([NASTY]))))
    assert sheet[2] == ["1", "'=1+1|`<script>alert(1)</script>\\x1b[31m"]
    assert json.loads(json_text([NASTY], "x"))["tables"][0]["rows"] == [["1", SCRIPT]]
    assert all("\x1b" not in text for text in (page, pipes, csv_text([NASTY])))


def test_digits_are_shown_as_they_are() -> None:
    table = Table("t", ("Cards", "Rate"), (("1", "12671.9"), ("08", "1173.380")))
    assert "|      08 | 1173.380 |" in markdown([table])
    assert ["08", "1173.380"] in list(csv.reader(io.StringIO(csv_text([table]))))


def test_languages_say_the_same() -> None:
    one, *others = (messages(language).texts for language in LANGUAGES)
    for other in others:
        assert list(one) == list(other)
        for key in one:
            fields = [
                {field for _, field, _, _ in string.Formatter().parse(text[key]) if field}
                for text in (one, other)
            ]
            assert fields[0] == fields[1], key


# --- the commands ----------------------------------------------------------------------------


def test_report_of_a_folder_of_logs(capsys: Capture) -> None:
    assert main(["report", str(LOGS / "runkit")]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if "reaches_its_target.log" in line)
    assert [word.strip() for word in row.split("|")[1:5]] == ["4", "fp32", "32", "1051.50"]
    assert len([line for line in out.splitlines() if "three_runs.log" in line]) == 3


def test_parse_prints_the_contract(capsys: Capture) -> None:
    path = LOGS / "dll_tf_resnet50" / "tf_gpu8_amp_bs64.log"
    assert main(["parse", str(path), "--json", "--rule", "mean:tail=1", "--cards", "16"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert (said["log"], said["cards"], said["rate"], said["rule"]) == (path.name, 16, 2010.0, "mean:tail=1")
    contract = (ROOT / "docs/contracts.md").read_text("utf-8")
    assert all(f"`{key}`" in contract for key in said)


def test_every_problem_code_is_documented() -> None:
    contract = (ROOT / "docs/contracts.md").read_text("utf-8")
    sources = [*(ROOT / "runner/parsers").glob("*.py"), ROOT / "runner/io/logs.py"]
    codes = {code for path in sources for code in re.findall(r'Problem\(\s*"(\w+)"', path.read_text("utf-8"))}
    assert len(codes) >= 11
    assert all(f"`{code}`" in contract for code in codes)


def test_parse_for_people_names_problems(capsys: Capture) -> None:
    assert main(["parse", str(LOGS / "dll_tf_resnet50" / "mixed.log")]) == 0
    out = capsys.readouterr().out
    assert "not complete" in out
    assert "mixed_ranks: line 1: records of several ranks (0: 7, 1: 4)" in out
    assert "2 of 7 records" in out


ENDINGS = {
    "nothing recognized": (["parse", "{tmp}/notes.md"], 1, "notes.md: no run found; tried airank"),
    "nothing, as JSON": (["parse", "{tmp}/notes.md", "--json"], 1, "no run found"),
    "missing": (["parse", "{tmp}/missing"], 2, "missing: cannot be read: No such file"),
    "a device": (["parse", "/dev/null"], 2, "/dev/null: not a regular file"),
    "no rule": (["parse", "{tmp}/notes.md", "--rule", "mean"], 2, "rule mean: unknown"),
    "no family": (["parse", "{tmp}/notes.md", "--family", "dll"], 2, "family dll: unknown"),
    "no figure": (["report", "{tmp}"], 1, "no figure was found"),
    "no source": (["report", "{tmp}/none"], 2, "none"),
    "no layout": (["report", "{tmp}", "--layout", "resnet50_ngc_tensorflow"], 2, "nearest: resnet50_ngc_"),
    "no logs of it": (["report", "{tmp}", "--layout", "resnet50_ngc_tensorflow1"], 1, "no figure was found"),
    "blank as published": (["report", "{tmp}", "--layout", "deeplabv3p_paddle"], 0, "as it was published"),
    "nothing to fill it": (["report", "{tmp}", "--layout", "deeplabv3p_paddle", "--fill"], 1, "no figure"),
    "nothing to fill": (["report", "{tmp}", "--fill"], 2, "name one with --layout"),
    "empty source": (["report", ""], 2, "SOURCE: is empty"),
    "no format": (["report", "{tmp}", "--format", "md,pdf"], 2, "--format pdf: unknown"),
    "no language": (["report", "{tmp}", "--lang", "de"], 2, "--lang de: unknown"),
    "nowhere to put it": (["report", "{tmp}", "--format", "md,csv"], 2, "--output DIR"),
}  # fmt: skip


@pytest.mark.parametrize(("args", "status", "says"), ENDINGS.values(), ids=ENDINGS)
def test_endings(args: list[str], status: int, says: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "notes.md").write_text("nothing measured\n")
    assert main([arg.format(tmp=tmp_path) for arg in args]) == status
    captured = capsys.readouterr()
    assert says in captured.err
    assert all(line.startswith("runkit: ") for line in captured.err.splitlines())
    if "--json" in args:
        assert json.loads(captured.out) == []


def test_many_files_without_a_run_take_one_line(tmp_path: Path, capsys: Capture) -> None:
    for number in range(9):
        (tmp_path / f"{number}.txt").write_text("nothing\n")
    (tmp_path / "run.log").write_bytes((LOGS / "runkit" / "cut_off.log").read_bytes())
    for command in ("parse", "report"):
        assert main([command, str(tmp_path)]) == 0
        (line,) = capsys.readouterr().err.splitlines()
        assert "no run found in 9 files: 0.txt, 1.txt, 2.txt, 3.txt, 4.txt, ...;" in line


STRANGERS = {
    "keras": (
        "Epoch 1/5\n1875/1875 [====] - 5s 2ms/step - loss: 0.2931 - accuracy: 0.91\n",
        "line 2: 1875/1875",
    ),
    "lightning": (
        "GPU available: True\nEpoch 0:   2%|2| 20/938 [00:01<01:01, 14.9it/s, loss=2]\n",
        "line 2: E",
    ),
    "megatron": (" iteration 10/ 50 | elapsed time per iteration (ms): 12.5 | lm loss: 6.1 |\n", "line 1: "),
}


@pytest.mark.parametrize(("text", "says"), STRANGERS.values(), ids=STRANGERS)
def test_log_of_no_family_names_its_line_most_like_a_record(
    text: str, says: str, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "a.log").write_text(text)
    assert main(["parse", str(tmp_path / "a.log")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"; most like a record is {says}" in line


@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5", "9" * 40])
def test_counts_are_whole_numbers(value: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ending:
        main(["parse", "a.log", f"--cards={value}"])
    assert ending.value.code == 2
    assert "whole number" in capsys.readouterr().err


def test_walked_folder_reports_names_below_it(capsys: Capture) -> None:
    assert main(["parse", str(LOGS), "--json"]) == 0
    names = {one["log"] for one in json.loads(capsys.readouterr().out)}
    assert names == {log.name for log in walk(LOGS) if log.name.endswith(".log")}
