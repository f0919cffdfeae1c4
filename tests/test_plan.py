"""The plan: which cells, in which order, where, with exactly which command lines; and what cannot be meant.

A case under tests/plan/WORKLOAD/ holds a cluster, what the user asked for, and the cells that follow.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runner import catalog, limits, parsers, plan, records
from runner.cli import main
from runner.errors import UsageError
from runner.io import workloads
from runner.io.files import read_json, write_json
from runner.model import Cell, Cluster, Host, Placement, Plan, Workload
from runner.plan import Overrides

ROOT = Path(__file__).resolve().parents[1]
CASES = sorted((Path(__file__).parent / "plan").glob("*/*.json"))
PROGRESS = {"runkit": "^runkit step "}


def cluster(hosts: list[dict[str, Any]], card_model: str = "") -> Cluster:
    made = tuple(records.decode(Host, host, "case") for host in hosts)
    return Cluster("case", "/c", "Case", made, card_model, "/env/python", "/env/mpirun", "~/runs")


def load(name: str) -> Workload:
    at = ROOT / "workloads" if name == "digits" else Path(__file__).parent / "catalog"
    document = workloads.yamlfile.read(at / f"{name}.yml")
    return catalog.workload(name, document, tuple(PROGRESS), f"{name}.yml")


def alike(count: int, cards: int = 8, model: str = "V100") -> Cluster:
    hosts = [
        {"name": f"gpu{i}", "address": f"10.0.0.{i}", "cards": cards, "connection": "ssh"}
        for i in range(1, count + 1)
    ]
    return cluster(hosts, model)


def planned(overrides: Overrides, on: Cluster, name: str = "sample") -> tuple[Cell, ...]:
    return plan.cells([load(name)], on, overrides, PROGRESS)


def as_in_a_case(cell: Cell) -> dict[str, Any]:
    facts = {"id": cell.id, "state": cell.state, "log_name": cell.log_name}
    if cell.state == "refused":
        assert (cell.argv, cell.env, cell.hostfile, cell.placement) == ((), {}, None, ())
        return {**facts, "reason": cell.reason}
    hosts = ", ".join(f"{placed.host}:{placed.ranks}" for placed in cell.placement)
    assert cell.reason is None
    hostfile = {"hostfile": cell.hostfile} if cell.hostfile else {}
    return {**facts, "hosts": hosts, **hostfile, "env": dict(cell.env), "command": shlex.join(cell.argv)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.stem}")
def test_cells_as_in_the_case(case: Path) -> None:
    text = json.loads(case.read_text())
    overrides = records.decode(Overrides, text["overrides"], case.name)
    cells = planned(overrides, cluster(**text["cluster"]), case.parent.name)
    found = [as_in_a_case(cell) for cell in cells]
    assert found == text["cells"]


def test_order_is_workload_mode_precision_batch_cards_repeat() -> None:
    asked = Overrides(("time_to_train", "throughput"), (8, 1), ("amp", "fp32"), (7, 3), 2)
    ids = [cell.id for cell in plan.cells([load("sample"), load("digits")], alike(1), Overrides(), PROGRESS)]
    assert ids[:2] == ["sample.throughput.c01.fp32.bs128.r1", "sample.throughput.c08.fp32.bs128.r1"]
    assert ids[2] == "digits.throughput.c01.fp32.bs32.r1"
    many = planned(asked, alike(1))
    assert [cell.id for cell in many] == [
        f"sample.{mode}.c{cards:02d}.{precision}.bs{batch}.r{repeat}"
        for mode in ("time_to_train", "throughput")
        for precision in ("amp", "fp32")
        for batch in (7, 3)
        for cards in (8, 1)
        for repeat in (1, 2)
    ]
    assert len({cell.id for cell in many}) == 32


@pytest.mark.parametrize(
    ("cards", "expected"),
    [
        (1, [("gpu1", 1)]),
        (7, [("gpu1", 7)]),
        (8, [("gpu1", 8)]),
        (16, [("gpu1", 8), ("gpu2", 8)]),
        (32, [(f"gpu{i}", 8) for i in range(1, 5)]),
        (12, []),
        (9, []),
    ],
)
def test_launch_host_first_then_whole_hosts(cards: int, expected: list[tuple[str, int]]) -> None:
    assert plan.place(cards, alike(4)) == tuple(Placement(*pair) for pair in expected)


def test_unequal_hosts_are_taken_whole_and_in_order() -> None:
    on = cluster(
        [
            {"name": n, "address": n, "cards": c, "connection": "ssh"}
            for n, c in (("a", 4), ("b", 8), ("c", 2))
        ]
    )
    assert plan.whole_hosts(on) == [4, 12, 14]
    assert plan.place(12, on) == (Placement("a", 4), Placement("b", 8))
    assert plan.place(8, on) == ()


@pytest.mark.parametrize(
    "text",
    ["0", "-1", "eight", "1.5", "1,,8", "", ",", "1,", "8,8", "+8", "08", "1e3", "\uff18", "1 8", "9" * 30],
)
def test_cards_that_are_not_counts(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--cards ") as caught:
        plan.counts("--cards", text)
    assert caught.value.status == 2


def test_counts_and_words_as_typed() -> None:
    assert plan.counts("--cards", "1, 8,32") == (1, 8, 32)
    assert plan.words("--precision", "fp32,amp") == ("fp32", "amp")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (Overrides(cards=(64,)), "--cards 64: case has 32 cards"),
        (Overrides(modes=("trougput",)), "--mode trougput: not one of sample; nearest: throughput"),
        (Overrides(modes=("accuracy",)), "--mode accuracy: not one of sample"),
        (Overrides(precisions=("fp16",)), "--precision fp16: not one of sample; known: amp, fp32"),
        (Overrides(repeat=0), "0: cards, batch sizes and repeats"),
        (Overrides(batch_sizes=(0,)), "0: cards, batch sizes and repeats"),
        (Overrides(repeat=10_001), "more than 10000 cells"),
    ],
)
def test_what_workload_or_cluster_does_not_know(overrides: Overrides, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        planned(overrides, alike(4))
    assert str(caught.value).startswith(message)


def test_slots_are_called_slots() -> None:
    on = cluster([{"name": "localhost", "address": "localhost", "cards": 32, "connection": "local"}])
    with pytest.raises(UsageError, match=r"--cards 33: case has 32 slots; ask for at most that many"):
        planned(Overrides(cards=(1, 33)), on)


def test_nothing_of_the_default_matrix_fits() -> None:
    workload = records.decode(Workload, {**records.encode(load("sample")), "cards": [8, 32]}, "sample")
    with pytest.raises(UsageError, match=r"-w sample: is measured on 8, 32 cards, case has 4; .*--cards"):
        plan.cells([workload], alike(1, cards=4), Overrides(), PROGRESS)


def test_the_same_workload_twice() -> None:
    with pytest.raises(UsageError, match="twice"):
        plan.cells([load("sample"), load("sample")], alike(1), Overrides(), PROGRESS)


# --- plan.json -----------------------------------------------------------------------------


@pytest.fixture
def written() -> Plan:
    cells = planned(Overrides(modes=("time_to_train",), cards=(1, 12, 32), hours=True), alike(4))
    return Plan("20240102-030405-ab", "2024-01-02T03:04:05Z", alike(4), cells, False, {"runkit": "1"}, None)


def test_plan_survives_its_file(written: Plan, tmp_path: Path) -> None:
    write_json(tmp_path / "plan.json", *plan.PLAN, plan.to_json(written))
    assert plan.from_json(read_json(tmp_path / "plan.json", *plan.PLAN), "plan.json") == written


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["cells", 0, "cards"], "1", "cells[0].cards: must be a whole number"),
        (["cells", 0, "cards"], True, "cells[0].cards: must be a whole number"),
        (["cells", 0, "deadlines", "start_s"], float("nan"), "cells[0].deadlines.start_s: must be a finite"),
        (["cells", 0, "env"], ["A=1"], "cells[0].env: must be a mapping"),
        (["cells", 0, "env"], {"A": 1}, "cells[0].env.A: must be text"),
        (["cells", 0, "argv"], "rm -r", "cells[0].argv: must be a list"),
        (["cells", 0, "placement", 0, "host"], "../x", "../x: must be a name"),
        (["cells", 0, "id"], "../../etc/passwd", "../../etc/passwd: must be a name"),
        (["cells", 0, "log_name"], "/etc/passwd", "/etc/passwd: must be a name"),
        (["cells", 0, "stat"], "planned", "cells[0].stat: unknown key; nearest: state"),
        (["cells", 1, "id"], "sample.time_to_train.c01.fp32.bs128.r1", "cells: an id stands twice"),
        (["cluster", "hosts", 0, "name"], "-x", "-x: must be a name"),
        (["run"], "..", "..: must be a name"),
        (["run"], None, "run: must be text, is empty"),
        (["cells"], None, "cells: must be a list"),
    ],
)
def test_a_plan_that_we_cannot_have_written(written: Plan, path: list[Any], value: Any, message: str) -> None:
    document: Any = json.loads(json.dumps(plan.to_json(written)))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(UsageError) as caught:
        plan.from_json(document, "plan.json")
    assert str(caught.value).startswith(f"plan.json: {message}")


def test_a_key_that_is_gone(written: Plan) -> None:
    document = plan.to_json(written)
    del document["cells"][0]["argv"]
    with pytest.raises(UsageError, match=r"plan\.json: cells\[0\]\.argv: is missing"):
        plan.from_json(document, "plan.json")


def test_cell_json_has_what_the_agent_reads(written: Plan) -> None:
    body = json.loads(json.dumps(plan.cell_json(written.cells[2])))
    assert body["id"] == "sample.time_to_train.c32.fp32.bs128.r1"
    assert body["argv"][:3] == ["/env/mpirun", "-np", "32"]
    assert body["progress"] == "^runkit step "
    assert body["deadlines"] == {"start_s": 60.0, "progress_s": 30.5, "total_s": 4000.0}
    assert body["placement"] == [{"host": f"gpu{i}", "ranks": 8} for i in range(1, 5)]


# --- cards that are not known --------------------------------------------------------------


def needy(name: str = "resnet50_ngc_tensorflow1") -> Workload:
    families = sorted(parsers.families())
    return workloads.load(name, lambda stem, text, place: catalog.workload(stem, text, families, place))


@pytest.mark.parametrize(
    ("model", "unknown"),
    [
        ("An unheard-of card", "architecture and memory"),
        ("An unheard-of card sm_80", "memory"),
        ("An unheard-of card 80GB", "architecture"),
        ("NVIDIA H200", "memory"),
        ("An unheard-of card sm_80 80 GiB", None),
        ("Tesla V100-SXM2-32GB", None),
        ("", None),
    ],
)
def test_what_cannot_be_judged_of_a_card_is_told(model: str, unknown: str | None) -> None:
    said = limits.remark(needy(), alike(1, model=model))
    assert (said is None) == (unknown is None)
    if said:
        assert f": {unknown} of {model} not known here" in said
        assert "write what it has behind its name in cluster_card_model" in said
        # What it proposes to write is understood.
        proposed = said.rpartition(' as in "')[2].rstrip('"')
        assert limits.remark(needy(), alike(1, model=proposed)) is None
    assert limits.remark(load("digits"), alike(1, model=model)) is None


def test_what_is_stated_of_an_unknown_card_is_judged() -> None:
    def reason(model: str) -> str | None:
        asked = Overrides(precisions=("amp",), cards=(1,))
        progress = {name: family.progress for name, family in parsers.families().items()}
        (cell,) = plan.cells([needy()], alike(1, model=model), asked, progress)
        return cell.reason

    assert reason("An unheard-of card sm_80 80GB") is None
    assert "none for An unheard-of card sm_90 80GB (sm_90)" in str(reason("An unheard-of card sm_90 80GB"))
    assert "needs cards of 32 GiB" in str(reason("An unheard-of card sm_80 24GB"))


def test_a_dry_run_ends_with_what_could_not_be_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = shutil.copytree(ROOT / "inventory" / "v100x32", tmp_path / "other")
    facts = there / "group_vars" / "all" / "cluster.yml"
    facts.write_text(facts.read_text().replace("Tesla V100-SXM2-32GB\n", "An unheard-of card\n"))
    words = ["-i", str(there), "bench", "-w", "maskrcnn_ngc_tensorflow2", "--cards", "1", "--dry-run"]
    assert main(words) == 0
    said, total = capsys.readouterr().out.splitlines()[-2:]
    assert said.startswith(
        "# maskrcnn_ngc_tensorflow2: architecture and memory of An unheard-of card not known"
    )
    assert total.startswith("# 1 of 1 cells would run")


# --- the folder of --scripts ---------------------------------------------------------------


def refused_folder(folder: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["-i", "local", "bench", "--cards", "1", "--dry-run", "--scripts", folder]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    (line,) = found.err.splitlines()
    return line


def test_a_folder_for_scripts_that_cannot_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").touch()
    for folder, said in (
        ("", '--scripts "": is empty; name a new folder'),
        (" ", '--scripts "": is empty; name a new folder'),
        (str(tmp_path), "there is something already; name a new folder"),
        (str(tmp_path / "mine.txt"), "is a file; name a new folder"),
        (str(tmp_path / "mine.txt" / "below"), "Not a directory; choose another folder"),
        ("/sys/runkit", "choose a folder that you may write to"),
        (f"{tmp_path}/{'x' * 300}", "File name too long; name a new folder"),
    ):
        assert said in refused_folder(folder, capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_disk_without_room_for_the_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k", "none", tmp_path], capture_output=True
    ).returncode:
        pytest.skip("mounting a small file system takes root")
    try:
        said = refused_folder(str(tmp_path), capsys)
        assert "No space left on device; free space or choose another folder" in said
        assert list(tmp_path.iterdir()) == []
        assert "; free space or" in refused_folder(str(tmp_path / "new"), capsys)
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
