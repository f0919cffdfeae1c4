"""What a workload's image cannot run on, seen in the plan and refused before anything starts. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from runner.launch import Launcher
from runner.model import Cell, Cluster, Placement, Workload

# Compute capability by the model's name as nvidia-smi shows it, the first that fits
# (developer.nvidia.com/cuda-gpus).
ARCHITECTURES = (
    (r"\bK80\b", 37),
    (r"\bM(?:40|60)\b", 52),
    (r"\bP100\b", 60),
    (r"\bP(?:4|40)\b|GTX 10[5678]0", 61),
    (r"\bV100|TITAN V\b", 70),
    (r"\bT4\b|Quadro RTX|RTX 20[678]0|GTX 16[56]0|TITAN RTX", 75),
    (r"\bA(?:100|800|30)\b", 80),
    (r"RTX 6000 Ada|\bL(?:4|20|40S?)\b|RTX 40[5-9]0", 89),
    (r"\bA(?:2|10G?|16|40)\b|RTX A[2-6]0?00|RTX 30[5-9]0", 86),
    (r"\bG?H(?:20|100|200|800)\b", 90),
    (r"\bG?B(?:100|200)\b", 100),
    (r"\bG?B300\b", 103),
    (r"RTX 50[5-9]0|RTX PRO .*Blackwell", 120),
)
# Of models that come with one size only, which their names leave out (NVIDIA's data sheets).
MEMORY = ((r"\bP4\b", 8), (r"\bT4\b", 16), (r"\bP40\b|\bL4\b|\bA10\b|\bA30\b|RTX [34]090\b", 24))
# The last driver branch for compute capabilities up to this one, Maxwell, Pascal and Volta
# (docs.nvidia.com/datacenter/tesla/drivers, the matrix of drivers and architectures).
OLD_CARDS, LAST_BRANCH = 70, 580
TF32_FROM = 80  # from this one on, frameworks compute fp32 in TF32 unless told otherwise
TF32_SWITCH = "NVIDIA_TF32_OVERRIDE"


def architecture(model: str) -> int | None:
    """Ten times the compute capability of a card, such as 70 for a V100, as its name says or is known for."""
    if found := re.search(r"\bsm_([1-9]\d{1,2})\b", model):
        return int(found[1])
    return next((number for pattern, number in ARCHITECTURES if re.search(pattern, model, re.I)), None)


def memory_gib(model: str) -> float | None:
    """The memory of a card as its name tells, or as all of that name have it; None elsewhere."""
    found = re.findall(r"(\d{1,4}) ?Gi?B\b", model, re.I)
    if found:
        return float(found[-1])  # of a MIG instance the memory stands behind that of its card
    return next((float(gib) for pattern, gib in MEMORY if re.search(pattern, model, re.I)), None)


def remark(workload: Workload, cluster: Cluster) -> str | None:
    """What could not be judged of these cards, and how to state it; None where all could."""
    model, limits = cluster.card_model, workload.limits
    if not model:
        return None
    unknown = [
        *(["architecture"] if limits.architectures and architecture(model) is None else []),
        *(["memory"] if limits.least_memory_gib and memory_gib(model) is None else []),
    ]
    if not unknown:
        return None
    text = f"{workload.name}: {' and '.join(unknown)} of {model} not known here, and so not judged"
    example = " ".join({"architecture": "sm_90", "memory": "80GB"}[each] for each in unknown)
    return f'{text}; write what it has behind its name in cluster_card_model, as in "{model} {example}"'


def refusal(
    workload: Workload, cluster: Cluster, cell: Cell, placement: Sequence[Placement], launcher: Launcher
) -> str | None:
    """Why the cell cannot run on this cluster; None where nothing is known against it."""
    if not launcher.contained:
        return None
    if not cluster.card_model:
        return f"{workload.name} needs GPUs, the cards of {cluster.name} are process slots"
    return (
        _architecture(workload, cluster)
        or _memory(workload, cluster)
        or _driver(workload, cluster)
        or _tf32(cell, cluster)
        or _uneven(placement, launcher)
    )


def _architecture(workload: Workload, cluster: Cluster) -> str | None:
    """Code for a capability runs on later ones of the same major number (CUDA C++ Programming Guide)."""
    card = architecture(cluster.card_model)
    built = [int(word.removeprefix("sm_")) for word in workload.limits.architectures]
    if card is None or not built or any(card // 10 == one // 10 and one <= card for one in built):
        return None
    base = workload.image.base if workload.image else "its image"
    has = ", ".join(workload.limits.architectures)
    return f"{base} has code for {has} and none for {cluster.card_model} (sm_{card}); no flag mends that"


def _memory(workload: Workload, cluster: Cluster) -> str | None:
    has, least = memory_gib(cluster.card_model), workload.limits.least_memory_gib
    if has is None or has >= least:
        return None
    return f"{workload.name} needs cards of {least:g} GiB, {cluster.card_model} has {has:g}"


def _driver(workload: Workload, cluster: Cluster) -> str | None:
    least, card = workload.limits.least_driver, architecture(cluster.card_model)
    if card is not None and card <= OLD_CARDS and _version(cluster.driver)[:1] > (LAST_BRANCH,):
        text = f"{LAST_BRANCH} is the last branch that knows {cluster.card_model}"
        return f"{text}, cluster_driver says {cluster.driver}"
    if not least or not cluster.driver or _version(cluster.driver) >= _version(least):
        return None
    return f"{workload.name} needs driver {least} or later, cluster_driver says {cluster.driver}"


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def _tf32(cell: Cell, cluster: Cluster) -> str | None:
    card = architecture(cluster.card_model)
    if cell.precision != "fp32" or card is None or card < TF32_FROM or cluster.env.get(TF32_SWITCH) == "0":
        return None
    text = f"fp32 on {cluster.card_model} is computed in TF32, and its figure is not one of FP32"
    return f'{text}; switch that off with {TF32_SWITCH}: "0" in cluster_env'


def _uneven(placement: Sequence[Placement], launcher: Launcher) -> str | None:
    counts = {place.ranks for place in placement}
    if not launcher.per_host or len(counts) < 2:
        return None
    return "its framework's launcher wants as many cards on every host, and these hosts differ"
