"""The main job on four hosts: what proves it, what it computes, what is refused before anything starts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hosts import ROOT, Lab
from labkit import LabKit

SOON_S = 40  # for a refusal on a busy machine; staging is the most of it


@pytest.fixture
def kit(tmp_path: Path, ready: Lab) -> Iterator[LabKit]:
    made = LabKit(tmp_path, ready)
    yield made
    made.close()


# --- the embedded workload -----------------------------------------------------------------


def digits(folder: Path, steps: int) -> Path:
    """The embedded workload with cells of so many steps."""
    text = (ROOT / "workloads" / "digits.yml").read_text()
    changed, count = re.subn(r'--seconds, *"20"', f'--steps, "{steps}", --log-every, "2"', text)
    assert count == 1
    (folder / "digits.yml").write_text(changed)
    shutil.copytree(ROOT / "workloads" / "digits", folder / "digits")
    return folder / "digits.yml"


def losses(run: Path, cards: int) -> dict[int, float]:
    (path,) = (run / "cells").glob(f"digits.throughput.c{cards:02}.*/logs/*/rank-0000.stdout")
    found = re.findall(r"^runkit step step=(\d+) .*?\bloss=(\S+)", path.read_text(), re.M)
    return {int(step): float(loss) for step, loss in found}


def test_digits_on_four_hosts_is_what_it_is_on_one(kit: LabKit) -> None:
    """To five digits: between hosts an all-reduce sums in another order, and NumPy and BLAS are others.

    With 8 images per card, 256 in a step of 32 cards. With 32 a step has 1,024, most of the training set, and
    goes too far: the loss rises again on any machine, and makes 5 % of what was the last digit.
    """
    workload = digits(kit.folder, 40)
    done = kit.runner("bench", "-w", str(workload), "--cards", "8,32", "--batch-size", "8")
    assert done.returncode == 0, done.stderr
    (evidence,) = kit.run().glob("cells/*.c32.*/evidence.json")
    said = json.loads(evidence.read_text())
    assert said["world_size"] == 32
    assert said["hosts"] == dict.fromkeys(kit.lab.hosts, 8)
    assert {rank["hostname"] for rank in said["ranks"]} == set(kit.lab.hosts)
    here = kit.folder / "here"
    here.mkdir()
    argv = [sys.executable, "-m", "runner", "bench", "-w", str(workload)]
    argv += ["--cards", "8,32", "--batch-size", "8"]
    subprocess.run(argv, cwd=here, env=kit.environment(), capture_output=True, check=True)
    (local,) = here.glob("runs/*")
    for cards in (8, 32):
        there = losses(kit.run(), cards)
        assert len(there) == 20
        assert there == pytest.approx(losses(local, cards), rel=1e-5)
    kit.gone()


# --- refused before anything starts --------------------------------------------------------


def refused(kit: LabKit, *fragments: str) -> str:
    """By what stages the run, where nobody looked at the hosts before (tests/lab/test_doctor.py does)."""
    began = time.monotonic()
    done = kit.bench("--cards", "32", "--no-preflight")
    assert done.returncode == 1, done.stdout
    assert time.monotonic() - began < SOON_S
    assert len(done.stderr.strip().splitlines()) == 2  # what was begun, and why it was not
    for fragment in fragments:
        assert fragment in done.stderr
    assert kit.events() == []
    kit.gone()
    return done.stderr


@contextmanager
def changed(kit: LabKit, host: str, path: str, script: str) -> Iterator[None]:
    """A file of a host is changed by a script, until the block ends."""
    done = kit.lab.sudo(host, f"set -e; cp -p {path} {path}.kept; {script}")
    try:
        assert done.returncode == 0, done.stderr
        yield
    finally:
        kit.lab.sudo(host, f"[ ! -e {path}.kept ] || mv {path}.kept {path}")


def test_host_without_entries_of_the_others(kit: LabKit) -> None:
    one, other = kit.lab.hosts[1], kit.lab.hosts[3]
    with changed(kit, one, "/etc/hosts", f"sed -i '/{other}/d' /etc/hosts"):
        said = refused(
            kit, f"{one}: Describe the host: {other} is not known by name", "runner -i", "provision"
        )
    assert f"{other}: Describe" not in said


def test_host_with_a_resolver_that_does_not_answer(kit: LabKit) -> None:
    """As with a firewall on the way: nothing comes back."""
    one = kit.lab.hosts[2]
    silent = kit.lab.address(one).rpartition(".")[0] + ".250"  # no host has this address
    kit.lab.sudo(one, "[ -e /etc/resolv.conf ] || touch /etc/resolv.conf")
    with (
        changed(kit, one, "/etc/hosts", "echo 127.0.0.1 localhost > /etc/hosts"),
        changed(kit, one, "/etc/resolv.conf", f"echo nameserver {silent} > /etc/resolv.conf"),
    ):
        refused(kit, f"{one}: Describe the host: looking up ", "takes more than 2 s", "provision")


def test_another_open_mpi_on_one_host(kit: LabKit) -> None:
    one = kit.lab.hosts[3]
    kit.lab.sudo(one, "printf '#!/bin/sh\\necho \"mpirun (Open MPI) 5.0.7\"\\n' > /usr/local/bin/mpirun")
    kit.lab.sudo(one, "chmod 755 /usr/local/bin/mpirun")
    try:
        refused(kit, "need the same Open MPI", f"{one}: mpirun (Open MPI) 5.0.7")
    finally:
        kit.lab.sudo(one, "rm /usr/local/bin/mpirun")


def test_unknown_host_key_is_refused_with_its_fingerprint(kit: LabKit) -> None:
    one = kit.lab.hosts[1]
    known = kit.folder / "known_hosts"
    lines = (kit.lab.folder / ".ssh" / "known_hosts").read_text().splitlines(keepends=True)
    known.write_text("".join(line for line in lines if kit.lab.address(one) not in line))
    kit.vary_host(one, ansible_ssh_common_args=f"-o UserKnownHostsFile={known} -o ControlPath=none")
    shown = kit.lab.ssh(one, "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").stdout.split()[1]
    refused(kit, f"{one}: its host key is unknown or has changed", shown)


def test_no_trust_between_the_hosts(kit: LabKit) -> None:
    one, keys = kit.lab.hosts[2], "/home/runkit/.ssh/authorized_keys"
    key = kit.lab.ssh(kit.first, "cat .ssh/*.pub").stdout.split()[1]
    with changed(kit, one, keys, f"sed -i '\\|{key}|d' {keys}"):
        refused(kit, f"{one}: cannot be reached over ssh from {kit.first}:", "Permission denied")


def test_another_run_on_one_of_the_hosts(kit: LabKit) -> None:
    """Held by somebody else's agent there, which shares nothing with this run but the lock."""
    one = kit.lab.hosts[3]
    held = "nohup flock lock sleep 60 >/dev/null 2>&1 &"
    kit.lab.ssh(one, "sh", stdin=f'mkdir {kit.home}; cd {kit.home}; echo \'{{"run": "r9"}}\' >lock; {held}')
    done = kit.bench("--cards", "32")
    assert done.returncode == 2
    assert f"run r9 is working on {one}" in done.stderr
    assert kit.runs() == []
