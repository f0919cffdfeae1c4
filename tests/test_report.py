"""Results and logs to tables to documents: made-up results as golden files, published tables to the digit."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.cli import main
from runner.errors import UsageError
from runner.io.logfolders import walk
from runner.io.logs import Log
from runner.layout_tables import Reading, fill
from runner.layouts import Layout, load
from runner.messages import LANGUAGES, messages
from runner.model import Result, Table
from runner.parsers import parse
from runner.render import csv_text, html, json_text, markdown
from runner.tables import tables

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests/reports/digits"
LOGS = ROOT / "tests/parsers"
TEMPLATE = (ROOT / "reports/templates/report.html.j2").read_text("utf-8")
REFERENCES = sorted((ROOT / "reports/references").glob("*.yml"))
REAL = Path(os.environ.get("RUNKIT_LOGS") or ROOT / "../shared/logs")

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


def test_shared_note_stands_under_each_table() -> None:
    made = tables([result(1, 5.0), result(8, None, state="lost")], "all cards share one machine")
    assert len(made) == 2
    assert all(table.notes[-1] == "all cards share one machine" for table in made)


# --- layouts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: str(path.stem))
def test_every_reference_loads(path: Path) -> None:
    assert load(yaml.safe_load(path.read_text("utf-8")), path.name).tables


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: str(path.stem))
def test_published_figures_are_blank_or_numbers_of_their_format(path: Path) -> None:
    layout = load(yaml.safe_load(path.read_text("utf-8")), path.name)
    cells = [cell for grid in layout.tables for row in grid.rows for cell in row.cells]
    assert cells
    for cell in cells:
        if cell.published in ("-", "--"):
            continue
        text = cell.published.replace(",", "")
        digits = len(text.partition(".")[2])
        assert float(text) > 0, cell
        assert ("," in cell.published) == cell.format.startswith(","), cell
        kept = re.search(r"\.(\d+)", cell.format)
        assert kept is not None
        assert digits <= int(kept[1]), cell  # what is shown is no coarser than what was published


# What the published logs give, table by table, row by row.
SHOWN: dict[tuple[str, str], list[list[list[str]]]] = {
    ("resnet50_ngc_tensorflow1", "resnet50_tf1"): [
        [["1", "414.73", "1173.38"], ["8", "3275.93", "9310.31"], ["32", "12671.9", "33317.67"]]
    ],
    ("maskrcnn_ngc_tensorflow2", "maskrcnn_tf2"): [
        [["1", "5.3", "5.8", "8.1", "9.9"], ["8", "37.8", "39.3", "49.6", "54.8"], ["32", *"----"]]
    ],
    ("resnet50_ngc_pytorch", "resnet50_pytorch"): [
        [["1", "137,335", "859.24", "-", "-"], ["8", *"----"], ["32", *"----"]]
    ],
    ("deeplabv3p_mmsegmentation", "deeplabv3p_mmseg"): [
        [["1", *"----"], ["8", *"----"], ["16", *"----"], ["32", *"----"]],
        [
            ["1", "-", "8.33", "-", "-"],
            ["8", "44338.456", "58.93", "78.6", "7.07"],
            ["16", *"----"],
            ["32", *"----"],
        ],
    ],
    ("deeplabv3p_paddle", "deeplabv3p_paddle"): [  # blank as published: the logs that it names do not exist
        [["1", *"--"], ["8", *"--"], ["32", *"--"]],
        [["GPU=1,BS=2", *"--"], ["GPU=8,BS=2", *"--"], ["GPU=32,BS=2", *"--"]],
        [["GPU=1,BS=4", *"--"], ["GPU=8,BS=4", *"--"], ["GPU=32,BS=4", *"--"]],
    ],
}
DIFFERENT = {  # published, and what its log gives
    "deeplabv3p_mmsegmentation": [("58.2", "58.93"), ("78.5", "78.6"), ("6.98", "7.07")]
}
STRANGERS = {
    "resnet50_ngc_pytorch": ["GPUx32_time2train_ips.log", "pytorch_gpu1_fp32_bs256.txt"],
    "deeplabv3p_mmsegmentation": ["deeplabv3p_c1_fp32.log", "deeplabv3p_c32_fp16.log"],
    "deeplabv3p_paddle": [
        "Deeplabv3_FP16_BS4-N8.log",
        "Deeplabv3_FP32_BS4-N1.log",
        "Deeplabv3_FP32_BS4-N32.log",
    ],
}


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real logs at {REAL}; set RUNKIT_LOGS")
@pytest.mark.parametrize(("name", "folder"), SHOWN, ids=[name for name, _ in SHOWN])
def test_published_tables_to_the_digit(name: str, folder: str, capsys: Capture) -> None:
    expected = SHOWN[name, folder]
    blank = all(cell == "-" for table in expected for row in table for cell in row[1:])
    for language in LANGUAGES:
        args = ["report", str(REAL / folder), "--layout", name, "--lang", language, "--format", "json"]
        assert main(args) == int(blank)
        shown = json.loads(capsys.readouterr().out)["tables"]
        rows = [[[re.sub("卡$", "", row[0]), *row[1:]] for row in table["rows"]] for table in shown]
        assert rows[: len(expected)] == expected
        assert [pair for pair in published(name, rows) if pair[0] != pair[1]] == DIFFERENT.get(name, [])
        assert not any("left out" in note or "不采用" in note for table in shown for note in table["notes"])
        say = messages(language)
        others = [
            [row[0] for row in table["rows"]] for table in shown if table["title"] == say("not_in_layout")
        ]
        assert others == ([STRANGERS[name]] if name in STRANGERS else [])


def published(name: str, rows: list[list[list[str]]]) -> list[tuple[str, str]]:
    """Each figure that is shown, behind the one that was published."""
    layout = load(yaml.safe_load((ROOT / f"reports/references/{name}.yml").read_text("utf-8")), name)
    return [
        (cell.published, figure)
        for grid, table in zip(layout.tables, rows, strict=False)
        for row, line in zip(grid.rows, table, strict=True)
        for cell, figure in zip(row.cells, line[1:], strict=True)
        if figure != "-"
    ]


TEXT = {"en": "x", "zh": "x"}
RULES: dict[str, Any] = {"rule": "mean:skip=0"}
MADE: dict[str, Any] = {
    "title": TEXT,
    "source": {"repository": "a/b", "commit": "0123456789abcdef", "path": "README.md"},
    "tables": [
        {
            "title": TEXT,
            "corner": TEXT,
            "columns": [{"precision": "amp", "batch_size": 64}],
            "rows": [
                {"cards": 8, "cells": [{"log": "published.txt", "published": "1", "format": ".4f"} | RULES]}
            ],
        }
    ],
}


def made(**cell: Any) -> Layout:
    """The made-up layout with its one cell changed."""
    document = json.loads(json.dumps(MADE))
    document["tables"][0]["rows"][0]["cells"][0] |= cell
    return load(document, "made.yml")


def reading(pair: str, name: str, sha256: str = "1") -> Reading:
    path = LOGS / "dll_tf_resnet50" / pair
    return Reading(name, sha256, tuple(parse(Log(path, name), name)))


def cell(layout: Layout, *readings: Reading) -> tuple[str, tuple[str, ...]]:
    """What the one cell shows, and the notes but for the source."""
    table = fill(layout, readings)[0]
    return table.rows[0][1], table.notes[:-1]


EIGHT = reading("tf_gpu8_amp_bs64.log", "deep/published.txt.gz")


def test_figure_comes_from_the_log_and_never_from_the_reference() -> None:
    rates = [1800.0, 1990.0, 2000.0, 2010.0, 2000.0, *(2000.0 + n for n in range(-10, 11))]  # as in the pair
    assert cell(made(), EIGHT) == (f"{sum(rates) / len(rates):.4f}", ())
    assert cell(made(rule="mean:skip=5"), EIGHT) == ("2000.0000", ())
    assert cell(made(rule="summary", format=".1t"), EIGHT) == ("1996.2", ())  # 1996.25, cut off as published
    assert cell(made(rule="summary", format=".5g"), EIGHT) == ("1996.2", ())


def test_cell_is_found_by_any_of_its_names() -> None:
    other = EIGHT._replace(name="another.txt")
    assert cell(made(), other) == ("-", ())
    assert cell(made(aliases=["another.txt"]), other)[0] != "-"


def test_first_of_the_names_that_is_there_counts() -> None:
    other = EIGHT._replace(name="another.txt", sha256="2", runs=(replace(EIGHT.runs[0], records=()),))
    assert cell(made(aliases=["another.txt"]), other, EIGHT) == cell(made(), EIGHT)


def test_of_two_logs_of_one_name_the_one_of_the_cell_is_shown() -> None:
    full = EIGHT._replace(sha256="2", runs=(replace(EIGHT.runs[0], precision="fp32", records=()),))
    assert cell(made(), full, EIGHT) == cell(made(), EIGHT)


def test_log_that_contradicts_its_cell_leaves_it_blank() -> None:
    figure, notes = cell(made(), reading("gpu4_amp_bs32_epochs.log", "published.txt"))
    assert (figure, len(notes)) == ("-", 1)
    assert "published.txt says Cards 2" in notes[0]
    full = EIGHT._replace(runs=(replace(EIGHT.runs[0], precision="fp32"),))
    assert cell(made(), full)[0] == "-"
    half = EIGHT._replace(runs=(replace(EIGHT.runs[0], precision="fp16"),))  # another word for amp
    assert cell(made(), half)[0] != "-"


BLANKS = {
    "two logs of one name": ([EIGHT, EIGHT._replace(sha256="2")], "several different logs"),
    "no run in it": ([EIGHT._replace(runs=())], "no run was found"),
    "two runs in it": ([EIGHT._replace(runs=EIGHT.runs * 2)], "holds 2 runs"),
}


@pytest.mark.parametrize(("readings", "says"), BLANKS.values(), ids=BLANKS)
def test_doubtful_log_leaves_its_cell_blank(readings: list[Reading], says: str) -> None:
    figure, notes = cell(made(), *readings)
    assert figure == "-"
    assert says in notes[0]


def test_same_log_twice_is_no_doubt() -> None:
    assert cell(made(), EIGHT, EIGHT._replace(name="copy/published.txt"))[1] == ()


def test_rule_without_a_figure_leaves_its_cell_blank() -> None:
    assert "mean:skip=99 gives no figure" in cell(made(rule="mean:skip=99"), EIGHT)[1][0]


def test_logs_of_no_cell_are_listed() -> None:
    strangers = fill(made(), [EIGHT, Reading("notes.md", "3", ()), EIGHT._replace(name="x.log")])[-1]
    assert strangers.title == "Not in this layout"
    assert strangers.rows == (("notes.md", "-"), ("x.log", "dll_tf_resnet50"))


def speed_ups(*rows: tuple[int, str, float | None]) -> Table:
    """The table of rows of cards, precision and rate, with a column of speed-ups; no log where no rate."""
    document = json.loads(json.dumps(MADE))
    grid = document["tables"][0]
    grid["columns"] = [{"heading": TEXT}, {"show": "speed_up", "heading": TEXT}]
    grid["rows"], readings = [], []
    for cards, precision, rate in rows:
        log = f"{precision}{cards}.log"
        grid["rows"].append({"cards": cards, "precision": precision, "cells": [{"log": log} | RULES, {}]})
        if rate is not None:
            records = tuple(replace(record, rate=rate) for record in EIGHT.runs[0].records)
            run = replace(EIGHT.runs[0], cards=cards, precision=precision, records=records)
            readings.append(Reading(log, log, (run,)))
    return fill(load(document, "made.yml"), readings)[0]


def test_speed_up_is_over_one_card_of_the_same_setting() -> None:
    table = speed_ups(
        (8, "amp", 2.0), (1, "fp32", 0.125), (1, "amp", 0.256), (4, "amp", None), (8, "fp32", 1.0)
    )
    # 2 / 0.256 = 7.8125 in full precision; of the rate as shown, 0.26, it would be 7.69
    assert [row[2] for row in table.rows] == ["7.81", "-", "-", "-", "8.00"]
    assert speed_ups((8, "amp", 2.0), (1, "amp", None)).rows[0] == ("8", "2.00", "-")


def test_speed_up_names_both_logs() -> None:
    document = json.loads(json.dumps(MADE))
    grid = document["tables"][0]
    grid["columns"].append({"show": "speed_up", "heading": TEXT})
    cell = {"format": ",.0f"} | RULES
    grid["rows"] = [{"cards": n, "cells": [cell | {"log": f"{n}.log"}, {"format": ".3f"}]} for n in (1, 8)]
    logs = [Reading(f"{n}.log", str(n), (replace(EIGHT.runs[0], cards=n),)) for n in (1, 8)]
    table, origins, *_ = fill(load(document, "made.yml"), logs)
    assert table.rows == (("1", "1,992", "-"), ("8", "1,992", "1.000"))
    assert ("8", "x", "8.log / 1.log", "-", "-", "1.0", "-", "-") in origins.rows


def test_log_of_speed_alone_leaves_time_and_accuracy_blank() -> None:
    for show in ("time_to_train_s", "time_to_target_s", "accuracy"):
        document = json.loads(json.dumps(MADE))
        document["tables"][0]["columns"][0]["show"] = show
        assert cell(load(document, "made.yml"), EIGHT) == ("-", ())


WRONG: dict[str, tuple[list[str | int], Any, str]] = {
    "unknown key": (["tables", 0, "row"], [], r"made.yml: tables\[0\].row: unknown key"),
    "missing key": (["source"], {"repository": "a/b", "commit": "c"}, "source.path: is missing"),
    "another type": (["tables", 0, "rows", 0, "cards"], "8", r"rows\[0\].cards"),
    "one language": (["title"], {"en": "x"}, "title: needs its words in en and zh"),
    "a cell too few": (["tables", 0, "rows", 0, "cells"], [], r"rows\[0\].cells: 0 of them for 1 columns"),
    "no such figure": (["tables", 0, "columns", 0, "show"], "raet", "show: raet is no figure; nearest: rate"),
    "no heading": (["tables", 0, "columns", 0], {"precision": "amp"}, r"columns\[0\]: needs a heading"),
    "no such rule": (["tables", 0, "rows", 0, "cells", 0, "rule"], "mean", r"cells\[0\]: rule mean: unknown"),
    "no such format": (["tables", 0, "rows", 0, "cells", 0, "format"], "d", r"cells\[0\].format: d"),
    "cut off with commas": (
        ["tables", 0, "rows", 0, "cells", 0, "format"],
        ",.2t",
        r"format: ,.2t; write .2f",
    ),
    "a speed-up of no rate": (
        ["tables", 0, "columns", 0],
        {"show": "speed_up", "heading": TEXT},
        r"tables\[0\].columns: speed_up needs one column of rates; 0 are there",
    ),
    "a speed-up with a log": (
        ["tables", 0],
        MADE["tables"][0]
        | {
            "columns": [{"heading": TEXT}, {"show": "speed_up", "heading": TEXT}],
            "rows": [{"cards": 8, "cells": [{}, {"log": "x.log"}]}],
        },
        r"rows\[0\].cells\[1\]: a speed_up is taken from the rates",
    ),
}


@pytest.mark.parametrize(("keys", "value", "says"), WRONG.values(), ids=WRONG)
def test_wrong_reference_names_file_and_key(keys: list[str | int], value: object, says: str) -> None:
    document = json.loads(json.dumps(MADE))
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    with pytest.raises(UsageError, match=says) as failure:
        load(document, "made.yml")
    assert str(failure.value).startswith("made.yml: ")


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
