"""What role container_runtime makes of docker's configuration, and what its programs print here."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kit import ROOT
from plays import play, role

ROLE = ROOT / "roles" / "container_runtime"
RUNTIME = {"runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}}
CGROUPS = {"exec-opts": ["native.cgroupdriver=cgroupfs"]}


def loaded(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("container_runtime", ROLE / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "missing", "stated", "expected"),
    [
        pytest.param("", RUNTIME, {}, RUNTIME, id="no file"),
        pytest.param(
            '{"runtimes": {"mine": {"path": "/x"}}, "debug": true}',
            RUNTIME,
            {},
            {"runtimes": {"mine": {"path": "/x"}, **RUNTIME["runtimes"]}, "debug": True},
            id="a runtime beside another",
        ),
        pytest.param('{"exec-opts": ["a=b"]}', CGROUPS, {}, {"exec-opts": ["a=b", *CGROUPS["exec-opts"]]}),
        pytest.param(
            '{"exec-opts": ["native.cgroupdriver=systemd", "a=b"]}',
            {},
            CGROUPS,
            {"exec-opts": ["a=b", *CGROUPS["exec-opts"]]},
            id="stated beats what is there",
        ),
        pytest.param(
            '{"registry-mirrors": ["https://a"], "data-root": "/a"}',
            {"data-root": "/b"},
            {"registry-mirrors": ["https://b"], "data-root": "/c"},
            {"registry-mirrors": ["https://a", "https://b"], "data-root": "/c"},
            id="lists are added to",
        ),
    ],
)
def test_what_is_missing_is_added(
    text: str, missing: dict[str, Any], stated: dict[str, Any], expected: dict[str, Any]
) -> None:
    merged = loaded("filter_plugins/container_runtime.py").merged
    once = merged(text, missing, stated)
    assert json.loads(once) == expected
    assert merged(once, missing, stated) == once


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ('{"default-shm-size" :"8G" ,"z":1, "a":2}', {"default-shm-size": "1G"}),
        ('{"exec-opts":["native.cgroupdriver=systemd"]}', CGROUPS),
        ('{"features":{"cdi":false}}', {"features": {"cdi": True}}),
        ('{"runtimes":{"nvidia":{"path":"/opt/nvidia-container-runtime"}}}\n', RUNTIME),
        ('{"default-ulimits":{"memlock":{"Hard":65536}}}', {"default-ulimits": {"memlock": {"Soft": -1}}}),
        ('{"runtimes": []}', RUNTIME),  # docker says itself what it thinks of that
    ],
)
def test_what_somebody_stated_stays_to_the_byte(text: str, missing: dict[str, Any]) -> None:
    assert loaded("filter_plugins/container_runtime.py").merged(text, missing, {}) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("{}", ""),
        ('{"debug": tru}', "line 1, column 11: Expecting value"),
        ('{\n  "a": 1,\n}', "line 3, column 1: "),
        ("[]", "line 1, column 1: not an object"),
        ("[" * 100000, "it is nested too deep"),
    ],
)
def test_what_docker_does_not_read(text: str, expected: str) -> None:
    said = loaded("filter_plugins/container_runtime.py").broken(text)
    assert said == expected if not expected.endswith(" ") else said.startswith(expected)


def test_the_image_has_what_its_programs_need(tmp_path: Path) -> None:
    raw = loaded("files/start_container.py").image(["/usr/bin/cat"])
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        names = {f"/{each.name}" for each in archive.getmembers() if each.isfile()}
    listed = subprocess.run(["ldd", "/usr/bin/cat"], capture_output=True, text=True, check=True).stdout
    assert names == {"/usr/bin/cat", *re.findall(r"(/\S+) \(0x", listed)}
    assert len(names) > 2  # itself, what loads it, and a library


def test_no_engine_is_one_sentence(tmp_path: Path) -> None:
    argv = [sys.executable, ROLE / "files" / "start_container.py", str(tmp_path / "docker"), "1"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{tmp_path}/docker: No such file or directory\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, False),
        ({"daemon.json": 2}, False),  # docker does not run, and will read it
        ({"docker.pid": 1}, False),
        ({"daemon.json": 1, "docker.pid": 2}, False),
        ({"daemon.json": 2, "docker.pid": 1}, True),
        ({"daemon.json": 1 << 32, "docker.pid": 1}, False),  # by a clock that was ahead
    ],
)
def test_a_configuration_that_docker_has_not_read_is_seen(
    files: dict[str, int], expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = loaded("files/look.py")
    monkeypatch.setattr(look, "DAEMON", str(tmp_path / "daemon.json"))
    monkeypatch.setattr(look, "PID", str(tmp_path / "docker.pid"))
    for name, written in files.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (written, written))
    assert look.stale() is expected


@pytest.mark.parametrize(
    ("is_loaded", "status", "expected"),
    [
        (False, 0, False),
        (True, 0, True),
        (True, 18, False),  # nvidia-smi: the version that is loaded is not that of the library
        (True, 9, True),  # another fault, which is no reason to leave GPUs out
        (True, None, True),  # no nvidia-smi is here
    ],
)
def test_a_driver_counts_that_programs_can_talk_to(
    is_loaded: bool, status: int | None, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = loaded("files/look.py")
    monkeypatch.setattr(look, "DRIVER", str(tmp_path / "version"))
    monkeypatch.setenv("PATH", str(tmp_path))
    if is_loaded:
        (tmp_path / "version").touch()
    if status is not None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nexit {status}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    assert look.driver() is expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("printf 'train\\nserve\\n'", ["serve", "train"]),
        ("exec /bin/sleep 60", ["(docker ps does not answer)"]),  # there may be some, so it is not restarted
        ("exit 1", []),  # its service is down, whatever file it left
        (None, []),
    ],
)
def test_containers_of_a_docker_that_hangs_are_not_overlooked(
    script: str | None, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = loaded("files/look.py")
    monkeypatch.setattr(look, "PID", str(tmp_path))
    monkeypatch.setattr(look, "PATIENCE_S", 1)
    monkeypatch.setenv("PATH", str(tmp_path))
    if script is not None:
        (tmp_path / "docker").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "docker").chmod(0o755)
    assert look.running() == expected


def test_what_dpkg_has_is_seen() -> None:
    argv = [sys.executable, ROLE / "files" / "look.py", "root,nobody-of-that-name", "dpkg", "no-such-package"]
    seen = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    shown = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "dpkg"], capture_output=True, text=True)
    assert seen["packages"]["dpkg"] == shown.stdout
    assert "no-such-package" not in seen["packages"]
    assert seen["unknown"] == ["nobody-of-that-name"]
    assert "nobody-of-that-name" in seen["outside"]


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("shm_size", "1 Gigabyte", "1 Gigabyte is no size"),
        ("shm_size", "512MiB", ""),
        ("shm_size", 1073741824, ""),
        ("data_root", "relative/path", "relative/path is no absolute path"),
        ("data_root", "//", "// is no absolute path"),
        ("data_root", "/data/docker", ""),
        ("insecure_registries", ["a:5000", "http://reg:5000"], "http://reg:5000 is not HOST:PORT"),
        ("insecure_registries", ["reg:5000", "10.0.0.0/8"], ""),
    ],
)
def test_values_that_docker_does_not_take_are_refused(
    variable: str, value: object, sentence: str, tmp_path: Path
) -> None:
    seen = {"packages": {}, "daemon": None, "running": [], "unknown": [], "memlock": False}
    known = {
        "ansible_facts": {"distribution": "Debian"},
        "__container_runtime_seen": seen,
        "__container_runtime_engine": "docker.io",
        "__container_runtime_packages": {"docker.io": []},
        "__container_runtime_excludes": {"docker.io": []},
        "__container_runtime_reconfigure": False,
        f"container_runtime_{variable}": value,
    }
    said = play(tmp_path, role("container_runtime", "refuse"), "--check", fails=bool(sentence), **known)
    assert sentence in said


FLAG_AND_FILE = (
    "unable to configure the Docker daemon with file /etc/docker/daemon.json: the following directives are "
    "specified both as a flag and in the configuration file: default-shm-size: (from flag: 1G, from file: 2G)"
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([FLAG_AND_FILE], FLAG_AND_FILE),  # as docker.io 26.1.5 says it
        (
            [
                'time="2026-11-29T08:12:01Z" level=info msg="Starting up"',
                "failed to start daemon: mkdir /data: read-only file system",
                'time="2026-11-29T08:12:01Z" level=info msg="stopping"',
            ],
            "failed to start daemon: mkdir /data: read-only file system",
        ),
        (
            [
                'time="T" level=warning msg="it is \\"late\\""',
                'time="T" level=error msg=failed error="no space left"',
            ],
            "failed: no space left",
        ),
        (['time="T" level=warning msg="it is \\"late\\""', 'time="T" level=info msg=x'], 'it is "late"'),
        (['time="T" level=info msg="Starting up"', ""], ""),
    ],
)
def test_why_docker_did_not_start_is_its_own_word(lines: list[str], expected: str) -> None:
    assert loaded("files/start_docker.py").reason(lines) == expected
