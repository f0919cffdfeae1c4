"""Cells in containers: exactly which commands; what an image cannot run on; scripts that shells can read.

tests/plan/golden/WORKLOAD.txt holds every cell of a published workload on v100x32, as ``--dry-run`` shows
it. Where a change is meant: RUNKIT_GOLDEN=write makes them anew, and the diff is to be read.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from runner import catalog, containers, dryrun, limits, parsers, plan
from runner.errors import UsageError
from runner.io import inventory, scripts, workloads
from runner.model import Cell, Cluster, Workload

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = Path(__file__).parent / "plan" / "golden"
PROGRESS = {name: family.progress for name, family in parsers.families().items()}
PUBLISHED = (
    "deeplabv3p_mmsegmentation",
    "deeplabv3p_paddle",
    "maskrcnn_ngc_tensorflow2",
    "resnet50_ngc_pytorch",
    "resnet50_ngc_tensorflow1",
)


def load(name: str) -> Workload:
    families = sorted(parsers.families())
    return workloads.load(name, lambda stem, text, place: catalog.workload(stem, text, families, place))


def v100x32(**facts: object) -> Cluster:
    return replace(inventory.outline("v100x32"), **facts)  # type: ignore[arg-type]


def cells(name: str, on: Cluster, **asked: object) -> tuple[Cell, ...]:
    return plan.cells([load(name)], on, plan.Overrides(**asked), PROGRESS)  # type: ignore[arg-type]


def every_cell(name: str) -> tuple[Cell, ...]:
    found = load(name)
    modes = tuple(mode.name for mode in found.modes)
    return cells(
        name,
        v100x32(),
        modes=modes,
        cards=(1, 8, 16, 32),
        precisions=found.precisions,
        batch_sizes=found.batch_sizes,
        hours=True,
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_cell_is_the_golden_one(name: str) -> None:
    text, path = dryrun.dry_run(every_cell(name), v100x32()), GOLDEN / f"{name}.txt"
    if os.environ.get("RUNKIT_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", PUBLISHED)
def test_scripts_are_clean(name: str, tmp_path: Path) -> None:
    chosen = load(name)
    folder = tmp_path / "scripts"
    scripts.write(folder, dryrun.scripts(every_cell(name), v100x32(), [chosen]), [chosen])
    found = sorted(folder.rglob("*.sh"))
    assert len(found) > len(every_cell(name))
    for path in found:
        subprocess.run(["bash", "-n", path], check=True)
        subprocess.run(["dash", "-n", path], check=True)
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, *found], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_scripts_on_a_shared_folder_write_below_each_host_of_their_own(tmp_path: Path) -> None:
    """Where hosts share the folder, no file of one may say who another is."""
    chosen, folder = load("deeplabv3p_paddle"), tmp_path / "scripts"
    found = cells(chosen.name, v100x32(), cards=(16,))
    scripts.write(folder, dryrun.scripts(found, v100x32(), [chosen]), [chosen])
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, text in (("mpirun", "exit 0"), ("uname", 'echo "$HOST_HERE"'), ("docker", "exit 0")):
        (bin_ / name).write_text(f"#!/bin/sh\n{text}\n")
        (bin_ / name).chmod(0o755)
    way = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}"}
    subprocess.run(["sh", folder / f"{found[0].id}.sh"], check=True, env={**way, "HOST_HERE": "gpu1"})
    for host in ("gpu1", "gpu2"):
        node = ["sh", "shim.sh", found[0].id, "sh", f"cells/{found[0].id}/node.sh"]
        subprocess.run(node, check=False, cwd=folder, env={**way, "HOST_HERE": host})
    logs = folder / "cells" / found[0].id / "logs"
    assert sorted(path.name for path in logs.iterdir()) == ["gpu1", "gpu2"]
    again = subprocess.run(["sh", folder / f"{found[0].id}.sh"], env=way, capture_output=True, text=True)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.endswith("/logs is of an earlier start; move it away\n")


@pytest.mark.parametrize("name", ["deeplabv3p_mmsegmentation", "deeplabv3p_paddle", "resnet50_ngc_pytorch"])
def test_8_cards_of_two_hosts_are_started_on_both(name: str) -> None:
    """The same count of cards is a cell of one host here and of several there."""
    hosts = tuple(replace(host, cards=4) for host in v100x32().hosts[:2])
    (cell,) = cells(name, v100x32(hosts=hosts), cards=(8,), precisions=load(name).precisions[:1])
    assert [(placed.host, placed.ranks) for placed in cell.placement] == [("gpu1", 1), ("gpu2", 1)]
    command = cell.scripts["node.sh"].splitlines()[-1]
    if name == "deeplabv3p_paddle":
        assert "--ips 192.168.10.11,192.168.10.12 --gpus 0,1,2,3 " in command
    else:
        assert re.search(r"--nproc_per_node[ =]4 .*--nnodes[ =]2 .*--node_rank[ =]", command)
    (alone,) = cells(name, v100x32(), cards=(8,))
    assert [(placed.host, placed.ranks) for placed in alone.placement] == [("gpu1", 1)]


def test_a_smaller_batch_trains_alike() -> None:
    """The learning rate belongs to the images of a step, which accumulation keeps."""
    (cell,) = cells(
        "resnet50_ngc_pytorch",
        v100x32(),
        cards=(8,),
        modes=("time_to_train",),
        batch_sizes=(128,),
        hours=True,
    )
    command = cell.scripts["node.sh"].splitlines()[-1]
    assert "-b 128 --optimizer-batch-size 2048 --lr 2.048 " in command


def test_a_folder_of_scripts_is_new(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(UsageError, match="name a new folder"):
        scripts.write(tmp_path, {}, [])


@pytest.mark.parametrize(
    ("text", "shows"),
    [
        ("plain", "plain"),
        ("a b", "a b"),
        ("train*.tfrecord", "train*.tfrecord"),
        ('say "$HOME" `id` \\', 'say "$HOME" `id` \\'),
        (f'/x/{containers.variable("host")}/$(id)`id`"\\', '/x/gpu 1/$(id)`id`"\\'),
    ],
)
@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_words_reach_the_command_as_they_are(text: str, shows: str, shell: str) -> None:
    line = f"host='gpu 1'; printf %s {containers.word(text)}"
    assert subprocess.run([shell, "-c", line], capture_output=True, text=True, check=True).stdout == shows


def test_rsh_hands_a_container_the_command_as_one_word(tmp_path: Path) -> None:
    """What mpirun starts its daemon with reaches peer.sh unchanged; ``ssh`` is a shell in its place here."""
    (tmp_path / "ssh").write_text(
        '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift 2\nexec sh -c "$*"\n'
    )
    (tmp_path / "ssh").chmod(0o755)
    (tmp_path / "run folder" / "cells" / "c").mkdir(parents=True)
    (tmp_path / "run folder" / "cells" / "c" / "peer.sh").write_text('printf "%s|" "$RUNKIT_RUN" "$@"\n')
    env = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "RUNKIT_HOST_FOLDER": str(tmp_path / "run folder"),
        "RUNKIT_FOLDER": "/runkit",
        "RUNKIT_RUN": "r1",
        "RUNKIT_CELL": "c",
    }
    words = ["gpu2", 'PATH="/a b"', "orted", "-mca", "x", "'q' $HOME `id`"]
    argv = ["sh", ROOT / "roles" / "bench_agent" / "files" / "rsh.sh", *words]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == f"r1|{' '.join(words[1:])}|"


def test_a_container_reaches_the_other_hosts_as_its_host_does(tmp_path: Path) -> None:
    """The trust between the hosts is in files and settings of the host's ssh, which a container has not."""
    for folder in ("coco-tfrecord", "maskrcnn-backbone"):
        (tmp_path / folder).mkdir()
    (cell,) = cells("maskrcnn_ngc_tensorflow2", v100x32(data_root=str(tmp_path)), cards=(16,))
    said = "user me\nport 2222\nciphers new\nidentityfile ~/.ssh/k\nuserknownhostsfile ~/.ssh/a ~/.ssh/b\n"
    for name, text in (("ssh", "cat said"), ("docker", 'printf "%s\\n" "$@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "said").write_text(said)
    folder = tmp_path / "cells" / cell.id
    folder.mkdir(parents=True)
    (folder / "hostfile").write_text("10.7.0.1 slots=8\n10.7.0.2 slots=8\n")
    (folder / "node.sh").write_text(cell.scripts["node.sh"])
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": "/home/me"}
    argv = ["sh", f"cells/{cell.id}/node.sh"]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    way = said.replace("ciphers new\n", "").replace("~", "/home/me")
    assert (tmp_path / "ssh_config").read_text() == f"Host 10.7.0.1\n{way}Host 10.7.0.2\n{way}"
    words = done.stdout.splitlines()
    assert "type=bind,source=/home/me/.ssh,target=/home/me/.ssh,readonly" in words
    # Else the daemon detaches, the command that a container on another host waits for ends, and so does it.
    assert "--leave-session-attached" in words


# --- limits --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "number", "gib"),
    [
        ("Tesla V100-SXM2-32GB", 70, 32),
        ("Tesla V100-SXM2-16GB", 70, 16),
        ("NVIDIA A100-SXM4-80GB", 80, 80),
        ("NVIDIA H100 80GB HBM3", 90, 80),
        ("NVIDIA GH200 480GB", 90, 480),
        ("NVIDIA H200", 90, None),
        ("Tesla T4", 75, 16),
        ("NVIDIA A10", 86, 24),
        ("NVIDIA L40S", 89, None),
        ("NVIDIA RTX 6000 Ada Generation", 89, None),
        ("NVIDIA B200", 100, None),
        ("Tesla P100-PCIE-16GB", 60, 16),
        ("nvidia h100 pcie", 90, None),
        ("tesla v100-sxm2-16gb", 70, 16),
        ("An unheard-of card", None, None),
    ],
)
def test_what_a_card_is_by_its_name(model: str, number: int | None, gib: float | None) -> None:
    """Compute capabilities as in NVIDIA's list, developer.nvidia.com/cuda-gpus."""
    assert (limits.architecture(model), limits.memory_gib(model)) == (number, gib)


@pytest.mark.parametrize("name", PUBLISHED)
def test_none_of_the_published_images_runs_on_an_h100(name: str) -> None:
    on = v100x32(card_model="NVIDIA H100 80GB HBM3")
    planned = cells(name, on, precisions=load(name).precisions[-1:])
    assert {cell.state for cell in planned} == {"refused"}
    for cell in planned:
        assert "none for NVIDIA H100 80GB HBM3 (sm_90)" in str(cell.reason)
        assert (cell.argv, cell.scripts, cell.placement) == ((), {}, ())


def reason(name: str, on: Cluster, **asked: object) -> str | None:
    (cell,) = cells(name, on, **{"cards": (1,), **asked})
    assert (cell.state == "refused") == (cell.reason is not None)
    return cell.reason


def test_fp32_on_an_a100_is_tf32_unless_switched_off() -> None:
    on = v100x32(card_model="NVIDIA A100-SXM4-80GB")
    name = "resnet50_ngc_tensorflow1"
    said = reason(name, on, precisions=("fp32",))
    assert said is not None
    assert "computed in TF32" in said
    assert 'NVIDIA_TF32_OVERRIDE: "0" in cluster_env' in said
    off = replace(on, env={**on.env, "NVIDIA_TF32_OVERRIDE": "0"})
    assert reason(name, off, precisions=("fp32",)) is None
    assert reason(name, on, precisions=("amp",)) is None


def test_memory_driver_and_process_slots() -> None:
    name = "resnet50_ngc_tensorflow1"
    small = reason(name, v100x32(card_model="Tesla V100-SXM2-16GB"))
    assert small == f"{name} needs cards of 32 GiB, Tesla V100-SXM2-16GB has 16"
    old = reason(name, v100x32(driver="418.87.00"))
    assert old == f"{name} needs driver 450.80.02 or later, cluster_driver says 418.87.00"
    new = reason(name, v100x32(driver="595.10"))
    assert new == "580 is the last branch that knows Tesla V100-SXM2-32GB, cluster_driver says 595.10"
    assert reason(name, v100x32(driver="")) is None
    slots = reason(name, v100x32(card_model=""))
    assert slots == f"{name} needs GPUs, the cards of v100x32 are process slots"


def test_hours_are_asked_for_twice() -> None:
    said = reason("resnet50_ngc_pytorch", v100x32(), modes=("time_to_train",))
    assert said == "time_to_train takes about 38.1 h on 1 card(s); say that it is meant with --accept-hours"
    assert reason("resnet50_ngc_pytorch", v100x32(), modes=("time_to_train",), hours=True) is None
    slower = reason("resnet50_ngc_pytorch", v100x32(), modes=("time_to_train",), precisions=("fp32",))
    assert str(slower).startswith("time_to_train takes about 88.5 h on 1 card(s);")


def test_a_batch_that_the_workload_does_not_list_is_marked() -> None:
    (cell,) = cells("resnet50_ngc_tensorflow1", v100x32(), cards=(1,), batch_sizes=(64,))
    assert (cell.state, cell.listed) == ("planned", False)


def test_more_cards_than_the_hosts_have() -> None:
    with pytest.raises(UsageError, match="v100x32 has 32 cards"):
        cells("resnet50_ngc_tensorflow1", v100x32(), cards=(64,))


def test_pages_of_the_workloads_are_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "workload_pages.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, f"make docs; stale: {done.stderr}"


def test_patches_apply_and_the_image_is_made_twice(tmp_path: Path) -> None:
    """On a stand-in of each repository that has the folder alone; upstream's own text cannot be had here."""
    for name in PUBLISHED:
        found = load(name)
        for source in found.sources:
            if not source.patches:
                continue
            here = tmp_path / name / source.checkout
            (here / source.folder).mkdir(parents=True)
            for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
                who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
                subprocess.run(["git", *who, *words], cwd=here, check=True)
            for _ in range(2):
                subprocess.run(["git", "clean", "-qfd"], cwd=here, check=True)
                (here / source.folder).mkdir(parents=True, exist_ok=True)
                for patch in source.patches:
                    argv = ["git", "apply", "--unidiff-zero", ROOT / "workloads" / patch]
                    subprocess.run(argv, cwd=here / source.folder, check=True)
    assert shutil.which("git")
