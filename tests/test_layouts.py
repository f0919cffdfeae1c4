"""The layouts of published reports: the published tables to the digit, and every way a cell stays blank."""

from __future__ import annotations

import csv
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner import catalog, plan
from runner.cli import main
from runner.errors import UsageError
from runner.io import inventory, yamlfile
from runner.io.files import write_json
from runner.io.logs import Log
from runner.layout_tables import tables_of
from runner.layouts import BLANKS, Layout, load
from runner.messages import LANGUAGES, messages
from runner.model import Table
from runner.parsers import families, parse
from runner.readings import Own, Reading

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "tests/parsers"
REFERENCES = sorted((ROOT / "reports/references").glob("*.yml"))
REAL = Path(os.environ.get("RUNKIT_LOGS") or ROOT / "../shared/logs")

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: str(path.stem))
def test_every_reference_loads(path: Path) -> None:
    layout = load(yaml.safe_load(path.read_text("utf-8")), path.name)
    cells = [cell for grid in layout.tables for row in grid.rows for cell in row.cells]
    columns = [column for grid in layout.tables for column in grid.columns]
    assert {layout.family, *(column.family or layout.family for column in columns)} <= set(families())
    linked = {link.path.rpartition("/")[2] for link in layout.logs if link.path}
    assert linked <= {cell.log for cell in cells}


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: str(path.stem))
def test_published_figures_are_blank_or_numbers_of_their_format(path: Path) -> None:
    layout = load(yaml.safe_load(path.read_text("utf-8")), path.name)
    cells = [cell for grid in layout.tables for row in grid.rows for cell in row.cells]
    assert cells
    for cell in cells:
        if cell.published in BLANKS:
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
        [[cards, "--", "--"] for cards in ("1", "8", "32")],
        [[f"GPU={cards},BS=2", "--", "--"] for cards in (1, 8, 32)],
        [[f"GPU={cards},BS=4", "--", "--"] for cards in (1, 8, 32)],
    ],
}
FIGURES = ["Time2Train(sec)", "吞吐(samples/sec)", "准确率(%)", "加速比"]
HEADS = {  # as published in Chinese
    "resnet50_ngc_tensorflow1": [["卡数", "FP32(BS=256)", "AMP(BS=256)"]],
    "maskrcnn_ngc_tensorflow2": [["卡数", "FP32(BS=2)", "FP32(BS=4)", "AMP(BS=2)", "AMP(BS=4)"]],
    "resnet50_ngc_pytorch": [["", "Time2train(sec)", "吞吐(images/sec)", "准确率(%)", "加速比"]],
    "deeplabv3p_mmsegmentation": [["卡数", *FIGURES], ["卡数", *FIGURES]],
    "deeplabv3p_paddle": [
        ["卡数", "FP32(BS=2)", "AMP(BS=4)"],
        ["参数", "PaddlePaddle", "NGC PyTorch"],
        ["参数", "PaddlePaddle", "NGC PyTorch"],
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
    for language in LANGUAGES:
        args = ["report", str(REAL / folder), "--layout", name, "--lang", language, "--format", "json"]
        assert main(args) == 0  # the Paddle report too: blank, as it was published
        shown = json.loads(capsys.readouterr().out)["tables"]
        rows = [[[re.sub("卡$", "", row[0]), *row[1:]] for row in table["rows"]] for table in shown]
        assert rows[: len(expected)] == expected
        assert language == "en" or [table["columns"] for table in shown[: len(expected)]] == HEADS[name]
        assert [pair for pair in published(name, rows) if pair[0] != pair[1]] == DIFFERENT.get(name, [])
        notes = " ".join(note for table in shown for note in table["notes"])
        assert "left out" not in notes
        assert "不采用" not in notes
        assert all(f"{was}; its log gives {now}" in notes for was, now in DIFFERENT.get(name, [])) or (
            language == "zh"
        )
        say = messages(language)
        others = [
            [row[0] for row in table["rows"]] for table in shown if table["title"] == say("not_in_layout")
        ]
        assert others == ([STRANGERS[name]] if name in STRANGERS else [])


NOT_ALIKE = {  # in what published figures differ from that of 1 card: their reports, their logs' stamps
    "resnet50_ngc_tensorflow1": [
        ("cards 32, FP32(BS=256): not like for like with cards 1, FP32(BS=256)", "driver 450.80.02"),
        ("cards 32, FP32(BS=256): not like for like with cards 1, FP32(BS=256)", "driver 470.83.01"),
        ("cards 32, FP32(BS=256)", "averaging (summary:train_throughput / mean:skip=5)"),
        ("cards 32, AMP(BS=256)", "date (2022-06-14 / 2022-06-07)"),
    ],
    "maskrcnn_ngc_tensorflow2": [],  # nothing was published for 32 cards, whose hosts are others
    "deeplabv3p_mmsegmentation": [
        ("cards 8, Speed-up: not like for like with 1 card", "date (2021-04-03 / 2021-03-29)")
    ],
}


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real logs at {REAL}; set RUNKIT_LOGS")
@pytest.mark.parametrize("name", NOT_ALIKE)
def test_published_figures_that_are_not_like_for_like_are_told(name: str, capsys: Capture) -> None:
    folder = next(folder for layout, folder in SHOWN if layout == name)
    assert main(["report", str(REAL / folder), "--layout", name, "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)["tables"]
    notes = [note for table in shown for note in table["notes"] if "like for like" in note]
    for place, reason in NOT_ALIKE[name]:
        assert any(note.startswith(place) and reason in note for note in notes), notes
    assert len(notes) == len({place.partition(":")[0] for place, _ in NOT_ALIKE[name]})
    marked = [one["unlike"] for table in shown for one in table.get("evidence", []) if one.get("unlike")]
    assert marked == ([["date"]] if name == "deeplabv3p_mmsegmentation" else [])


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real logs at {REAL}; set RUNKIT_LOGS")
def test_every_figure_carries_its_evidence(capsys: Capture) -> None:
    with (REAL / "sources.csv").open(encoding="utf-8") as stream:
        hashes = {line["log"]: line["sha256"] for line in csv.DictReader(stream)}
    for name, folder in SHOWN:
        main(["report", str(REAL / folder), "--layout", name, "--format", "json"])
        for table in json.loads(capsys.readouterr().out)["tables"][: len(SHOWN[name, folder])]:
            figures = {
                (row, column): cell
                for row, cells in enumerate(table["rows"])
                for column, cell in enumerate(cells[1:], start=1)
                if cell not in BLANKS
            }
            told = {(one["row"], one["column"]): one["shown"] for one in table.get("evidence", [])}
            assert told == figures
            for one in table.get("evidence", []):
                assert one["sha256"] == [hashes[f"{folder}/{log}"] for log in one["logs"]]


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real logs at {REAL}; set RUNKIT_LOGS")
@pytest.mark.parametrize("form", ["md", "html", "csv", "json"])
def test_filled_cells_are_marked_in_every_format(form: str, capsys: Capture) -> None:
    sources = [str(REAL / "deeplabv3p_paddle"), str(REAL / "deeplabv3p_mmseg"), str(REAL / "other")]
    assert main(["report", *sources, "--layout", "deeplabv3p_paddle", "--fill", "--format", form]) == 0
    shown = capsys.readouterr().out
    # claims.csv: 96.03 for the log of 8 cards, 8.33 and 58.93 for those of mmsegmentation
    assert all(figure in shown for figure in ("96.04†", "8.33†", "58.93†"))
    note = "filled from deeplabv3p_paddle/Deeplabv3_FP16_BS4-N8.log by mean:skip=5"
    assert shown.count(f"† cards 8, AMP(BS=4): {note}") == 1
    assert "cards 8, NGC PyTorch: not like for like with cards 8, PaddlePaddle: averaging" in shown
    assert "Deeplabv3_FP32_BS4-N1.log by" not in shown  # batch size 4; the column is of batch size 2
    assert "hrnetw18_gpu1_fp16_bs8.log by" not in shown  # another model of the same family


def published(name: str, rows: list[list[list[str]]]) -> list[tuple[str, str]]:
    """Each figure that is shown, behind the one that was published."""
    layout = load(yaml.safe_load((ROOT / f"reports/references/{name}.yml").read_text("utf-8")), name)
    return [
        (cell.published, figure)
        for grid, table in zip(layout.tables, rows, strict=False)
        for row, line in zip(grid.rows, table, strict=True)
        for cell, figure in zip(row.cells, line[1:], strict=True)
        if figure not in BLANKS
    ]


TEXT = {"en": "x", "zh": "x"}
RULES: dict[str, Any] = {"rule": "mean:skip=0"}
MADE: dict[str, Any] = {
    "title": TEXT,
    "family": "dll_tf_resnet50",
    "model": "ResNet50",
    "source": {"repository": "a/b", "commit": "0123456789abcdef", "path": "README.md"},
    "tables": [
        {
            "title": TEXT,
            "corner": TEXT,
            "columns": [{"precision": "amp", "batch_size": 64}],
            "rows": [{"cards": 8, "cells": [{"log": "published.txt", "format": ".4f"} | RULES]}],
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
    table = tables_of(layout, readings)[0]
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


SLOWER = replace(EIGHT.runs[0], records=EIGHT.runs[0].records[:20])
DIFFERENT_LOG = EIGHT._replace(sha256="2", runs=(SLOWER,))
DOUBTS = {
    "two logs of one name": ([EIGHT, DIFFERENT_LOG], "several different logs"),
    "no run in it": ([EIGHT._replace(runs=())], "no run was found"),
    "two runs in it": ([EIGHT._replace(runs=EIGHT.runs * 2)], "holds 2 runs"),
}


@pytest.mark.parametrize(("readings", "says"), DOUBTS.values(), ids=DOUBTS)
def test_doubtful_log_leaves_its_cell_blank(readings: list[Reading], says: str) -> None:
    figure, notes = cell(made(), *readings)
    assert figure == "-"
    assert says in notes[0]


def test_same_log_twice_is_no_doubt() -> None:
    assert cell(made(), EIGHT, EIGHT._replace(name="copy/published.txt"))[1] == ()
    packed = EIGHT._replace(name="published.txt.zst", sha256="2")  # other bytes, the same records
    assert cell(made(), EIGHT, packed) == cell(made(), EIGHT)


def test_rule_without_a_figure_leaves_its_cell_blank() -> None:
    assert "mean:skip=99 gives no figure" in cell(made(rule="mean:skip=99"), EIGHT)[1][0]


def test_difference_from_the_publication_is_told() -> None:
    for published in (
        "1992.3077",
        "1,992.308",
        "1992.307",
        "1992.30",
        "1992.31",
        "1992",
    ):  # rounded, or cut off
        assert cell(made(published=published), EIGHT)[1] == ()
    assert cell(made(published="1990"), EIGHT)[1] == (
        "cards 8, AMP(BS=64): published as 1990; its log gives 1992.3077",
    )
    assert cell(made(published="1990")) == ("-", ("published figures without a log here: 1",))


def test_blank_is_shown_as_it_was_published() -> None:
    assert [cell(made(published=blank))[0] for blank in BLANKS] == list(BLANKS)


def test_logs_of_no_cell_are_listed() -> None:
    strangers = tables_of(
        made(), [EIGHT, Reading("notes.md", "3", ()), EIGHT._replace(name="x", sha256="4")]
    )[-1]
    assert strangers.title == "Not in this layout"
    assert strangers.rows == (
        ("notes.md", "-", "-", "-", "-"),
        ("x", "dll_tf_resnet50", "8", "amp", "64"),
    )


def test_copy_of_a_log_that_gave_a_figure_is_no_stranger() -> None:
    titles = [table.title for table in tables_of(made(), [EIGHT, EIGHT._replace(name="copy.txt")])]
    assert "Not in this layout" not in titles


def test_evidence_names_the_lines_that_the_rule_looked_at() -> None:
    numbers = [record.line for record in EIGHT.runs[0].records]
    for rule, lines in {
        "mean:skip=5": (numbers[5], numbers[-1]),
        "mean:tail=2": (numbers[-2], numbers[-1]),
        "trim:skip=1": (numbers[1], numbers[-1]),
        "summary": (),
    }.items():
        (one,) = tables_of(made(rule=rule), [EIGHT])[0].evidence
        assert (one.rule, one.lines, one.filled) == (rule, lines, False)


# --- logs that the publication does not name ---------------------------------------------------


def filled(*readings: Reading, **changes: Any) -> tuple[str, tuple[str, ...]]:
    table = tables_of(made(**changes), readings, fill=True)[0]
    return table.rows[0][1], table.notes[:-1]


OTHER = EIGHT._replace(name="of_my_own.txt")


def test_blank_cell_is_filled_by_what_a_log_is() -> None:
    assert cell(made(), OTHER) == ("-", ())
    text = (
        "† cards 8, AMP(BS=64): filled from of_my_own.txt by mean:skip=5; the publication names no such log"
    )
    assert filled(OTHER, rule="mean:skip=5") == ("2000.0000†", (text,))
    assert filled(EIGHT, OTHER._replace(sha256="2"), rule="mean:skip=5") == ("2000.0000", ())


UNLIKE = {
    "cards": {"cards": 4},
    "batch size": {"batch_size": 128},
    "unknown batch size": {"batch_size": None},
    "precision": {"precision": "fp32"},
    "unknown precision": {"precision": None},
    "family": {"family": "dll_mxnet_resnet50"},
    "model": {"model": "ResNet101"},
    "unknown model": {"model": None},
    "kind": {"kind": "collective"},
    "no figure": {"records": ()},
}


@pytest.mark.parametrize("change", UNLIKE.values(), ids=UNLIKE)
def test_blank_cell_is_not_filled_by_what_is_unlike_it(change: dict[str, Any]) -> None:
    assert filled(OTHER._replace(runs=(replace(EIGHT.runs[0], **change),))) == ("-", ())


def test_two_logs_for_one_blank_cell_are_refused() -> None:
    figure, (note,) = filled(OTHER, DIFFERENT_LOG._replace(name="another.txt"))
    assert figure == "-"
    assert "several logs fit: of_my_own.txt, another.txt" in note
    assert filled(OTHER, OTHER._replace(name="copy.txt"))[0] != "-"  # the same bytes
    assert "several logs fit" in filled(OTHER._replace(runs=EIGHT.runs * 2))[1][0]


def repeat(number: int, rate: float, mode: str = "throughput") -> Reading:
    """A repeat of the cell in a run of one's own."""
    records = tuple(replace(record, rate=rate) for record in EIGHT.runs[0].records)
    own = Own(f"run/x.{mode}.c8.amp.bs64", mode)
    runs = (replace(EIGHT.runs[0], records=records),)
    return Reading(f"run/x.{mode}.c8.amp.bs64.r{number}/x.log", None, runs, own)


def test_own_run_gives_its_cell_without_being_asked() -> None:
    assert cell(made(), repeat(1, 3.0)) == ("3.0000", ())
    assert cell(made(published="9"), repeat(1, 3.0)) == ("3.0000", ())  # no claim about the published log
    repeats = [repeat(1, 5.0), repeat(2, 3.0), repeat(3, 4.0)]
    assert cell(made(), *repeats) == ("4.0000", ("cards 8, AMP(BS=64): median of 3 repeats",))
    assert cell(made(), repeat(1, 3.0), repeat(1, 9.0, "time_to_train"))[0] == "3.0000"
    assert cell(made(), repeat(1, 9.0, "time_to_train"))[0] == "9.0000"
    assert cell(made(), repeat(1, 3.0), EIGHT)[0] == cell(made(), EIGHT)[0]  # the published log counts first


def test_two_own_runs_of_one_cell_are_refused() -> None:
    other = repeat(1, 4.0)._replace(name="later/x.log", own=Own("later/x", "throughput"))
    figure, notes = cell(made(), repeat(1, 3.0), other)
    assert figure == "-"
    assert "later/x.log" in notes[0]


def own_run(runs: Path, run: str) -> None:
    """A run of 1 and 8 cards, of which that of 8 was measured."""
    name = "resnet50_ngc_tensorflow1"
    workload = catalog.workload(name, yamlfile.read(ROOT / f"workloads/{name}.yml"), tuple(families()), name)
    cluster = inventory.outline("v100x32")
    asked = plan.Overrides(cards=(1, 8), precisions=("amp",))
    cells = plan.cells([workload], cluster, asked, dict.fromkeys(families(), "x"))
    made = plan.Plan(run, "2024-01-02T03:04:05Z", cluster, cells, False, {}, None)
    write_json(runs / run / "plan.json", *plan.PLAN, plan.to_json(made))
    text = (LOGS / "dll_tf_resnet50" / "tf_gpu8_amp_bs64.log").read_text("utf-8")
    log = runs / run / "cells" / cells[1].id / "logs" / "host1" / "rank-0000.stdout"
    log.parent.mkdir(parents=True)
    log.write_text(
        text.replace("batch_size : 64", "batch_size : 256").replace("Batch Size 64", "Batch Size 256")
    )
    results = [
        {"cell": one.id, "workload": name, "mode": "throughput", "cards": one.cards, "precision": "amp"}
        | {"batch_size": 256, "repeat": 1, "state": state, "reason": None, "unit": "images/sec"}
        for one, state in zip(cells, ("failed", "measured"), strict=True)
    ]
    write_json(runs / run / "results.json", "runkit/results", 1, {"results": results, "notes": []})


def test_run_in_the_shape_of_its_publication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    own_run(tmp_path / "runs", "mine")
    monkeypatch.chdir(tmp_path)
    words = ["--layout", "resnet50_ngc_tensorflow1", "--format", "json"]
    assert main(["report", "mine", "runs/mine", *words]) == 0
    told = capsys.readouterr()
    table, *_ = json.loads(told.out)["tables"]
    assert table["rows"] == [["1", "-", "-"], ["8", "-", "2000.00"], ["32", "-", "-"]]
    assert [one["filled"] for one in table["evidence"]] == [False]
    assert "c01.amp.bs256.r1 is failed" in told.err
    assert "runs/mine: the same source again" in told.err


def test_result_says_what_its_hosts_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_run(tmp_path / "runs", "mine")
    (tmp_path / "runs/mine/results.json").unlink()  # and it is judged anew
    cluster = inventory.outline("v100x32")
    facts = {"cpu": "Xeon", "cpus": 80} | dict.fromkeys(("hostname", "os", "kernel"), "x")
    write_json(tmp_path / f"runs/mine/facts/{cluster.hosts[0].name}.json", "runkit/facts", 1, facts)
    monkeypatch.chdir(tmp_path)
    main(["report", "mine"])
    results = json.loads((tmp_path / "runs/mine/results.json").read_text("utf-8"))["results"]
    wanted = {"gpu": cluster.card_model, "driver": cluster.driver, "cpu": "Xeon * 80"}
    assert cluster.card_model
    assert [one["hardware"] for one in results] == [{key: said for key, said in wanted.items() if said}] * 2


def test_sources_of_one_name_are_told_apart(tmp_path: Path, capsys: Capture) -> None:
    for folder in ("a/logs", "b/logs"):
        (tmp_path / folder).mkdir(parents=True)
        log = (LOGS / "dll_tf_resnet50" / "tf_gpu8_amp_bs64.log").read_bytes()
        (tmp_path / folder / "tf_gpu8_amp_bs64.log").write_bytes(log)
    assert main(["report", f"{tmp_path}/a/logs", f"{tmp_path}/b/logs/", "--format", "json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    names = [row[table["columns"].index("Log")] for row in table["rows"]]
    assert names == [f"{tmp_path}/{folder}/logs/tf_gpu8_amp_bs64.log" for folder in ("a", "b")]


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
    return tables_of(load(document, "made.yml"), readings)[0]


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
    table, origins, *_ = tables_of(load(document, "made.yml"), logs)
    assert table.rows == (("1", "1,992", "-"), ("8", "1,992", "1.000"))
    assert ("1", "8", "x", "8.log / 1.log", "-", "-", "-", "1.0", "-", "8 / 1") in origins.rows


def test_speed_up_over_a_filled_rate_is_marked() -> None:
    document = json.loads(json.dumps(MADE))
    grid = document["tables"][0]
    grid["columns"].append({"show": "speed_up", "heading": TEXT})
    grid["rows"] = [{"cards": n, "cells": [RULES | {"log": f"{n}.log"}, {}]} for n in (1, 8)]
    one = Reading("mine.log", "1", (replace(EIGHT.runs[0], cards=1),))
    table = tables_of(load(document, "made.yml"), [one, EIGHT._replace(name="8.log", sha256="8")], fill=True)[
        0
    ]
    assert table.rows == (("1", "1992.31†", "-"), ("8", "1992.31", "1.00†"))
    assert [one.filled for one in table.evidence] == [True, False, True]


@pytest.mark.parametrize(
    ("cards", "reason"),
    [
        ([1], "hardware (gpu Tesla V100-SXM2-32GB * 8 / gpu Tesla V100-SXM2-16GB * 8)"),
        ([2], None),  # what the hosts of 1 card were is not said
    ],
)
def test_speed_up_over_hosts_with_other_cards_is_told(cards: list[int], reason: str | None) -> None:
    document = json.loads(json.dumps(MADE))
    grid = document["tables"][0]
    grid["columns"].append({"show": "speed_up", "heading": TEXT})
    grid["rows"] = [{"cards": n, "cells": [RULES | {"log": f"{n}.log"}, {}]} for n in (1, 8)]
    item = {"item": TEXT, "part": "gpu"}
    document["environment"] = [
        item | {"value": "Tesla V100-SXM2-32GB * 8", "cards": [8]},
        item | {"value": "Tesla V100-SXM2-16GB * 8", "cards": cards},
    ]
    logs = [Reading(f"{n}.log", str(n), (replace(EIGHT.runs[0], cards=n),)) for n in (1, 8)]
    table = tables_of(load(document, "made.yml"), logs)[0]
    assert table.rows[1][2] == "1.00"  # as it was published
    assert [one.unlike for one in table.evidence] == [(), (), ("hardware",) if reason else ()]
    assert any(str(reason) in note for note in table.notes) is bool(reason)
    named = replace(
        EIGHT.runs[0], cards=1, gpu="NVIDIA Tesla V100-SXM2-32GB"
    )  # the log's own word counts more
    other = tables_of(load(document, "made.yml"), [Reading("1.log", "1", (named,)), logs[1]])[0]
    assert other.rows[1][2] == "1.00"


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
    "no figure": (
        ["tables", 0, "rows", 0, "cells", 0, "published"],
        "?",
        r"cells\[0\].published: \?; write a",
    ),
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
