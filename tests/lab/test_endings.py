"""How a run on four hosts may end: hosts, network, daemons and processes are taken away for real.

A rank that dies is seen within 10 s, a host that is lost within 30 s; nothing is left on any host in reach.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Lab
from kit import wait_for
from labkit import LabKit

LONG = {"start_s": 60, "progress_s": 60, "total_s": 250}
HOST_LOST_S, RANK_LOST_S = 30, 10


@pytest.fixture
def kit(tmp_path: Path, ready: Lab) -> Iterator[LabKit]:
    made = LabKit(tmp_path, ready)
    made.train("--steps", "9999", deadlines=LONG)
    yield made
    made.close()


def training(kit: LabKit, *words: str) -> subprocess.Popen[str]:
    """``bench`` on all hosts and cards, past its first steps."""
    bench = kit.start("--cards", "32", *words)
    wait_for(lambda: kit.training() or bench.poll() is not None, "the training", 60)
    assert kit.training(), bench.communicate()
    return bench


def detached(kit: LabKit) -> str:
    done = kit.bench("--cards", "32", "--detach")
    assert done.returncode == 0, done.stderr
    wait_for(kit.training, "the training", 60)
    return kit.runs()[0]


def over(bench: subprocess.Popen[str], seconds: float = 60) -> str:
    _, said = bench.communicate(timeout=seconds)
    assert "Traceback" not in said
    return said


def test_measured_and_swept_everywhere(kit: LabKit) -> None:
    kit.train("--orphan", "--steps", "60")
    done = kit.bench("--cards", "8,32")
    assert done.returncode == 0, done.stderr
    assert kit.states() == {"c08": "measured", "c32": "measured"}
    last = kit.ended()
    assert (last["swept"], last["survivors"], last["unswept"]) == (32, 0, [])
    assert last["swept_on"] == dict.fromkeys(kit.lab.hosts, 8)
    kit.gone()


def test_host_powered_off_during_a_cell_then_stopped_and_resumed(kit: LabKit) -> None:
    victim = kit.lab.hosts[2]
    kit.train("--steps", "80", deadlines=LONG)
    bench = kit.start("--cards", "8,32")
    wait_for(lambda: "c32" in str(kit.on_first("*/progress.json")), "the second cell", 90)
    began = time.monotonic()
    kit.lab.power_off(victim)
    said = over(bench, 90)
    assert bench.returncode == 1
    assert time.monotonic() - began < HOST_LOST_S + 25  # and collecting, without the one that is off
    assert float(str(kit.ended()["t"])) - time.time() < 0
    assert kit.states() == {"c08": "measured", "c32": "lost"}
    assert f"{victim} was lost" in kit.reasons()["c32"]
    assert f"{victim} could not be asked for its logs" in said
    kit.gone()
    stopped = kit.runner("stop", kit.runs()[0])
    assert (stopped.returncode, victim in stopped.stderr) == (1, True)
    assert not any(host in stopped.stderr for host in kit.lab.hosts if host != victim)
    kit.lab.boot()
    assert kit.runner("stop", kit.runs()[0]).returncode == 0
    kit.gone()
    resumed = kit.runner("bench", "--resume", kit.runs()[0], timeout=120)
    assert resumed.returncode == 0, resumed.stderr
    assert kit.states() == {"c08": "measured", "c32": "measured"}


@pytest.mark.parametrize(
    "host", [0, pytest.param(2, marks=pytest.mark.faults)], ids=["launch host", "another"]
)
def test_rank_killed(kit: LabKit, host: int) -> None:
    bench = training(kit)
    name = kit.lab.hosts[host]
    began = time.monotonic()
    kit.lab.ssh(name, "kill", "-KILL", kit.pids(name, "trainer")[0])
    wait_for(lambda: kit.ended if "cell_ended" in str(kit.events()) else None, "the end of the cell", 20)
    assert time.monotonic() - began < RANK_LOST_S
    over(bench)
    assert kit.states() == {"c32": "failed"}
    kit.gone()


@pytest.mark.faults
@pytest.mark.parametrize(
    ("host", "kind", "state"),
    [
        pytest.param(0, "mpirun", "failed", id="mpirun"),
        pytest.param(1, "orted", "failed", id="orted"),
        pytest.param(0, "work", "lost", id="agent and guard"),
    ],
)
def test_killed(kit: LabKit, host: int, kind: str, state: str) -> None:
    bench = training(kit)
    kit.kill(kit.lab.hosts[host], kind)
    over(bench)
    assert bench.returncode == 1
    assert kit.states() == {"c32": state}
    assert kit.runner("stop", kit.runs()[0]).returncode == 0
    kit.gone()


@pytest.mark.faults
def test_agent_killed(kit: LabKit) -> None:
    """Its guard and the attendants end everything within seconds."""
    bench = training(kit)
    agent = min(kit.pids(kit.first, "work"), key=int)
    kit.lab.ssh(kit.first, "kill", "-KILL", agent)
    said = over(bench)
    assert "the agent was lost" in said
    assert kit.states() == {"c32": "lost"}
    kit.gone()


@pytest.mark.faults
def test_attendant_killed(kit: LabKit) -> None:
    """Another takes its place, and the cell goes on."""
    kit.train("--steps", "200", deadlines=LONG)
    bench = training(kit)
    kit.kill(kit.lab.hosts[3], "attend")
    said = over(bench, 90)
    assert bench.returncode == 0, said
    assert kit.states() == {"c32": "measured"}
    kit.gone()


@pytest.mark.faults
@pytest.mark.parametrize(("host", "kind"), [(0, "work"), (2, "attend")], ids=["agent and guard", "attendant"])
def test_stop_ends_what_was_suspended(kit: LabKit, host: int, kind: str) -> None:
    run = detached(kit)
    kit.kill(kit.lab.hosts[host], kind, "STOP")
    assert kit.runner("stop", run).returncode == 0
    kit.gone()


@pytest.mark.faults
def test_stop_ends_a_suspended_guard(kit: LabKit) -> None:
    run = detached(kit)
    agent, guard = sorted(kit.pids(kit.first, "work"), key=int)
    kit.lab.ssh(kit.first, "kill", "-STOP", guard)
    kit.lab.ssh(kit.first, "kill", "-KILL", agent)
    assert kit.runner("stop", run).returncode == 0
    kit.gone()


@pytest.mark.faults
def test_network_of_a_host_cut_for_good_then_restored(kit: LabKit) -> None:
    victim = kit.lab.hosts[1]
    bench = training(kit)
    began = time.monotonic()
    kit.lab.cut(victim)
    wait_for(lambda: "cell_ended" in str(kit.events()), "the end of the cell", 40)
    assert time.monotonic() - began < HOST_LOST_S
    assert str(kit.ended()["reason"]).startswith(f"{victim} was lost")
    assert kit.ended()["unswept"] == [victim]
    over(bench, 90)
    kit.gone()
    kit.lab.join(victim)
    kit.gone()  # the attendant there, left alone, has ended the ranks
    assert kit.runner("stop", kit.runs()[0]).returncode == 0
    assert kit.runner("collect", kit.runs()[0]).returncode == 0
    assert kit.states() == {"c32": "lost"}


@pytest.mark.faults
def test_network_of_a_host_cut_for_a_moment(kit: LabKit) -> None:
    kit.train("--steps", "300", deadlines=LONG)
    bench = training(kit)
    kit.lab.cut(kit.lab.hosts[1])
    time.sleep(6)
    kit.lab.join(kit.lab.hosts[1])
    said = over(bench, 120)
    assert bench.returncode == 0, said
    kit.gone()


def freeze(lab: Lab, still: bool) -> None:
    """All processes of all hosts at once, by the kernel's freezer (v2's, or v1's)."""
    for pattern, words in (("cgroup.freeze", "01"), ("freezer.state", ("THAWED", "FROZEN"))):
        found = list(Path("/sys/fs/cgroup").glob(f"**/runkit-lab/{lab.name}/{pattern}"))
        if found:
            found[0].write_text(words[still])
            return
    raise AssertionError("this kernel freezes no cgroup")


@pytest.mark.faults
def test_all_hosts_stand_still(kit: LabKit) -> None:
    """As guests of a machine that is paused do, for longer than a silent host is waited for."""
    kit.train("--steps", "200", deadlines={"start_s": 60, "progress_s": 22, "total_s": 250})
    bench = training(kit)
    freeze(kit.lab, True)
    try:
        time.sleep(26)
    finally:
        freeze(kit.lab, False)
    said = over(bench, 120)
    assert bench.returncode == 0, said
    assert kit.states() == {"c32": "measured"}
    kit.gone()


@pytest.mark.faults
def test_disk_of_the_launch_host_takes_nothing_for_a_moment(kit: LabKit) -> None:
    """The agent stands in the middle of a write, for longer than a silent one is waited for."""
    kit.train("--steps", "400", deadlines=LONG)
    bench = training(kit)
    tmp = f"{kit.home}/{kit.runs()[0]}/progress.json.tmp"
    made = kit.lab.ssh(kit.first, f"mkfifo {tmp}2 && mv {tmp}2 {tmp}")
    assert made.returncode == 0, made.stderr
    time.sleep(26)
    assert kit.lab.ssh(kit.first, f"mv {tmp} {tmp}2 && timeout 5 cat {tmp}2").stdout.startswith("{")
    said = over(bench, 120)
    assert bench.returncode == 0, said
    assert kit.states() == {"c32": "measured"}
    kit.gone()


@pytest.mark.faults
def test_network_of_the_launch_host_cut(kit: LabKit) -> None:
    bench = training(kit)
    began = time.monotonic()
    kit.lab.cut(kit.first)
    said = over(bench, 90)
    assert bench.returncode == 1
    assert time.monotonic() - began < HOST_LOST_S + 15
    assert f"{kit.first} is out of reach" in said
    assert f"bench --attach {kit.runs()[0]}" in said
    kit.gone(20)
    kit.lab.join(kit.first)
    attached = kit.runner("bench", "--attach", kit.runs()[0])
    assert attached.returncode == 1
    assert kit.states()["c32"] in ("lost", "stopped")
    kit.gone()


@pytest.mark.faults
def test_connection_of_the_controller_cut_for_a_moment(kit: LabKit) -> None:
    """The same launch host, seen from the others; a detached run does not mind."""
    run = detached(kit)
    attached = subprocess.Popen(
        kit.command("bench", "--attach", run), cwd=kit.folder, env=kit.environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    kit.started.append(attached)
    time.sleep(4)
    follower = wait_for_follower(kit)
    os.kill(follower, signal.SIGKILL)
    time.sleep(3)
    assert attached.poll() is None
    assert wait_for_follower(kit) != follower
    attached.send_signal(signal.SIGINT)
    assert "the run goes on" in over(attached)
    assert kit.runner("stop", run).returncode == 0
    kit.gone()


def wait_for_follower(kit: LabKit) -> int:
    """Process id of the ssh on this machine through which a run is followed."""
    found: list[int] = []

    def look() -> bool:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                text = path.read_bytes()
            except OSError:
                continue
            if text.startswith(b"ssh\0") and b" follow " in text and kit.home.encode() in text:
                found.append(int(path.parent.name))
        return bool(found)

    wait_for(look, "the follower")
    return found[-1]


@pytest.mark.faults
def test_controller_killed(kit: LabKit) -> None:
    bench = training(kit)
    bench.kill()
    bench.communicate()
    began = time.monotonic()
    wait_for(lambda: "agent_ended" in str(kit.events()), "the end of the run", 40)
    assert time.monotonic() - began < 30
    kit.gone()
    assert kit.runner("bench", "--attach", kit.runs()[0]).returncode == 1
    assert kit.states() == {"c32": "stopped"}


def test_interrupted(kit: LabKit) -> None:
    bench = training(kit)
    bench.send_signal(signal.SIGINT)
    said = over(bench)
    assert bench.returncode == 128 + signal.SIGINT
    assert "SIGINT: stopped; 0 of 1 cells measured" in said
    assert kit.states() == {"c32": "stopped"}
    kit.gone()


@pytest.mark.faults
def test_interrupted_twice(kit: LabKit) -> None:
    kit.train("--steps", "9999", "--stubborn", "--orphan", deadlines=LONG)
    bench = training(kit)
    bench.send_signal(signal.SIGINT)
    time.sleep(1.5)
    began = time.monotonic()
    bench.send_signal(signal.SIGINT)
    over(bench)
    assert time.monotonic() - began < 4
    assert bench.returncode == 130
    kit.gone()


def test_detached_attached_and_stopped(kit: LabKit) -> None:
    run = detached(kit)
    busy = kit.bench("--cards", "32")
    assert busy.returncode == 2
    assert f"run {run} is working on {kit.first}" in busy.stderr
    attached = subprocess.Popen(
        kit.command("bench", "--attach", run), cwd=kit.folder, env=kit.environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    kit.started.append(attached)
    assert kit.runner("stop", run).returncode == 0
    over(attached)
    assert attached.returncode == 1
    assert kit.states() == {"c32": "stopped"}
    kit.gone()


@pytest.mark.faults
def test_host_powered_off_before_the_run(kit: LabKit) -> None:
    victim = kit.lab.hosts[3]
    kit.lab.power_off(victim)
    done = kit.bench("--cards", "32")
    assert done.returncode == 2
    assert f"nothing was started: {victim} cannot train" in done.stderr
    assert not any(host in done.stderr for host in kit.lab.hosts if host != victim)
    assert kit.events() == []
    kit.gone()
    kit.train("--steps", "60")
    assert kit.bench("--cards", "8").returncode == 0  # which does not need it


@pytest.mark.faults
def test_host_powered_off_after_its_cell(kit: LabKit) -> None:
    """The figures of the cell wait for its logs; ``collect`` completes them."""
    victim = kit.lab.hosts[3]
    kit.train("--steps", "60", deadlines=LONG)
    assert kit.bench("--cards", "32", "--detach").returncode == 0
    wait_for(lambda: "agent_ended" in str(kit.events()), "the end", 60)
    kit.lab.power_off(victim)
    run = kit.runs()[0]
    assert kit.runner("collect", run).returncode == 1
    assert kit.states() == {"c32": "lost"}
    assert victim in kit.reasons()["c32"]
    kit.lab.boot()
    assert kit.runner("collect", run).returncode == 0
    assert kit.states() == {"c32": "measured"}
    kit.gone()


@pytest.mark.faults
def test_sshd_stopped(kit: LabKit) -> None:
    """Connections that are there go on, and so does a cell; what needs a new one is named."""
    victim = kit.lab.hosts[1]
    kit.train("--steps", "100", deadlines=LONG)
    bench = training(kit)
    kit.lab.sudo(victim, "systemctl stop ssh; (sleep 90; systemctl start ssh) >/dev/null 2>&1 &")
    over(bench, 90)
    assert kit.ended()["outcome"] == "exited"
    second = kit.bench("--cards", "32")
    assert second.returncode == 2
    assert f"nothing was started: {victim} cannot train" in second.stderr
    assert not any(host in second.stderr for host in kit.lab.hosts[2:])
    wait_for(lambda: kit.lab.ssh(victim, "true").returncode == 0, "sshd to be back", 100)
    (first,) = kit.runs()  # the second one was never made
    assert kit.runner("collect", first).returncode == 0
    assert '"measured"' in (kit.folder / "runs" / first / "results.json").read_text()
    kit.gone()
