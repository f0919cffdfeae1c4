"""The container launchers on two hosts, with a real container engine.

The image is made of the hosts' own files. Two things are stand-ins. The cards: the cluster says that it has
V100s, because a workload in containers is refused on process slots. And ``docker``: here is no GPU and no
runtime for one, so a script of that name, first on the hosts' PATH, leaves ``--gpus all`` out and becomes the
real one; everything else of the command lines is what runs.
"""

from __future__ import annotations

import base64
import io
import json
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from hosts import ROOT, Lab
from kit import wait_for
from labkit import LabKit
from test_lab import ENGINE

IMAGE = r"""
set -e
tar -C / -c --exclude=usr/share/doc --exclude=usr/share/locale --exclude=usr/share/man --exclude=usr/lib/gcc \
    usr bin sbin lib lib64 etc | docker import - runkit/contained:1
cat >/usr/local/bin/docker <<'END'
#!/bin/sh
for word; do
    shift
    case $word in --gpus | all) ;; *) set -- "$@" "$word" ;; esac
done
exec /usr/bin/docker "$@"
END
chmod 755 /usr/local/bin/docker
mkdir -p /data/runkit/set
"""
pytestmark = pytest.mark.timeout(600)  # the first test has the making of the hosts in its time
LEFT = "docker ps --all --quiet; grep -la RUNKIT_RUN= /proc/[0-9]*/environ || :"
TOP = "docker top $(docker ps --quiet) -o pid,comm"  # fails where there is not one container
NODES = "cells/contained.throughput.c08.fp16.*/logs/*/rank-*.stdout"

# fp32 is started by the image's own mpirun, fp16 by the stand-in for a framework's own launcher.
CONTAINED = """\
title: A training in containers
framework: none
model: none
unit: images/sec
family: runkit
log_name: contained_{cards}_{precision}.log
precisions: [fp32, fp16]
batch_sizes: [32]
cards: [1, 4, 8]
sources: [{repository: "https://example.org/contained.git", commit: 0a1b2c3d, checkout: contained}]
image: {name: "runkit/contained:1", base: none, build: [[docker, pull, "{image}"]]}
container:
  workdir: /tmp
  options: [--shm-size=64m]
  mounts: ["{data}/set:/data:ro"]
  env: {OMPI_MCA_mpi_yield_when_idle: "1", SCRATCH: "{scratch}"}
modes:
  throughput: {estimated_s: 5}
variants:
  - precisions: [fp32]
    cards: [4, 8]
    launcher: container_mpi
    argv: [python3, -m, mpi4py, /runkit/workload/contained/trainer.py]
  - precisions: [fp32]
    cards: [1]
    launcher: container
    argv: &nodes
      - python3
      - /runkit/workload/contained/nodes.py
      - --node-rank={node_rank}
      - --hosts={hosts}
      - --cards-here={cards_here}
      - --master={master}
      - --port={port}
      - --batch-size={batch_size}
      - --precision={precision}
  - precisions: [fp16]
    cards: [1, 4]
    launcher: container
    argv: *nodes
  - precisions: [fp16]
    cards: [8]
    launcher: container_nodes
    argv: *nodes
deadlines: {start_s: 60, progress_s: 20, total_s: 120}
files: [contained/trainer.py, contained/nodes.py]
"""


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory, suffix: str) -> Iterator[Lab]:
    """Two provisioned hosts with a container engine that their user may use, and the image."""
    with Lab(tmp_path_factory.mktemp("labs") / f"box{suffix}") as lab:
        lab.up("--hosts", "2")
        proxy = f"http://{lab.address(lab.hosts[0]).rpartition('.')[0]}.1:31420"
        everywhere(lab, ENGINE.format(proxy=proxy) + "usermod -aG docker runkit\n")
        lab.runner("provision", check=0, timeout=280)
        everywhere(lab, IMAGE)
        yield lab


@pytest.fixture
def kit(tmp_path: Path, engines: Lab) -> Iterator[LabKit]:
    made = LabKit(tmp_path, engines)
    made.vary_cluster(cluster_card_model="Tesla V100-SXM2-16GB", cluster_fabric="ethernet")
    for host in engines.hosts:
        made.vary_host(host, cluster_cards=4)
    contain(made)
    made.always = ("--no-preflight",)  # it would miss the cards
    yield made
    made.close()


def contain(kit: LabKit, *more: str) -> None:
    """Let the kit's workload be the one in containers; ``more`` are words for the trainer."""
    document = yaml.safe_load(CONTAINED)
    document["variants"][0]["argv"] += more
    kit.workload = kit.folder / "contained.yml"
    kit.workload.write_text(json.dumps(document))  # is YAML, and has no aliases
    (kit.folder / "contained").mkdir(exist_ok=True)
    for name in ("trainer.py", "nodes.py"):
        shutil.copy(ROOT / "tests" / "programs" / name, kit.folder / "contained")


def everywhere(lab: Lab, script: str) -> list[str]:
    """What a shell script prints as root on each host."""
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda host: lab.sudo(host, script, timeout=250), lab.hosts))
    assert all(each.returncode == 0 for each in done), done
    return [each.stdout for each in done]


def nothing_left(kit: LabKit) -> None:
    """No container, no process of a run, no scratch. What runs in containers is root's, so root looks."""
    kit.gone()
    assert everywhere(kit.lab, LEFT) == ["", ""]


def evidence(kit: LabKit, cell: str) -> dict[str, Any]:
    (path,) = kit.run().glob(f"cells/contained.throughput.{cell}.*/evidence.json")
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_cards_that_are_not_there_are_told_before_anything_starts(kit: LabKit) -> None:
    kit.always = ()
    done = kit.bench("--cards", "8", "--precision", "fp32")
    assert (done.returncode, done.stdout, kit.runs()) == (2, "", [])
    for host in kit.lab.hosts:
        assert f"{host}: driver_not_loaded: " in done.stderr


def test_measured_by_every_launcher_on_one_host_and_two(kit: LabKit) -> None:
    first, second = kit.lab.hosts
    done = kit.bench("--cards", "1,4,8", "--precision", "fp32,fp16", timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((kit.run() / "results.json").read_text())
    rates = {(each["cards"], each["precision"]): each["rate"] for each in document["results"]}
    assert rates == {(cards, word): 640.0 * cards for cards in (1, 4, 8) for word in ("fp32", "fp16")}
    for cell, hosts in (
        ("c01.fp32", {first: 1}),
        ("c04.fp32", {first: 4}),
        ("c08.fp32", {first: 4, second: 4}),
        ("c04.fp16", {first: 1}),
        ("c08.fp16", {first: 1, second: 1}),
    ):
        said = evidence(kit, cell)
        assert said["hosts"] == hosts
        assert {(rank["host"], rank["hostname"]) for rank in said["ranks"]} == {
            (name, name) for name in hosts
        }
    told = [path.read_text().splitlines()[0] for path in sorted(kit.run().glob(NODES))]
    assert told == [f"node 0 of 2 in {first}", f"node 1 of 2 in {second}"]
    nothing_left(kit)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_set_that_is_missing_on_one_host_is_named(kit: LabKit, precision: str) -> None:
    """The engine must not make an empty one, and the reason is not what a launcher says of it."""
    first, second = kit.lab.hosts
    root = f"/home/runkit/sets-{precision}"
    kit.lab.ssh(first, f"mkdir -p {root}/set")
    kit.vary_cluster(cluster_data_root=root)
    done = kit.bench("--cards", "1,8", "--precision", precision, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    assert kit.states() == {"c01": "measured", "c08": "failed"}
    (reason,) = (line for line in done.stderr.splitlines() if ".c08." in line and "failed: " in line)
    assert f"error: {second} has no {root}/set; prepare it with: python -m runner -i " in reason
    assert " data contained (" in reason
    assert kit.lab.ssh(second, f"ls -d {root}").returncode != 0
    nothing_left(kit)


def test_what_only_root_may_read_does_not_keep_the_rest_from_coming_home(kit: LabKit) -> None:
    """What a container writes is root's on the host."""
    script = 'umask 077; mkdir "$1/own"; for f in own/file kept; do : >"$1/$f"; done; shift; exec "$@"'
    document = yaml.safe_load(kit.workload.read_text())
    for variant in document["variants"][1:3]:
        variant["argv"] = ["sh", "-c", script, "sh", "{logs}", *variant["argv"]]
    kit.workload.write_text(json.dumps(document))
    done = kit.bench("--cards", "1", timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert kit.states() == {"c01": "measured"}
    (left,) = kit.run().glob("cells/*/logs/*/left-there.txt")
    assert left.read_text() == "'kept': only its owner may read it\n'own': a folder\n"


def training(kit: LabKit) -> subprocess.Popen[str]:
    """``bench`` on both hosts past its first steps, in one container on each."""
    contain(kit, "--steps", "9999")
    bench = kit.start("--cards", "8")
    wait_for(lambda: kit.training() or bench.poll() is not None, "the training", 60)
    assert kit.training(), bench.communicate()
    there = [set(said.split()) & {"mpirun", "orted"} for said in everywhere(kit.lab, TOP)]
    assert there == [{"mpirun"}, {"orted"}]
    return bench


@pytest.mark.parametrize("word", ["interrupt", "stop"])
def test_ended_between_two_hosts(kit: LabKit, word: str) -> None:
    bench = training(kit)
    if word == "stop":
        stopped = kit.runner("stop", kit.runs()[0])
        assert stopped.returncode == 0, stopped.stderr
    else:
        bench.send_signal(signal.SIGINT)
    _, said = bench.communicate(timeout=60)
    assert bench.returncode == {"interrupt": 128 + signal.SIGINT, "stop": 1}[word], said
    assert kit.states() == {"c08": "stopped"}
    nothing_left(kit)


@pytest.mark.faults
@pytest.mark.parametrize("number", [0, 1], ids=["agent", "attendant"])
def test_killed_between_two_hosts(kit: LabKit, number: int) -> None:
    """The guard, or the attendant that takes the place of the killed one, removes what is left."""
    bench = training(kit)
    host, kind = kit.lab.hosts[number], ("work", "attend")[number]
    kit.lab.ssh(host, "kill", "-KILL", min(kit.pids(host, kind), key=int))
    if number:
        kit.runner("stop", kit.runs()[0])
    bench.communicate(timeout=60)
    assert bench.returncode == 1
    nothing_left(kit)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_scripts_started_by_hand(kit: LabKit, precision: str) -> None:
    """Without runkit on any host: the folder lies on both, and one line is typed on the launch host."""
    first, second = kit.lab.hosts
    words = ("--cards", "8", "--precision", precision, "--dry-run", "--scripts", "scripts")
    done = kit.bench(*words)
    assert done.returncode == 0, done.stderr
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(kit.folder / "scripts", "scripts")
    text = base64.b64encode(packed.getvalue()).decode()
    for host in kit.lab.hosts:
        kit.lab.ssh(host, f"mkdir {kit.home}; base64 -d | tar -C {kit.home} -x", stdin=text)
    cell = f"contained.throughput.c08.{precision}.bs32.r1"
    typed = kit.lab.ssh(first, f"cd {kit.home}/scripts && sh {cell}.sh")
    assert typed.returncode == 0, typed.stdout + typed.stderr
    logs = f"{kit.home}/scripts/cells/{cell}/logs"
    assert "runkit summary " in kit.lab.ssh(first, f"cat {logs}/{first}/rank-0000.stdout").stdout
    ranks = kit.lab.ssh(second, f"ls {logs}/{second}/*.txt").stdout.split()
    expected = {"fp32": (4, 5, 6, 7), "fp16": (1,)}[precision]
    assert ranks == [f"{logs}/{second}/rank-{rank:04}.txt" for rank in expected]
    nothing_left(kit)


def test_data_sets_reach_both_hosts_once(kit: LabKit, tmp_path: Path) -> None:
    """Over SSH, as an ordinary user, below a folder that only root can make.

    Not the usual one, which root made for the cells above.
    """
    kit.vary_cluster(cluster_data_root="/srv/sets")
    for name in ("data-00000-of-00001", "index", "meta"):
        (tmp_path / f"model.ckpt-112603.{name}").write_bytes(name.encode() * 100_000)
    (tmp_path / "checkpoint").write_text("model.ckpt-112603\n")
    made = kit.runner("data", "maskrcnn_ngc_tensorflow2", "--from", str(tmp_path))
    assert made.returncode == 1
    assert made.stdout.count("| maskrcnn-backbone | made    | files 4") == 2
    assert made.stderr.count(": sending\n") == 8
    assert made.stderr.count("train2017.zip, annotations_trainval2017.zip: not in") == 2
    for state in ("made", "ready"):
        done = kit.runner("data", "resnet50_ngc_tensorflow1", "--synthetic")
        assert done.returncode == 0, done.stderr
        assert (
            done.stdout.count(f"| imagenet-tfrecord | {state: <7} | classes 16, train 8192, synthetic") == 2
        )
    again = kit.runner("data", "maskrcnn_ngc_tensorflow2")
    assert again.returncode == 1
    assert again.stdout.count("| maskrcnn-backbone | ready   | files 4") == 2
    assert "sending" not in again.stderr
