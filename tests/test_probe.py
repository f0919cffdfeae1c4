"""The one file that looks at a host: run for real on this machine, with its own looks and hostile ones."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kit import wait_for

PROBE = Path(__file__).resolve().parent.parent / "roles" / "doctor_probe" / "files" / "probe.py"
DRIVER = """
import importlib.util, os, sys, time
spec = importlib.util.spec_from_file_location("probe", {probe!r})
probe = importlib.util.module_from_spec(spec)
sys.dont_write_bytecode = True
spec.loader.exec_module(probe)
command, read, function = probe.command, probe.read, probe.function
{setup}
probe.SECTIONS = (lambda request: {looks},)
sys.exit(probe.main(sys.argv))
"""


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["schema"], found["version"]) == ("runkit/probe", 1)
    assert isinstance(found, dict)
    return found


def look(looks: str, setup: str = "", request: dict[str, Any] | None = None, **env: str) -> dict[str, Any]:
    """What the probe says of looks (source text of a dict) that stand in the place of its own."""
    text = DRIVER.format(probe=str(PROBE), setup=setup, looks=looks)
    argv = [sys.executable, "-c", text, json.dumps(request or {})]
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **env}, timeout=60)
    probes = document(done)["probes"]
    assert isinstance(probes, dict)
    return probes


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX"


def gone(pid: int) -> None:
    """Fail unless the process ends now: one that was killed does so when it is next given the processor."""
    wait_for(lambda: not alive(pid), f"the end of {pid}", 5)


# --- on this machine -----------------------------------------------------------------------


def test_this_machine_is_described_as_it_is(tmp_path: Path) -> None:
    """Sent over standard input as over ssh; everything answers or says why not, and nothing is written."""
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o555)
    places = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME")
    done = subprocess.run(
        [sys.executable, "-", json.dumps({"interfaces_cidr": "127.0.0.0/8", "deadline_s": 20})],
        input=PROBE.read_text(),
        capture_output=True,
        text=True,
        cwd=home,
        env={**os.environ, **dict.fromkeys(places, str(home))},
    )
    found = document(done)
    assert list(home.iterdir()) == []
    assert found["hostname"] == os.uname().nodename
    assert found["seconds"] < 20
    probes = found["probes"]
    assert probes["os_release"]["out"] == Path("/etc/os-release").read_text()
    assert probes["kernel"]["out"].split()[:2] == [os.uname().sysname, os.uname().release]
    assert json.loads(probes["session"]["out"])["uid"] == os.geteuid()
    for name, answer in probes.items():
        assert set(answer) == {"argv", "status", "out", "err", "seconds", "why"}, name
        assert (answer["status"] is None) == (answer["why"] is not None), (name, answer)
        assert answer["why"] in (None, "missing", "needs root", "timeout"), name


def test_nothing_is_opened_for_writing() -> None:
    """By Python's own account of what it does; what programs do is up to the tables."""
    forbidden = ("os.remove", "os.mkdir", "os.rmdir", "os.rename", "os.link", "os.symlink", "os.truncate")
    setup = f"""
def watch(event, args):
    changing = event == "open" and (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if (changing and args[0] not in (os.devnull,)) or event in {forbidden!r}:
        os.write(2, ("%s %r" % (event, args)).encode())
        os._exit(3)
own = probe.SECTIONS
sys.addaudithook(watch)
"""
    looks = "{name: look for section in own for name, look in section(request).items()}"
    assert "os_release" in look(looks, setup)
    with pytest.raises(AssertionError, match="open"):  # the hook does see
        look("{'writes': function(lambda request: open('/tmp/never', 'w'))}", setup)


def test_no_look_goes_through_a_shell() -> None:
    text = DRIVER.format(probe=str(PROBE), setup="own = probe.SECTIONS", looks="{}").splitlines()
    lines = "\n".join(text[:-3])
    request = {
        "peers": [{"name": "b", "address": "192.0.2.2", "port": 22}],
        "mpirun": "mpirun",
        "mpi_ports": [1],
    }
    lines += f"\nimport json; print(json.dumps([l.argv for l in probe.table({request!r}).values()]))"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    programs = {argv[0] for argv in json.loads(done.stdout)}
    assert {"read", "python", "uname"} <= programs
    assert programs & {"sh", "bash", "dash", "env", "sudo", "xargs", "nohup"} == set()


def test_processes_of_a_run_are_left_over_where_no_agent_looks_after_them(tmp_path: Path) -> None:
    run = f"20260102-030405-{tmp_path.name[-20:]}"
    (tmp_path / run).mkdir()
    agent = tmp_path / run / "agent.py"
    agent.write_text("import time\nprint(flush=True)\ntime.sleep(600)\n")

    def left() -> list[int]:
        probes = look("{'runs': function(probe.runs)}")
        return [each["pid"] for each in json.loads(probes["runs"]["out"])["processes"] if each["run"] == run]

    with subprocess.Popen(["sleep", "600"], env={**os.environ, "RUNKIT_RUN": run}) as rank:
        assert left() == [rank.pid]
        argv = [sys.executable, str(agent), "work", str(tmp_path / run)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as attends:
            assert attends.stdout is not None
            attends.stdout.readline()
            assert left() == []
            attends.kill()
        assert left() == [rank.pid]
        rank.kill()


# --- what goes wrong -----------------------------------------------------------------------


def test_a_look_that_hangs_costs_its_own_deadline_and_ends_with_all_it_started(tmp_path: Path) -> None:
    script = tmp_path / "stuck"
    script.write_text("#!/bin/sh\ntrap '' TERM HUP INT\nsleep 600 &\necho $!\nwait\n")
    script.chmod(0o755)
    began = time.monotonic()
    probes = look(f"{{'stuck': command({str(script)!r}, seconds=1), 'kernel': command('uname')}}")
    assert time.monotonic() - began < 4
    assert probes["stuck"]["why"] == "timeout"
    assert probes["stuck"]["status"] is None
    assert 1 <= probes["stuck"]["seconds"] < 2
    gone(int(probes["stuck"]["out"]))  # what was printed until then is there
    assert probes["kernel"]["out"] == "Linux\n"


def test_the_deadline_of_all_looks_binds_each_of_them() -> None:
    began = time.monotonic()
    looks = "{'long': command('sleep', '600', seconds=300), 'deaf': function(lambda r: time.sleep(600), 300)}"
    probes = look(looks, request={"deadline_s": 2})
    assert time.monotonic() - began < 5
    assert {name: each["why"] for name, each in probes.items()} == {"long": "timeout", "deaf": "timeout"}


def test_a_function_that_hangs_or_fails_takes_none_along() -> None:
    setup = "def fails(request):\n    raise KeyError('x')\ndef hangs(request):\n    time.sleep(600)"
    probes = look(
        "{'fails': function(fails), 'hangs': function(hangs), 'kernel': command('uname')}",
        setup,
        {"deadline_s": 2},
    )
    assert (probes["fails"]["status"], probes["fails"]["err"]) == (1, "KeyError: 'x'")
    assert (probes["hangs"]["status"], probes["hangs"]["why"]) == (None, "timeout")
    assert probes["kernel"]["status"] == 0


def test_a_function_that_the_host_is_late_with_is_waited_for() -> None:
    """As long as for all looks: it cannot be ended, only left."""
    probes = look("{'late': function(lambda request: time.sleep(1) or 'here', 0.5)}")
    assert (probes["late"]["out"], probes["late"]["why"]) == ("here", None)


@pytest.mark.parametrize(
    ("seconds", "least", "most"),
    [([0.7, 0], 0, 0.5), ([0, 9], 0, 0.5), ([0.6, 0.7, 0.8, 9], 0.6, 0.7), ([0.6, 9], 0.6, 0.7)],
    ids=["a busy host", "quick", "a slow nameserver", "one that fell silent"],
)
def test_a_name_that_takes_long_is_looked_up_again(seconds: list[float], least: float, most: float) -> None:
    setup = f"""
import socket
waits, real = iter({seconds}), socket.getaddrinfo
def waiting(*words):
    time.sleep(next(waits))
    return real("127.0.0.1", None, socket.AF_INET)
probe.socket.getaddrinfo, probe.socket.gethostname, probe.NAMES_S = waiting, lambda: "", 3.0
"""
    probes = look("{'names': function(probe.names)}", setup, {"name": "gpu2"})
    told = json.loads(probes["names"]["out"])["gpu2"]
    assert told["addresses"] == ["127.0.0.1"]
    assert least <= told["seconds"] < most


def test_what_a_program_leaves_running_is_not_waited_for_and_ended(tmp_path: Path) -> None:
    script = tmp_path / "leaves"
    script.write_text("#!/bin/sh\nsleep 600 &\necho $!\nexit 7\n")
    script.chmod(0o755)
    probes = look(f"{{'leaves': command({str(script)!r}, seconds=20)}}")
    assert probes["leaves"]["status"] == 7
    assert probes["leaves"]["seconds"] < 3
    gone(int(probes["leaves"]["out"]))


def test_output_is_cut(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"\xff" * 1_000_000)
    longer = f"command('cat', {str(big)!r}, most=300_000)"
    looks = f"{{'endless': command('yes', seconds=1), 'file': read({str(big)!r}), 'longer': {longer}}}"
    probes = look(looks)
    assert probes["endless"]["out"] == "y\n" * 100_000
    assert probes["endless"]["why"] == "timeout"
    assert probes["file"]["out"] == "\N{REPLACEMENT CHARACTER}" * 200_000
    assert probes["longer"]["out"] == "\N{REPLACEMENT CHARACTER}" * 300_000


def test_what_is_missing_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a1").write_text("one")
    (tmp_path / "a2").write_text("two")
    looks = (
        "{'program': command('no-such-program', '-x'), 'file': read('/no/such/file'), "
        f"'some': read({str(tmp_path / 'a*')!r}, '/no/such/file'), 'one': read({str(tmp_path / 'a1')!r})}}"
    )
    probes = look(looks)
    for name in ("program", "file"):
        assert (probes[name]["status"], probes[name]["why"]) == (None, "missing")
    assert probes["some"]["out"] == f"==> {tmp_path}/a1 <==\none\n==> {tmp_path}/a2 <==\ntwo\n"
    assert probes["one"]["out"] == "one"


def test_programs_of_the_system_are_found_without_its_folders_in_the_path(tmp_path: Path) -> None:
    """As in a session by ssh, whose PATH often lacks /usr/sbin."""
    probes = look("{'there': command('uname')}", PATH=str(tmp_path))
    assert probes["there"]["out"] == "Linux\n"


SUDO_REFUSES = '#!/bin/sh\necho "sudo: a password is required" >&2\nexit 1\n'
SUDO_OBEYS = '#!/bin/sh\n[ "$1" = -n ] && shift && exec "$@"\n'


@pytest.mark.parametrize(
    ("sudo", "become", "expected"),
    [
        (SUDO_OBEYS, False, (None, "needs root", "")),
        (SUDO_REFUSES, True, (None, "needs root", "")),
        (SUDO_OBEYS, True, (0, None, "Linux\n")),
    ],
)
def test_root_is_asked_for_only_where_the_inventory_says_so(
    sudo: str, become: bool, expected: tuple[Any, ...], tmp_path: Path
) -> None:
    (tmp_path / "sudo").write_text(sudo)
    (tmp_path / "sudo").chmod(0o755)
    probes = look(
        "{'root': command('uname', root=True)}",
        "probe.os.geteuid = lambda: 1000",
        {"become": become},
        PATH=f"{tmp_path}:{os.environ['PATH']}",
    )
    assert tuple(probes["root"][key] for key in ("status", "why", "out")) == expected


def test_what_root_runs_ends_at_its_deadline_too(tmp_path: Path) -> None:
    (tmp_path / "sudo").write_text(SUDO_OBEYS)
    (tmp_path / "sudo").chmod(0o755)
    probes = look(
        "{'root': command('sleep', '600', root=True, seconds=1)}",
        "probe.os.geteuid = lambda: 1000",
        {"become": True},
        PATH=f"{tmp_path}:{os.environ['PATH']}",
    )
    assert (probes["root"]["status"], probes["root"]["why"]) == (None, "timeout")
    assert probes["root"]["seconds"] < 3


def test_a_signal_ends_what_runs(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    script = tmp_path / "stuck"
    script.write_text(f"#!/bin/sh\necho $$ > {mark}.new\nmv {mark}.new {mark}\nexec sleep 600\n")
    script.chmod(0o755)
    text = DRIVER.format(probe=str(PROBE), setup="", looks=f"{{'stuck': command({str(script)!r})}}")
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.DEVNULL) as started:
        while not mark.exists():
            time.sleep(0.01)
        started.terminate()
        assert started.wait(5) == 128 + 15
    gone(int(mark.read_text()))


def test_a_request_that_is_no_json_is_named() -> None:
    done = subprocess.run([sys.executable, PROBE, "{"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "the request is not JSON" in done.stderr


# --- Python 3.8 ----------------------------------------------------------------------------


def too_new(tree: ast.AST) -> list[str]:
    """What Python 3.8 parses and cannot run: ``list[int]``, ``a | b`` in annotations, newer methods."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in (
            "dict",
            "list",
            "set",
            "tuple",
            "type",
        ):
            found.append(ast.unparse(node))
        if isinstance(node, ast.Attribute) and node.attr in ("removeprefix", "removesuffix", "readlink"):
            found.append(ast.unparse(node))
        annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
        if isinstance(annotation, ast.BinOp):
            found.append(ast.unparse(annotation))
    return found


def test_it_needs_python_3_8_and_its_standard_library_alone() -> None:
    assert too_new(ast.parse("x: list[int]\ny: int | None\n'a'.removeprefix('b')")) == [
        "int | None",
        "list[int]",
        "'a'.removeprefix",
    ]
    tree = ast.parse(PROBE.read_text(), feature_version=(3, 8))
    assert too_new(tree) == []
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) == set()


def test_it_runs_on_the_pythons_there_are() -> None:
    there = [shutil.which(f"python3.{minor}") for minor in range(8, 15)]
    able = [
        each
        for each in there
        if each and not subprocess.run([each, "-c", ""], stderr=subprocess.DEVNULL).returncode
    ]
    for python in (sys.executable, *able):
        done = subprocess.run([python, "-", "{}"], input=PROBE.read_text(), capture_output=True, text=True)
        assert document(done)["probes"]["kernel"]["status"] == 0


def test_a_port_that_lets_nothing_in_is_given_up_in_time() -> None:
    """A queue that is full drops what opens a connection, as a firewall does."""
    spec = importlib.util.spec_from_file_location("probe", PROBE)
    assert spec is not None
    assert spec.loader is not None
    probe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(probe)
    with socket.socket() as full, socket.socket() as one, socket.socket() as two:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (one, two):
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        until = time.monotonic() + 1.7
        answer = probe.reach("here", *full.getsockname(), until, set())
        late = time.monotonic() - until
    assert answer["open"] is False
    assert answer["said"] == {"timed out": 2}
    assert late < 0.15
