"""What runkit costs on several hosts, against the same done by hand over SSH (``make perf``).

usage: python tests/perf/perf_hosts.py [CLUSTER] [--only PART,PART,...] [--repeat N] [--megabytes N]

Parts: start, collect (what bench costs), doctor, job (looks at each host; the job between them), preflight,
provision.

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
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import yaml
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "lab")]

from hosts import Lab  # noqa: E402 - so does what makes labs

from runner import catalog, looking, parsers, plan, preflight  # noqa: E402 - the package lies beside this folder
from runner.io import ansible, inventory, ssh, workloads  # noqa: E402 - the same
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
    parser.add_argument("--only", default=",".join(PARTS))
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
    """Measure a cluster and print the table, of what was measured where a part fails."""
    cluster = inventory.load(name, ansible.inventory_list)
    rows: list[tuple[str, ...]] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            for part in args.only.split(","):
                rows += PARTS[part](Hands(cluster), Path(folder) / part, args)
    finally:
        headers = ("figure", "measured", "limit", "kept")
        print(tabulate(rows, headers=headers, tablefmt="pipe", disable_numparse=True))


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


# --- doctor ----------------------------------------------------------------------------------


@contextmanager
def named_often(hands: Hands, folder: Path, times: int) -> Iterator[Path]:
    """A cluster in which each host stands so many times, each time by another address of its own.

    As many real hosts take more memory and time to make than this measurement is worth. What is shared, the
    processor, is shared by the hosts of a rehearsal cluster anyway.
    """
    shutil.copytree(hands.cluster.path, folder)
    path = folder / "hosts.yml"
    document = yaml.safe_load(path.read_text())
    document["all"]["hosts"] = hosts = {}
    each = {}
    for number, host in enumerate(hands.cluster.hosts):
        network, _, last = host.address.rpartition(".")
        own = [f"{network}.{int(last) + 10 * (turn + 4)}" for turn in range(times)]
        link = "$(ip -o -4 address | grep -F \" $1/\" | cut -d ' ' -f 2)"
        each[host] = f'for each in {" ".join(own)}; do sudo ip address {{}} $each/32 dev "{link}"; done'
        hands.wall(host, each[host].format("replace"), host.address)
        common = hands.variables[host.name].get("ansible_ssh_common_args", "")
        for turn, address in enumerate(own):
            hosts[f"often{number}x{turn}"] = {
                "ansible_host": address,
                "cluster_cards": 1,
                "ansible_ssh_common_args": f"{common} -o HostKeyAlias={host.address}",
            }
    path.write_text(yaml.safe_dump(document))
    yield folder
    for host, change in each.items():  # a job between hosts is another matter with so many
        hands.wall(host, change.format("del"), host.address)


def doctor(folder: Path, hosts: int, repeat: int) -> list[tuple[str, ...]]:
    """The looks at each host against Ansible's ping of all of them with as many forks, taken in turns."""
    argv = {
        "doctor": [sys.executable, "-m", "runner", "-i", str(folder), "doctor", "--quick"],
        "ping": [
            str(Path(sys.executable).parent / "ansible"),
            "-i",
            str(folder),
            "all",
            "-f",
            "32",
            "-m",
            "ping",
        ],
    }
    times = _in_turns(argv, repeat)
    ratio = median(times["doctor"]) / median(times["ping"])
    text = f"{ratio:.2f}x ({_spread(times['doctor'])} against {_spread(times['ping'])}, n={repeat})"
    return [
        (f"`doctor --quick` of {hosts} hosts, against `ansible -m ping`", text, "2.5x", _kept(ratio <= 2.5))
    ]


def _in_turns(
    argv: dict[str, list[str]], repeat: int, env: dict[str, dict[str, str]] | None = None
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = defaultdict(list)
    config = {"PYTHONPATH": str(ROOT), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    for _ in range(repeat):
        for name, words in argv.items():
            own = {**os.environ, **config, **(env or {}).get(name, {})}
            began = time.monotonic()
            done = subprocess.run(words, cwd=ROOT, env=own, capture_output=True, text=True)
            times[name].append(time.monotonic() - began)
            assert done.returncode in (0, 1), done.stdout + done.stderr
    return times


def _spread(times: Sequence[float]) -> str:
    return f"{median(times):.1f} s, {min(times):.1f} to {max(times):.1f}"


def job(hands: Hands, repeat: int) -> list[tuple[str, ...]]:
    """The job between 2 hosts, and between all: its time must grow no faster than their number."""
    cluster, values = hands.cluster, hands.variables
    counts = sorted({2, len(cluster.hosts)})
    times: dict[int, list[float]] = defaultdict(list)
    looking_once, looking.REPEATS = looking.REPEATS, 1  # a repetition on a busy machine is another matter
    for count in counts * repeat:
        seen = looking.look(cluster, cluster.hosts[:count], values, lambda: False)
        began = time.monotonic()
        looking.with_job(cluster, seen, values, lambda: False)
        times[count].append(time.monotonic() - began)
    looking.REPEATS = looking_once
    less, more = (median(times[count]) for count in (counts[0], counts[-1]))
    growth, bound = more / less, counts[-1] / counts[0]
    return [
        *(
            (
                f"the job between {count} hosts",
                f"{_spread(times[count])}, n={repeat}",
                "10 s",
                _kept(median(times[count]) <= 10),
            )
            for count in counts
        ),
        (
            f"its growth from {counts[0]} to {counts[-1]} hosts",
            f"{growth:.2f}x",
            f"{bound:g}x",
            _kept(growth <= bound),
        ),
    ]


def before(cluster: Cluster, repeat: int) -> list[tuple[str, ...]]:
    """What ``bench`` looks at before it starts anything."""
    families = {name: family.progress for name, family in parsers.families().items()}
    workload = workloads.load(
        "digits", lambda stem, document, place: catalog.workload(stem, document, sorted(families), place)
    )
    cells = plan.cells([workload], cluster, plan.Overrides(cards=(cluster.cards,)), families)
    times = []
    for _ in range(repeat):
        began = time.monotonic()
        preflight.check(cluster, Path(cluster.path), cells)
        times.append(time.monotonic() - began)
    what = f"what bench looks at before it starts on {len(cluster.hosts)} hosts"
    return [(what, f"{_spread(times)}, n={repeat}", "1.5 s", _kept(median(times) <= 1.5))]


def provision(cluster: Cluster, folder: Path, repeat: int) -> list[tuple[str, ...]]:
    """With nothing to change, against the same playbook as Ansible runs it without settings."""
    folder.mkdir()
    settings = folder / "ansible.cfg"
    settings.touch()
    argv = {
        "ours": [sys.executable, "-m", "runner", "-i", cluster.path, "provision"],
        "default": [
            *(str(Path(sys.executable).parent / "ansible-playbook"), "-i", cluster.path),
            *(
                "-e",
                f"ssh_trust_launch_host={cluster.hosts[0].name}",
                str(ROOT / "playbooks" / "provision.yml"),
            ),
        ],
    }
    env = {"default": {"ANSIBLE_CONFIG": str(settings), "ANSIBLE_ROLES_PATH": str(ROOT / "roles")}}
    times = _in_turns(argv, repeat, env)
    ratio = median(times["ours"]) / median(times["default"])
    text = f"{ratio:.2f}x ({_spread(times['ours'])} against {_spread(times['default'])}, n={repeat})"
    what = f"`provision` of {len(cluster.hosts)} ready hosts, against Ansible's default settings"
    return [(what, text, "0.7x", _kept(ratio <= 0.7))]


def _kept(good: bool) -> str:
    return "yes" if good else "NO"


def _doctor(hands: Hands, folder: Path, args: argparse.Namespace) -> list[tuple[str, ...]]:
    rows = doctor(Path(hands.cluster.path), len(hands.cluster.hosts), args.repeat)
    with named_often(hands, folder, 8) as often:
        return rows + doctor(often, 8 * len(hands.cluster.hosts), args.repeat)


PARTS: dict[str, Callable[[Hands, Path, argparse.Namespace], list[tuple[str, ...]]]] = {
    "start": lambda hands, folder, args: start(
        hands, _bench(hands.cluster, folder, args.repeat), args.repeat
    ),
    "collect": lambda hands, folder, args: collect(
        hands, _bench(hands.cluster, folder, 1), args.megabytes, args.repeat
    ),
    "doctor": _doctor,
    "job": lambda hands, _, args: job(hands, args.repeat),
    "preflight": lambda hands, _, args: before(hands.cluster, args.repeat),
    "provision": lambda hands, folder, args: provision(hands.cluster, folder, max(2, args.repeat // 2)),
}

main()
