"""Launchers: what they produce is started for real, with the mpirun and the Python of this environment."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from runner.dryrun import dry_run
from runner.io import inventory
from runner.launch import LAUNCHERS, Launch
from runner.model import Cell, Cluster, Deadlines, Host, Placement, Start

CELL = "work.throughput.c08.fp32.bs1.r1"
SHIM = 'export SHIM_SAW="$1"; shift; exec "$@"\n'
WORK = """
import json, os, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
names = ("OMP_NUM_THREADS", "PYTHONUNBUFFERED", "SHIM_SAW", "RUNKIT_RUN")
seen = {name: os.environ.get(name) for name in names}
facts = {"argv": sys.argv[1:], "cwd": os.getcwd(), "sum": world.allreduce(world.rank), **seen}
everyone = world.gather((world.rank, facts))
if world.rank == 0:
    json.dump(everyone, open("said.json", "w"))
"""
ALONE = "import json, os, sys; json.dump(sys.argv[1:] + [os.environ['SHIM_SAW']], open('said.json', 'w'))"


@pytest.fixture
def local() -> Cluster:
    return inventory.outline("local")


def start(launch: Launch, run_dir: Path) -> subprocess.CompletedProcess[str]:
    """As the agent does: in the run's folder, with little more than the launch's own environment."""
    (run_dir / "shim.sh").write_text(SHIM)
    env = {"HOME": os.environ["HOME"], "PATH": os.environ["PATH"], "RUNKIT_RUN": "r1", **launch.env}
    return subprocess.run(
        launch.argv, cwd=run_dir, env=env, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("ranks", [1, 8, 32])
def test_mpirun_starts_the_ranks_in_step(ranks: int, local: Cluster, tmp_path: Path) -> None:
    (tmp_path / "workload").mkdir()
    (tmp_path / "workload" / "work.py").write_text(WORK)
    command = (local.python, "workload/work.py", "--text", 'a b "c" $HOME {x} *')
    launch = LAUNCHERS["mpirun"].start(Start(CELL, (Placement("localhost", ranks),), command), local)
    done = start(launch, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    everyone = dict(json.loads((tmp_path / "said.json").read_text()))
    assert set(everyone) == set(range(ranks))
    expected = {
        "argv": ["--text", 'a b "c" $HOME {x} *'],
        "cwd": str(tmp_path.resolve()),
        "sum": ranks * (ranks - 1) // 2,
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "SHIM_SAW": CELL,
        "RUNKIT_RUN": "r1",
    }
    assert all(facts == expected for facts in everyone.values())


def test_mpirun_passes_the_failure_of_a_rank_on(local: Cluster, tmp_path: Path) -> None:
    command = (local.python, "-c", "raise SystemExit(3)")
    launch = LAUNCHERS["mpirun"].start(Start(CELL, (Placement("localhost", 2),), command), local)
    assert start(launch, tmp_path).returncode == 3


def test_local_starts_one_process_without_mpi(local: Cluster, tmp_path: Path) -> None:
    command = (local.python, "-c", ALONE, "$HOME", "")
    launch = LAUNCHERS["local"].start(Start(CELL, (Placement("localhost", 8),), command), local)
    assert local.mpirun not in launch.argv
    done = start(launch, tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "said.json").read_text()) == ["$HOME", "", CELL]


def lab(card_model: str) -> tuple[Cluster, Sequence[Placement]]:
    hosts = tuple(Host(f"lab{i}", f"10.7.0.{i}", 8, "ssh") for i in (1, 2))
    made = Cluster("lab", "/lab", "Lab", hosts, card_model, "/usr/bin/python3", "mpirun", "~/runs")
    return made, [Placement("lab1", 8), Placement("lab2", 8)]


def test_several_hosts_are_named_by_address_and_joined_by_tcp() -> None:
    cluster, placement = lab("V100")
    launch = LAUNCHERS["mpirun"].start(Start(CELL, placement, ("true",)), cluster)
    argv = launch.argv
    assert argv[argv.index("-np") + 1] == "16"
    assert argv[argv.index("--hostfile") + 1] == f"cells/{CELL}/hostfile"
    assert launch.hostfile == "10.7.0.1 slots=8\n10.7.0.2 slots=8\n"
    assert argv[argv.index("btl") + 1] == "self,vader,tcp"
    exported = {argv[i + 1] for i, word in enumerate(argv) if word == "-x"}
    assert {"RUNKIT_RUN", "RUNKIT_CELL"} < exported  # a remote rank gets only what is named


@pytest.mark.parametrize(("card_model", "shares_cores"), [("", True), ("V100", False)])
def test_only_process_slots_give_way_and_have_one_thread(card_model: str, shares_cores: bool) -> None:
    cluster, placement = lab(card_model)
    launch = LAUNCHERS["mpirun"].start(Start(CELL, placement, ("true",)), cluster)
    assert ("mpi_yield_when_idle" in launch.argv) is shares_cores
    assert ("OMP_NUM_THREADS" in launch.env) is shares_cores
    assert set(launch.env) - {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"} == {
        launch.argv[i + 1]
        for i, word in enumerate(launch.argv)
        if word == "-x" and not launch.argv[i + 1].startswith("RUNKIT_")
    }


# --- --dry-run -----------------------------------------------------------------------------


def cell(launch: Launch | None, cluster: Cluster) -> Cell:
    return Cell(
        CELL, "work", "throughput", 8, "fp32", 1, 1,
        "planned" if launch else "refused", None if launch else "12 cards are not whole hosts",
        (Placement(cluster.hosts[0].name, 8),) if launch else (), launch.argv if launch else (),
        launch.env if launch else {}, launch.hostfile if launch else None,
        "images/sec", "runkit", "x.log", "^x", Deadlines(1, 1, 1), 22.0, None,
    )  # fmt: skip


def test_dry_run_can_be_typed_as_it_stands(local: Cluster, tmp_path: Path) -> None:
    command = (local.python, "-c", ALONE, "it's $HOME; echo", "*")
    launch = LAUNCHERS["local"].start(Start(CELL, (Placement("localhost", 8),), command), local)
    text = dry_run([cell(launch, local), cell(None, local)], local, str(tmp_path))
    (tmp_path / "shim.sh").write_text(SHIM)
    subprocess.run(["/bin/sh", "-e"], input=text, text=True, check=True, env={"PATH": os.environ["PATH"]})
    assert json.loads((tmp_path / "said.json").read_text()) == ["it's $HOME; echo", "*", CELL]
    assert f"# {CELL}: refused: 12 cards are not whole hosts" in text
    assert "# 1 of 2 cells would run, about 22 s together" in text


def test_dry_run_names_the_launch_host_and_its_hostfile() -> None:
    cluster, _ = lab("V100")
    launch = Launch(("mpirun", "x"), {"A": "b c"}, "lab1 slots=8\nlab2 slots=8\n")
    lines = dry_run([cell(launch, cluster)], cluster, "~/run s").splitlines()
    assert "# on lab1 (10.7.0.1):" in lines
    assert "#   lab2 slots=8" in lines
    assert "cd ~/'run s'" in lines
    assert "A='b c' mpirun x" in lines
