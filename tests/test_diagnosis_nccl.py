"""Rules of nccl-tests: samples of its tables, in the form that tests/parsers/nccl_tests has; no real run.

Their figures are those of facts that others measured: 48 GB/s between four hosts of four EDR adapters each,
6 GB/s where no card reaches an adapter by itself (NVIDIA/nccl-tests#29), 120 GB/s on one host of V100s.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpu_hosts import PORT, ROCE

from runner import diagnosis
from runner.diagnosis.model import Finding, HostView, Probe, Stated
from runner.diagnosis.rules_nccl import PROBE, check, sizes, takes

V100 = Stated(8, "Tesla V100-SXM2-32GB", fabric="infiniband")


def table(ranks: int, busbw: float, wrong: int = 0) -> str:
    devices = "".join(
        f"#  Rank {rank:2d} Group  0 Pid {100 + rank} on gpu{rank // 8 + 1} device {rank % 8:2d}"
        f" [0000:0{rank % 8}:00] Tesla V100-SXM2-32GB\n"
        for rank in range(ranks)
    )
    rows = "".join(
        f"{size} {size // 4} float sum -1 99.0 {rate / 2:.2f} {rate:.2f} {wrong}"
        f" 99.0 {rate / 2:.2f} {rate:.2f} 0\n"
        for size, rate in ((1 << 29, busbw / 2), (1 << 30, busbw * 1.5), (1 << 31, busbw))
    )
    return (
        "# nThread 1 nGpus 1 minBytes 536870912 maxBytes 2147483648 step: 2(factor) warmup iters: 2 iters: 10"
        f" agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n{devices}#\n{rows}"
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}\n"
        f"# Avg bus bandwidth    : {busbw:g}\n"
    )


def seen(
    out: str,
    hosts: int = 4,
    adapters: int = 4,
    *,
    err: str = "",
    stated: Stated = V100,
    wanted: str = "",
    storage: int = 0,
) -> list[HostView]:
    """``wanted`` is NCCL_IB_HCA; each host has so many adapters of the fabric, and others for storage."""
    names = [f"gpu{number + 1}" for number in range(hosts)]
    ports = {f"mlx5_{n}/1": PORT if n < adapters else ROCE for n in range(adapters + storage)}
    said: dict[str, Any] = {"out": out, "err": err, "why": None, "hosts": dict.fromkeys(names, 8)}
    probes = {"rdma_ports": Probe(("x",), 0, json.dumps(ports))}
    job = {PROBE: Probe(("mpirun",), 0, json.dumps({**said, "adapters": wanted}))}
    return [HostView(name, {**probes, **(job if name == "gpu1" else {})}, None, stated) for name in names]


def findings(views: list[HostView]) -> list[Finding]:
    return list(check(views))


@pytest.mark.parametrize(
    ("hosts", "adapters", "busbw"),
    [(4, 4, 48.0), (4, 4, 40.0), (4, 1, 12.2), (1, 0, 120.0), (1, 4, 110.0), (2, 4, 40.0)],
)
def test_what_others_call_good_is_found_good(hosts: int, adapters: int, busbw: float) -> None:
    assert findings(seen(table(8 * hosts, busbw), hosts, adapters)) == []


@pytest.mark.parametrize(
    ("hosts", "adapters", "busbw", "shown"),
    [
        (
            4,
            4,
            6.0,
            "bus bandwidth 6 GB/s of the largest size; 4 adapter(s) of gpu1 with 400 Gb/s lets 48.5 GB/s",
        ),
        (4, 1, 6.0, "1 adapter(s) of gpu1 with 100 Gb/s lets 12.1 GB/s through"),
        (1, 4, 20.0, "NVLink of 8 V100-SXM2 lets 120.0 GB/s through"),
    ],
)
def test_slower_than_what_links_and_adapters_let_through(
    hosts: int, adapters: int, busbw: float, shown: str
) -> None:
    (finding,) = findings(seen(table(8 * hosts, busbw), hosts, adapters))
    assert (finding.code, finding.host) == ("nccl_slow", "gpu1")
    assert shown in finding.evidence


@pytest.mark.parametrize(
    ("model", "least"),
    [
        ("Tesla V100-SXM2-32GB", 110),
        ("NVIDIA A100-SXM4-80GB", 228),
        ("NVIDIA H100 80GB HBM3", 460),
        ("NVIDIA H200", 431),
    ],
)
def test_one_host_is_held_to_the_mark_of_its_cards(model: str, least: int) -> None:
    """Pass marks of check_nccl_allreduce in Azure's node health checks, for machines of eight such cards."""
    stated = Stated(8, model)
    assert findings(seen(table(8, float(least)), 1, 0, stated=stated)) == []
    (finding,) = findings(seen(table(8, least - 1.0), 1, 0, stated=stated))
    assert finding.code == "nccl_slow"
    assert finding.detail.endswith(f"of what is possible; {least} GB/s are the least")


def test_a_mark_is_of_eight_gigabytes_where_they_fit_thrice() -> None:
    """It is compared with the largest size; several hosts over slow Ethernet would take minutes for that."""
    largest = {
        (model, *cards): words[words.index("-e") + 1]
        for model in ("Tesla V100-SXM2-32GB", "Tesla V100-SXM2-16GB", "NVIDIA H200", "Tesla T4")
        for cards in ((8,), (4,), (8, 8))
        for words in [sizes(model, cards)]
    }
    of_mark = {("Tesla V100-SXM2-32GB", 8), ("NVIDIA H200", 8)}
    assert {key for key, size in largest.items() if size == "8G"} == of_mark
    assert {size for key, size in largest.items() if key not in of_mark} == {"2G"}


def test_the_host_with_the_fewest_adapters_bounds_it() -> None:
    views = seen(table(32, 12.0))
    one = HostView("gpu3", {"rdma_ports": Probe(("x",), 0, json.dumps({"mlx5_0/1": PORT}))}, None, V100)
    assert findings([*views[:2], one, views[3]]) == []
    assert [each.code for each in findings(views)] == ["nccl_slow"]


def test_adapters_that_nccl_does_not_take_are_not_counted() -> None:
    """Four of 100 Gb/s, two of which are for storage, let through half; it gave 24 GB/s."""
    roce = Stated(8, "Tesla V100-SXM2-32GB", fabric="roce")
    assert findings(seen(table(32, 24.0), adapters=2, storage=2)) == []
    assert findings(seen(table(32, 24.0), adapters=2, storage=2, stated=roce)) == []
    assert findings(seen(table(32, 24.0), wanted="mlx5_0,mlx5_1:1")) == []
    assert findings(seen(table(32, 24.0), wanted="^mlx5_2,mlx5_3")) == []
    (finding,) = findings(seen(table(32, 24.0), wanted="mlx5"))
    assert "4 adapter(s) of gpu1 with 400 Gb/s" in finding.evidence


@pytest.mark.parametrize(
    ("wanted", "ports"),
    [
        ("mlx5_1", ["mlx5_1/1", "mlx5_1/2", "mlx5_10/1"]),
        ("=mlx5_1", ["mlx5_1/1", "mlx5_1/2"]),
        ("=mlx5_1:2,mlx5_0", ["mlx5_0/1", "mlx5_1/2"]),
        ("^mlx5_1", ["mlx5_0/1"]),
        ("^=mlx5_1:1", ["mlx5_0/1", "mlx5_1/2", "mlx5_10/1"]),
    ],
)
def test_which_ports_nccl_takes(wanted: str, ports: list[str]) -> None:
    """Examples after NCCL's user guide, NCCL_IB_HCA."""
    known = ["mlx5_0/1", "mlx5_1/1", "mlx5_1/2", "mlx5_10/1"]
    assert [port for port in known if takes(wanted, port)] == ports


def test_hosts_without_rdma_are_not_held_to_their_nvlink() -> None:
    """2.4 GB/s is what 25 Gb/s Ethernet gives; 120 GB/s is within a host."""
    ethernet = Stated(8, "Tesla V100-SXM2-32GB", fabric="ethernet")
    assert findings(seen(table(32, 2.4), adapters=0, stated=ethernet)) == []
    assert [each.code for each in findings(seen(table(8, 2.4), 1, 0, stated=ethernet))] == ["nccl_slow"]


@pytest.mark.parametrize(
    ("model", "codes"),
    [
        ("NVIDIA H200", ["nccl_slow"]),
        ("NVIDIA H200 sm_90 141GB", ["nccl_slow"]),
        ("NVIDIA H200 NVL", []),
        ("NVIDIA GH200 480GB", []),
    ],
)
def test_a_bound_is_of_cards_that_are_called_so(model: str, codes: list[str]) -> None:
    """Not of PCIe cards, nor of superchips, whose names have the same word in them."""
    views = seen(table(8, 100.0), 1, 0, stated=Stated(8, model))
    assert [each.code for each in findings(views)] == codes


def test_a_card_of_which_no_bound_is_known_is_not_judged() -> None:
    assert findings(seen(table(8, 1.0), 1, 0, stated=Stated(8, "Tesla T4"))) == []


def test_wrong_values() -> None:
    (finding,) = findings(seen(table(32, 48.0, wrong=7)))
    assert (finding.code, finding.host) == ("nccl_wrong", "gpu1")
    assert "7 wrong values" in finding.evidence


def test_no_table_is_a_failure_and_says_what_nccl_said() -> None:
    err = "gpu2: Test NCCL failure common.cu:1279 'unhandled cuda error (run with NCCL_DEBUG=INFO)'\n"
    (finding,) = findings(seen("# nThread 1\n", err=err))
    assert (finding.code, finding.host) == ("nccl_fails", "gpu1")
    assert "unhandled cuda error" in finding.evidence


def test_a_build_without_mpi_measures_nothing_between_hosts() -> None:
    (finding,) = findings(seen("".join(table(1, 600.0) for _ in range(32))))
    assert (finding.code, diagnosis.rules()[finding.code].severity) == ("nccl_tests_unfit", "info")


def test_where_it_was_not_run_nothing_is_said() -> None:
    assert findings([HostView("gpu1", {}, None, V100)]) == []
