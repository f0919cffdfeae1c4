"""What runkit costs, as ratios and differences measured side by side in one run (``make perf``).

usage: python tests/perf/perf.py [--seconds S] [--pairs N] [--megabytes N] [--only PART,PART,...]

Parts: help, bench, cell, watcher (what runkit costs a training), large, many, other (what reading costs).

Not a test: it always exits 0 and shows the limit that each figure is meant to keep. The machine's noise is
shown beside it, as the spread of what was repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import collector
from figures import Figure
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
CARDS = (1, 8, 32)


def main() -> None:
    """Measure what is asked for and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20, help="length of a cell")
    parser.add_argument("--pairs", type=int, default=5, help="how often a paired figure is repeated")
    parser.add_argument("--megabytes", type=int, default=1000, help="size of a large log")
    parser.add_argument("--only", help="parts, separated by commas; default: all")
    args = parser.parse_args()
    parts: dict[str, Callable[[argparse.Namespace], list[Figure]]] = {
        "help": quick_commands,
        "bench": fixed_cost,
        "cell": cost_per_cell,
        "watcher": watcher,
        "large": collector.large_logs,
        "many": collector.many_logs,
        "other": collector.other_logs,
    }
    rows: list[Figure] = []
    for name in args.only.split(",") if args.only else parts:
        rows += parts[name](args)
    cells = [row.cells() for row in rows]
    print(
        tabulate(
            cells, headers=("figure", "measured", "limit", "kept"), tablefmt="pipe", disable_numparse=True
        )
    )


def quick_commands(args: argparse.Namespace) -> list[Figure]:
    """``--help`` and ``list`` against ``python -c pass``, taken in turns."""
    commands = {
        "pass": [sys.executable, "-c", "pass"],
        "--help": [sys.executable, "-m", "runner", "--help"],
        "list": [sys.executable, "-m", "runner", "list"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(2 * args.pairs):
        for name, argv in commands.items():
            times[name].append(_wall(argv, ROOT))
    made = []
    for name in ("--help", "list"):
        more = [one - base for one, base in zip(times[name], times["pass"], strict=True)]
        text = f"{median(more):.3f} s more ({min(more):.3f} to {max(more):.3f}, n={len(more)})"
        made.append(Figure(f"`{name}` against `python -c pass`", text, "0.3 s more", median(more) <= 0.3))
    return made


def fixed_cost(args: argparse.Namespace) -> list[Figure]:
    """``bench`` for three cells against the same three mpirun lines in a bare shell."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        workload = _workload(folder, f'--seconds, "{args.seconds:g}"')
        bare = sum(_bare(workload, cards, folder)[0] for cards in CARDS)
        wall = _wall(_bench(workload, ",".join(map(str, CARDS))), folder)
        fixed = wall - sum(seconds for each in _cell_seconds(folder).values() for seconds in each)
    what = f"`bench`, {len(CARDS)} cells of {args.seconds:g} s"
    total = f"{wall:.1f} s against {bare:.1f} s in a bare shell"
    return [Figure(f"{what}: fixed cost", f"{fixed:.2f} s ({total})", "8 s", fixed <= 8)]


def cost_per_cell(args: argparse.Namespace) -> list[Figure]:
    """What a cell takes more than its bare mpirun line, on short cells, whose own noise is small."""
    made = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        workload = _workload(folder, '--steps, "50", --log-every, "5"')
        _wall([*_bench(workload, ",".join(map(str, CARDS))), "--repeat", str(args.pairs)], folder)
        watched = _cell_seconds(folder)
        for cards in CARDS:
            bare = [_bare(workload, cards, folder)[0] for _ in range(args.pairs)]
            more = median(watched[cards]) - median(bare)
            spread = f"{min(bare):.2f} to {max(bare):.2f} s bare, n={args.pairs}"
            made.append(
                Figure(f"more per cell, {cards} card(s)", f"{more:.2f} s ({spread})", "0.3 s", more <= 0.3)
            )
    return made


def watcher(args: argparse.Namespace) -> list[Figure]:
    """The training's own rate under the agent, its follower and its display, against a bare mpirun line."""
    made = []
    for cards in (1, 8):
        ratios = []
        for _ in range(args.pairs):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                workload = _workload(folder, f'--seconds, "{args.seconds / 2:g}"')
                bare = _bare(workload, cards, folder)[1]
                _wall(_bench(workload, str(cards)), folder)
                (result,) = json.loads(next(folder.glob("runs/*/results.json")).read_text())["results"]
                ratios.append(result["rate"] / bare)
        cost = 1 - median(ratios)
        text = f"{100 * cost:+.2f} % ({', '.join(f'{100 * (1 - one):+.2f}' for one in sorted(ratios))})"
        made.append(
            Figure(f"watching: rate lost, {cards} card(s), {args.pairs} pairs", text, "1 %", cost <= 0.01)
        )
    return made


def _workload(folder: Path, length: str) -> Path:
    """The embedded workload with cells of another length."""
    text = (ROOT / "workloads" / "digits.yml").read_text()
    changed, count = re.subn(r'--seconds, *"20"', length, text)
    assert count == 1, "workloads/digits.yml has changed: mend this pattern"
    path = folder / "digits.yml"
    path.write_text(changed)
    (folder / "digits").symlink_to(ROOT / "workloads" / "digits")
    return path


def _bench(workload: Path, cards: str) -> list[str]:
    return [sys.executable, "-m", "runner", "bench", "-w", str(workload), "--cards", cards]


def _bare(workload: Path, cards: int, folder: Path) -> tuple[float, float]:
    """Wall seconds and rate of a cell's mpirun line, typed by hand: no agent, no shim."""
    argv = [*_bench(workload, str(cards)), "--dry-run"]
    shown = subprocess.run(argv, cwd=folder, env=_env(), capture_output=True, text=True, check=True).stdout
    line = next(line for line in shown.splitlines() if "mpirun" in line and not line.startswith("#"))
    line = re.sub(r"sh shim\.sh \S+ ", "", line)
    line = line.replace("workload/digits/", f"{ROOT}/workloads/digits/")
    began = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=_env(), capture_output=True, text=True, check=True
    )
    wall = time.monotonic() - began
    rate = re.search(r"^runkit summary .*? rate=(\S+)", done.stdout, re.M)
    assert rate, done.stdout + done.stderr
    return wall, float(rate[1])


def _cell_seconds(folder: Path) -> dict[int, list[float]]:
    """Cards to seconds from each start of such a cell to the agent's next step, proofs included."""
    (journal,) = folder.glob("runs/*/journal.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    seconds: dict[int, list[float]] = {}
    for event, following in pairwise(events):
        if event["event"] == "cell_started":
            began = event["t"]
        if event["event"] == "cell_ended":
            cards = int(event["cell"].split(".")[2].removeprefix("c"))
            seconds.setdefault(cards, []).append(following["t"] - began)
    return seconds


def _wall(argv: Sequence[str], folder: Path) -> float:
    began = time.monotonic()
    subprocess.run(
        argv, cwd=folder, env=_env(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    return time.monotonic() - began


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


main()
