"""Rules of the system, limits and clocks: each finds what is broken, and nothing on hosts without a fault.

The hosts are recorded (see os_hosts); at the end of the file this machine is asked for real.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import os_hosts as made
import pytest
from os_hosts import altered, broken, cluster, data, found, host, said

from runner import diagnosis
from runner.diagnosis import views
from runner.diagnosis.model import HostView, Probe, Stated

PROBE = Path(__file__).resolve().parent.parent / "roles" / "doctor_probe" / "files" / "probe.py"
LOW = made.LIMITS.replace(
    "memory         unlimited            unlimited", "memory         8388608              8388608"
)
MIB, GIB = 1 << 20, 1 << 30


def space(use: str, **changed: int) -> Probe:
    return data({**made.SPACE, use: {**made.SPACE[use], **changed}})


def pairs(name: str, ahead: dict[str, float]) -> Probe:
    """The clocks of the others as ``name`` was told them; ``ahead``: how far each is ahead of true time."""
    met = made.pairs(name, made.NAMES)
    for other, doors in met["reached"].items():
        for door in doors.values():
            door["offset"] = ahead.get(other, 0.0) - ahead.get(name, 0.0)
    return data(met)


# --- one host is broken --------------------------------------------------------------------

# Code, what the probes said on gpu3, and what the evidence shows.
BROKEN: list[tuple[str, dict[str, Probe], str]] = [
    ("shm_small", {"space": space("shm", size=64 * MIB)}, "/dev/shm on /dev/shm: 12662632448 of 67108864"),
    ("shm_not_writable", {"space": space("shm", writable=False)}, "/dev/shm: not writable for the user"),
    ("disk_full", {"space": space("runs", free=GIB - 1)}, "runkit on /root: 1073741823 of"),
    ("data_space", {"space": space("data", free=0)}, "/data/runkit on /: 0 of 27055"),
    ("data_space", {"space": space("data", free=20 * GIB - 1)}, "/data/runkit on /: 21474836479 of"),
    ("tmp_space", {"space": space("tmp", free=2 * GIB - 1)}, "/tmp on /tmp: 2147483647 of"),
    ("inodes_short", {"space": space("tmp", inodes_free=167771)}, "/tmp: 167771 of 16777216 inodes free"),
    ("disk_full", {"space": space("runs", inodes_free=199)}, "/root: 199 of 16777216 inodes free"),
    (
        "runs_not_writable",
        {"runs_root": data({**made.ROOT, "at": "/root/.local", "folder": False, "writable": True})},
        "/root/.local is no folder",
    ),
    ("runs_not_writable", {"runs_root": data({**made.ROOT, "writable": False})}, "/root is not writable"),
    ("os_differs", {"os_release": said(made.OS_RELEASE.replace("12", "13"))}, "debian 13"),
    ("kernel_differs", {"kernel": said(made.KERNEL.replace("-40-", "-39-"))}, "6.1.0-39-amd64"),
    ("time_service_off", {"time_units": said("inactive\n" * 7, 3)}, "recorded: inactive, inactive"),
    ("clock_unsynchronized", {"time_state": said("NTP=yes\nNTPSynchronized=no\n")}, "NTPSynchronized=no"),
    ("security_modules_differ", {"selinux": said("1")}, "SELinux enforcing, AppArmor off"),
    ("security_modules_differ", {"apparmor": said("Y\n")}, "SELinux off, AppArmor on"),
    ("selinux_enforcing", {"selinux": said("1")}, "/sys/fs/selinux/enforce: 1"),
    (
        "mount_hangs",
        {"mounts": data([{**made.NAS, "hangs": True}])},
        "nas:/data /data nfs4: no answer within 3 s",
    ),
    (
        "packages_half_installed",
        {"half_installed": data({"packages": ["docker-ce: install ok half-configured"], "journal": 0})},
        "docker-ce: install ok half-configured",
    ),
    (
        "packages_half_installed",
        {"half_installed": data({"packages": [], "journal": 3})},
        "steps in dpkg's journal: 3",
    ),
    ("run_active", {"runs": data({**made.RUNS, "held": True, "run": "night-1"})}, "lock is held by night-1"),
    (
        "run_left_over",
        {"runs": data({**made.RUNS, "processes": [{"pid": 77, "name": "python3", "run": "night-1"}]})},
        "77 python3",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("code", "probes", "shown"), BROKEN, ids=[code for code, *_ in BROKEN])
def test_a_broken_host_is_named(code: str, probes: dict[str, Probe], shown: str) -> None:
    assert found(cluster(), code) == []
    (finding,) = found(broken(cluster(), "gpu3", **probes), code)
    assert finding.host == "gpu3"
    assert shown in finding.evidence


def test_hosts_without_a_fault_have_no_finding() -> None:
    """Of any rule, theirs or another's."""
    assert diagnosis.diagnose(cluster()) == []
    assert diagnosis.diagnose([host("gpu1")]) == []


def test_what_just_meets_a_bound_is_enough() -> None:
    enough = {
        "data": {"free": 20 * GIB},
        "runs": {"free": GIB},
        "tmp": {"free": 2 * GIB},
        "shm": {"size": GIB, "free": 0},
    }
    told = {use: {**place, **enough[use]} for use, place in made.SPACE.items()}
    assert diagnosis.diagnose(broken(cluster(), "gpu3", space=data(told))) == []


# --- limits --------------------------------------------------------------------------------


def test_memlock_is_that_of_the_process_that_ssh_started() -> None:
    """What the launch host started there counts, and not what the probe itself was given."""
    session = {"status": 0, "out": LOW + made.PLACES, "err": "", "port": 22}
    fine = {**session, "out": made.LIMITS + made.PLACES}
    told = data({"gpu2": fine, "gpu3": session, "gpu4": fine})
    hosts = broken(cluster(fabric="infiniband"), "gpu1", ssh=told)
    (finding,) = found(hosts, "memlock_session", "memlock_session_low")
    assert (finding.code, finding.host) == ("memlock_session", "gpu3")
    assert finding.evidence == "Max locked memory 8388608 8388608 bytes"
    assert "8192 KiB" in finding.detail
    (finding,) = found(broken(cluster(), "gpu1", ssh=told), "memlock_session", "memlock_session_low")
    assert (finding.code, finding.host) == ("memlock_session_low", "gpu3")  # it has no RDMA


@pytest.mark.parametrize(
    ("soft", "code"), [(40, "nofile_session"), (256, "nofile_session_low"), (1024, None), ("unlimited", None)]
)
def test_open_files_of_the_process_that_ssh_started(soft: object, code: str | None) -> None:
    """By the form of /proc/self/limits, with the 8 cards that the inventory states."""
    low = made.LIMITS.replace("1048576              1048576", f"{soft:<20} 1048576")
    session = {"status": 0, "out": low + made.PLACES, "err": "", "port": 22}
    told = {name: session if name == "gpu3" else {**session, "out": made.LIMITS} for name in made.NAMES[1:]}
    named = [(each.code, each.host) for each in diagnosis.diagnose(broken(cluster(), "gpu1", ssh=data(told)))
             if each.code.startswith("nofile")]  # fmt: skip
    assert named == ([(code, "gpu3")] if code else [])


@pytest.mark.parametrize(
    ("soft", "named"),
    [(0, ["fsize_session"]), (1024000, ["fsize_session"]), (1 << 40, []), ("unlimited", [])],
)
def test_a_file_size_that_is_limited(soft: object, named: list[str]) -> None:
    low = said(made.LIMITS + f"Max file size             {soft:<20} unlimited            bytes\n")
    told = diagnosis.diagnose(broken(cluster()[:1], "gpu1", limits=low, ssh=data({})))
    assert [each.code for each in told if each.code.startswith("fsize")] == named


def test_few_processes() -> None:
    """Root may have more than its limit; what Python says of threads holds for everybody."""
    limits = said(
        made.LIMITS + "Max processes             256                  96308                processes\n"
    )
    for uid, err, named in (
        (1000, "", True),
        (0, "", False),
        (0, "RuntimeError: can't start new thread", True),
    ):
        own = {"limits": limits, "session": data({"uid": uid}), "runs": said("", 1, err)}
        told = found([altered(made.host("gpu1"), **own)], "nproc_session_low")
        assert ["256 96308" in each.evidence for each in told] == [True] * named


def test_memlock_of_the_launch_host_is_that_of_its_own_session() -> None:
    hosts = broken(cluster(fabric="roce"), "gpu1", limits=said(LOW))
    assert [each.host for each in found(hosts, "memlock_session")] == ["gpu1"]
    assert found(broken(cluster(fabric="roce"), "gpu2", limits=said(LOW)), "memlock_session") == []


def test_half_of_the_memory_is_enough_to_lock() -> None:
    """24731708 kB are 25325268992 bytes."""
    for limit, named in ((12662634496, []), (12662634495, ["gpu1"])):
        limits = said(LOW.replace("8388608              8388608  ", f"{limit}          {limit}"))
        hosts = broken(cluster(fabric="roce"), "gpu1", limits=limits)
        assert [each.host for each in found(hosts, "memlock_session")] == named


def test_memlock_of_services() -> None:
    """8 MiB is what systemd gives where nobody states it."""
    low = {"service_limits": said("DefaultLimitMEMLOCK=8388608\n")}
    (finding,) = found(broken(cluster(fabric="roce"), "gpu4", **low), "memlock_service")
    assert (finding.host, finding.evidence) == ("gpu4", "DefaultLimitMEMLOCK=8388608")
    assert found(broken(cluster(), "gpu4", **low), "memlock_service") == []
    assert found(cluster(fabric="roce"), "memlock_service") == []


# --- clocks --------------------------------------------------------------------------------


def test_the_clock_that_is_unlike_the_others_is_named_even_that_of_the_first_host() -> None:
    for name in made.NAMES:
        hosts = [altered(view, pairs=pairs(view.name, {name: 7.25})) for view in cluster()]
        (finding,) = found(hosts, "clock_differs")
        other = "gpu2" if name == "gpu1" else "gpu1"
        assert finding.host == name
        assert finding.evidence == f"7.250 s ahead of {other}, give or take 0.0001 s"
    hosts = [altered(view, pairs=pairs(view.name, {"gpu2": 0.45})) for view in cluster()]
    assert found(hosts, "clock_differs") == []


def test_a_clock_within_the_error_of_the_measurement_is_not_named() -> None:
    """Where hosts did not talk, a login of seconds lies between the clocks: only what is certain counts."""
    for least, most, is_named in (
        (0.6, 4.0, False),
        (0.95, 4.0, True),
        (-4.0, -0.5, False),
        (-4.0, -0.75, True),
    ):
        hosts = [
            altered(view, pairs=data({}), clock_offset=data({"least_s": -0.2, "most_s": 0.4}))
            for view in cluster()
        ]
        offset = data({"least_s": least, "most_s": most})
        named = [each.host for each in found(broken(hosts, "gpu4", clock_offset=offset), "clock_differs")]
        assert named == (["gpu4"] if is_named else [])


def test_a_clock_is_known_by_what_either_of_two_was_told() -> None:
    """Only gpu4 could ask the others: from there gpu1 to gpu3 are behind, so that gpu4 is ahead."""
    hosts = [altered(view, pairs=data({}), clock_offset=data({})) for view in cluster()]
    (finding,) = found(broken(hosts, "gpu4", pairs=pairs("gpu4", {"gpu4": 7.25})), "clock_differs")
    assert (finding.host, finding.evidence) == ("gpu4", "7.250 s ahead of gpu1, give or take 0.0001 s")


def test_the_error_of_both_logins_counts() -> None:
    """gpu4 is 4.0 to 4.2 s ahead of who asks, the others 3.0 to 3.6 s: at least 0.4 s between."""
    others, own = data({"least_s": 3.0, "most_s": 3.6}), data({"least_s": 4.0, "most_s": 4.2})
    hosts = [altered(view, pairs=data({}), clock_offset=others) for view in cluster()]
    assert found(broken(hosts, "gpu4", clock_offset=own), "clock_differs") == []
    own = data({"least_s": 4.2, "most_s": 4.4})
    (finding,) = found(broken(hosts, "gpu4", clock_offset=own), "clock_differs")
    assert finding.evidence == "1.000 s ahead of gpu1, give or take 0.4 s"


def test_a_source_of_time_goes_where_chrony_reads_it() -> None:
    """No variable states one. The paths are those of the packages of Debian and of Enterprise Linux."""
    remedy = diagnosis.rules()["clock_unsynchronized"].remedy
    assert {"/etc/chrony/chrony.conf", "/etc/chrony.conf"} <= set(remedy.replace(",", " ").split())


def test_a_container_has_the_clock_of_its_machine() -> None:
    off = {"time_units": said("inactive\n" * 7, 3), "container": said("docker\n")}
    assert found(broken(cluster(), "gpu1", **off), "time_service_off") == []


# --- runs ----------------------------------------------------------------------------------


def test_processes_of_the_run_that_holds_the_lock_are_not_left_over() -> None:
    left = [{"pid": pid, "name": "python3", "run": run} for pid, run in ((7, "b"), (8, "a"), (9, "b"))]
    told = data({**made.RUNS, "held": True, "run": "a", "processes": left})
    (finding,) = found(broken(cluster(), "gpu1", runs=told), "run_left_over")
    assert (finding.evidence, finding.detail) == ("7 python3, 9 python3", "2 of b")


# --- this machine --------------------------------------------------------------------------


def asked(only: list[str], **request: Any) -> HostView:
    """This machine as its own probe describes it."""
    text = json.dumps({"only": only, **request})
    done = subprocess.run(
        [sys.executable, PROBE, text], capture_output=True, text=True, check=True, timeout=60
    )
    return views.view("here", json.loads(done.stdout), Stated(1, "", "", "infiniband"))


def test_this_machine_is_measured_right(tmp_path: Path) -> None:
    """Space as Python's own call says it; a folder that is not there yet counts where it would be made."""
    view = asked(["space", "meminfo", "limits"], data_root=f"{tmp_path}/a b/c", agent_root="~/x")
    place = view.data("space")["data"]
    told = os.statvfs(tmp_path)
    assert (place["at"], place["size"]) == (str(tmp_path), told.f_blocks * told.f_frsize)
    assert abs(place["free"] - told.f_bavail * told.f_frsize) < GIB
    assert set(view.data("space")) == {"data", "runs", "tmp", "shm"}


def test_where_runs_can_be_kept_is_found_out_without_a_trial(tmp_path: Path) -> None:
    """For real: a folder that is made on the way, a file in its place, a file system that only reads."""
    (tmp_path / "file").touch()
    for root, at in (("a/b/runs", None), ("file/runs", tmp_path / "file"), ("/proc/sys/runs", "/proc/sys")):
        named = found([asked(["runs_root"], agent_root=str(tmp_path / root))], "runs_not_writable")
        assert [each.evidence.split(" is ")[0] for each in named] == ([] if at is None else [str(at)])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_memlock_of_a_process_started_with_little_of_it_is_found() -> None:
    """For real: the probe is started with another limit."""
    words = [
        "sh",
        "-c",
        'ulimit -l 64 && exec "$@"',
        "sh",
        sys.executable,
        str(PROBE),
        '{"only": ["limits"]}',
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    view = views.view("here", json.loads(done.stdout), Stated(1, "", "", "infiniband"))
    (finding,) = found([view], "memlock_session")
    assert finding.evidence == "Max locked memory 65536 65536 bytes"


def test_a_process_that_a_run_left_is_found_and_left_alone(tmp_path: Path) -> None:
    """For real: a process with a run's mark; then its run holds the lock with flock(2), as the agent does."""
    lock = tmp_path / "lock"
    lock.write_text('{"run": "left-1", "pid": 1}')
    holder = "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX)"
    holder += "; print(flush=True); time.sleep(60)"
    sleeper = subprocess.Popen(["sleep", "60"], env={**os.environ, "RUNKIT_RUN": "left-1"})
    try:
        view = asked(["runs"], agent_root=str(tmp_path))
        mine = [each for each in found([view], "run_left_over", "run_active") if "left-1" in each.detail]
        assert [(each.code, each.evidence) for each in mine] == [("run_left_over", f"{sleeper.pid} sleep")]
        with subprocess.Popen([sys.executable, "-c", holder, lock], stdout=subprocess.PIPE) as locked:
            assert locked.stdout is not None
            locked.stdout.readline()
            view = asked(["runs"], agent_root=str(tmp_path))
            locked.kill()
        (finding,) = found([view], "run_active")
        assert finding.detail == "left-1 is working"
        assert not any("left-1" in each.detail for each in found([view], "run_left_over"))
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_mount_that_hangs_costs_its_own_deadline(tmp_path: Path) -> None:
    """Its server is stood in for by a ``stat`` that never ends, for a mount that is in the kernel's list."""
    slow = tmp_path / "stat"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    setup = (
        "import sys, json; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv[1]); import probe\n"
        "probe.MOUNTS_S = 0.5; probe.REMOTE = (*probe.REMOTE, 'proc')\n"
        "print(probe.mounts({}))"
    )
    began = time.monotonic()
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [sys.executable, "-c", setup, str(PROBE.parent)]
    done = subprocess.run(words, capture_output=True, text=True, env=env, check=True, timeout=30)
    assert time.monotonic() - began < 5
    findings = found([altered(host("gpu1"), mounts=said(done.stdout))], "mount_hangs")
    assert "/proc does not answer" in [each.detail for each in findings]


def test_a_file_server_that_has_much_to_do_is_waited_for(tmp_path: Path) -> None:
    """Longer than for the size of a disk."""
    slow = tmp_path / "stat"
    slow.write_text("#!/bin/sh\nsleep 0.7\n")
    slow.chmod(0o755)
    setup = (
        "import sys, json; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv[1]); import probe\n"
        "probe.FILES_S = 0.2; probe.REMOTE = (*probe.REMOTE, 'proc')\n"
        "print(probe.mounts({}))"
    )
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [sys.executable, "-c", setup, str(PROBE.parent)]
    done = subprocess.run(words, capture_output=True, text=True, env=env, check=True, timeout=30)
    assert {each["hangs"] for each in json.loads(done.stdout) if each["type"] == "proc"} == {False}
