"""What a log says of its machine: NCCL of every release, the driver's tools, images, frameworks.

The lines are written for these tests, after the forms that the programs print; hosts, numbers
are invented.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from runner.evidence import Traces, document
from runner.io.logfolders import CellLog
from runner.model import Line, LogRun, Problem
from runner.parsers import Known, in_words, parse, parse_cell
from tests.test_evidence import CELL
from tests.test_parsers import REAL, needs_real_logs, runs_of

TRAINING = (
    "DLL 2031-05-06 07:08:09.1 - PARAMETER arch : resnet50  batch_size : 32  num_iter : 9 ",
    *(f"DLL 2031-05-06 07:08:{at:02}.1 - (0, {10 * at}) total_ips : 5.0 " for at in range(10, 30)),
    "Ending Model Training ...",
)


def training(*before: str, name: str = "a.log", cards: int | None = None) -> LogRun:
    """The run of a log that begins with these lines."""
    said = (f"Num GPUs {cards}",) if cards else ()
    lines = [Line(number, text) for number, text in enumerate((*before, *said, *TRAINING), 1)]
    (run,) = parse(lines, name)
    return run


def codes(run: LogRun) -> list[str]:
    return [problem.code for problem in run.problems]


def nccl(text: str, host: str = "node1") -> str:
    return f"{host}:4711:4712 [0] NCCL INFO {text}"


@pytest.mark.parametrize(
    "line",
    [
        "NCCL version 2.7.8+cuda10.2",
        "node1:1:1 [0] NCCL INFO NCCL version 2.7.8+cuda10.2",
        "[2031-05-06 07:08:09] node1:1:1 [0] NCCL INFO NCCL version 2.7.8+cuda10.2",
    ],
)
def test_version_of_nccl(line: str) -> None:
    assert training(line).nccl == "2.7.8+cuda10.2"
    assert training(f"{line} or so").nccl is None


# A channel as some release writes it, and what it is between or within hosts, with or without GPUDirect RDMA.
CHANNELS = {
    "Ring 00 : 15 -> 0 [receive] via NET/Socket/0": ("NET/Socket", False),
    "Ring 00 : 7 -> 8 [send] via NET/IB/0/GDRDMA": ("NET/IB", True),
    "Channel 00 : 2[41000] -> 8[3f000] [receive] via NET/IB/0": ("NET/IB", False),
    "Channel 01 : 8[3f000] -> 2[41000] [send] via NET/IB/3/GDRDMA/Shared": ("NET/IB", True),
    "Channel 00/0 : 9[1] -> 0[0] [receive] via NET/IB/0/GDRDMA": ("NET/IB", True),
    "Channel 03/1 : 9[1] -> 0[0] [send] via NET/IB/2(8)/GDRDMA(PCI)/Shared": ("NET/IB", True),
    "Channel 00/0 : 9[1] -> 0[0] [receive] via NET/IBext_v8/0/GDRDMA": ("NET/IBext_v8", True),
    "Channel 00/0 : 9[1] -> 0[0] [receive] via NET/AWS Libfabric/0/GDRDMA": ("NET/AWS Libfabric", True),
    "Ring 00 : 0[0] -> 1[1] via P2P/IPC": ("P2P/IPC", None),
    "Channel 00 : 0[3f000] -> 1[40000] via P2P/IPC": ("P2P/IPC", None),
    "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read": ("P2P/CUMEM", None),
    "Channel 00 : 0[3f000] -> 1[40000] via P2P/direct pointer": ("P2P/direct pointer", None),
    "Channel 00 : 0[3f000] -> 1[40000] via direct shared memory": ("SHM", None),
    "Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct": ("SHM", None),
}


@pytest.mark.parametrize("line", CHANNELS)
def test_channel_of_every_release(line: str) -> None:
    path, direct = CHANNELS[line]
    transport = training(nccl(line)).transport
    assert transport is not None
    if direct is None:
        assert (transport["between_hosts"], transport["within_hosts"], transport["ranks"]) == ([], [path], [])
        return
    assert (transport["between_hosts"], transport["gpu_direct"]) == ([path], direct)
    left, right = re.findall(r"(\d+)(?:\[\w+\])? (?:->|\[)", line)
    teller, way = (right, "receive") if "[receive]" in line else (left, "send")
    (rank,) = transport["ranks"]
    wanted = {"rank": int(teller), "host": "node1", "send": [], "receive": []}
    assert rank == {**wanted, way: [path + "/GDRDMA" * direct]}


def ring(hosts: int, via: str = "NET/IB/0/GDRDMA", **odd: str) -> list[str]:
    """What 8 ranks on each of some hosts say, joined in a ring; ``odd`` is other by host."""
    ranks = 8 * hosts
    lines = []
    for host in range(hosts):
        name, first, last = f"node{host}", 8 * host, 8 * host + 7
        path = odd.get(name, via)
        lines += [
            nccl("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:192.0.2.1<0>", name),
            nccl(f"Channel 00/0 : {(first - 1) % ranks}[7] -> {first}[0] [receive] via {path}", name),
            nccl(f"Channel 00/0 : {last}[7] -> {(last + 1) % ranks}[0] [send] via {path}", name),
            *(
                nccl(
                    f"comm 0x1 rank {rank} nranks {ranks} cudaDev {rank % 8} busId 1f000 - Init COMPLETE",
                    name,
                )
                for rank in range(first, last + 1)
            ),
        ]
    return lines


def test_transport_of_a_sound_ring() -> None:
    run = training(*ring(4))
    assert (run.cards, run.hosts, codes(run)) == (32, 4, [])
    assert (run.sources["cards"], run.sources["hosts"]) == ("log", "log")
    assert run.transport is not None
    assert len(run.transport["ranks"]) == 8
    assert in_words(run.transport) == "NET/IB (RoCE) with GPUDirect RDMA"


@pytest.mark.parametrize("path", ["NET/Socket/0", "NET/IB/0"])
def test_rank_that_falls_back_is_named(path: str) -> None:
    run = training(*ring(4, node2=path))
    assert codes(run) == ["transports_differ", "transports_differ"]
    sends, receives = (problem.detail for problem in run.problems)
    assert "rank 16 on node2 receives via " + path.removesuffix("/0") in receives
    assert "rank 23 on node2 sends via " + path.removesuffix("/0") in sends
    assert "the others via NET/IB/GDRDMA" in sends
    assert run.transport is not None
    assert run.transport["gpu_direct"] is None


def test_one_direction_without_gpudirect() -> None:
    lines = [
        line.replace("/GDRDMA", "") if "[send]" in line else line for line in ring(4)
    ]  # as where the cards' memory can be written but not read
    (problem,) = training(*lines).problems
    assert problem.code == "transports_differ"
    assert problem.detail == "ranks send via NET/IB, receive via NET/IB/GDRDMA"


def test_host_on_another_network() -> None:
    lines = [nccl(f"Using network {'Socket' if host == 2 else 'IB'}", f"node{host}") for host in range(4)]
    (problem,) = training(*lines).problems
    assert (problem.code, "node2 Socket" in problem.detail) == ("transports_differ", True)
    assert training(*lines[:2]).transport is None  # a network that is chosen proves no transport


def test_host_on_another_kind_of_link() -> None:
    using = "NET/IB : Using [0]mlx5_0:1/{} [1]mlx5_1:1/{} ; OOB eth0:192.0.2.1<0>"
    said = [nccl(using.format(*(["IB"] * 2 if host else ["RoCE"] * 2)), f"node{host}") for host in range(4)]
    (problem,) = training(*said).problems
    assert problem.detail == "the link is InfiniBand, but not on every host: node0 RoCE"


@pytest.mark.parametrize(
    ("said", "name", "found"),
    [
        (32, "a.log", []),
        (8, "a.log", ["cards: the log says 8, NCCL in it 32"]),
        (None, "gpu8.log", ["cards: the log says 32, its name says 8"]),
        (None, "2node.log", ["hosts: the log says 4, its name says 2"]),
    ],
)
def test_nccl_is_held_against_the_log_and_its_name(said: int | None, name: str, found: list[str]) -> None:
    run = training(*ring(4), name=name, cards=said)
    assert run.cards == (said or 32)
    assert len(run.problems) == len(found)
    assert all(problem.detail.startswith(text) for problem, text in zip(run.problems, found, strict=True))


def test_hosts_are_known_when_all_ranks_spoke_or_nccl_counts_them() -> None:
    first_of_each = [line for line in ring(4) if "cudaDev 0" in line]
    run = training(*first_of_each)
    assert (run.cards, run.hosts) == (32, None)
    assert codes(training(*first_of_each, name="2node.log")) == ["log_disagrees"]
    counted = nccl("comm 0x1 rank 0 nRanks 32 nNodes 4 localRanks 8 localRank 0 MNNVL 0")
    assert training(counted).hosts == 4


def test_single_machine_runs_that_pass_for_one_of_four() -> None:
    alone = nccl("ncclCommInitRank comm 0x1 rank 0 nranks 1 cudaDev 0 busId 1f000 commId 0x2 - Init COMPLETE")
    (problem,) = training(alone, cards=4).problems
    assert problem.detail == "cards: the log says 4, NCCL in it 1; the former holds"


def test_lines_of_nccl_belong_to_the_run_they_stand_in_or_before() -> None:
    texts = (*ring(1), *TRAINING, *ring(4), *TRAINING)
    one, four = parse([Line(number, text) for number, text in enumerate(texts, 1)], "a.log")
    assert (one.cards, one.hosts, four.cards, four.hosts) == (8, 1, 32, 4)


# --- the machine ---------------------------------------------------------------------------

ENVIRONMENT: dict[str, dict[str, Any]] = {
    "| NVIDIA-SMI 450.80.02    Driver Version: 450.80.02    CUDA Version: 11.0     |": {
        "driver": "450.80.02",
        "cuda_driver": "11.0",
    },
    "| NVIDIA-SMI 390.116                Driver Version: 390.116                   |": {"driver": "390.116"},
    "Driver Version                            : 470.83.01": {"driver": "470.83.01"},
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  525.60.13  Wed Nov 30 06:39:21 UTC 2022": {
        "driver": "525.60.13"
    },
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build": {
        "driver": "580.159.04"
    },
    "|   0  Tesla V100-SXM2...  On   | 00000000:3F:00.0 Off |                    0 |": {
        "gpu": "Tesla V100-SXM2..."
    },
    "|   0  NVIDIA H100 80GB HBM3          On  |   00000000:00:06.0 Off |                    0 |": {
        "gpu": "NVIDIA H100 80GB HBM3"
    },
    "GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-0a1b2c3d-0000-1111-2222-333344445555)": {
        "gpu": "Tesla V100-SXM2-32GB"
    },
    "GPU 0,1,2,3: Tesla V100-SXM2-32GB": {"gpu": "Tesla V100-SXM2-32GB"},
    "    Product Name                          : Tesla P100-PCIE-16GB": {"gpu": "Tesla P100-PCIE-16GB"},
    "{'env_info': 'sys.platform: linux\\nGPU 0,1: A card\\nCUDA_HOME: /usr/local/cuda\\n', 'seed': None}": {
        "gpu": "A card"
    },
    "name: Tesla V100-SXM2-32GB major: 7 minor: 0 memoryClockRate(GHz): 1.53": {
        "gpu": "Tesla V100-SXM2-32GB"
    },
    "pciBusID: 0000:3f:00.0 name: A100-SXM4-40GB computeCapability: 8.0": {"gpu": "A100-SXM4-40GB"},
    "2031-05-06 07:08:09.1: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1] Created TensorFlow device "
    "(/device:GPU:0 with 1 MB memory) -> physical GPU (device: 0, name: A card, pci bus id: 0000:3f:00.0, "
    "compute capability: 7.0)": {"gpu": "A card"},
    "2031-05-06 07:08:09.1: I service.cc:1]   StreamExecutor device (0): A card, Compute Capability 7.0": {
        "gpu": "A card"
    },
    "2031-05-06 07:08:09.1: I dso_loader.cc:1] Successfully opened dynamic library libcudart.so.11.0": {
        "cuda": "11.0"
    },
    "W0506 07:08:09.1  1 device_context.cc:1] Please NOTE: device: 0, GPU Compute Capability: 7.0, "
    "Driver API Version: 11.2, Runtime API Version: 10.2": {"cuda": "10.2", "cuda_driver": "11.2"},
    "W0506 07:08:09.1  1 device_context.cc:1] device: 0, CUDA Capability: 70, Driver API Version: 10.1, "
    "Runtime API Version: 9.0": {"cuda": "9.0", "cuda_driver": "10.1"},
    "  - CUDA Runtime 11.0": {"cuda": "11.0"},
    "node1:1:1 [0] NCCL INFO cudaDriverVersion 11020": {"cuda_driver": "11.2"},
    "NVIDIA Release 20.06-tf1 (build 13409399)": {"image": "20.06-tf1"},
    "TensorFlow Version 1.15.2": {"framework_version": "1.15.2"},
    "Nvidia driver version: 450.80.02": {"driver": "450.80.02"},
    "CUDA used to build PyTorch: 11.0": {"cuda": "11.0"},
    "PyTorch version: 1.7.0": {},
    "[2031/05/06 07:08:09] ppcls INFO: train with paddle 2.4.1 and device Place(gpu:0)": {},
    "PyTorch Version 1.6.0a0+9907a3e": {},  # in an image of both; this training is TensorFlow's
}


@pytest.mark.parametrize("line", ENVIRONMENT)
def test_line_of_the_machine(line: str) -> None:
    run = training(line)
    found = {key: getattr(run, key) for key in ("gpu", "driver", "framework_version") if getattr(run, key)}
    facts = {key: run.facts[key] for key in ("image", "cuda", "cuda_driver") if key in run.facts}
    assert {**found, **facts} == ENVIRONMENT[line]
    assert codes(run) == []


def test_version_of_the_framework_that_trained() -> None:
    record = "[2031/05/06 07:08:{}] ppcls INFO: epoch:0   train step:{}   loss:  7.1 ips: 5.0 samples/sec."
    said = "[2031/05/06 07:08:09] ppcls INFO: train with paddle 2.4.1 and device Place(gpu:0)"
    texts = ["PyTorch Version 1.6.0", said, *(record.format(at, at) for at in range(10, 30))]
    (run,) = parse([Line(number, text) for number, text in enumerate(texts, 1)], "a.log")
    assert (run.framework, run.framework_version) == ("PaddlePaddle", "2.4.1")


def test_name_that_a_table_cut_off_gives_way_to_the_whole_one() -> None:
    cut = "|   0  Tesla V100-SXM2...  On   | 00000000:3F:00.0 Off |                    0 |"
    whole = "GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-0)"
    assert training(cut, whole).gpu == training(whole, cut).gpu == "Tesla V100-SXM2-32GB"
    assert training(cut, "GPU 0: Another card (UUID: GPU-0)").gpu == "Tesla V100-SXM2..."


def test_hosts_with_other_cards_or_drivers_are_told() -> None:
    row = "|   0  {}  On   | 00000000:3F:00.0 Off |                    0 |"
    driver = "Driver Version : {}"
    run = training(driver.format("450.80.02"), row.format("Tesla V100-SXM2..."), driver.format("470.83.01"))
    assert [(one.code, one.line) for one in run.problems] == [("hosts_differ", 3)]
    same = [row.format("Tesla V100-SXM2..."), "GPU 0: NVIDIA V100-SXM2-32GB", "GPU 0: Tesla V100-SXM2-32GB"]
    assert codes(training(*same)) == []
    (problem,) = training(*same, "GPU 1: A100-SXM4-40GB").problems
    assert problem.detail == "GPU: V100-SXM2-32GB and A100-SXM4-40GB in one run"


def test_no_line_of_the_machine_is_a_run() -> None:
    lines = [Line(number, text) for number, text in enumerate((*ENVIRONMENT, *ring(2)), 1)]
    made = parse_cell(lines, "a.log")
    assert isinstance(made, Problem)
    assert "environment" not in made.detail


def test_evidence_of_a_cell_holds_what_nccl_wrote_beside_the_ranks(tmp_path: Path) -> None:
    for host in range(2):
        folder = tmp_path / f"logs/lab{host + 1}"
        folder.mkdir(parents=True)
        said = [line for line in ring(2, node1="NET/Socket/0") if line.startswith(f"node{host}:")]
        (folder / f"nccl.node{host}.4711").write_text("\n".join(said) + "\n", "utf-8")
    (tmp_path / "logs/lab1/rank-0000.stdout").write_text("\n".join(TRAINING) + "\n", "utf-8")
    log = parse_cell(CellLog(tmp_path), "a.log", Known(family="dll_tf_resnet50"))
    assert isinstance(log, LogRun)
    assert (log.cards, log.hosts) == (16, 2)
    body = document(CELL, Traces(events=(), ranks=(), log=log, unread=None, last_words=()))
    assert body["transport"]["between_hosts"] == ["NET/IB", "NET/Socket"]
    assert [rank["host"] for rank in body["transport"]["ranks"]] == ["node0", "node0", "node1", "node1"]
    assert "transports_differ" in [problem["code"] for problem in body["problems"]]


@needs_real_logs
def test_transport_of_the_published_run_on_four_hosts() -> None:
    (run,) = runs_of(REAL / "resnet50_pytorch/GPUx32_time2train_ips.log")
    assert (run.nccl, run.cards) == ("2.7.8+cuda10.2", 32)
    assert run.transport is not None
    assert in_words(run.transport) == "NET/IB (RoCE) without GPUDirect RDMA; within hosts P2P/IPC"
    assert [rank["rank"] for rank in run.transport["ranks"]] == [0, 8, 16, 24]
    assert all(rank[way] == ["NET/IB"] for rank in run.transport["ranks"] for way in ("send", "receive"))
    assert len({rank["host"] for rank in run.transport["ranks"]}) == 4


# Cards as the body of each real log names them.
@needs_real_logs
@pytest.mark.parametrize(
    "log",
    [
        *("deeplabv3p_mmseg/GPUx8.log", "deeplabv3p_mmseg/deeplabv3p_c32_fp16.log"),
        *("deeplabv3p_paddle/Deeplabv3_FP32_BS4-N32.log", "other/tf_bert_gpu1_fp32_bs96.log"),
    ],
)
def test_card_of_the_published_runs(log: str) -> None:
    (run,) = runs_of(REAL / log)
    assert run.gpu == "Tesla V100-SXM2-32GB"
