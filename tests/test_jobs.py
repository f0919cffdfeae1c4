"""The job between hosts, on this machine: what starts it ends all of it, and its ranks measure each other."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit import wait_for

from runner import diagnosis, launch, looking
from runner.diagnosis import meetings, rules_jobs, rules_nccl
from runner.diagnosis.model import HostView, Probe
from runner.io import inventory, jobs
from runner.model import Host, Placement

HERE = Host("here", "localhost", 4, "local")
FILES = Path(__file__).resolve().parent.parent / "roles" / "doctor_probe" / "files"


def request(*argv: object, deadline_s: float = 20, env: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "argv": [*map(str, argv)],
        "env": env or {},
        "hostfile": "",
        "address": "here",
        "deadline_s": deadline_s,
    }


def document(answer: Any) -> dict[str, Any]:
    assert isinstance(answer, dict), answer
    return answer


def alive(pid: str) -> bool:
    """Whether a process is there and not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def launcher(folder: Path, *lines: str) -> tuple[list[str], Path]:
    """A stand-in for mpirun that starts a child, then does these lines; the file for the child's number."""
    mark = folder / "pid"
    script = "\n".join((f"sleep 600 & echo $! > {mark}", "trap '' TERM", *lines))
    return ["sh", "-c", script], mark


def test_what_it_writes_comes_back_and_its_folder_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder lies where every host has one: a TMPDIR of this one would be made there, and stay."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    said = document(jobs.run(HERE, {}, "python3", request("sh", "-c", "pwd; echo no >&2; exit 3")))
    assert (said["err"], said["why"], said["status"]) == ("no\n", None, 3)
    folder = Path(said["out"].strip())
    assert folder.name.startswith("runkit-doctor-")
    assert folder.parent == Path("/tmp")
    assert not folder.exists()


@pytest.mark.parametrize(
    ("lines", "deadline_s", "why"),
    [(("wait",), 1.0, "timeout"), (('echo \'{"event": "end"}\'', "wait"), 60.0, "timeout")],
    ids=["deadline", "a rank is through"],
)
def test_it_is_ended_with_all_it_started(
    lines: Sequence[str], deadline_s: float, why: str, tmp_path: Path
) -> None:
    """Though it does not listen to SIGTERM."""
    argv, mark = launcher(tmp_path, *lines)
    began = time.monotonic()
    said = document(jobs.run(HERE, {}, "python3", request(*argv, deadline_s=deadline_s)))
    assert time.monotonic() - began < 20
    assert (said["why"], said["status"]) == (why, None)
    assert not alive(mark.read_text().strip())


def test_it_ends_when_nobody_waits_any_more(tmp_path: Path) -> None:
    argv, mark = launcher(tmp_path, "wait")
    texts = (json.dumps((FILES / "job.py").read_text()), json.dumps(request(*argv, deadline_s=600)))
    with subprocess.Popen(
        [sys.executable, "-c", jobs.BOOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdin is not None
        job.stdin.write("".join(f"{text}\n" for text in texts))
        job.stdin.flush()
        wait_for(lambda: mark.exists() and mark.read_text().strip(), "the job", 20)
        pid = mark.read_text().strip()
        assert alive(pid)
        job.stdin.close()
        assert job.wait(20) == 0
    assert not alive(pid)


def test_a_cancelled_job_is_not_waited_for(tmp_path: Path) -> None:
    argv, mark = launcher(tmp_path, "wait")
    began = time.monotonic()
    answer = jobs.run(HERE, {}, "python3", request(*argv, deadline_s=600), mark.exists)
    assert isinstance(answer, str)
    assert time.monotonic() - began < 20
    wait_for(lambda: not alive(mark.read_text().strip()), "the end of all", 20)


def test_a_launcher_that_is_not_there() -> None:
    said = document(jobs.run(HERE, {}, "python3", request("/no/mpirun")))
    assert (said["why"], said["err"]) == ("missing", "/no/mpirun: No such file or directory")


NAMES, OWN = ("a", "b", "c"), f"ranks of the test in {os.getpid()}"
# What the second of three ranks does as soon as it wants numpy, which is before it begins with MPI.
AT_START = """
class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy" and os.environ["OMPI_COMM_WORLD_RANK"] == "1":
            import signal
            {}
import sys
sys.meta_path.insert(0, Hook())
"""
# The same for one that has said how it met another.
STOPS_LATER = """
            write = os.write
            def wrote(where, text):
                write(where, text)
                if b'"pair"' in text: os.kill(os.getpid(), signal.SIGSTOP)
            os.write = wrote
"""


def met(slot_s: float, deadline_s: float, at_start: str = "return") -> dict[str, Any]:
    """What ranks say, three of them on this machine, each as if it were a host."""
    cluster = inventory.outline("local")
    program = "import os; os.environ['RUNKIT_DOCTOR_HOST'] = 'abc'[int(os.environ['OMPI_COMM_WORLD_RANK'])]\n"
    program += f"# {OWN}\n{AT_START.format(at_start)}"
    words = ["-np", 3, "--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    command = [cluster.python, "-m", "mpi4py", "-c", program + jobs.ranks(), slot_s, deadline_s]
    asked = request(cluster.mpirun, *words, *command, deadline_s=deadline_s, env=root)
    said = document(jobs.run(HERE, {}, "python3", asked))
    return {**said, "hosts": {name: name for name in NAMES}, "slot_s": slot_s}


def command_lines() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_text(errors="replace")


def test_ranks_meet_in_pairs_and_add_up() -> None:
    """How fast it is says nothing here, but that no round lasts longer than it must."""
    names, said = NAMES, met(25.0, 60)
    assert said["why"] is None, said
    found = meetings.read(said)
    assert found.here == found.through == set(names)
    assert set(found.met.values()) == {True}
    assert len(found.met) == len(found.latencies) == 3
    assert set(found.rates) == {(one, two) for one in names for two in names if one != two}
    assert {right for _, right in found.sums.values()} == {True}
    assert found.wrong == frozenset()
    assert 0 < min(found.latencies.values()) < 0.5


# All are one machine: what one removes at its end is the others' too.
STAND_IN = """\
#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift; host=$1; shift
words=$(printf %s "$*" | sed 's/rm -rf/:/')
[ "$host" = 198.51.100.2 ] && words=$(printf %s "$words" | sed 's/prted\\|orted/no-such-daemon/g')
exec sh -c "$words"
"""


def test_a_daemon_that_breaks_on_one_host_is_told_of_that_host(tmp_path: Path) -> None:
    """By a real launcher, of three hosts that are all this one."""
    (tmp_path / "ssh").write_text(STAND_IN)
    (tmp_path / "ssh").chmod(0o755)
    made = replace(
        inventory.outline("local"),
        hosts=tuple(Host(name, f"198.51.100.{n}", 1, "ssh") for n, name in enumerate("abc", 1)),
    )
    started = launch.between_hosts([Placement(host.name, 1) for host in made.hosts], made, ["true"])
    asked = request(*started.argv, env={**started.env, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    said = document(jobs.run(HERE, {}, "python3", {**asked, "hostfile": started.hostfile}))
    found = meetings.read({**said, "hosts": {host.for_others: host.name for host in made.hosts}})
    assert (found.here, found.broken) == (frozenset(), "b"), said["err"]


@pytest.mark.parametrize("count", [1, 2])
def test_ranks_of_nccl_have_a_deadline_of_their_own(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the launcher starts on another host is of no group that a deadline around its daemon would end."""
    monkeypatch.setattr(looking, "NCCL_S", -4)
    hosts = [Host(name, name, 1, "ssh") for name in "ab"[:count]]
    program = tmp_path / "all_reduce_perf"
    program.write_text("#!/bin/sh\ntrap '' TERM\nsleep 600\n")
    program.chmod(0o755)
    cluster = replace(inventory.outline("local"), hosts=tuple(hosts))
    argv = looking._nccl(cluster, hosts, str(program))["argv"]
    of_a_rank = argv[argv.index("timeout") :]
    began = time.monotonic()
    done = subprocess.run(of_a_rank, check=False)
    assert done.returncode != 0
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("at_start", "found"),
    [
        ("os.kill(os.getpid(), signal.SIGSTOP)", ("b", "mpi_no_answer", "its rank stood still")),
        ("raise ImportError('no numpy')", ("b", "mpi_job_fails", "no numpy")),
        (STOPS_LATER, ("b", "mpi_no_answer", "b and a: no message within 1 s")),
    ],
    ids=["stops", "fails", "stops after its first meeting"],
)
def test_a_rank_that_stops_or_fails_is_named(at_start: str, found: tuple[str, str, str]) -> None:
    """Though all have said that they are there, and nothing of it is left behind."""
    said = met(1.0, 10, at_start)
    views = [HostView(name) for name in NAMES]
    views[0] = replace(views[0], probes={"job": Probe(("x",), 0, json.dumps({"tries": [said]}))})
    (finding,) = rules_jobs.check(views)
    assert (finding.host, finding.code) == found[:2], said
    assert finding.evidence.startswith(found[2])
    wait_for(lambda: not any(OWN in text for text in command_lines()), "the end of all", 5)


def test_who_watches_a_rank_goes_with_it() -> None:
    """It does not keep open what the rank writes to."""
    program = AT_START.format("os.kill(os.getpid(), signal.SIGSTOP)") + jobs.ranks()
    words = [sys.executable, "-c", f"import os\n{program}", "1", "60"]
    env = {"PATH": "/usr/bin", "OMPI_COMM_WORLD_RANK": "1"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as rank:
        assert rank.stdout is not None
        patience = threading.Timer(20, rank.kill)
        patience.start()
        said = [json.loads(rank.stdout.readline().removeprefix(meetings.MARK)) for _ in range(2)]
        patience.cancel()
        rank.kill()
        began = time.monotonic()
        assert rank.stdout.read() == ""
        assert time.monotonic() - began < 5
    assert [line["event"] for line in said] == ["here", "stuck"]


def without(name: str, asked: Sequence[str] = ("a", "b"), **probes: Probe) -> list[tuple[str, str]]:
    """Who is told to take no part, and why: of two hosts one is off or has such probes; nothing starts."""
    cluster = replace(inventory.outline("local"), hosts=tuple(Host(n, n, 1, "ssh") for n in ("a", "b")))
    gone = None if probes else "off"
    seen = [HostView(n, probes if n == name else {}, gone if n == name else None) for n in asked]
    found = diagnosis.diagnose(looking.with_job(cluster, seen, {}, lambda: False))
    return [(each.host, each.evidence) for each in found if each.code == "mpi_job_left_out"]


def test_where_no_two_hosts_are_left_nothing_is_started_and_that_is_told() -> None:
    assert without("b") == [("a", "no other host is left for it")]
    assert without("a") == [("b", "the job would start on a, which cannot take part")]
    assert without("a", asked=("b",)) == [("b", "the job would start on a, which was not asked for")]
    busy = Probe(("x",), 0, json.dumps({"lock": "/l", "held": True, "run": "r9", "processes": []}))
    assert without("b", runs=busy) == [("a", "because of run_active on b"), ("b", "because of run_active")]


def test_nccl_tests_are_told_of_the_network_what_training_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts of one card; what would be started there is looked at here."""
    asked: list[dict[str, Any]] = []

    def run(host: Host, values: Any, python: str, request: dict[str, Any], *more: Any) -> str:
        asked.append(request)
        return "not here"

    monkeypatch.setattr(jobs, "run", run)
    monkeypatch.setattr(diagnosis, "diagnose", lambda hosts: [])
    cluster = replace(
        inventory.outline("local"),
        hosts=tuple(Host(name, name, 1, "ssh") for name in ("a", "b")),
        card_model="Tesla T4",
        interface="ens3",
        fabric="ethernet",
        env={"NCCL_IB_HCA": "mlx5_0", "NCCL_IB_DISABLE": "0"},
    )
    program = {rules_nccl.PROGRAM: Probe(("x",), 0, "/opt/all_reduce_perf\n")}
    seen = [HostView(host.name, program) for host in cluster.hosts]
    told = looking.with_nccl(cluster, seen, {"a": {}, "b": {}}, lambda: False)
    (request,) = asked
    assert request["env"]["NCCL_SOCKET_IFNAME"] == "ens3"
    assert request["env"]["NCCL_IB_DISABLE"] == "0"  # what the cluster states wins
    words = request["argv"]
    exported = {words[at + 1] for at, word in enumerate(words) if word == "-x"}
    assert {"NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_IB_HCA"} <= exported
    assert told[0].data(rules_nccl.PROBE)["adapters"] == "mlx5_0"


@pytest.mark.parametrize("name", ["job.py", "ranks.py"])
def test_what_runs_on_hosts_is_python_3_8(name: str) -> None:
    text = (FILES / name).read_text()
    tree = ast.parse(text, feature_version=(3, 8))
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported - set(sys.stdlib_module_names) == ({"numpy"} if name == "ranks.py" else set())
