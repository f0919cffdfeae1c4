"""Rules of nccl-tests: samples of its tables, in the form that tests/parsers/nccl_tests has; no real run.

Their figures are those of facts that others measured: 48 GB/s between four hosts of four EDR adapters each,
6 GB/s where no card reaches an adapter by itself (NVIDIA/nccl-tests#29), 120 GB/s on one host of V100s.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    why: str | None = None,
    status: int | None = 1,
    rates: Sequence[int] = (),
) -> list[HostView]:
    """``wanted`` is NCCL_IB_HCA; each host has so many adapters of the fabric, and others for storage.

    ``rates``: Gb/s of the adapters of the fabric instead, where they are not all of 100.
    """
    names = [f"gpu{number + 1}" for number in range(hosts)]
    ports = {f"mlx5_{n}/1": PORT if n < adapters else ROCE for n in range(adapters + storage)}
    ports = {f"mlx5_{n}/1": {**PORT, "rate": f"{rate} Gb/sec"} for n, rate in enumerate(rates)} or ports
    said: dict[str, Any] = {"out": out, "err": err, "why": why, "hosts": dict.fromkeys(names, 8)}
    said["status"] = status
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


HEAD, MIDDLE = table(16, 470.0).split("536870912 134217728")
FIRST = f"{HEAD}536870912 134217728 {MIDDLE.splitlines()[0].strip()}\n"  # as far as the first size
HALF = "  1073741824     268435456     float     sum      -1"
UNHANDLED = "gpu2: Test NCCL failure common.cu:310 'unhandled cuda error (run with NCCL_DEBUG=INFO)'"
UNREADY = "gpu1: Test CUDA failure common.cu:961 'system not yet initialized'"
PLACE = "\n .. gpu1 pid 1234: Test failure common.cu:844\n"
RULE = "-" * 74 + "\n"
PRTERUN = f"""{RULE}prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-gpu1-4711@1,0]
   Exit code:    3
{RULE}daemon on gpu2 ended with status 143
"""
LIBRARY = "all_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open: No such file\n"
MPIRUN = f"""{RULE}Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
{RULE}"""
SIGNAL = "mpirun noticed that process rank 3 with PID 0 on node gpu2 exited on signal 7 (Bus error).\n"
BEHIND = "it broke off behind 536870912 bytes, on 16 cards"


@pytest.mark.parametrize(
    ("out", "err", "why", "shown", "detail"),
    [
        (HEAD + UNREADY + PLACE, PRTERUN, None, UNREADY, "no figure, on 16 cards"),
        (HEAD, LIBRARY + MPIRUN, None, LIBRARY.strip(), "no figure, on 16 cards"),
        (HEAD, RULE + SIGNAL + RULE, None, SIGNAL.strip(), "no figure, on 16 cards"),
        (HEAD, PRTERUN, None, "it ended with status 1", "no figure, on 16 cards"),
        ("", "no answer in time", "no answer in time", "no answer in time", "no figure, on 16 cards"),
        (FIRST + UNHANDLED + PLACE, PRTERUN, None, UNHANDLED, BEHIND),
        (FIRST + HALF + UNHANDLED + PLACE, "", None, UNHANDLED, BEHIND),
        (FIRST, "", "timeout", "it did not end in time", BEHIND),
        (
            FIRST + HALF,
            "WARNING: an adapter has no default parameters\n",
            "timeout",
            "it did not end in time",
            BEHIND,
        ),
    ],
)
def test_without_a_whole_table_it_failed_and_says_what_the_program_said(
    out: str, err: str, why: str | None, shown: str, detail: str
) -> None:
    """Which it prints to standard output, by nccl-tests' CUDACHECK and NCCLCHECK."""
    (finding,) = findings(seen(out, 2, err=err, why=why, status=None if why else 1))
    assert (finding.code, finding.host) == ("nccl_fails", "gpu1")
    assert (finding.evidence, finding.detail) == (shown, detail)


@pytest.mark.parametrize(("status", "why"), [(1, None), (None, "timeout"), (0, None)])
def test_a_whole_table_is_judged_whatever_comes_behind_it(status: int | None, why: str | None) -> None:
    assert findings(seen(table(16, 48.0), 2, err=MPIRUN, status=status, why=why)) == []
    assert [each.code for each in findings(seen(table(16, 6.0), 2, status=status, why=why))] == ["nccl_slow"]


def test_who_is_only_slow_does_not_fail() -> None:
    """10 Gb/s Ethernet needs all the time that there is; nor does one whose output was cut."""
    ethernet = Stated(8, "Tesla V100-SXM2-32GB", fabric="ethernet")
    late = FIRST.replace("235.00", "1.10")
    assert findings(seen(late, 2, 0, stated=ethernet, why="timeout", status=None)) == []
    assert [each.code for each in findings(seen(late, 2, why="timeout", status=None))] == ["nccl_slow"]
    assert [each.code for each in findings(seen(late, 2, why=None))] == ["nccl_fails"]
    for cut in (HEAD, FIRST):
        assert [each.code for each in findings(seen(cut, 2, status=0))] == ["nccl_tests_unfit"]


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        (("17", "123456"), ["nccl_wrong"]),
        (("0", "1.23457e+06"), ["nccl_wrong"]),
        (("2e-06", "1e+00*"), ["nccl_wrong"]),
        (("2e-06", "0e+00"), ["nccl_fails"]),
        (("N/A", "N/A"), ["nccl_fails"]),
    ],
)
def test_wrong_values_of_a_job_that_ends_too_early(values: tuple[str, str], codes: list[str]) -> None:
    """Numbers of elements as "%g" shows them; releases before 2.13 show the error, starred if too large."""
    row = "  536870912     134217728     float     sum      -1   1996.5  268.91  470.00  {0:>5}"
    row += "   1996.5  268.91  470.00  {1:>5}\n"
    found = findings(seen(HEAD + row.format(*values), 2, why="timeout", status=None))
    assert [each.code for each in found] == codes


@pytest.mark.parametrize("wanted", ["", "mlx5"])
@pytest.mark.parametrize(
    ("model", "rates", "busbw", "slow"),
    [
        ("NVIDIA H100 80GB HBM3", [400] * 10, 370.0, 300.0),
        ("NVIDIA B200", [400] * 12, 370.0, 300.0),
        ("NVIDIA H100 80GB HBM3", [400] * 8 + [200] * 2, 370.0, 300.0),
        ("NVIDIA A100-SXM4-80GB", [200] * 10, 188.0, 150.0),
        ("Tesla V100-SXM2-32GB", [100] * 6, 40.0, 38.0),
        ("NVIDIA H100 80GB HBM3", [100] * 2 + [400], 20.0, 19.0),
    ],
)
def test_storage_on_the_same_fabric_does_not_raise_the_bound(
    model: str, rates: list[int], busbw: float, slow: float, wanted: str
) -> None:
    """As DGX have it: two or four ports more than there are cards."""

    def codes(rate: float) -> list[str]:
        stated = Stated(8, model, fabric="infiniband")
        views = seen(table(16, rate), 2, rates=rates, stated=stated, wanted=wanted)
        return [each.code for each in findings(views)]

    assert codes(busbw) == []
    assert codes(slow) == ["nccl_slow"]


def test_a_build_without_mpi_measures_nothing_between_hosts() -> None:
    (finding,) = findings(seen("".join(table(1, 600.0) for _ in range(32))))
    assert (finding.code, diagnosis.rules()[finding.code].severity) == ("nccl_tests_unfit", "info")


def test_where_it_was_not_run_nothing_is_said() -> None:
    assert findings([HostView("gpu1", {}, None, V100)]) == []
