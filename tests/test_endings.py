"""How a run may end, each for real: real mpirun, real ranks, real signals. Nothing survives any of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import Kit, processes, traces, wait_for


def gone(kit: Kit) -> None:
    wait_for(lambda: not kit.alive(), "all processes of the run to be gone", 8)
    left = [
        folder
        for folder in ("/dev/shm", "/tmp")
        for run in kit.runs()
        if Path(folder, f"runkit-{run}").exists()
    ]
    assert left == [], "shared memory or temporary files of the run are left"


def test_measured(kit: Kit) -> None:
    done = kit.bench("--cards", "1,4")
    assert done.returncode == 0, done.stderr
    assert kit.states() == {"c01": "measured", "c04": "measured"}
    assert "640.00" in done.stdout  # 32 images in 0.05 s
    assert "2560.00" in done.stdout
    check = subprocess.run(
        ["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=kit.run(), capture_output=True, text=True
    )
    assert (check.returncode, check.stdout) == (0, "")
    gone(kit)


def test_home_is_where_the_environment_says(kit: Kit) -> None:
    kit.vary_cluster(bench_agent_root="~/agent of mine")
    home = kit.folder / "another home"
    done = kit.bench("--cards", "1", HOME=str(home))
    assert done.returncode == 0, done.stderr
    assert list(home.glob("agent of mine/*/journal.jsonl"))


@pytest.mark.parametrize(
    ("fault", "state", "reason"),
    [
        pytest.param(
            ("--crash", "1@15"), "failed", "rank 1: RuntimeError: the network is on fire", id="a rank raises"
        ),
        pytest.param(("--die", "2@15"), "failed", "mpirun exited with", id="a rank is killed"),
        pytest.param(("--hang", "3@15"), "timeout", "no record for 4 s after 14", id="a rank hangs"),
        pytest.param(
            ("--hang", "0@15", "--stubborn"),
            "timeout",
            "no record for 4 s",
            id="a rank hangs and ignores SIGTERM",
        ),
        pytest.param(("--hang", "1@1"), "timeout", "no record within 3 s of the start", id="no first record"),
        pytest.param(("--nan", "0@15"), "failed", "the loss is not finite", id="the loss is no number"),
        pytest.param(("--steps", "5"), "failed", "5 records; a rate needs at least 10", id="too few records"),
        pytest.param(
            ("--batch-size", "16"),
            "failed",
            "the log says batch size 16, planned was 32",
            id="another batch size",
        ),
        pytest.param(("--steps", "9999"), "timeout", "not done after 6 s", id="runs too long"),
    ],
)
def test_faults(kit: Kit, fault: tuple[str, ...], state: str, reason: str) -> None:
    total = 6 if "9999" in fault else 60  # which must not pass before the other two, on a busy machine either
    kit.train(*fault, deadlines={"start_s": 3, "progress_s": 4, "total_s": total})
    done = kit.bench("--cards", "4")
    assert done.returncode == 1
    assert kit.states() == {"c04": state}
    assert reason in kit.reasons()["c04"]
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    gone(kit)


def test_orphans_of_a_good_cell_are_ended(kit: Kit) -> None:
    kit.train("--orphan")
    assert kit.bench("--cards", "2").returncode == 0
    (ended,) = [event for event in kit.events() if event["event"] == "cell_ended"]
    assert (ended["swept"], ended["survivors"]) == (2, 0)
    gone(kit)


def test_mpirun_missing(kit: Kit) -> None:
    kit.vary_cluster(cluster_mpirun="/nowhere/mpirun")
    done = kit.bench("--cards", "1,2")
    assert done.returncode == 2
    assert "/nowhere/mpirun: no such program on this machine; pip install -r requirements.txt" in done.stderr
    assert kit.runs() == []


def test_mpirun_vanishes(kit: Kit) -> None:
    """As where it is missing on another host: only the agent can tell."""
    mpirun = kit.folder / "mpirun"
    mpirun.write_text(f'#!/bin/sh\nrm {mpirun}\nexec {Path(sys.executable).parent}/mpirun "$@"\n')
    mpirun.chmod(0o755)
    kit.vary_cluster(cluster_mpirun=str(mpirun))
    done = kit.bench("--cards", "1,2")
    assert done.returncode == 1
    assert f"{mpirun} cannot be started: No such file or directory" in done.stderr
    assert sorted(kit.states().values()) == ["failed", "failed"] or "measured" in kit.states().values()
    gone(kit)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system takes root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_disk_full_on_the_host(tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "kit").mkdir()
    kit = Kit(tmp_path / "kit", root=small_disk / "agent")
    try:
        kit.train("--fill", str(small_disk))
        filler = kit.folder / "filler.yml"
        kit.workload.rename(filler)
        (kit.folder / "trainer").rename(kit.folder / "filler")
        filler.write_text(filler.read_text().replace("trainer/trainer.py", "filler/trainer.py"))
        (kit.folder / "trainer").mkdir()
        (kit.folder / "trainer" / "trainer.py").write_bytes(
            (kit.folder / "filler" / "trainer.py").read_bytes()
        )
        kit.train()
        done = kit.bench("-w", str(filler), "--cards", "2")
        assert done.returncode == 1, done.stderr
        assert "no space left" in done.stderr
        states = (kit.run() / "results.json").read_text()
        assert states.count('"measured"') == 1
        assert states.count('"failed"') == 1
        gone(kit)
    finally:
        kit.close()


def test_disk_full_at_home(kit: Kit, small_disk: Path) -> None:
    (kit.folder / "runs").symlink_to(small_disk)
    busy = kit.start("--cards", "2")
    wait_for(kit.training, "the training")
    with (small_disk / "ballast").open("wb", buffering=0) as stream, pytest.raises(OSError, match="No space"):
        while True:
            stream.write(b"\1" * 4096)
    _, said = busy.communicate(timeout=60)
    assert busy.returncode == 1
    assert "No space left on device" in said
    assert "Traceback" not in said
    (small_disk / "ballast").unlink()
    (run,) = small_disk.glob("2*")
    wait_for(lambda: kit.events()[-1]["event"] == "agent_ended", "the agent to finish by itself")
    assert kit.runner("collect", run.name).returncode == 0
    assert '"measured"' in (run / "results.json").read_text()
    gone(kit)


SILENT = ("--hang", "0@30")


@pytest.mark.parametrize("to", ["process", "group"])
@pytest.mark.parametrize("silent", [False, True], ids=["printing", "silent"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=lambda signum: signum.name)
def test_signal(kit: Kit, to: str, silent: bool, signum: signal.Signals) -> None:
    kit.train(
        "--steps",
        "200",
        *(SILENT if silent else ()),
        deadlines={"start_s": 30, "progress_s": 60, "total_s": 90},
    )
    bench = kit.start("--cards", "1,2,4")
    wait_for(lambda: b"step=29" in kit.printed(), "the training, or the silence after step 29")
    began = time.monotonic()
    (os.kill if to == "process" else os.killpg)(bench.pid, signum)
    out, said = bench.communicate(timeout=30)
    assert bench.returncode == 128 + signum
    assert f"{signum.name}: stopped; 0 of 3 cells measured" in said
    assert "--resume" in said
    assert time.monotonic() - began < 12
    assert kit.states() == {"c01": "stopped", "c02": "planned", "c04": "planned"}
    assert "stopped" in out
    gone(kit)


def test_interrupted_twice(kit: Kit) -> None:
    kit.train("--steps", "9999", "--stubborn", "--orphan")
    bench = kit.start("--cards", "4")
    wait_for(lambda: b"step=40" in kit.printed(), "the training")
    os.kill(bench.pid, signal.SIGINT)
    time.sleep(2)
    assert kit.marked(), "what ignores SIGTERM outlives an orderly stop for a while"
    began = time.monotonic()
    os.kill(bench.pid, signal.SIGINT)
    _, said = bench.communicate(timeout=30)
    assert time.monotonic() - began < 2
    assert bench.returncode == 130
    assert "python -m runner collect" in said
    gone(kit)
    assert kit.runner("collect", kit.runs()[0]).returncode == 0
    assert kit.states() == {"c04": "stopped"}


def test_interrupted_while_staging(kit: Kit) -> None:
    kit.train("--steps", "9999")
    bench = kit.start("--cards", "2")
    wait_for(kit.runs, "the run's folder")
    os.kill(bench.pid, signal.SIGINT)
    _, said = bench.communicate(timeout=40)
    assert bench.returncode == 130
    assert "0 of 1 cells measured" in said
    gone(kit)


def test_stop_while_staging(kit: Kit) -> None:
    kit.train("--steps", "9999")
    bench = kit.start("--cards", "1,2")
    wait_for(kit.runs, "the run's folder")
    assert kit.runner("stop", kit.runs()[0]).returncode == 0
    _, said = bench.communicate(timeout=40)
    assert bench.returncode == 1
    assert "0 of 2 cells measured" in said
    assert set(kit.states().values()) <= {"stopped", "planned"}
    gone(kit)


def followers(kit: Kit) -> list[int]:
    return [pid for pid in processes() if b"agent.py\0follow" in traces(pid) and pid in kit.alive()]


def test_follower_killed(kit: Kit) -> None:
    kit.train("--steps", "100")
    bench = kit.start("--cards", "2")
    wait_for(kit.training, "the training")
    killed: list[int] = []
    for _ in range(2):
        wait_for(lambda: set(followers(kit)) - set(killed), "a follower")
        (last,) = followers(kit)
        os.kill(last, signal.SIGKILL)
        killed.append(last)
    out, said = bench.communicate(timeout=60)
    assert bench.returncode == 0, said
    assert "1280.00" in out
    assert said.count("trainer 2 cards fp32 bs32: done") == 1
    gone(kit)


def test_without_home(kit: Kit) -> None:
    argv = ["env", "-u", "HOME", *kit.command("bench", "-w", str(kit.workload), "--cards", "1")]
    done = subprocess.run(
        argv, cwd=kit.folder, env=kit.environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_disk_full_before_the_first_cell(tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "kit").mkdir()
    kit = Kit(tmp_path / "kit", root=small_disk / "agent")
    with (small_disk / "ballast").open("wb") as stream:
        stream.write(b"\1" * (4096 * 1024 - 250 * 1024))
    done = kit.bench("--cards", "1,2")
    assert done.returncode == 1
    assert "No space left on device" in done.stderr or "no space left" in done.stderr
    gone(kit)


def test_controller_killed(kit: Kit) -> None:
    kit.train("--steps", "9999")
    bench = kit.start("--cards", "2")
    wait_for(kit.training, "the training")
    bench.kill()
    bench.communicate()
    assert wait_for(lambda: not kit.ranks(), "the agent to end the cell", 30) > 5
    gone(kit)
    assert kit.runner("bench", "--attach", kit.runs()[0]).returncode == 1
    assert kit.states() == {"c02": "stopped"}
    assert "the controller was not heard of" in kit.reasons()["c02"]


def test_detached_run_goes_on_without_its_controller(kit: Kit) -> None:
    kit.train("--steps", "100")
    assert kit.bench("--cards", "2", "--detach").returncode == 0
    wait_for(kit.training, "the training")
    attached = kit.runner("bench", "--attach", kit.runs()[0])
    assert attached.returncode == 0, attached.stderr
    assert kit.states() == {"c02": "measured"}
    assert "1280.00" in attached.stdout
    gone(kit)


def test_leaving_a_detached_run_leaves_it_running(kit: Kit) -> None:
    kit.train("--steps", "9999")
    assert kit.bench("--cards", "2", "--detach").returncode == 0
    wait_for(kit.training, "the training")
    attached = subprocess.Popen(
        kit.command("bench", "--attach", kit.runs()[0]),
        cwd=kit.folder,
        env=kit.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: followers(kit), "the run to be followed")
    attached.send_signal(signal.SIGINT)
    _, said = attached.communicate(timeout=20)
    assert attached.returncode == 130
    assert "the run goes on" in said
    assert kit.ranks()
    for _ in range(2):
        assert kit.runner("stop", kit.runs()[0]).returncode == 0
        gone(kit)


def test_agent_killed_then_resumed(kit: Kit) -> None:
    kit.train("--steps", "60")
    bench = kit.start("--cards", "1,2,4")
    wait_for(lambda: any(event["event"] == "cell_ended" for event in kit.events()), "the first cell to end")
    wait_for(lambda: list(kit.root.glob("*/cells/*c02*/logs/*/rank-0001.stdout")), "the second cell")
    os.kill(kit.agent(), signal.SIGKILL)
    _, said = bench.communicate(timeout=60)
    assert bench.returncode == 1
    assert "the agent was lost" in said
    gone(kit)
    assert kit.states() == {"c01": "measured", "c02": "lost", "c04": "planned"}
    first = (
        kit.run() / "cells" / "trainer.throughput.c01.fp32.bs32.r1" / "logs" / "localhost" / "rank-0000.txt"
    ).read_bytes()
    resumed = kit.runner("bench", "--resume", kit.runs()[0])
    assert resumed.returncode == 0, resumed.stderr
    assert kit.states() == {"c01": "measured", "c02": "measured", "c04": "measured"}
    started = [event["cell"].split(".")[2] for event in kit.events() if event["event"] == "cell_started"]  # type: ignore[attr-defined]
    assert started == ["c01", "c02", "c02", "c04"]
    again = (
        kit.run() / "cells" / "trainer.throughput.c01.fp32.bs32.r1" / "logs" / "localhost" / "rank-0000.txt"
    ).read_bytes()
    assert again == first
    assert list((kit.run() / "cells").glob("*c02*/earlier-1/localhost/rank-0000.stdout"))
    gone(kit)


def test_agent_and_its_guard_killed(kit: Kit) -> None:
    """Ranks survive this one; ``stop`` ends them, and so would the next run."""
    kit.train("--steps", "9999")
    assert kit.bench("--cards", "2", "--detach").returncode == 0
    wait_for(kit.training, "the training")
    agents = [
        pid
        for pid in processes()
        if str(kit.root).encode() in traces(pid) and b"agent.py\0work" in traces(pid)
    ]
    assert len(agents) == 2
    for pid in agents:
        os.kill(pid, signal.SIGSTOP)
    for pid in agents:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(traces(pid) for pid in agents), "the agents to be gone")
    orphans = kit.ranks()
    assert orphans
    (first,) = kit.runs()
    kit.train("--steps", "20")
    second = kit.bench("--cards", "2")
    assert second.returncode == 0, second.stderr
    assert not set(orphans) & set(kit.ranks())  # what is dead and waits to be reaped is none
    gone(kit)
    with (kit.root / first / "journal.jsonl").open("a") as journal:
        journal.write('{"t": 1, "event": "cell_en')  # as the host lost its power
    assert kit.runner("collect", first).returncode == 0
    (result,) = json.loads((kit.folder / "runs" / first / "results.json").read_text())["results"]
    assert (result["state"], result["reason"]) == ("lost", "the agent was lost while it ran")


def test_second_run_is_refused_while_the_first_lives(kit: Kit) -> None:
    kit.train("--steps", "9999")
    assert kit.bench("--cards", "2", "--detach").returncode == 0
    (first,) = kit.runs()
    second = kit.bench("--cards", "2")
    assert second.returncode == 2
    assert first in second.stderr
    assert kit.runs() == [first]
    assert sorted(path.name for path in kit.root.iterdir()) == sorted([first, "lock"])
    assert kit.runner("stop", first).returncode == 0
    kit.train("--steps", "20")
    assert kit.bench("--cards", "2").returncode == 0
    gone(kit)
