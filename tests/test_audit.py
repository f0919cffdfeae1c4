"""Published figures against logs: verdicts, the search for a rule, what is wrong beside."""

from __future__ import annotations

import csv
import json
import os
import random
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from runner import published
from runner.audit import audit
from runner.claims import COLUMNS, NEEDED, Claim, same_hardware
from runner.gathering import read_all
from runner.io.claims import rows
from runner.parsers import NOTHING_KNOWN
from runner.published_tables import claims_of
from tests.kit import run

ROOT = Path(__file__).parents[1]
REAL = Path(os.environ.get("RUNKIT_LOGS") or ROOT / "../shared/logs")
needs_real_logs = pytest.mark.skipif(not REAL.is_dir(), reason=f"no real logs at {REAL}; set RUNKIT_LOGS")

RATES = (
    310.5,
    402.25,
    407.5,
    409.75,
    411.0,
    398.5,
    405.25,
    404.0,
    408.75,
    403.5,
    406.25,
    409.0,
    401.75,
    407.0,
)
TRAINING = {"framework": "TF", "model": "ResNet50", "hardware": "V100", "cards": "8", "precision": "AMP"}


def log(path: Path, rates: Sequence[float], batch: int = 64) -> None:
    """A log of a training of 8 cards."""
    head = (
        f"DLL 2031-05-06 07:00:00.0 - PARAMETER arch : resnet50  batch_size : {batch}  use_tf_amp : True \n"
    )
    lines = [
        f"DLL 2031-05-06 07:{1 + at // 60:02}:{at % 60:02}.475140 - (0, {10 * at}) total_ips : {rate} \n"
        for at, rate in enumerate(rates)
    ]
    path.write_text(head + "Num GPUs 8\n" + "".join(lines))


def audited(folder: Path, *claims: Mapping[str, object]) -> dict[str, Any]:
    """Write the claims, audit them, and check that the exit status says what the verdicts do."""
    rows = [
        {"log": "tf_gpu8_amp_bs64.txt", "batch_size": "64", "unit": "images/sec", **TRAINING, **one}
        for one in claims
    ]
    path = folder / "claims.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)
    done = run("audit", path, "--logs", folder, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    good = {"reproduced", "consistent", "blank"}
    assert done.returncode == (0 if {row["verdict"] for row in found["rows"]} <= good else 1), done.stderr
    return found


def codes(found: Mapping[str, Any]) -> dict[str, list[int]]:
    return {one["code"]: one["rows"] for one in found["findings"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log(tmp_path / "tf_gpu8_amp_bs64.txt", RATES)
    return tmp_path


MEAN_AFTER_5 = sum(RATES[5:]) / 9


@pytest.mark.parametrize(
    ("text", "rule", "verdict"),
    [
        (f"{MEAN_AFTER_5:.2f}", "mean:skip=5", "reproduced"),
        (f"{MEAN_AFTER_5:.6g}", "mean:skip=5", "reproduced"),
        (str(int(MEAN_AFTER_5 * 100) / 100), "mean:skip=5", "reproduced"),
        (f"{MEAN_AFTER_5 + 0.02:.2f}", "mean:skip=5", "contradicted"),
        ("407.5", "median:skip=1", "contradicted"),
        ("\u2014\u2014", "", "blank"),
        ("", "", "blank"),
        ("about 400", "", "contradicted"),
        ("405.18", "summary:eval_ips", "no_log"),
    ],
)
def test_verdict_of_a_stated_rule(folder: Path, text: str, rule: str, verdict: str) -> None:
    (row,) = audited(folder, {"published": text, "rule_expr": rule})["rows"]
    assert row["verdict"] == verdict


def test_a_rule_is_found_and_its_worth_told(folder: Path) -> None:
    rates = [4000 + 7.25 * ((at * 37) % 29) + at / 64 for at in range(120)]
    log(folder / "tf_gpu8_amp_bs64.txt", rates)
    tail = sum(rates[-37:]) / 37
    found = audited(folder, {"published": f"{tail:.4f}"}, {"published": "4999.1"})
    first, none = found["rows"]
    assert (first["verdict"], first["rule"], first["rules_matched"]) == ("reproduced", "mean:tail=37", 1)
    assert first["rules_tried"] > 37
    assert first["chance"] < 0.05
    assert (none["verdict"], none["rules_matched"]) == ("contradicted", 0)


def test_a_short_figure_is_only_consistent(folder: Path) -> None:
    (row,) = audited(folder, {"published": f"{MEAN_AFTER_5:.0f}"})["rows"]
    assert row["verdict"] == "consistent"


def test_few_records_are_told(folder: Path) -> None:
    found = audited(folder, {"published": f"{MEAN_AFTER_5:.3f}", "rule_expr": "mean:skip=5"})
    assert codes(found) == {"few_records": [0]}
    assert found["rows"][0]["findings"] == ["few_records"]


def test_a_ramp_is_a_warm_up_and_a_pause_is_a_stall(tmp_path: Path) -> None:
    noise = [((at * 37) % 29 - 14) / 8 for at in range(200)]
    ramp = [400 - 300 * 0.8**at + more for at, more in enumerate(noise)]
    pause = [80.5 if at in (100, 101) else 400 + more for at, more in enumerate(noise)]
    for name, rates in (("ramp.txt", ramp), ("pause.txt", pause)):
        log(tmp_path / name, rates)
        text = {"log": name, "published": f"{sum(rates) / 200:.2f}", "rule_expr": "mean:skip=0"}
        found = {code for code in codes(audited(tmp_path, text)) if code.startswith("includes")}
        assert found == {"includes_warm_up" if rates is ramp else "includes_stall"}


def test_what_the_log_says_otherwise(folder: Path) -> None:
    found = audited(
        folder,
        {
            "published": "404.8",
            "rule_expr": "mean:skip=1",
            "batch_size": 128,
            "cards": 32,
            "precision": "FP32",
        },
    )
    assert set(codes(found)) >= {"batch_differs", "cards_differ", "precision_differs"}


@pytest.mark.parametrize(
    ("claimed", "found", "same"),
    [
        ("V100", "Tesla V100-SXM2-32GB", True),
        ("8xV100", "Tesla V100-SXM2-32GB", True),
        ("V100x8", "Tesla V100-SXM2-32GB", True),
        ("4 * DGX-1 (8x V100 16GB)", "Tesla V100-SXM2-16GB", True),
        ("DGX-1", "Tesla V100-SXM2-16GB", True),
        ("RTX4090", "NVIDIA GeForce RTX 4090", True),
        ("H100 80GB", "NVIDIA A100-SXM4-80GB", False),
        ("V100-SXM2-32G", "Tesla P100-SXM2-16GB", False),
        ("A100", "Tesla V100-SXM2-32GB", False),
    ],
)
def test_names_of_one_card(claimed: str, found: str, same: bool) -> None:
    assert same_hardware(claimed, found) is same


def test_fp16_and_amp_are_the_same(folder: Path) -> None:
    found = audited(folder, {"published": "404.8", "rule_expr": "mean:skip=1", "precision": "FP16"})
    assert "precision_differs" not in codes(found)


def test_one_result_with_two_values(folder: Path) -> None:
    found = audited(folder, {"published": "405.8", "rule_expr": "mean:skip=1"}, {"published": "61.0"})
    assert codes(found)["two_values"] == [0, 1]
    assert all("two_values" in row["findings"] for row in found["rows"])


def test_a_figure_with_fewer_digits_is_the_same(folder: Path) -> None:
    found = audited(folder, {"published": "405.83"}, {"published": "405.8"}, {"published": "406"})
    assert "two_values" not in codes(found)


def test_one_run_for_two_settings_that_its_log_does_not_state(tmp_path: Path) -> None:
    log(tmp_path / "tf.txt", RATES)
    silent = (tmp_path / "tf.txt").read_text().replace("batch_size : 64", "epochs : 1")
    (tmp_path / "tf.txt").write_text(silent)
    one = {"published": "405.8", "log": "tf.txt"}
    found = audited(tmp_path, {**one, "batch_size": 64}, {**one, "batch_size": 128})
    assert codes(found)["same_log_twice"] == [0, 1]


def test_many_claims_take_no_longer_than_each_by_itself() -> None:
    kinds = [("410.5", 1), ("3284", 8), ("8.01", 8)]
    many = [
        Claim("", "", text, "x" if text == "8.01" else None, model=f"m{at}", cards=cards)
        for at in range(5_000)
        for text, cards in kinds
    ]
    rows, found = audit(many, [None] * len(many))
    assert [one.claims for one in found if one.code == "speedup_wrong"] == [
        (at, at + 1, at + 2) for at in range(0, len(rows), 3)
    ]
    assert sum(one.code == "exact_multiple" for one in found) == 5_000


def test_one_log_under_two_labels(folder: Path) -> None:
    (folder / "other.txt").write_bytes((folder / "tf_gpu8_amp_bs64.txt").read_bytes())
    found = audited(
        folder, {"published": "405.8"}, {"published": "405.8", "log": "other.txt", "model": "ResNet101"}
    )
    assert codes(found)["same_log_twice"] == [0, 1]


def test_rounded_before_it_was_multiplied(folder: Path) -> None:
    each = sum(RATES[1:]) / 13 / 8  # 50.7... images/sec of one card
    found = audited(folder, {"published": f"{round(each) * 8}", "rule_expr": "mean:skip=1"})
    assert codes(found)["exact_multiple"] == [0]


def test_many_cards_as_a_multiple_of_few(folder: Path) -> None:
    found = audited(folder, {"published": "51.25", "cards": 1, "log": "gone.txt"}, {"published": "410.00"})
    assert codes(found)["exact_multiple"] == [0, 1]


def test_a_speed_up_that_is_not_the_ratio(folder: Path) -> None:
    gone = {"log": "gone.txt"}
    found = audited(
        folder,
        {"published": "8.33", "cards": 1, **gone},
        {"published": "103.2", "cards": 8, **gone},
        {"published": "12.36", "cards": 8, "unit": "x", **gone},
    )
    assert codes(found)["speedup_wrong"] == [0, 1, 2]
    found = audited(
        folder,
        {"published": "8.33", "cards": 1, **gone},
        {"published": "103.2", "cards": 8, **gone},
        {"published": "12.39", "cards": 8, "unit": "x", **gone},
    )
    assert "speedup_wrong" not in codes(found)


@pytest.mark.parametrize(
    ("batch", "precision", "wrong"),
    [
        (4, "AMP", None),
        (4, "FP16", None),
        (8, "AMP", "12.39, 103.2 / 8.33, compares batch size 4 with 8"),
        (4, "FP32", "12.39, 103.2 / 8.33, compares precision AMP with FP32"),
    ],
)
@pytest.mark.parametrize("stated", [4, None])
def test_a_speed_up_of_what_is_not_alike(
    batch: int, precision: str, wrong: str | None, stated: int | None
) -> None:
    published = [
        Claim("", "", "8.33", cards=1, batch_size=batch, precision=precision),
        Claim("", "", "103.2", cards=8, batch_size=4, precision="AMP"),
        Claim("", "", "12.39", "x", cards=8, batch_size=stated, precision="AMP" if stated else None),
    ]
    _, found = audit(published, [None] * 3)
    assert [(one.code, one.detail) for one in found] == ([("speedup_wrong", wrong)] if wrong else [])


def test_a_log_that_is_not_there_or_elsewhere(folder: Path) -> None:
    (folder / "logs").mkdir()
    claims = folder / "logs" / "claims.csv"
    claims.write_text("log,published\n../tf_gpu8_amp_bs64.txt,405.8\n/etc/passwd,1\ngone.txt,2\n,3\n")
    done = run("audit", claims, "--logs", folder / "logs", "--json")
    assert [row["verdict"] for row in json.loads(done.stdout)["rows"]] == ["no_log"] * 4
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("log,publishd\na,1\n", "publishd: unknown; nearest: published"),
        ("log\na\n", "no column published"),
        ("log,published,log\na,1,b\n", "column log stands twice"),
        ("log,published\na,1,2\n", "line 2: more cells than columns"),
        ("log,published,cards\na,1,eight\n", "line 2: cards eight: must be a whole number"),
        ("log,published,family\na,1,paddlesg\n", "line 2: family paddlesg: unknown; nearest: paddleseg"),
        ("log,published,rule_expr\na,1,mean:skip\n", "line 2: rule mean:skip: unknown"),
        ('log,published\n"a,1\n', "line"),
        ("log,published,\na,1,\n", "column 3 has no name"),
    ],
)
def test_a_table_that_cannot_be_read(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "claims.csv"
    path.write_text(text)
    done = run("audit", path, "--logs", tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "log,published,rule\r\nx.txt,405.8,one\u2028two\r\n",
        "\ufefflog;published;cards\nx.txt;405,800.5;8\n",
        "log\tpublished\nx.txt\t405.8\n",
        '"log", "published"\n"x.txt", "405.8"',
        "published,log\r405.8,x.txt\r",
    ],
)
def test_tables_as_programs_write_them(tmp_path: Path, text: str) -> None:
    (tmp_path / "claims.csv").write_text(text, "utf-8", newline="")
    ((line, row),) = rows(tmp_path / "claims.csv", COLUMNS, NEEDED)
    assert (line, row["log"], row["published"][:3]) == (2, "x.txt", "405")


def test_tables_for_people(folder: Path) -> None:
    (folder / "claims.csv").write_text("log,published\ntf_gpu8_amp_bs64.txt,61.0\n")
    done = run("audit", folder / "claims.csv", "--logs", folder, "--format", "md")
    assert "| contradicted" in done.stdout
    assert "1 claims: 1 contradicted" in done.stderr


@pytest.mark.parametrize(
    ("value", "text", "good"),
    [
        (96.0392, "96.03", True),  # cut off
        (96.0392, "96.04", True),  # rounded
        (96.0392, "96.05", False),
        (22710.2149, "22,710.21", True),
        (370.1938, "370.194", True),
        (137335.4, "137,335", True),
        (1173.3849, "1173.38", True),
        (65010.7329, "65010.7", True),
        (0.125, "0.12", True),
        (0.125, "0.13", True),
        (float("nan"), "1", False),
        (12345678.9, "1.23457e+07", True),
        (1234.5, "1.2e3", True),
        (1260.0, "1.2e3", True),
        (1160.0, "1.1E3", True),
        (1301.0, "1.2e3", False),
        (1e300, "0.123456789012345", False),
        (999999999999999.1, "999999999999999.100000000000000", True),
    ],
)
def test_how_a_value_may_be_printed(value: float, text: str, good: bool) -> None:
    printed = published.figure(text)
    assert printed is not None
    assert published.shows(value, printed) is good


@pytest.mark.parametrize(
    "text", ["", "-", "1,2", "1,000e3", "1e999", "78.6 %", "12,34.5", "\u0661", "1" * 40]
)
def test_what_is_no_figure(text: str) -> None:
    assert published.figure(text) is None


@pytest.mark.parametrize(
    ("text", "unit", "printed"),
    [
        ("**58.2**", "", "58.2"),
        ("[58.2](./logs/a.log)", "", "58.2"),
        ("9,310.31[^1]", "", "9310.31"),
        ("`58.2`<sup>*</sup>", "", "58.2"),
        ("\u2248 58.2 \u00b1 0.3", "", "58.2"),
        ("\uff15\uff18.2", "", "58.2"),
        ("58.2 images/sec", "images/sec", "58.2"),
        ("78.6 %", "%", "78.6"),
        ("7.07x", "x", "7.07"),
        ("44338 s", "s", "44338"),
        ("58.2 %", "images/sec", None),
        ("12.3 h", "s", None),
        ("1.2k", "", None),
        ("about 400", "", None),
    ],
)
def test_figures_as_they_are_dressed(text: str, unit: str, printed: str | None) -> None:
    found = Claim("", "", text, unit).printed
    assert found == (None if printed is None else Decimal(printed))


@pytest.mark.parametrize("text", ["", " - ", "\u2013", "\u2014\u2014", "\uff0d", "N/A", "/", "\u5f85\u6d4b"])
def test_what_says_that_nothing_was_published(text: str) -> None:
    assert published.is_blank(text)
    assert not published.is_blank(text + "1")


def test_significant_digits() -> None:
    assert [published.digits(Decimal(one)) for one in ("8.1", "0.012", "4100", "41.00", "58.2")] == [
        2,
        2,
        2,
        4,
        3,
    ]


REPORT = """\
# ResNet50, {words[0]}

{words[1]}(images/sec), AMP:

| {words[2]} | {words[1]}(BS=64) | {words[3]} | {words[4]} |
|:---:|:---:|:---:|:---:|
| 1 | 8.33 | - | - |
| 8 | {rate} | 1,234.5 | 12.36 |
| 16 | 103.2 | | 12.36 |

| precision | batch_size |
|---|---|
| AMP | 64 |

- [8{words[5]} AMP BS=64](./logs/train.txt)
- [notes](https://example.org/8cards.txt)
"""
ENGLISH = ("measured", "throughput", "cards", "Time to train (sec)", "speed-up", " cards")
CHINESE = ("\u6d4b\u8bd5", "\u541e\u5410", "\u5361\u6570", "Time2Train(sec)", "\u52a0\u901f\u6bd4", "\u5361")


@pytest.mark.parametrize("words", [ENGLISH, CHINESE])
def test_a_report_is_its_own_table_of_claims(tmp_path: Path, words: Sequence[str]) -> None:
    (tmp_path / "deep").mkdir()
    log(tmp_path / "deep" / "train.txt", [400 + at % 7 for at in range(30)])
    mean = sum(400 + at % 7 for at in range(5, 30)) / 25
    report = tmp_path / "report.md"
    report.write_text(REPORT.format(words=words, rate=f"{mean:.3f}"))
    done = run("audit", "--report", report, "--logs", tmp_path / "deep", "--json")
    found = json.loads(done.stdout)
    verdicts = [(row["published"], row["verdict"]) for row in found["rows"]]
    assert verdicts == [
        ("8.33", "no_log"),
        ("-", "blank"),
        ("-", "blank"),
        (f"{mean:.3f}", "reproduced"),
        ("1,234.5", "no_log"),
        ("12.36", "no_log"),
        ("103.2", "no_log"),
        ("", "blank"),
        ("12.36", "no_log"),
    ]
    assert [row["log"] for row in found["rows"]] == [""] * 3 + ["train.txt"] * 3 + [""] * 3
    wrong = [one["rows"] for one in found["findings"] if one["code"] == "speedup_wrong"]
    assert wrong == [[0, 3, 5], [0, 6, 8]]  # 103.2 / 8.33 is 12.389
    assert done.returncode == 1


LINKS = """
- [8 cards, AMP, BS=64](<logs/a.txt> "the log")
- [1\u5361 AMP BS=64][one]

[one]: ./logs/b.txt
"""
SHAPES = (
    "  | cards | AMP(BS=64) |\n  |-|-|\n  | 8 | 400.5 |\n  | 1 | 60 |\n",
    "AMP(BS=64) | # GPUs\n:-: | -:\n**400.5** | 8\n60[^1] | 1\n",
    "| | 8 cards | single GPU |\n|---|---|---|\n| AMP, BS=64 | 400.5 | 60 |\n",
    "| \u7cbe\u5ea6 | \u5361\u6570 | \u541e\u5410 | BS |\n|--|--|--|--|\n"
    "| AMP | 8\u5361 | 400.5 | 64 |\n| AMP | 1 | 60 | 64 |\n",
    "| setting | speed (images/s) | cards |\n|--|--|--|\n"
    "| AMP, BS=64 | 400.5 | 8 |\n| AMP, BS=64 | 60 | 1 |\n",
    "| cards | AMP(BS=64) |\n|--|--|\n| 8 | [400.5](x/a.txt) |\n| 1 | [60](b.txt) |\n",
)


@pytest.mark.parametrize("shape", SHAPES)
def test_tables_of_other_shapes(shape: str) -> None:
    found = claims_of(f"# Results\n\n{shape}\n{LINKS}", "r.md")
    read = [(str(one.printed), one.cards, (one.precision or "").lower(), one.batch_size) for one in found]
    assert read == [("400.5", 8, "amp", 64), ("60", 1, "amp", 64)]
    assert [one.log for one in found] == ["a.txt", "b.txt"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["audit", "--logs", "."], "either a table of claims"),
        (["audit", "a.csv", "--report", "b.md", "--logs", "."], "either a table of claims"),
        (["audit", "--report", "docs/data.md", "--logs", "docs"], "no table of figures"),
        (["audit", "--report", "gone.md", "--logs", "."], "gone.md: cannot be read"),
        (["audit", "--report", "docs", "--logs", "."], "docs: is a folder"),
        (["audit", "docs", "--logs", "."], "docs: is a folder"),
        (["audit", "--report", "README.md", "--logs", "gone"], "gone is no folder"),
    ],
)
def test_what_cannot_be_audited(words: Sequence[str], said: str) -> None:
    done = run(*words)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert said in done.stderr


@needs_real_logs
def test_times_in_hours_and_minutes() -> None:
    (run,) = next(read_all([str(REAL / "deeplabv3p_mmseg/GPUx8.log")], NOTHING_KNOWN))[0].runs
    said = [("12.3", "h"), ("738.97", "min"), ("44338", "s"), ("12.5", "h")]  # of 44338.456 s
    rows, _ = audit([Claim("", "", text, unit) for text, unit in said], [run] * 4)
    assert [row.verdict for row in rows] == ["reproduced"] * 3 + ["contradicted"]


@needs_real_logs
def test_the_published_figures_of_the_real_logs() -> None:
    done = run("audit", REAL / "claims.csv", "--logs", REAL, "--json")
    found = json.loads(done.stdout)
    with (REAL / "claims.csv").open(newline="") as file:
        claims = list(csv.DictReader(file))
    verdicts = {(row["log"], row["published"]): row["verdict"] for row in found["rows"]}
    assert [row["log"] for row in found["rows"]] == [claim["log"] for claim in claims]
    contradicted = {key for key, verdict in verdicts.items() if verdict == "contradicted"}
    assert contradicted == {
        ("deeplabv3p_mmseg/GPUx8.log", "58.2"),  # no rule gives it
        ("deeplabv3p_mmseg/deeplabv3p_c32_fp16.log", "61.0"),  # the log gives 203.2
        ("deeplabv3p_paddle/Deeplabv3_FP32_BS4-N32.log", "176"),  # 32 x 5.5
        ("other/tf_bert_gpu1_fp32_bs96.log", "155.077"),  # 155.0695 by the rule of its neighbours; cut off
    }
    for row, claim in zip(found["rows"], claims, strict=True):
        if claim["rule_expr"] and claim["recomputed"]:
            assert row["recomputed"] == pytest.approx(float(claim["recomputed"]), rel=1e-4)
    by_code = {
        (one["code"], tuple(found["rows"][at]["published"] for at in one["rows"]))
        for one in found["findings"]
    }
    assert {
        ("two_values", ("203.2", "61.0")),
        ("exact_multiple", ("176",)),
        ("not_machine_output", ("58.2",)),
        ("few_records", ("4.25",)),
    } <= by_code


def test_a_figure_that_any_rule_might_give_is_not_reproduced(tmp_path: Path) -> None:
    """Rules crowd about the rate of a run: hardly one in twenty figures made up near it is reproduced."""
    dice = random.Random(11)
    log(tmp_path / "tf_gpu8_amp_bs64.txt", [10.0, *(round(dice.gauss(400, 4), 3) for _ in range(300))])
    made_up = [{"published": f"{400 * (1 + dice.uniform(-0.01, 0.01)):.1f}"} for _ in range(100)]
    words = [row["verdict"] for row in audited(tmp_path, *made_up)["rows"]]
    assert words.count("reproduced") <= 10


def test_what_a_claim_does_not_say_is_no_second_setting(tmp_path: Path) -> None:
    """The name of a linked log says the batch size of a speed-up, and nothing that of the rate beside it."""
    log(tmp_path / "tf_gpu8_amp_bs64.txt", RATES)
    found = audited(
        tmp_path,
        {"published": "405.83", "batch_size": ""},
        {"published": "1.00", "unit": "x"},
        {"published": "405.83", "batch_size": "64"},
    )
    assert "same_log_twice" not in [one["code"] for one in found["findings"]]
    twice = audited(tmp_path, {"published": "405.83"}, {"published": "405.83", "cards": "16"})
    assert "same_log_twice" in [one["code"] for one in twice["findings"]]
