"""Rules of the job between hosts: from lines that its ranks write, in a form recorded on three lab hosts.

The figures are samples: 40 us and 11 GB/s between four hosts, as 100 Gb/s Ethernet gives, and one altered.
What Open MPI says is text of release 4.1.4.
"""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from os_hosts import NAMES, address, altered, cluster, data

from runner import looking
from runner.diagnosis import rules_jobs
from runner.diagnosis.model import Finding, HostView
from runner.io import inventory, jobs
from runner.model import Host

FILES = Path(__file__).resolve().parent.parent / "roles" / "doctor_probe" / "files"
LOST = """\
--------------------------------------------------------------------------
ORTE has lost communication with a remote daemon.

  HNP daemon   : [[41216,0],0] on node gpu1
  Remote daemon: [[41216,0],2] on node 192.168.10.13

This is usually due to either a failure of the TCP network
connection to the node, or possibly an internal failure of
the daemon itself.
--------------------------------------------------------------------------
"""
Line = dict[str, Any]


def lines(hosts: int = 4) -> list[Line]:
    """What ranks of as many hosts write where nothing is wrong."""
    ranks = range(hosts)
    told: list[Line] = [{"event": "here", "rank": rank, "host": address(NAMES[rank])} for rank in ranks]
    for one, two in combinations(ranks, 2):
        told.append({"event": "pair", "rank": one, "peer": two, "met": True, "latency_s": 40e-6})
        told.append({"event": "pair", "rank": two, "peer": one, "met": True})
        for line in told[-2:]:
            line.update(right=True, bytes_s=11e9)
    for rank in ranks:
        told += [{"event": "all", "rank": rank, "seconds": 0.002, "right": True, "bytes": 1 << 18}]
        told += [{"event": "end", "rank": rank}]
    return told


def attempt(told: list[Line], err: str = "", of: int = 4, **more: Any) -> Line:
    """What one try of the job gave, of as many hosts."""
    out = "".join(f"runkit-doctor {json.dumps(line)}\n" for line in told)
    addresses = {address(name): name for name in NAMES[:of]}
    return {"out": "Welcome\n" + out, "err": err, "why": None, "hosts": addresses, "slot_s": 0.5, **more}


def seen(*tries: Line, left_out: dict[str, str] | None = None, cards: bool = True) -> list[HostView]:
    first, *others = cluster(card_model="Tesla V100-SXM2-32GB") if cards else cluster()
    said = {"left_out": left_out or {}, "tries": list(tries)}
    return [altered(first, **{rules_jobs.PROBE: data(said)}), *others]


def codes(views: list[HostView]) -> list[tuple[str, str]]:
    return [(each.host, each.code) for each in diagnosed(views)]


def diagnosed(views: list[HostView]) -> list[Finding]:
    """What the job shows; hosts with cards have no other looks here."""
    return list(rules_jobs.check(views))


def pairs_of(told: list[Line], rank: int) -> Iterator[Line]:
    """Lines about the ways to and from a rank."""
    return (line for line in told if line["event"] == "pair" and rank in (line["rank"], line["peer"]))


def without(told: list[Line], rank: int) -> list[Line]:
    """What is left where a host falls silent as soon as it has begun."""
    for line in pairs_of(told, rank):
        line["met"] = False
    return [line for line in told if line["rank"] != rank or line["event"] == "here"]


@pytest.mark.parametrize("hosts", [2, 3, 4])
def test_nothing_is_found_where_nothing_is_wrong(hosts: int) -> None:
    assert codes(seen(attempt(lines(hosts), of=hosts))) == []


def test_the_figures_for_people() -> None:
    found = rules_jobs.figures(seen(attempt(lines())))
    assert found == {
        "hosts": list(NAMES),
        "latency_s": [40e-6, 40e-6, 40e-6],
        "bytes_per_s": [11e9, 11e9, 11e9],
        "all_reduce_s": 0.002,
    }
    assert rules_jobs.figures(cluster()) is None


@pytest.mark.parametrize("rank", range(4))
def test_a_host_that_falls_silent(rank: int) -> None:
    told = [line for line in without(lines(), rank) if line["event"] != "all"]
    (finding,) = diagnosed(seen(attempt(told)))
    assert (finding.code, finding.host) == ("mpi_no_answer", NAMES[rank])
    assert finding.detail == "3 of 3 others got no answer"


def test_two_hosts_that_do_not_reach_each_other_alone() -> None:
    told = lines()
    for line in told:
        if line["event"] == "pair" and {line["rank"], line["peer"]} == {1, 3}:
            line["met"] = False
    (finding,) = diagnosed(seen(attempt(told)))
    assert (finding.code, finding.host) == ("mpi_no_answer", "gpu4")
    assert finding.evidence == "gpu4 and gpu2: no message within 0.5 s"


def test_of_two_hosts_the_silent_one_is_named() -> None:
    told = [line for line in without(lines(2), 1) if line["event"] != "all"]
    assert codes(seen(attempt(told, of=2))) == [("gpu2", "mpi_no_answer")]


@pytest.mark.parametrize(
    ("err", "more", "shown"),
    [
        (LOST, {}, "ORTE has lost communication with a remote daemon."),
        ("", {"why": "timeout", "lost": {"gpu3": "no answer within 18 s"}}, "it could not be looked at"),
    ],
)
def test_a_host_that_is_lost_before_ranks_meet(err: str, more: Line, shown: str) -> None:
    told = [line for line in lines() if line["event"] == "here"]
    (finding,) = diagnosed(seen(attempt(told, err, **more)))
    assert (finding.code, finding.host) == ("mpi_no_answer", "gpu3")
    assert shown in finding.evidence


def test_a_host_whose_rank_does_not_start() -> None:
    """The line of Python that is missing a module, recorded on a lab host without mpi4py."""
    err = "/usr/bin/python3: No module named mpi4py\n-----\nPrimary job  terminated normally, but 1 process\n"
    told = [line for line in lines() if line["event"] == "here" and line["rank"] != 2]
    (finding,) = diagnosed(seen(attempt(told, err)))
    assert (finding.code, finding.host) == ("mpi_job_fails", "gpu3")
    assert finding.evidence == "/usr/bin/python3: No module named mpi4py"


def test_a_host_whose_rank_cannot_load_what_it_needs() -> None:
    """It has said that it is there; what mpi4py says where libmpi does not load."""
    why = "cannot load MPI library libmpi.so.40: cannot open shared object file: No such file or directory"
    told = [line for line in lines() if line["event"] == "here"]
    told.append({"event": "fails", "rank": 2, "why": why})
    (finding,) = diagnosed(seen(attempt(told, "Traceback (most recent call last):\n")))
    assert (finding.code, finding.host, finding.evidence) == ("mpi_job_fails", "gpu3", why)


def test_a_host_whose_rank_is_stopped_before_the_start() -> None:
    """All others wait for it, and none has met any: the process that watches it says so."""
    told = [line for line in lines() if line["event"] == "here"]
    told.append({"event": "stuck", "rank": 3, "state": "T"})
    (finding,) = diagnosed(seen(attempt(told, why="timeout")))
    assert (finding.code, finding.host) == ("mpi_no_answer", "gpu4")
    assert "process state T" in finding.evidence
    assert codes(seen(attempt([*lines(), told[-1]]))) == []  # it went on in time


@pytest.mark.parametrize("sums", [True, False])
def test_a_host_that_stops_behind_its_last_meeting(sums: bool) -> None:
    """Nobody comes to a sum, and those that are there say that they are through: they are not at fault."""
    told = [line for line in lines() if line["rank"] != 1 or line["event"] not in ("all", "end")]
    told = [line for line in told if sums or line["event"] != "all"]
    assert codes(seen(attempt(told, why="timeout"))) == [("gpu2", "mpi_no_answer")]


def test_a_job_that_starts_nowhere_is_the_launch_hosts() -> None:
    (finding,) = diagnosed(seen(attempt([], "mpirun: No such file or directory", why="missing")))
    assert (finding.code, finding.host) == ("mpi_job_fails", "gpu1")


def test_a_daemon_that_does_not_run_is_told_of_its_host() -> None:
    """No launcher starts a rank then; once one daemon is gone, it ends the others."""
    said = "sh: 1: orted: not found\ndaemon on 192.168.10.13 ended with status 127\n"
    said += "daemon on 192.168.10.12 ended with status 143\n"
    (finding,) = diagnosed(seen(attempt([], said)))
    assert (finding.code, finding.host) == ("mpi_job_fails", "gpu3")
    assert finding.evidence == "sh: 1: orted: not found"
    assert diagnosed(seen(attempt(lines(), said))) == []  # of one that is ended with the job


def test_bytes_that_are_not_those_sent() -> None:
    told = lines()
    for line in pairs_of(told, 1):
        line["right"] = line["rank"] == 1  # what the others got of it is wrong
    (finding,) = diagnosed(seen(attempt(told)))
    assert (finding.code, finding.host) == ("mpi_wrong_data", "gpu2")
    assert "gpu2 to gpu4" in finding.evidence


@pytest.mark.parametrize("change", ["wrong", "missing"])
def test_a_sum_that_fails(change: str) -> None:
    told = lines()
    for line in told:
        if line["event"] == "all" and line["rank"] == 2:
            line.update(right=False)
    if change == "missing":
        told = [line for line in told if line["event"] != "all" or line["rank"] != 2]
    assert codes(seen(attempt(told))) == [("gpu3", "mpi_sum_fails")]


@pytest.mark.parametrize("key", ["rank", "peer"])
def test_a_host_that_sends_or_receives_at_half_of_the_rate(key: str) -> None:
    """A link that fell from 100 to 50 Gb/s; in one direction is enough."""
    told = lines()
    for line in pairs_of(told, 2):
        if line[key] == 2:
            line["bytes_s"] *= 0.5
    (finding,) = diagnosed(seen(attempt(told)))
    assert (finding.code, finding.host) == ("mpi_slow_rate", "gpu3")
    assert finding.detail == f"data {'from' if key == 'rank' else 'to'} it has 50% of the rate between others"


@pytest.mark.parametrize(("part", "found"), [(0.33, []), (0.1, ["mpi_slow_rate"])])
def test_hosts_that_may_share_a_processor_differ_more(part: float, found: list[str]) -> None:
    told = lines()
    for line in pairs_of(told, 2):
        line["bytes_s"] *= part
    assert [code for _, code in codes(seen(attempt(told), cards=False))] == found


def test_rates_that_differ_as_those_of_equal_hosts_do() -> None:
    told = lines()
    for number, line in enumerate(line for line in told if line["event"] == "pair"):
        line["bytes_s"] *= 1 - 0.03 * number
    assert codes(seen(attempt(told))) == []


def test_a_host_whose_messages_take_longer() -> None:
    told = lines()
    for line in pairs_of(told, 3):
        if "latency_s" in line:
            line["latency_s"] = 5e-3
    (finding,) = diagnosed(seen(attempt(told)))
    assert (finding.code, finding.host) == ("mpi_slow_latency", "gpu4")
    assert finding.detail == "a message takes 5000 us, between others 40 us"


def test_of_two_hosts_neither_is_slower_than_the_other() -> None:
    told = lines(2)
    for line in pairs_of(told, 1):
        line["bytes_s"] = 1.0
    assert codes(seen(attempt(told, of=2))) == []


def test_what_was_fast_once_is_not_slow() -> None:
    """Other work on a host slows one try down; a slow link slows all of them."""
    slow, also = lines(), lines()
    for told in (slow, also):
        for line in pairs_of(told, 1):
            line["bytes_s"] = 1e9
    assert codes(seen(attempt(slow), attempt(also))) == [("gpu2", "mpi_slow_rate")]
    assert codes(seen(attempt(slow), attempt(lines()))) == []
    assert codes(seen(attempt(lines()), attempt(slow))) == []


SILENT = [line for line in without(lines(), 2) if line["event"] != "all"]
NO_SUM = [line for line in lines() if line["event"] != "all"]  # all are through, and it did not end


@pytest.mark.parametrize(
    ("tries", "found"),
    [
        ([SILENT, lines()], set()),
        ([NO_SUM, lines()], set()),
        ([SILENT, NO_SUM, SILENT], {("gpu3", "mpi_no_answer")}),
        ([[line for line in lines() if line["event"] == "here"]], {("gpu1", "mpi_ranks_apart")}),
    ],
    ids=["lost packets", "a rank that had to wait", "a silent host", "none is through"],
)
def test_what_one_try_shows_once_is_no_finding(
    tries: list[list[Line]], found: set[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many tries are made as there are here; what no other could change is not tried again."""
    hosts = tuple(Host(name, address(name), 1, "ssh") for name in NAMES)
    left = iter(tries)
    monkeypatch.setattr(jobs, "run", lambda *given: attempt(next(left)))
    monkeypatch.setattr(
        looking, "look", lambda cluster, hosts, *more: [HostView(each.name) for each in hosts]
    )
    four = replace(inventory.outline("local"), hosts=hosts)
    views = looking.with_job(four, cluster(), {name: {} for name in NAMES}, lambda: False)
    assert set(codes(views)) == found
    assert list(left) == []


def test_hosts_that_took_no_part_are_told() -> None:
    views = seen(attempt(lines(2), of=2), left_out={"gpu4": "because of ssh_denied"})
    assert diagnosed(views) == [
        Finding("mpi_job_left_out", "gpu4", "because of ssh_denied", "no job between this host and others")
    ]


# --- how the launcher reaches a host ---------------------------------------------------------


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "fish", "tcsh"])
def test_every_login_shell_hands_on_what_the_launcher_starts(shell: str, tmp_path: Path) -> None:
    """``ssh`` is that shell in its place here, where it is installed; else its words alone are looked at."""
    folder, asked = tmp_path / "folder", tmp_path / "asked"
    text = runpy.run_path(str(FILES / "job.py"))["RSH"] % {"folder": folder, "seconds": 9}
    (tmp_path / "rsh.sh").write_text(text)
    run = f'exec {shell} -c "$1"' if shutil.which(shell) else ":"
    (tmp_path / "ssh").write_text(
        f'#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift 2\nprintf %s "$1" > {asked}\n{run}\n'
    )
    (tmp_path / "ssh").chmod(0o755)
    command = r"""printf '%s|' "$RUNKIT_DOCTOR_HOST" "$TMPDIR" 'it'\''s' 'a\b' '!x' "$HOME"; exit 3"""
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
    argv = ["sh", str(tmp_path / "rsh.sh"), "gpu2", command]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=20)
    words = asked.read_text()
    assert shlex.split(words)[3:] == ["sh", "gpu2", command]
    # Between single quotes each shell takes all but these as they are: fish \\ and ', csh ! and line ends.
    assert re.sub(r"'[^'\\!\n]*'|\\['\\!]", "", words).split() == ["sh", "-c", "sh"]
    if shutil.which(shell):
        assert done.stdout == rf"gpu2|{folder}|it's|a\b|!x|{tmp_path}|"
        assert (done.returncode, done.stderr) == (3, "daemon on gpu2 ended with status 3\n")
        assert not folder.exists()


# --- what the ranks run ----------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 31, 32])
def test_every_pair_meets_once_in_rounds_of_disjoint_pairs(ranks: int) -> None:
    partner = runpy.run_path(str(FILES / "ranks.py"))["partner"]
    turns = ranks - 1 + ranks % 2
    met = []
    for turn in range(turns):
        for rank in range(ranks):
            peer = partner(rank, turn, ranks)
            if peer is None:
                assert ranks % 2
            else:
                assert partner(peer, turn, ranks) == rank != peer
                met.append((rank, peer))
    assert sorted(met) == [(one, two) for one in range(ranks) for two in range(ranks) if one != two]


def due(seconds: float, count: int = 0) -> Any:
    """A request of MPI's that is done in so many seconds."""
    end = time.monotonic() + seconds

    def test(status: Any = None) -> bool:
        if status is not None:
            status.Get_count = lambda unit: count
        return time.monotonic() >= end

    return SimpleNamespace(Test=test)


class Three:
    """The last of three ranks: the others send what it waits for, but never a message of a stream."""

    def __init__(self, votes: float = 0.0, bytes_s: float = 1e12) -> None:
        self.votes, self.bytes_s = votes, bytes_s
        self.summed: list[int] = []  # numbers of each sum
        self.waiting: list[Any] = []  # memory that late messages may still be written to
        self.words = iter((1, 0) * 3)

    def receive(self, block: Any, peer: int, tag: int) -> Any:
        if len(block) == 1:
            block[0] = next(self.words)
            return due(0, 1)
        self.waiting.append(block)
        return due(3600)

    def sum(self, mine: Any, summed: Any) -> Any:
        self.summed.append(len(mine))
        summed[:] = mine + self.votes if len(mine) == 1 else 6
        return due(4 * mine.nbytes / self.bytes_s)  # to the first of three and back, both ways

    def ranks(self) -> dict[str, Any]:
        """What ranks.py defines, on this network."""
        comm = SimpleNamespace(
            Get_rank=lambda: 2,
            Get_size=lambda: 3,
            Ibarrier=lambda: due(0),
            Isend=lambda block, peer, tag: due(0),
            Irecv=self.receive,
            Iallreduce=self.sum,
        )
        mpi = SimpleNamespace(COMM_WORLD=comm, BYTE=1, Status=SimpleNamespace, Finalize=lambda: None)
        return runpy.run_path(str(FILES / "ranks.py"), {"numpy": numpy, "MPI": mpi, "comm": comm})

    def add_up(self, seconds: float) -> dict[str, Any]:
        found = self.ranks()
        said: dict[str, Any] = found["together"](found["comm"], time.monotonic() + seconds)
        return said


def test_what_comes_too_late_is_not_written_into_the_next_meeting(capfd: pytest.CaptureFixture[str]) -> None:
    """A late message is still waited for by MPI, in memory of its own."""
    three = Three()
    three.ranks()["main"](0.1)
    assert len(three.waiting) == 2  # one of each meeting
    assert not numpy.shares_memory(*three.waiting)
    events = [json.loads(line.partition(" ")[2])["event"] for line in capfd.readouterr().out.splitlines()]
    assert events == ["pair", "pair", "all", "end"]


def test_a_sum_is_done_in_time_on_a_link_of_10_megabits() -> None:
    seconds = 4 * looking.SLOT_S
    said = Three(bytes_s=10e6 / 8).add_up(seconds)
    assert said["right"]
    assert said["seconds"] < seconds / 2


def test_all_ranks_add_up_equally_often() -> None:
    """One that has no time for another try ends it for all; else it would be waited for."""
    alone, told = Three(), Three(votes=1.0)
    assert all(three.add_up(60)["right"] for three in (alone, told))
    many = alone.summed[0]
    assert (alone.summed, told.summed) == ([many, 1] * 3, [many, 1])
