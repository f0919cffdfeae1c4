"""``list``: through the real command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runner import catalog, plan, records
from runner.io import inventory, yamlfile
from runner.io.files import write_json
from runner.model import Plan, Result
from runner.plan import Overrides

ROOT = Path(__file__).resolve().parents[1]
CASES = Path(__file__).parent


def runkit(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop("RUNKIT_CLUSTER", None)
    return subprocess.run(
        [sys.executable, "-m", "runner", *words],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def write_run(runs: Path, run: str) -> Path:
    document = yamlfile.read(CASES / "catalog" / "sample.yml")
    sample = catalog.workload("sample", document, ("runkit",), "sample.yml")
    local = inventory.outline("local")
    cells = plan.cells([sample], local, Overrides(cards=(1, 2, 8)), {"runkit": "x"})
    made = Plan(run, "2024-01-02T03:04:05Z", local, cells, False, {}, None)
    write_json(runs / run / "plan.json", *plan.PLAN, plan.to_json(made))
    return runs / run


def test_everything_there_is() -> None:
    done = runkit("list", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["clusters", "workloads", "families", "runs"]
    local = {"name": "local", "title": "This machine, 32 process slots", "hosts": 1, "cards": 32}
    assert local in found["clusters"]
    assert {"name": "v100x32", "title": "Four hosts, 32 V100", "hosts": 4, "cards": 32} in found["clusters"]
    assert {"runkit", "dll_tf_resnet50"} <= {family["name"] for family in found["families"]}
    digits = next(entry for entry in found["workloads"] if entry["name"] == "digits")
    assert (digits["cards"], digits["precisions"], digits["batch_sizes"]) == (
        [1, 8, 32],
        ["fp32", "fp16"],
        [32, 8],
    )


def test_one_section_is_one_table() -> None:
    done = runkit("list", "clusters")
    assert done.returncode == 0, done.stderr
    heading, rule, *rows = done.stdout.splitlines()
    assert [word.strip() for word in heading.strip("|").split("|")] == ["name", "title", "hosts", "cards"]
    assert set(rule) <= set("|:-")
    assert any("This machine, 32 process slots" in row for row in rows)


def test_a_cluster_given_by_path_is_listed_too(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "inventory" / "local", tmp_path / "second")
    done = runkit("-i", str(tmp_path / "second"), "list", "clusters", "--json")
    assert {"second", "local"} <= {entry["name"] for entry in json.loads(done.stdout)["clusters"]}


@pytest.mark.parametrize(
    "case", ["broken_yaml", "duplicate_key", "misspelt_on_host", "no_hosts", "cards_missing"]
)
def test_a_broken_cluster_is_one_line_and_status_2(case: str) -> None:
    path = CASES / "inventories" / "bad" / case
    done = runkit("-i", str(path), "list")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    for fragment in (path / "expected.txt").read_text().splitlines():
        assert fragment in done.stderr


def test_an_unknown_cluster_is_one_line_and_status_2() -> None:
    done = runkit("list", "-i", "locla")
    assert done.returncode == 2
    assert "-i locla" in done.stderr
    assert "nearest: local" in done.stderr


def test_runs_with_their_states(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "20240101-000000-aaaa")
    measured = write_run(tmp_path / "runs", "20240102-000000-bbbb")
    cell = json.loads((measured / "plan.json").read_text())["cells"][0]["id"]
    result = Result(cell, "sample", "throughput", 1, "fp32", 128, 1, "measured", None, "images/sec", 9.5)
    write_json(measured / "results.json", "runkit/results", 1, {"results": [records.encode(result)]})
    done = runkit("list", "runs", "--json", cwd=tmp_path)
    common = {"created": "2024-01-02T03:04:05Z", "cluster": "local"}
    assert json.loads(done.stdout)["runs"] == [
        {"id": "20240101-000000-aaaa", **common, "states": {"planned": 2, "refused": 1}},
        {"id": "20240102-000000-bbbb", **common, "states": {"measured": 1, "refused": 1, "planned": 1}},
    ]


def test_an_unreadable_run_is_named_and_the_others_listed(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "good")
    (write_run(tmp_path / "runs", "torn") / "plan.json").write_text('{"schema": "runkit/plan", "ver')
    (write_run(tmp_path / "runs", "later") / "plan.json").write_text(
        '{"schema": "runkit/plan", "version": 2}'
    )
    (tmp_path / "runs" / "empty").mkdir()
    done = runkit("list", "runs", cwd=tmp_path)
    assert done.returncode == 0
    assert "good" in done.stdout
    assert [line for line in ("torn", "later", "empty") if f"runs/{line}/plan.json" not in done.stderr] == []


def test_results_that_are_not_ours_are_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "odd")
    write_json(run / "results.json", "runkit/results", 1, {"results": [7]})
    done = runkit("list", "runs", cwd=tmp_path)
    assert done.returncode == 0
    assert "runs/odd/results.json" in done.stderr
    assert "none" in done.stdout


def test_no_runs_is_not_an_error(tmp_path: Path) -> None:
    done = runkit("list", "runs", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "none", "")


def test_nothing_that_starts_ansible_is_loaded() -> None:
    code = "import sys; from runner.cli import main; main(['list']); print([*sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1]
    assert "'runner.io.inventory'" in loaded
    assert "'ansible_runner'" not in loaded
    assert "'ansible'" not in loaded
