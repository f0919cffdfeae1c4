"""``{name}`` in the texts of a workload is replaced from the cell and the cluster; nothing else is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from runner.names import hint, shown

PLACEHOLDERS = {
    "python": "the ranks' Python",
    "files": "the folder of the workload's files on the hosts",
    "cards": "cards of the cell, all hosts together",
    "hosts": "hosts of the cell",
    "precision": "precision of the cell",
    "batch_size": "batch size per card",
    "global_batch": "batch size of all cards together",
    "mode": "mode of the cell",
    "target": "accuracy to reach, in [0, 1]",
    "data": "the folder of the data sets on the hosts",
    "image": "the container image, behind the cluster's registry",
    "devices": "the cards of a host that the cell uses, such as 0,1,2",
    "cards_here": "cards of the cell on each of its hosts",
    "node_rank": "which of the cell's hosts it is, counted from 0",
    "master": "address of the launch host",
    "port": "the first TCP port that the framework's own launcher may take there",
    "addresses": "addresses of the cell's hosts, with commas",
    "logs": "the folder inside the container that comes home with the logs",
    "scratch": "a folder inside the container that is new for each cell",
}
OF_THE_CELL = ("cards", "hosts", "precision", "batch_size", "global_batch", "mode")
_BRACES = re.compile(r"\{([^{}]*)\}|[{}]")


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace each ``{name}`` of ``text`` by its value; ``values`` must have all of them."""
    return _BRACES.sub(lambda found: values[found.group(1)], text)


def filled(text: str, value: str) -> str:
    """``text`` with ``value`` for each placeholder, to look at its form."""
    return _BRACES.sub(lambda _: value, text)


def problems(key: str, text: str, known: Iterable[str] = PLACEHOLDERS) -> Iterator[str]:
    """Say which braces of the ``text`` under ``key`` are none of the ``known`` placeholders."""
    for found in _BRACES.finditer(text):
        if found.group(1) is None:
            yield f"{key}: {shown(text)}: a brace stands alone; write {{name}}"
        elif found.group(1) not in known:
            yield f"{key}: {shown(found.group(0))} is unknown; {hint(found.group(1), known)}"
