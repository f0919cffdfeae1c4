"""What runkit costs on several hosts, against the same done by hand over SSH (``make perf``).

usage: python tests/perf/perf_hosts.py [CLUSTER] [--only start,collect] [--repeat N] [--megabytes N]

Not a test: it shows the limit that each figure is meant to keep. CLUSTER is provisioned, with several hosts;
where none is named, a rehearsal cluster is made for it, by root.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "lab")]

from hosts import Lab  # noqa: E402 - so does what makes labs

from runner.io import ansible, inventory, ssh  # noqa: E402 - the package lies beside this folder
from runner.model import Cluster, Host  # noqa: E402

# Lines such as trainings write: numbers that change, words that do not.
FILL = """
import sys
line = "runkit step step={0} epoch=3 time={0}.123456 loss=0.0{0} step_time=0.0023456 rate={0}1.2 done=0.5\\n"
with open(sys.argv[1], "w") as out:
    while out.tell() < int(sys.argv[2]) << 20:
        start = out.tell()
        out.write("".join(line.format(start + number) for number in range(10000)))
"""


class Hands:
    """What a person types: commands over SSH to the hosts of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.variables = ansible.inventory_list(Path(cluster.path))["_meta"]["hostvars"]

    def argv(self, host: Host, script: str, *words: str) -> list[str]:
        return ssh.command(host, self.variables[host.name], ["sh", "-c", script, "sh", *words])

    def wall(self, host: Host, script: str, *words: str) -> float:
        began = time.monotonic()
        subprocess.run(self.argv(host, script, *words), capture_output=True, check=True)
        return time.monotonic() - began


def main() -> None:
    """Measure what is asked for and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cluster", nargs="?")
    parser.add_argument("--only", default="start,collect")
    parser.add_argument("--repeat", type=int, default=4, help="cells of `start`, and repeats of both kinds")
    parser.add_argument("--megabytes", type=int, default=1000, help="of logs on all hosts together")
    args = parser.parse_args()
    if args.cluster:
        measure(args.cluster, args)
        return
    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder) / "perf") as lab:
        lab.up("--hosts", "4")
        lab.runner("provision", check=0, timeout=600)
        measure(str(lab.folder), args)


def measure(name: str, args: argparse.Namespace) -> None:
    """Measure a cluster and print the table."""
    cluster = inventory.load(name, ansible.inventory_list)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        hands = Hands(cluster)
        if "start" in args.only:
            rows += start(hands, _bench(cluster, Path(folder) / "start", args.repeat), args.repeat)
        if "collect" in args.only:
            rows += collect(hands, _bench(cluster, Path(folder) / "collect", 1), args.megabytes, args.repeat)
    print(
        tabulate(
            rows, headers=("figure", "measured", "limit", "kept"), tablefmt="pipe", disable_numparse=True
        )
    )


class Run:
    """A run of one-step cells on all cards: its folder, and seconds from the start to each end of a cell."""

    def __init__(self, folder: Path, ended: Sequence[float]) -> None:
        self.folder, self.ended = folder, ended
        self.plan = json.loads((folder / "plan.json").read_text())

    @property
    def remote(self) -> str:
        """The run's folder on the hosts, for ``cd`` after a login."""
        return f"{self.plan['cluster']['agent_root'].removeprefix('~/')}/{self.plan['run']}"


def _bench(cluster: Cluster, folder: Path, repeat: int) -> Run:
    folder.mkdir()
    text = (ROOT / "workloads" / "digits.yml").read_text()
    (folder / "digits.yml").write_text(re.sub(r'--seconds, *"20"', '--steps, "1", --log-every, "1"', text))
    (folder / "digits").symlink_to(ROOT / "workloads" / "digits")
    argv = [sys.executable, "-m", "runner", "-i", cluster.path, "bench", "-w", str(folder / "digits.yml")]
    argv += ["--cards", str(cluster.cards), "--repeat", str(repeat)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended, said, began = [], "", time.monotonic()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(argv, cwd=folder, env=env, **quiet) as bench:
        assert bench.stderr is not None
        for line in bench.stderr:
            said += line.decode()
            if b": done in " in line:
                ended.append(time.monotonic() - began)
    (run,) = folder.glob("runs/*")
    assert len(ended) == repeat, said
    return Run(run, ended)


def start(hands: Hands, run: Run, repeat: int) -> list[tuple[str, ...]]:
    """From the start to the end of one step on all cards, against the same mpirun line typed by hand."""
    cell = run.plan["cells"][0]
    argv = ["ssh" if word == "sh rsh.sh" else word for word in cell["argv"]]
    shim = argv.index("shim.sh")
    argv = [word for word in argv[: shim - 1] if not word.startswith("RUNKIT_")] + argv[shim + 2 :]
    argv = [word for place, word in enumerate(argv) if word != "-x" or argv[place + 1] in cell["env"]]
    env = " ".join(f"{key}={shlex.quote(value)}" for key, value in cell["env"].items())
    script = f"cd {shlex.quote(run.remote)} && {env} {shlex.join(argv)}"
    bare = [hands.wall(hands.cluster.hosts[0], script) for _ in range(repeat)]
    later = [more - less for less, more in zip(run.ended, run.ended[1:], strict=False)]
    base = f"{median(bare):.1f} s by hand ({min(bare):.1f} to {max(bare):.1f}, n={len(bare)})"
    first, other = run.ended[0] - median(bare), median(later) - median(bare)
    cards = f"{hands.cluster.cards} ranks on {len(hands.cluster.hosts)} hosts"
    return [
        (f"first cell, {cards}", f"{first:.1f} s more than {base}", "12 s more", _kept(first <= 12)),
        (f"each later cell, {cards}", f"{other:.1f} s more", "2 s more", _kept(other <= 2)),
    ]


def collect(hands: Hands, run: Run, megabytes: int, repeat: int) -> list[tuple[str, ...]]:
    """``collect``, checksums included, against ``tar | ssh`` of the same files from all hosts at once."""
    hosts, cell = hands.cluster.hosts, run.plan["cells"][0]["id"]
    each = str(megabytes // len(hosts))
    for host in hosts:
        target = f"{run.remote}/cells/{cell}/logs/{host.name}/trace.txt"  # no log of a rank: not judged
        hands.wall(host, 'python3 -c "$1" "$2" "$3"', FILL, target, each)
    by_hand, ours = [], []
    for _ in range(repeat):
        by_hand.append(_tar(hands, run))
        shutil.rmtree(run.folder / "cells")  # as it comes home for the first time
        (run.folder / "SHA256SUMS").unlink(missing_ok=True)
        began = time.monotonic()
        argv = [sys.executable, "-m", "runner", "collect", str(run.folder)]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(argv, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        ours.append(time.monotonic() - began)
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    ratio = median(by_hand) / median(ours)
    text = f"{ratio:.2f}x ({median(ours):.1f} s against {median(by_hand):.1f} s, n={repeat})"
    what = f"collecting {megabytes} MB from {len(hosts)} hosts, against tar | ssh"
    return [
        (what, text, "0.7x", _kept(ratio >= 0.7)),
        ("its largest process", f"{memory:.0f} MB", "200 MB", _kept(memory <= 200)),
    ]


def _tar(hands: Hands, run: Run) -> float:
    def fetch(host: Host) -> None:
        with tempfile.TemporaryDirectory(dir=run.folder.parent) as folder:
            argv = hands.argv(host, 'tar -cf - -C "$1" cells', run.remote)
            with subprocess.Popen(argv, stdout=subprocess.PIPE) as tar:
                subprocess.run(["tar", "-xf", "-", "-C", folder], stdin=tar.stdout, check=True)

    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        list(pool.map(fetch, hands.cluster.hosts))
    return time.monotonic() - began


def _kept(good: bool) -> str:
    return "yes" if good else "NO"


main()
