"""The command ``doctor``, its rules as a whole, and the page that is made of them."""

from __future__ import annotations

import ast
import contextlib
import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gpu_hosts import ROCE
from kit import run

from runner import bench, catalog, conduct, diagnosis, judging, looking, plan, preflight
from runner.conduct import Run
from runner.diagnosis import views
from runner.diagnosis.model import SEVERITIES, Finding, HostView, Probe, Rule, Stated
from runner.errors import NotReady, UsageError
from runner.io import inventory, probing, workloads
from runner.io.fetch import Fetched
from runner.io.rundir import RunDir
from runner.model import Cell, Cluster, Host, Placement, Plan

ROOT = Path(__file__).resolve().parent.parent


def cluster(folder: Path, hosts: dict[str, str]) -> Path:
    """A cluster of hosts with these variables, each in one line of YAML."""
    (folder / "two").mkdir()
    lines = "".join(f"    {name}: {{cluster_cards: 1, {values}}}\n" for name, values in hosts.items())
    (folder / "two" / "hosts.yml").write_text(f"all:\n  hosts:\n{lines}")
    return folder / "two"


def stand_in(folder: Path) -> str:
    """A program in the place of ssh that does here what sshd does there."""
    path = folder / "ssh"
    path.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    path.chmod(0o755)
    return f"ansible_ssh_executable: {path}"


# --- the command ---------------------------------------------------------------------------


def looked(*words: str) -> subprocess.CompletedProcess[str]:
    """``doctor`` on this machine, where another test's broken run may leave processes for a moment."""
    for _ in range(20):
        done = run("doctor", *words)
        if "run_left_over" not in done.stdout:
            break
        time.sleep(1)
    return done


def test_this_machine_is_ready() -> None:
    done = looked()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == "localhost: ready"
    assert done.stderr == ""


def test_json_says_the_same() -> None:
    found = json.loads(looked("--json").stdout)
    assert (found["schema"], found["version"], found["cluster"]) == ("runkit/doctor", 1, "local")
    assert found["hosts"] == [{"name": "localhost", "state": "ready"}]
    assert found["between"] is None  # one host has nobody to meet
    for each in found["findings"]:
        assert set(each) == {"code", "severity", "host", "detail", "evidence", "cause", "remedy"}
        assert each["severity"] == "info"


def test_a_host_that_cannot_be_looked_at_is_named_and_the_others_are_not_held_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never says a word
        deaf = (
            f"ansible_port: {silent.getsockname()[1]}, ansible_ssh_common_args: -F none -o ConnectTimeout=2"
        )
        folder = cluster(tmp_path, {"well": stand_in(tmp_path), "127.0.0.1": deaf})
        began = time.monotonic()
        done = run("-i", folder, "doctor")
        json_done = run("-i", folder, "doctor", "--json", "--limit", "127.0.0.1")
    assert time.monotonic() - began < 45
    assert done.returncode == 1
    line = next(line for line in done.stdout.splitlines() if "host_unreachable" in line)
    rule = diagnosis.rules()["host_unreachable"]
    assert (
        line
        == f"127.0.0.1: blocking host_unreachable: nothing is known of this host; {rule.cause}; {rule.remedy}"
    )
    assert "timed out" in done.stdout
    assert "127.0.0.1: ready" not in done.stdout
    assert json_done.returncode == 2
    assert json.loads(json_done.stdout)["hosts"] == [{"name": "127.0.0.1", "state": "unreachable"}]
    assert json_done.stderr == "runkit: no host could be looked at\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_what_it_started(number: int, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    program = tmp_path / "ssh"
    program.write_text(f"#!/bin/sh\necho $$ > {mark}.new; mv {mark}.new {mark}; exec sleep 600\n")
    program.chmod(0o755)
    folder = cluster(tmp_path, {"a": f"ansible_ssh_executable: {program}"})
    argv = [sys.executable, "-m", "runner", "-i", str(folder), "doctor"]
    with subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True) as looking:
        while not mark.exists():
            time.sleep(0.01)
        looking.send_signal(number)
        said = looking.communicate(timeout=20)[1]
    assert looking.returncode == 128 + number
    assert said == f"runkit: doctor ended by {signal.Signals(number).name}\n"
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()


def test_what_a_host_says_can_be_written_and_no_terminal_obeys(tmp_path: Path) -> None:
    """Half a character, which no encoding has, and orders to a terminal in eight bits."""
    runs = {"lock": "/l", "held": True, "run": "\ud800\x9b2J", "processes": []}
    said = {"argv": [], "status": 0, "out": json.dumps(runs), "err": "", "seconds": 0.1, "why": None}
    (tmp_path / "said").write_text(
        json.dumps({"schema": "runkit/probe", "version": 1, "probes": {"runs": said}})
    )
    (tmp_path / "ssh").write_text(f"#!/bin/sh\nexec cat {tmp_path}/said\n")
    (tmp_path / "ssh").chmod(0o755)
    folder = cluster(tmp_path, {"odd": f"ansible_ssh_executable: {tmp_path}/ssh"})
    done = run("-i", folder, "doctor", "--json")
    (finding,) = (each for each in json.loads(done.stdout)["findings"] if each["code"] == "run_active")
    assert finding["detail"] == "\ud800\x9b2J is working"
    assert done.stdout.isascii()
    assert done.stdout.replace("\n", "").isprintable()
    text = run("-i", folder, "doctor").stdout
    assert "odd: info run_active: \\ud800\\x9b2J is working" in text


def test_limit_takes_hosts_of_the_cluster_alone() -> None:
    done = run("doctor", "--limit", "localhots")
    assert done.returncode == 2
    assert done.stderr == "runkit: --limit localhots: no such host; nearest: localhost\n"
    assert looked("--limit", "localhost").returncode == 0


def test_bench_refuses_with_what_blocks_and_starts_nothing(tmp_path: Path) -> None:
    """A host over ssh whose MPI and Python are not there, and where a file is in the way of the runs."""
    (tmp_path / "file").touch()
    one = f"{stand_in(tmp_path)}, ansible_host: localhost, cluster_mpirun: /no/mpirun"
    one += ", cluster_python: /no/python"
    folder = cluster(tmp_path, {"well": f"{one}, bench_agent_root: {tmp_path}/file/runs"})
    done = run("-i", folder, "bench", "--cards", "1")
    assert done.returncode == 2
    *lines, last = done.stderr.splitlines()
    for line, said in zip(
        lines,
        (
            "mpi_missing: /no/mpirun is not there",
            "python_packages_missing: ranks would not start (/no/python: not found)",
            f"runs_not_writable: {tmp_path}/file/runs cannot be made ({tmp_path}/file is no folder)",
        ),
        strict=True,
    ):
        assert line.startswith(f"well: {said}")
        assert line.endswith(f"; {diagnosis.rules()[said.partition(':')[0]].remedy}")
    assert last == "runkit: nothing was started: well cannot train; see doctor, or start with --no-preflight"
    assert list(tmp_path.glob("2*")) == []


@pytest.mark.parametrize("code", ["python_packages_missing", "mpi_tmp_full"])
def test_what_only_mpi_needs_keeps_no_other_cell_from_running(code: str) -> None:
    made, finding = inventory.outline("local"), Finding(code, "a", "x", "y")
    for argv, is_refused in (((made.mpirun, "-n", "2"), True), (("docker", "run"), False)):
        cell = cast("Cell", SimpleNamespace(argv=argv, scripts=()))
        assert preflight._stops(finding, made, [cell]) == is_refused


def test_a_deadline_that_leaves_no_look_any_time_is_refused() -> None:
    made, host = inventory.outline("local"), Host("a", "127.0.0.1", 1, "ssh")
    for seconds in (-1, 0, 1):
        with pytest.raises(UsageError, match=rf"^a: doctor_probe_deadline_s: {seconds} is too short"):
            looking.look(made, [host], {"a": {"doctor_probe_deadline_s": seconds}}, lambda: False)
    asked = looking.question(host, [host], made, {"a": {"doctor_probe_deadline_s": 2}}, None)
    assert asked.deadline_s == 2
    assert {1024, made.port, 60999} < {*asked.request["mpi_ports"]}  # ranks, rendezvous, daemons


def test_bench_refuses_an_adapter_that_a_host_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four hosts with NCCL_IB_HCA: mlx5_0:1, of which the third calls its adapter rocep12s0."""
    made = inventory.outline("v100x32")

    def ask(questions: Sequence[probing.Question], cancelled: object) -> dict[str, object]:
        def answer(name: str) -> dict[str, object]:
            ports = {"rocep12s0/1" if name == "gpu3" else "mlx5_0/1": ROCE}
            return {"argv": [], "status": 0, "out": json.dumps(ports), "err": "", "seconds": 0.1, "why": None}

        return {
            each.host.name: {"probes": {"rdma_ports": answer(each.host.name)}}
            for each in questions
            if "rdma_ports" in each.request["only"]
        }

    monkeypatch.setattr(probing, "ask", ask)
    placement = tuple(Placement(host.name, 8) for host in made.hosts)
    cell = SimpleNamespace(state="planned", placement=placement, argv=(), scripts=())
    with pytest.raises(NotReady):
        preflight.check(made, Path(made.path), cast("list[Cell]", [cell]))
    said = [line for line in capsys.readouterr().err.splitlines() if "rdma_adapter_unknown" in line]
    assert said == [
        "gpu3: rdma_adapter_unknown: NCCL_IB_HCA is mlx5_0:1 (active ports: rocep12s0/1); "
        + diagnosis.rules()["rdma_adapter_unknown"].remedy
    ]


def two_cells(folder: Path) -> tuple[Cluster, tuple[Cell, ...]]:
    """Two hosts over ssh; one cell uses the first alone, the other both."""
    own = stand_in(folder)
    made = inventory.outline(
        str(cluster(folder, {name: f"{own}, ansible_host: 192.0.2.{n}" for n, name in enumerate("ab", 1)}))
    )
    digits = workloads.load(
        "digits", lambda stem, document, place: catalog.workload(stem, document, ["runkit"], place)
    )
    return made, plan.cells([digits], made, plan.Overrides(cards=(1, 2)), {"runkit": "x"})


def test_a_host_that_the_inventory_no_longer_has_is_named(tmp_path: Path) -> None:
    made, cells = two_cells(tmp_path)
    hosts = Path(made.path) / "hosts.yml"
    hosts.write_text("\n".join(line for line in hosts.read_text().splitlines() if "b:" not in line))
    with pytest.raises(UsageError) as caught:
        preflight.check(made, Path(made.path), cells)
    assert str(caught.value) == (
        f"{made.path}: the run uses b, which this inventory no longer has; put it back, or start a new run"
    )


@pytest.mark.parametrize("is_looked_at", [True, False])
def test_before_a_run_goes_on_only_hosts_of_what_is_missing_are_looked_at(
    is_looked_at: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, (one, two) = two_cells(tmp_path)
    begun = Run(
        RunDir(tmp_path), Plan("r", "2026-01-01T00:00:00Z", made, (one, two), False, versions={}, commit="")
    )
    results = [SimpleNamespace(cell=one.id, state="planned"), SimpleNamespace(cell=two.id, state="measured")]
    looked_for: list[Sequence[Cell]] = []
    monkeypatch.setattr(conduct, "collect", lambda run: Fetched({}, {}))
    monkeypatch.setattr(judging, "judge", lambda *words: results)
    monkeypatch.setattr(conduct, "stage", lambda run, todo, signals: False)
    monkeypatch.setattr(conduct, "stop", lambda run: 0)
    monkeypatch.setattr(bench, "_finish", lambda *words: 1)
    monkeypatch.setattr(preflight, "check", lambda made, folder, cells: looked_for.append(cells))
    assert bench.resume(begun, is_looked_at) == 1
    assert looked_for == ([[one]] if is_looked_at else [])


def asked_again(
    folder: Path, first: str, then: str, only: Sequence[str] | None = None
) -> tuple[HostView, list[Any]]:
    """What is seen of a host with a stand-in for ``uname``, and which looks it was asked for each time."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "uname").write_text(
        f"#!/bin/sh\n[ -e {folder}/mark ] && {{ {then}; exit; }}\n: > {folder}/mark\n{first}\n"
    )
    (folder / "ssh").write_text(
        f'#!/bin/sh\nfor last; do :; done\nprintf "%s\\n" "$last" >> {folder}/asked\n'
        f'PATH={programs}:$PATH exec sh -c "$last"\n'
    )
    for path in (programs / "uname", folder / "ssh"):
        path.chmod(0o755)
    host = Host("a", "127.0.0.1", 1, "ssh")
    values = {"a": {"ansible_ssh_executable": str(folder / "ssh"), "doctor_probe_deadline_s": 4}}
    made = replace(inventory.outline("local"), hosts=(host,))
    (seen,) = looking.look(made, [host], values, lambda: False, only)
    requests = [shlex.split(line)[-1] for line in (folder / "asked").read_text().splitlines()]
    return seen, [json.loads(each)["only"] for each in requests]


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        ("exec sleep 60", "echo Linux", ("Linux\n", None, [None, ["kernel"]])),
        ("exec sleep 60", "exec sleep 60", ("", "timeout", [None, ["kernel"]])),
        ("echo Linux", "echo again", ("Linux\n", None, [None])),
    ],
    ids=["a busy host", "what hangs", "nothing is late"],
)
def test_a_look_that_did_not_end_is_taken_once_more(
    first: str, then: str, expected: tuple[str, str | None, list[Any]], tmp_path: Path
) -> None:
    seen, requests = asked_again(tmp_path, first, then)
    assert (seen.probe("kernel").out, seen.probe("kernel").why, requests) == expected
    assert seen.probe("os_release").status == 0


def test_bench_asks_once_more_as_well(tmp_path: Path) -> None:
    seen, requests = asked_again(tmp_path, "exec sleep 60", "echo Linux", ["kernel", "limits"])
    assert (seen.probe("kernel").out, requests) == ("Linux\n", [["kernel", "limits"], ["kernel"]])


# --- the rules as a whole ------------------------------------------------------------------


def test_a_rule_says_what_it_is() -> None:
    every = [rule for module in diagnosis.modules() for rule in module.RULES]
    assert len({rule.code for rule in every}) == len(every)
    for rule in every:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", rule.code)
        assert rule.severity in SEVERITIES
        for text in (rule.title, rule.cause, rule.remedy):
            assert text.strip() == text != ""
            assert text.isprintable()
            assert not text.endswith("."), f"{rule.code}: {text}"


def strings(path: Path) -> set[str]:
    return {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_rule_has_a_test() -> None:
    paths = [*(ROOT / "tests").glob("test_diagnosis*.py"), Path(__file__)]
    tested = {text for path in paths for text in strings(path)}
    assert set(diagnosis.rules()) - tested == set()


def test_hosts_of_which_nothing_is_known_break_no_other_rule() -> None:
    nothing = HostView("a", unreachable="off")
    assert [each.code for each in diagnosis.diagnose([nothing])] == ["host_unreachable"]


STATED = Stated(
    8, "Tesla V100-SXM2-32GB", "450.80.02", "infiniband", "ib0", "10.0.0.0/24", "10.0.0.1", adapters="x"
)
HOSTILE = [
    "",
    "\n",
    "\0\x1b[2J",
    "null",
    "{}",
    "[]",
    "[[]]",
    "0",
    '"x"',
    "=" * 5000,
    "a: b\n" * 99,
    "1 2 3\n-\n",
]
HOSTILE += ['{"a": null, "b": {}}', '{"a": [1, {"b": "c"}]}', "NaN", "1e999", "[{}, 1, null]", ", , ,\n" * 9]


@pytest.fixture(scope="module")
def probes() -> dict[str, Probe]:
    """What this machine says, with itself as the only peer."""
    peer = {"name": "b", "address": "127.0.0.1", "port": 9}
    request = {"peers": [peer], "name": "a", "address": "127.0.0.1", "is_launch": True, "deadline_s": 5}
    probe = ROOT / "roles" / "doctor_probe" / "files" / "probe.py"
    done = subprocess.run([sys.executable, probe, json.dumps(request)], capture_output=True, check=True)
    return dict(views.view("a", json.loads(done.stdout), STATED).probes)


@pytest.mark.parametrize("said", HOSTILE)
@pytest.mark.parametrize("status", [0, 1, None])
def test_no_rule_stumbles_over_what_a_host_says(
    said: str, status: int | None, probes: dict[str, Probe]
) -> None:
    probe = Probe(("x",), status, said, said, 0.1, None if status is not None else "timeout")
    hosts = [HostView(name, dict.fromkeys(probes, probe), None, STATED) for name in ("a", "b")]
    assert {each.host for each in diagnosis.diagnose(hosts)} <= {"a", "b"}


def variants(value: Any) -> Iterator[Any]:
    """JSON with one value in it replaced by another, each in turn."""
    yield from (None, [], {}, "x", -1.5)
    if isinstance(value, dict):
        for key in list(value)[:40]:
            yield from ({**value, key: each} for each in variants(value[key]))
    elif isinstance(value, list):
        for number in range(min(3, len(value))):
            yield from ([*value[:number], each, *value[number + 1 :]] for each in variants(value[number]))


def test_no_rule_stumbles_over_any_value_of_another_type(probes: dict[str, Probe]) -> None:
    healthy, tried = HostView("b", probes, None, STATED), 0
    for name, probe in probes.items():
        with contextlib.suppress(ValueError):
            for each in variants(json.loads(probe.out)):
                odd = {**probes, name: replace(probe, status=0, out=json.dumps(each))}
                diagnosis.diagnose([HostView("a", odd, None, STATED), healthy])
                tried += 1
    assert tried > 100


def test_looks_have_names_of_their_own() -> None:
    program = "import sys; sys.path.insert(0, 'roles/doctor_probe/files'); sys.dont_write_bytecode = True\n"
    program += "import probe; print([len(probe.table({})), sum(len(each({})) for each in probe.SECTIONS)])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True)
    together, apart = json.loads(done.stdout)
    assert together == apart > 20


# --- reachable, and looks that end ---------------------------------------------------------


def codes(*hosts: HostView) -> list[tuple[str, str]]:
    return [(each.host, each.code) for each in diagnosis.diagnose(hosts)]


def test_findings_are_in_the_order_of_the_hosts_and_the_worst_first() -> None:
    slow = Probe(("df",), None, "", "", 9.7, "timeout")
    root = Probe(("dmesg",), None, "", "", 0.0, "needs root")
    hosts = [HostView("b", {"x": root, "y": slow}), HostView("a", unreachable="off"), HostView("c")]
    found = [each for each in codes(*hosts) if each[1] in ("needs_root", "probe_hangs", "host_unreachable")]
    assert found == [("b", "probe_hangs"), ("b", "needs_root"), ("a", "host_unreachable")]


def test_a_look_that_hangs_is_named_with_what_ran() -> None:
    slow = Probe(("df", "-P"), None, "", "", 9.7, "timeout")
    found = [
        each for each in diagnosis.diagnose([HostView("a", {"disk": slow})]) if each.code == "probe_hangs"
    ]
    assert found == [Finding("probe_hangs", "a", "df -P (ended after 10 s)", "disk did not answer")]


# --- the page ------------------------------------------------------------------------------


def test_the_page_is_what_the_rules_say() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "findings_page.py", "--check"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, ""), "make docs"
    page = (ROOT / "docs" / "findings.md").read_text()
    assert all(f"### `{code}`\n" in page for code in diagnosis.rules())


def test_the_page_takes_text_as_text() -> None:
    from runner.diagnosis.page import page

    class Module:
        __name__ = "rules_os"
        RULES = (Rule("x", "info", "A title", "<b>*a*", "`b` [c]"),)

        def check(self, hosts: Any) -> Any:
            return iter(())

    assert "- Cause: \\<b\\>\\*a\\*.\n- Remedy: \\`b\\` \\[c\\].\n" in page([Module()])
