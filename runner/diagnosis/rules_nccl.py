"""What NVIDIA's nccl-tests measure on all cards, against what links and network adapters let through."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner import limits, parsers
from runner.diagnosis import loose, meetings
from runner.diagnosis.model import Finding, HostView, Rule
from runner.errors import UnknownLog
from runner.model import Line, LogRun

PROGRAM = "gpu_nccl_tests"  # where it lies, on each host
PROBE = "nccl_job"  # of the first host: what it printed; made by runner.looking
# What it measures: the largest fits thrice into 16 GB of a card, or into 32 GB.
SIZES = ("-b", "512M", "-e", "2G", "-f", "2", "-n", "10", "-w", "2", "-c", "1")
SIZES_OF_MARK = ("-b", "512M", "-e", "8G", "-f", "4", "-n", "10", "-w", "2", "-c", "1")
ROOMY_GIB = 32
# Bus bandwidth in GB/s of an all-reduce on one host of eight cards, by a word of their name. What it lets
# through: V100 in a mesh with 20 effective per link, A100 (both NVIDIA/nccl-tests#149), H100 (#212), H200
# (#272). The least that passes: check_nccl_allreduce at 8 GB in the node health checks of Azure.
CARDS = 8
NVLINK = {
    "V100-SXM2": (120.0, 110.0),
    "A100-SXM4": (230.0, 228.0),
    "H100 80GB HBM3": (480.0, 460.0),
    "H200": (475.0, 431.0),
}
REACHED = 0.97  # of the rate of the adapters: 48.5 of 50 GB/s with four EDR
# Of what is possible between hosts; the lowest that was called good: 40 of 48.5 GB/s with four EDR (#29).
LEAST = 0.8
LAYERS = {"infiniband": "InfiniBand", "roce": "Ethernet"}  # by fabric, as sysfs calls them
_ACTIVE = re.compile(r"ACTIVE\b")
RATE = re.compile(r"(\d{1,4}(?:\.\d)?) Gb/sec")
STEADY = 2.0  # GB/s with which the sizes between hosts take 90 s, half of the time that they have
_END = "# Avg bus bandwidth"  # behind the last size
# NCCLCHECK and CUDACHECK of nccl-tests print to standard output, behind the beginning of a row.
_TEST = re.compile(r": Test (?:NCCL|CUDA) failure [^\n]{1,300}")
_NAME = re.compile(r"[A-Za-z][\w.-]*\Z")
# What launchers say of any program that failed, and of what they leave out.
_OF_LAUNCHER = re.compile(
    r"detected that one or more processes exited|^thus causing|^the job to be terminated|^Process name:"
    r"|^Exit code:|^Primary job +terminated normally|^a non-zero exit code\. +Per user|sent help message"
    r"|Set MCA parameter|^daemon on \S+ ended with status"
)
# One way of a row has the time, two bandwidths and what is wrong: a number of elements, or, of older
# releases, the largest error with "*" behind it where it is too large.
_WAY = r" +[\d.e+]{1,12} +[\d.]{1,12} +[\d.]{1,12} +(\d{1,12}(?:\.\d{1,12})?(?:e[+-]\d\d)?\*?)(?=\s)"
_ROW = re.compile(rf"^ *\d{{1,15}} +\d{{1,15}} +float +sum(?: +-1)?{_WAY}(?:{_WAY})?", re.MULTILINE)

RULES = (
    Rule(
        "nccl_fails",
        "blocking",
        "An all-reduce of NCCL on all cards fails",
        "cards, links or network adapters do not work together; training fails at its first step",
        "run all_reduce_perf by hand with NCCL_DEBUG=INFO, first on one host, then on two",
    ),
    Rule(
        "nccl_wrong",
        "blocking",
        "An all-reduce of NCCL gives wrong values",
        "memory of a card, a link or an adapter is defective, or the IOMMU redirects what cards exchange",
        "look for Xid and ECC errors; run it on one host after the other, and take out the one that fails",
    ),
    Rule(
        "nccl_slow",
        "warning",
        "NCCL is slower than links and network adapters let through",
        "no GPUDirect RDMA, fewer adapters in use than there are, a link down, or another topology",
        "see with NCCL_DEBUG=INFO which adapters it takes and whether it says GDRDMA; see the other findings",
    ),
    Rule(
        "nccl_tests_unfit",
        "info",
        "nccl-tests could not be used",
        "all_reduce_perf was built without MPI, so that each process measured its own card alone; or what it "
        "printed with NCCL_DEBUG was cut",
        "build it with MPI=1, or state another one in doctor_probe_nccl_tests; leave NCCL_DEBUG unset",
    ),
)


def check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Yield what its output shows; nothing where it was not run."""
    for host in hosts[:1]:
        said = loose.mapping(host.data(PROBE))
        if said:
            yield from _judged(host.name, said, hosts)


def _judged(name: str, said: Mapping[str, Any], hosts: Sequence[HostView]) -> Iterator[Finding]:
    cards = {
        key: int(n) for key in loose.mapping(said.get("hosts")) if (n := loose.number(said["hosts"], key))
    }
    out, count = loose.text(said, "out"), sum(cards.values())
    made = _run(out)
    rate, ended = made.rate if made else None, _END in out
    wrong = [each.detail for each in made.problems if each.code == "wrong_values"] if made else []
    late = rate is not None and rate < STEADY and loose.text(said, "why") == "timeout"  # and may be no more
    if wrong := wrong or ([] if ended else _wrong(out)):
        yield Finding("nccl_wrong", name, wrong[0], f"on {count} cards")
    elif made is not None and made.cards is not None and made.cards < count:
        text = f"it ran on {made.cards} of {count} cards"
        yield Finding("nccl_tests_unfit", name, text, "nothing was measured between hosts")
    elif rate is not None and (ended or late):  # whatever its status: launchers complain behind the end too
        yield from _slow(name, rate, said, hosts)
    elif loose.number(said, "status") == 0:
        yield Finding("nccl_tests_unfit", name, "it ended with status 0, without a whole table", "no figure")
    else:
        sizes = [each.step for each in made.records if each.step is not None] if made else []
        behind = f"it broke off behind {sizes[-1]} bytes" if sizes else "no figure"
        yield Finding("nccl_fails", name, _reason(said), f"{behind}, on {count} cards")


def _wrong(out: str) -> list[str]:
    """The rows with wrong values, where no sum of them was printed."""
    return [
        " ".join(row[0].split())
        for row in _ROW.finditer(out)
        if any(each.endswith("*") or float(each) >= 1 for each in row.groups("0"))
    ]


def _reason(said: Mapping[str, Any]) -> str:
    """What the program itself said; else what says most of the rest."""
    out = loose.text(said, "out")
    if found := _TEST.search(out):
        host = _NAME.search(out[max(0, found.start() - 64) : found.start()])
        return (host[0] if host else "") + found[0]
    lines = [line.strip() for line in loose.text(said, "err").splitlines() if line.strip(" -\t=*")]
    lines = [line for line in lines if not _OF_LAUNCHER.search(line)]
    telling = [line for line in lines if meetings.TELLING.search(line)]
    why, status = loose.text(said, "why"), loose.number(said, "status")
    rest = f"it ended with status {status:g}" if status is not None else "it printed no table"
    return (telling or (["it did not end in time"] if why == "timeout" else lines) or [why or rest])[-1]


def _slow(name: str, rate: float, said: Mapping[str, Any], hosts: Sequence[HostView]) -> Iterator[Finding]:
    ours = [host for host in hosts if host.name in loose.mapping(said.get("hosts"))]
    bounds = [found for host in ours for found in _nvlink(host)]
    if len(ours) > 1:
        adapters = [found for host in ours for found in _adapters(host, loose.text(said, "adapters"))]
        if len(adapters) < len(ours):
            return  # over TCP of any speed: nothing is known of what it lets through
        bounds += adapters
    if not bounds:
        return
    bound, whose = min(bounds)
    own = mark(ours[0].stated.card_model, ours[0].stated.cards) if len(ours) == 1 else None
    least = own or LEAST * bound
    if rate < least:
        shown = f"bus bandwidth {rate:g} GB/s of the largest size; {whose} lets {bound:.1f} GB/s through"
        yield Finding(
            "nccl_slow",
            name,
            shown,
            f"{rate / bound:.0%} of what is possible; {least:.4g} GB/s are the least",
        )


def sizes(model: str, cards: Sequence[int]) -> tuple[str, ...]:
    """What to measure on hosts with so many cards: on one, up to the 8 GB that its mark is of."""
    fits = (limits.memory_gib(model) or ROOMY_GIB) >= ROOMY_GIB  # of those with a mark, V100 alone have less
    return SIZES_OF_MARK if len(cards) == 1 and mark(model, cards[0]) is not None and fits else SIZES


def mark(model: str, cards: int) -> float | None:
    """The least GB/s of bus bandwidth that passes on one host with these cards; None where none is known."""
    return next((least for _, _, least in _known(model, cards)), None)


def _nvlink(host: HostView) -> Iterator[tuple[float, str]]:
    """How many GB/s of bus bandwidth it lets through."""
    for word, rate, _ in _known(host.stated.card_model, host.stated.cards):
        yield rate, f"NVLink of {CARDS} {word}"


def _known(model: str, cards: int) -> Iterator[tuple[str, float, float]]:
    """The row of NVLINK for these cards; those called NVL are joined in pairs or fours alone."""
    for word, (rate, least) in NVLINK.items():
        if re.search(rf"\b{word}\b(?! NVL)", model) and cards == CARDS:
            yield word, rate, least


def _adapters(host: HostView, wanted: str) -> Iterator[tuple[float, str]]:
    """How many GB/s the adapters that NCCL takes let through together; others are for storage or management.

    ``wanted`` is NCCL_IB_HCA; where it is not stated, those of the fabric's link layer are taken. Storage may
    be on the same fabric, and a stated "mlx5" fits its ports too. Hosts are built with an adapter for each
    card, or one for each two or four: of the kind that most are of, as many count as serve all cards alike.
    """
    rates = []
    for name, port in loose.items(host.data("rdma_ports")):
        layer = loose.text(port, "link_layer") == LAYERS.get(host.stated.fabric)
        found = RATE.match(loose.text(port, "rate"))
        if (takes(wanted, name) if wanted else layer) and _ACTIVE.search(loose.text(port, "state")) and found:
            rates.append(float(found[1]))
    if rates:
        rate, most = max(Counter(rates).items(), key=lambda kind: (kind[1], -kind[0]))
        ports = max(n for n in range(1, most + 1) if host.stated.cards % n == 0)
        yield ports * rate / 8 * REACHED, f"{ports} adapter(s) of {host.name} with {ports * rate:g} Gb/s"


def takes(wanted: str, port: str) -> bool:
    """Whether NCCL_IB_HCA names a port such as "mlx5_0/1" (NCCL's user guide: ``[^][=]DEVICE[:PORT],...``).

    A device's name need only begin so, except behind "="; "^" names those that are not taken.
    """
    device, _, number = port.partition("/")
    text = wanted.removeprefix("^")
    exact = text.startswith("=")

    def fits(word: str) -> bool:
        name, _, at = word.partition(":")
        return (device == name if exact else device.startswith(name)) and at in ("", number)

    return any(map(fits, filter(None, text.removeprefix("=").split(",")))) != wanted.startswith("^")


def _run(out: str) -> LogRun | None:
    lines = [Line(number, text) for number, text in enumerate(out.splitlines(), 1)]
    try:
        return parsers.parse(lines, "all_reduce_perf", parsers.Known(family="nccl_tests"))[-1]
    except UnknownLog:
        return None
