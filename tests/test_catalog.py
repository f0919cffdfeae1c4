"""Workload files: the good ones become records, the bad ones one line that names file and key."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner import catalog, parsers, placeholders
from runner.errors import UsageError
from runner.io import workloads
from runner.launch import LAUNCHERS
from runner.model import Mode, Workload

ROOT = Path(__file__).resolve().parents[1]
CASES = Path(__file__).parent / "catalog"
BAD: Mapping[str, Mapping[str, Any]] = yaml.safe_load((CASES / "bad.yml").read_text())
FAMILIES = tuple(parsers.families())


def build(name: str, document: Mapping[str, Any], path: str) -> Workload:
    return catalog.workload(name, document, FAMILIES, path)


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    shutil.copytree(CASES / "sample", tmp_path / "sample")
    (tmp_path / "sample" / "folder").mkdir()
    (tmp_path / "sample" / "link.py").symlink_to(ROOT / "pyproject.toml")
    return Path(shutil.copy(CASES / "sample.yml", tmp_path / "sample.yml"))


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_bad_workload_is_refused_by_file_and_key(case: Mapping[str, Any], sample: Path) -> None:
    document = {**yaml.safe_load(sample.read_text()), **case.get("change", {})}
    for key in case.get("remove", ()):
        del document[key]
    sample.write_text(case.get("text") or yaml.safe_dump(document))
    with pytest.raises(UsageError) as caught:
        workloads.load(str(sample), build)
    message = str(caught.value)
    assert message.isprintable()
    for fragment in ("sample.yml", *case["expected"]):
        assert fragment in message


def test_good_workload_as_written(sample: Path) -> None:
    made = workloads.load(str(sample), build)
    assert (made.name, made.title, made.cards, made.batch_sizes) == (
        "sample",
        "A sample",
        (1, 8, 32),
        (128, 256),
    )
    assert made.modes == (Mode("throughput", 60.0), Mode("time_to_train", 3600.0, 0.75))
    assert made.deadlines.progress_s == 30.5
    assert (made.variants[0].launcher, made.variants[0].cards, made.variants[0].precisions) == (
        "local",
        (1,),
        (),
    )
    assert workloads.staged(made) == (("sample/main.py", sample.parent / "sample" / "main.py"),)


@pytest.mark.parametrize("name", workloads.names())
def test_every_workload_of_the_catalogue_loads(name: str) -> None:
    made = workloads.load(name, build)
    assert made.name == name
    assert all(source.is_file() for _, source in workloads.staged(made))


def test_unknown_workload_tells_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"digit: no such workload; nearest: digits; looked in .*workloads"):
        workloads.load("digit", build)


def test_a_name_is_not_a_way_out_of_the_catalogue() -> None:
    with pytest.raises(UsageError, match="no such workload"):
        workloads.load("../workloads/digits", build)


def test_fill_replaces_names_and_never_what_it_filled_in() -> None:
    assert placeholders.fill("{a}-{b}{a}", {"a": "{b}", "b": "2"}) == "{b}-2{b}"


def test_launchers_are_those_of_the_design() -> None:
    assert set(LAUNCHERS) == {"mpirun", "local", "container", "container_mpi", "container_nodes"}
