"""Rules of MPI: each finds what is broken, and nothing on hosts without a fault; recorded in os_hosts.

What launchers say is as Open MPI 4.1.4 and 5.0.7 print it; of the others it is a sample of their form.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import os_hosts as made
import pytest
from os_hosts import broken, cluster, data, found

from runner import diagnosis
from runner.diagnosis import views
from runner.diagnosis.model import HostView, Probe, Stated

PROBE = Path(__file__).resolve().parent.parent / "roles" / "doctor_probe" / "files" / "probe.py"
HYDRA = "HYDRA build details:\n    Version:                                 4.0.2\n"
NO_LIBRARY = "mpirun: error while loading shared libraries: libopen-rte.so.40: cannot open shared object file"
ELSEWHERE = "/usr/lib64/openmpi/bin/mpirun"


def mpi(path: str | None = "/usr/bin/mpirun", stated: str = "mpirun", **changed: Any) -> Probe:
    """What gpu3 has; with no path, Open MPI lies elsewhere."""
    return data(
        {
            **made.MPI,
            "stated": stated,
            "path": path,
            "versions": {path or ELSEWHERE: {**made.MPIRUN, **changed}},
        }
    )


BROKEN: list[tuple[str, Probe, str]] = [
    ("mpi_missing", data({**made.MPI, "path": None, "versions": {}}), "mpirun: not found"),
    (
        "mpi_missing",
        mpi(None, "/opt/mpi/bin/mpirun"),
        f"/opt/mpi/bin/mpirun: not found; there is {ELSEWHERE}",
    ),
    ("mpi_not_on_path", mpi(None), f"mpirun: not found; there is {ELSEWHERE}"),
    ("mpi_broken", mpi(status=127, says=NO_LIBRARY), "libopen-rte.so.40"),
    ("mpi_not_open_mpi", mpi(says=HYDRA), "/usr/bin/mpirun --version: HYDRA build details:"),
    ("mpi_hangs", mpi(status=None, says=""), "/usr/bin/mpirun --version: no answer"),
    ("mpi_version_differs", mpi(says="mpirun (Open MPI) 5.0.7"), "/usr/bin/mpirun: mpirun (Open MPI) 5.0.7"),
    ("mpi_path_differs", mpi("/usr/local/bin/mpirun"), "/usr/local/bin/mpirun"),
]


@pytest.mark.parametrize(("code", "probe", "shown"), BROKEN, ids=[code for code, *_ in BROKEN])
def test_a_broken_host_is_named(code: str, probe: Probe, shown: str) -> None:
    assert found(cluster(), code) == []
    (finding,) = diagnosis.diagnose(broken(cluster(), "gpu3", mpi=probe))
    assert (finding.code, finding.host) == (code, "gpu3")
    assert shown in finding.evidence


@pytest.mark.parametrize(("code", "probe", "shown"), BROKEN, ids=[code for code, *_ in BROKEN])
def test_no_hindrance_where_images_bring_their_own(code: str, probe: Probe, shown: str) -> None:
    hosts = [
        replace(each, stated=replace(each.stated, mpi_inside_image=True))
        for each in broken(cluster(), "gpu3", mpi=probe)
    ]
    (finding,) = diagnosis.diagnose(hosts)
    assert (finding.code, finding.host) == ("mpi_of_host_unfit", "gpu3")
    assert diagnosis.rules()[finding.code].severity == "info"
    assert shown in finding.evidence


def several(release: str) -> list[HostView]:
    """The interface of gpu3 has an address of another network too, as keepalived puts one there."""
    eth0 = made.interface("eth0", made.address("gpu3"))
    moving = {**eth0["addr_info"][0], "local": "10.9.9.9", "prefixlen": 32}
    hosts = broken(cluster(), "gpu3", interfaces=data([{**eth0, "addr_info": [*eth0["addr_info"], moving]}]))
    return [
        replace(each, probes={**each.probes, "mpi": mpi(says=f"mpirun (Open MPI) {release}")})
        for each in hosts
    ]


def test_addresses_beside_that_of_the_inventory() -> None:
    """An MPI job was seen to hang by them with 4.1.4, and not with 5.0.7."""
    (finding,) = diagnosis.diagnose(several("4.1.4"))
    assert (finding.code, finding.host) == ("mpi_addresses_several", "gpu3")
    assert finding.evidence == "eth0 192.168.10.13/24 10.9.9.9/32"
    assert diagnosis.diagnose(several("5.0.7")) == []
    assert diagnosis.diagnose(several("4.1.4")[2:3]) == []  # no rank anywhere else
    for stated in ({"cidr": ""}, {"cidr": "", "interface": ""}):
        hosts = [replace(each, stated=replace(each.stated, **stated)) for each in several("4.1.4")]
        assert [each.host for each in diagnosis.diagnose(hosts)] == ["gpu3"]
    elsewhere = [
        replace(each, stated=replace(each.stated, cidr="", interface="", address="10.1.1.1"))
        for each in several("4.1.4")
    ]
    assert "mpi_addresses_several" not in {each.code for each in diagnosis.diagnose(elsewhere)}


NO_PACKAGE = "Traceback (most recent call last):\n  File ...\nModuleNotFoundError: No module named 'mpi4py'\n"
FULL = {**made.SPACE, "tmp": {**made.SPACE["tmp"], "free": (10 << 20) - 1}}
CLOSED = {**made.SPACE, "tmp": {**made.SPACE["tmp"], "writable": False}}
USERS = "/home/me/.local/lib/python3.11/site-packages/numpy"
HIDDEN = made.said(f"numpy {USERS}/__init__.py\nmpi4py /usr/lib/python3/mpi4py/__init__.py\n", 1,
                   f'  File "{USERS}/__init__.py", line 1, in <module>\nImportError: broken\n')  # fmt: skip


LACKING = [
    ("python_packages_of_user", {"python_packages": HIDDEN}, f"{USERS}: ImportError: broken"),
    ("mpi_tmp_not_writable", {"space": data(CLOSED)}, "/tmp: not writable for the user"),
    ("python_packages_missing", {"python_packages": made.said("", 1, NO_PACKAGE)}, "named 'mpi4py'"),
    ("python_packages_missing", {"python_packages": made.said("", -11)}, "it ended with status -11"),
    (
        "python_packages_missing",
        {"python_packages": Probe(("/no/python",), why="missing")},
        "/no/python: not",
    ),
    ("mpi_tmp_full", {"space": data(FULL)}, "/tmp: 10485759 bytes free"),
]


@pytest.mark.parametrize(("code", "probes", "shown"), LACKING)
def test_what_ranks_lack_is_named(code: str, probes: dict[str, Probe], shown: str) -> None:
    """It hinders no host where images bring their own."""
    assert found(cluster(), code) == []
    for inside, named in ((False, code), (True, "mpi_of_host_unfit")):
        (finding,) = found(
            broken(cluster(mpi_inside_image=inside), "gpu3", **probes), code, "mpi_of_host_unfit"
        )
        assert (finding.code, finding.host) == (named, "gpu3")
        assert shown in finding.evidence


def test_a_package_of_the_user_that_is_not_at_fault() -> None:
    fine = made.said(HIDDEN.out, 1, NO_PACKAGE)
    (finding,) = diagnosis.diagnose(broken(cluster(), "gpu3", python_packages=fine))
    assert finding.code == "python_packages_missing"
    assert diagnosis.diagnose(broken(cluster(), "gpu3", python_packages=made.said(HIDDEN.out))) == []


def test_a_python_that_is_late_lacks_nothing() -> None:
    late = Probe(("python3",), why="timeout")
    assert found(broken(cluster(), "gpu3", python_packages=late), "python_packages_missing") == []


def test_releases_that_talk_with_one_another_are_one() -> None:
    assert diagnosis.diagnose(broken(cluster(), "gpu3", mpi=mpi(says="mpirun (Open MPI) 4.1.6"))) == []


def test_the_daemon_must_be_found_by_a_command_that_ssh_starts() -> None:
    """Release 4.1 starts it by its bare name, unless called by a full path; 5 says where it is."""
    lost = {"status": 0, "out": made.LIMITS, "err": "", "port": 22}
    fine = {**lost, "out": made.LIMITS + made.PLACES}
    told = data({"gpu2": fine, "gpu3": lost, "gpu4": fine})
    hosts = broken(cluster(), "gpu1", ssh=told)
    (finding,) = diagnosis.diagnose(hosts)
    assert (finding.code, finding.host) == ("mpi_daemon_not_on_path", "gpu3")
    assert finding.evidence == "ssh gpu3 command -v orted: nothing"
    for other in (mpi(stated="/usr/bin/mpirun"), mpi(says="mpirun (Open MPI) 5.0.7")):
        assert found(broken(hosts, "gpu1", mpi=other), "mpi_daemon_not_on_path") == []


# --- this machine --------------------------------------------------------------------------


def asked(path: str, mpirun: str) -> HostView:
    words = [sys.executable, PROBE, json.dumps({"only": ["mpi"], "mpirun": mpirun})]
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "PATH": path}, check=True, timeout=60
    )
    return views.view("here", json.loads(done.stdout), Stated())


def test_a_launcher_is_found_as_a_login_would_find_it(tmp_path: Path) -> None:
    """Programs that say what the recorded ones said, on the PATH and off it."""
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n")
    program.chmod(0o755)
    view = asked(f"{tmp_path}:/usr/bin:/bin", "mpirun")
    assert view.data("mpi")["path"] == str(program)
    assert view.data("mpi")["versions"][str(program)]["says"] == "mpirun (Open MPI) 4.1.4"
    assert diagnosis.diagnose([view]) == []
    assert diagnosis.diagnose([asked("/usr/bin:/bin", str(program))]) == []
    (finding,) = diagnosis.diagnose([asked("/usr/bin:/bin", str(tmp_path / "other"))])
    assert finding.code == "mpi_missing"
    program.write_text(f"#!/bin/sh\necho '{NO_LIBRARY}' >&2\nexit 127\n")
    (finding,) = diagnosis.diagnose([asked(f"{tmp_path}:/usr/bin:/bin", "mpirun")])
    assert (finding.code, finding.evidence) == ("mpi_broken", f"{program} --version: {NO_LIBRARY}")


def test_the_launcher_that_the_requirements_bring_is_fine() -> None:
    own = Path(sys.executable).parent / "mpirun"
    if not own.exists():
        pytest.skip("no mpirun beside this Python")
    assert diagnosis.diagnose([asked(os.environ["PATH"], str(own))]) == []


def test_the_python_of_ranks_is_asked_for_what_ranks_load(tmp_path: Path) -> None:
    """The one of these tests has both; another has the first, and one is not there."""
    (tmp_path / "numpy.py").touch()
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    for name, shown in ((sys.executable, ""), (str(python), "mpi4py"), (str(tmp_path / "no"), "not found")):
        words = [sys.executable, PROBE, json.dumps({"only": ["python_packages"], "python": name})]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path)
        named = diagnosis.diagnose([views.view("here", json.loads(done.stdout), Stated())])
        assert [each.code for each in named] == (["python_packages_missing"] if shown else [])
        assert all(shown in each.evidence for each in named)
        if shown == "mpi4py":
            assert (
                json.loads(done.stdout)["probes"]["python_packages"]["out"] == f"numpy {tmp_path}/numpy.py\n"
            )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["numpy.py", "python"]
