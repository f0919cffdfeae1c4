"""A workload file may be anybody's: whatever stands in it is refused by its key, or is a word of a command.

Each published file is taken, and every text and every key in it replaced by what shells, docker, git and the
file system would take for something else. What is not refused is planned, and its scripts are run, with
programs in the place of docker, git, ssh and mpirun that only write down their words.
"""

from __future__ import annotations

import copy
import csv
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner import catalog, dryrun, parsers, plan
from runner.errors import UsageError
from runner.io import inventory, workloads
from runner.io.files import write_bytes
from runner.model import Cluster, Workload

ROOT = Path(__file__).resolve().parents[1]
FAMILIES = sorted(parsers.families())
PROGRESS = {name: family.progress for name, family in parsers.families().items()}
PUBLISHED = sorted(name for name in workloads.names() if name != "digits")
RECORD = '#!/bin/sh\n{ printf "%s\\0" "${0##*/}" "$@"; printf "\\n\\0"; } >>"$RECORD"\n'
DRIVER = """for each in *.sh; do
    bash -n "$each" 2>&1
    rm -rf cells/*/logs
    RECORD=$SAID/$each sh "$each" true </dev/null >/dev/null 2>&1
done
"""
STANDINS = ("docker", "git", "ssh", "mpirun", "patch")
Path_ = tuple[str | None, ...]  # of keys, "*" for any place in a list; None at the end: the key itself
Document = dict[str, Any]


def evil(mark: Path) -> tuple[str, ...]:
    return (
        f"$(touch {mark})",
        f"`touch {mark}`",
        f"'; touch {mark}; '",
        f'"; touch {mark} #',
        f"x\ntouch {mark}",
        f"x && touch {mark} & touch {mark} | touch {mark}",
        "--privileged",
        "-v/:/host",
        "../../../etc",
        "/etc",
        "{nope}",
        "{",
        "a" * 100_000,
        "\x1b[2J\x01host\x01\x00",
        "größe\u202e\u2028",
        'a,"b',
    )


def kinds(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """What the texts and keys are: all words of all argv are one kind."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key, None)
            yield from kinds(item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            yield from kinds(item, (*path, "*"))
    elif isinstance(value, str):
        yield path


def mutant(value: Any, kind: Path_, text: str, turns: Iterator[bool], path: Path_ = ()) -> Any:
    """A copy with ``text`` at all places of the ``kind``, in turns instead of what is there and behind it."""
    if isinstance(value, dict):
        made = {}
        for key, item in value.items():
            new = mutant(key, kind, text, turns, (*path, key, None))
            made[new] = mutant(item, kind, text, turns, (*path, key))
        return made
    if isinstance(value, list):
        return [mutant(item, kind, text, turns, (*path, "*")) for item in value]
    return value if path != kind else f"{value if next(turns) else ''}{text}"


def build(name: str, document: Any, path: str) -> Workload:
    return catalog.workload(name, document, FAMILIES, path)


class Case:
    """One published workload, and a folder to plan it in and to run its scripts."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder, self.run, self.mark = folder, folder / "run", folder / "MARK"
        self.document: Document = yaml.safe_load((ROOT / "workloads" / f"{name}.yml").read_text())
        del self.document["corrections"][1:], self.document["licences"][1:]  # all alike
        self.file = folder / f"{name}.yml"
        self.file.write_text("{}")  # what stands in it is handed to the catalogue below
        (folder / name).symlink_to(ROOT / "workloads" / name)
        data = folder / 'sets, "all" $(touch MARK)'
        for mount in self.document["container"]["mounts"]:
            (data / mount.split(":")[0].removeprefix("{data}/")).mkdir(parents=True, exist_ok=True)
        for source in self.document["sources"]:
            (self.run / "build" / source["checkout"] / source.get("folder", "")).mkdir(
                parents=True, exist_ok=True
            )
        self.cluster: Cluster = replace(inventory.outline("v100x32"), data_root=str(data), mpirun="mpirun")
        self.scripts: dict[str, str] = {}  # text to name: each once

    def load(self, document: Document) -> Workload:
        return workloads.load(
            str(self.file), lambda stem, _, place: catalog.workload(stem, document, FAMILIES, place)
        )

    def plan(self, document: Document) -> list[str]:
        """The scripts of its cells on one host and on two."""
        made = self.load(document)
        modes = tuple(mode.name for mode in made.modes)
        asked = plan.Overrides(modes=modes, cards=(1, 16), precisions=made.precisions[:1], hours=True)
        cells = plan.cells([made], self.cluster, asked, PROGRESS)
        assert all(line.isprintable() for line in dryrun.dry_run(cells, self.cluster).splitlines())
        files = dryrun.scripts(cells, self.cluster, [made])
        for name, text in files.items():
            if not (self.run / name).exists() and (name.endswith("hostfile") or document is self.document):
                write_bytes(self.run / name, text.encode())
        texts = [text for name, text in files.items() if name.endswith(".sh")]
        for text in texts:
            self.scripts.setdefault(text, f"{len(self.scripts):05}.sh")
        return texts

    def planned(self, document: Document, key: str) -> list[str]:
        """Its scripts; [] where it is refused, in one line that names the file and the key."""
        try:
            return self.plan(document)
        except UsageError as error:
            said = str(error)
        assert said.isprintable()
        assert len(said) < 1000, said
        assert said.startswith(f"{self.file}: ")
        assert key in said, (key, said)
        return []

    def start(self) -> dict[str, list[list[str]]]:
        """Run all scripts; what each started, with its words."""
        bin_, said = self.folder / "bin", self.folder / "said"
        for folder in (bin_, said):
            folder.mkdir()
        for name in STANDINS:
            (bin_ / name).write_text(RECORD)
            (bin_ / name).chmod(0o755)
        for text, name in self.scripts.items():
            (self.run / name).write_text(text)
        for name in ("shim.sh", "rsh.sh"):
            shutil.copy(ROOT / "roles" / "bench_agent" / "files" / name, self.run)
        env = {"PATH": f"{bin_}:{os.environ['PATH']}", "HOME": "/home/me", "OMPI_COMM_WORLD_RANK": "0"}
        env |= {"SAID": str(said), "TMPDIR": str(said)}
        done = subprocess.run(["sh", "-c", DRIVER], cwd=self.run, env=env, capture_output=True, text=True)
        assert done.stdout == ""
        return {text: _calls(said / name) for text, name in self.scripts.items()}


def _calls(record: Path) -> list[list[str]]:
    lines = record.read_text().split("\n\0") if record.exists() else []
    return [line.split("\0")[:-1] for line in lines if line]


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return Case(request.param, tmp_path)


def mutants(case: Case) -> Iterator[tuple[Document, str, str]]:
    """Each kind of text or key with each evil; the key that the refusal must name; that evil."""
    for place, kind in enumerate(dict.fromkeys(kinds(case.document))):
        key = "" if kind[-1] is None else str([part for part in kind if part != "*"][-1])
        for number, text in enumerate(evil(case.mark), place):
            turns = cycle((bool(number % 2), not number % 2))
            yield mutant(case.document, kind, text, turns), key, text


@pytest.mark.parametrize("case", PUBLISHED, indirect=True)
def test_no_text_of_a_workload_is_a_command(case: Case) -> None:
    whole, quoted = case.plan(case.document), []
    for document, key, text in mutants(case):
        planned = case.planned(document, key)
        quoted += [(script, text) for script in planned if key == "argv" and " docker run " in script]
    calls = case.start()
    assert not case.mark.exists()
    assert [script for script in whole if not calls[script]] == []
    assert len({text for _, text in quoted}) > 8
    for script, text in quoted:
        ((*_, call),) = [calls[script]]
        assert call[0] == "docker"
        assert ('sh -c "$1"' in script) == (not any(word.endswith(text) for word in call))


@pytest.mark.parametrize("case", PUBLISHED[:1], indirect=True)
def test_a_mount_reaches_docker_as_it_reads_it(case: Case) -> None:
    """As a line of CSV; the sets lie below a folder with a comma and quotes. One that is missing is named."""
    whole = [text for text in case.plan(case.document) if text.count("need ") > 1]
    calls = case.start()
    root = Path(case.cluster.data_root)
    for script in whole:
        *_, call = calls[script]
        mounts = [call[i + 1] for i, word in enumerate(call) if word == "--mount"]
        fields = [next(csv.reader([text], strict=True)) for text in mounts]
        sources = [dict(part.split("=", 1) for part in each[:3])["source"] for each in fields]
        found = [Path(source) for source in sources if source.startswith(str(root))]
        assert len(found) == len(case.document["container"]["mounts"])
        assert all(path.is_dir() for path in found)
        assert all(each[0] == "type=bind" and each[3:] == ["readonly"] for each in fields)
    shutil.rmtree(root)
    done = subprocess.run(["sh"], input=whole[0], cwd=case.run, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert f" has no {root}/" in done.stderr
    assert done.stderr.endswith(
        "prepare it with: python -m runner -i v100x32 data deeplabv3p_mmsegmentation\n"
    )
    (kept,) = (path for path in case.run.glob("cells/*/logs/*/node.stderr"))
    assert kept.read_text() == done.stderr


# What a container may have of its host: data sets, and options that open nothing.
ASKED: tuple[tuple[str, list[str], str], ...] = (
    ("mounts", ["/:/x"], "below {data}"),
    ("mounts", ["/var/run/docker.sock:/x"], "below {data}"),
    ("mounts", ["{data}/../etc:/x:ro"], "below {data}"),
    ("mounts", ["{data}/a,readonly=0:/x:ro"], "below {data}"),
    ("mounts", ["{data}/a:/x,source=/:ro"], "write {data}/FOLDER"),
    ("mounts", ["{data}/a:/x:rw"], "write {data}/FOLDER"),
    ("mounts", ["{data}/a:x"], "write {data}/FOLDER"),
    ("mounts", ["{data}/a:/x/../runkit"], "neither it nor runkit needs"),
    ("mounts", ["{data}/a:/proc/sys"], "neither it nor runkit needs"),
    ("mounts", ["{data}/a:/x", "{data}/b:/x:ro"], "the same place"),
    ("mounts", ["{data}:/data:ro", "{data}/set-{precision}:/x"], ""),
    ("options", ["--privileged"], "none that a workload may give"),
    ("options", ["--shm-size=1g", "-v", "/:/x"], "none that a workload may give"),
    ("options", ["--cap-add=SYS_ADMIN"], "none a workload may give"),
    ("options", ["--init", "other/image", "sh"], "2 words that are no options"),
    ("options", ["--ulimit"], "must have letters"),
    ("options", ["--ulimit", "memlock=-1", "--ipc=host", "--cap-add", "SYS_NICE"], ""),
)


@pytest.mark.parametrize("case", PUBLISHED[:1], indirect=True)
def test_a_container_gets_data_sets_and_nothing_else_of_its_host(case: Case) -> None:
    for key, words, expected in ASKED:
        document = {**case.document, "container": {**case.document["container"], key: words}}
        if expected:
            with pytest.raises(UsageError, match=rf": container\.{key}.*{re.escape(expected)}"):
                case.load(document)
        else:
            case.load(document)


# --- files that are not what they should be ------------------------------------------------


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "sample.yml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


WRONG: tuple[Any, ...] = (
    None,
    True,
    7,
    10**4000,
    -1,
    0.5,
    float("nan"),
    "",
    "x",
    [],
    ["x"],
    [[]],
    {},
    {"x": 1},
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every key and the first item of every list."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value[:1]):
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))


@pytest.mark.parametrize("case", PUBLISHED, indirect=True)
def test_values_of_a_wrong_type_are_refused_or_fit(case: Case) -> None:
    for path in places(case.document):
        for wrong in WRONG:
            document = copy.deepcopy(case.document)
            holder: Any = document
            for part in path[:-1]:
                holder = holder[part]
            fits = isinstance(wrong, type(holder[path[-1]]))  # what it contradicts may be named then
            holder[path[-1]] = wrong
            case.planned(document, "" if fits else str(path[0]))


FILES = {
    "empty": ("", "must be a mapping, is empty"),
    "one text": ("title", "must be a mapping"),
    "a list": ("- title: x", "must be a mapping"),
    "a key twice": ("title: x\ntitle: y", ":2: key title stands twice"),
    "an unknown key": ("titel: x", "titel: unknown key; nearest: title"),
    "a key that is a list": ("[title]: x", ":1: a key must be plain text"),
    "aliases": ("a: &a [x]\n" + "".join(f"b{i}: &b{i} [*a, *a]\n" for i in range(50)), "alias *a"),
    "deep": ("[" * 100_000, ":1: exceeded maximum nesting depth"),
    "many": ("title: [" + "x," * 100_000 + "]", "title: must have at most 512 items"),
    "large": ("title: " + "x" * (50 << 20), "larger than 1 MiB"),
    "bytes": (b"title: \xff", "not UTF-8 at byte 7"),
    "NUL": (b"title: \x00", "not"),
    "a tag": ("title: !!python/object/apply:os.system [id]", ":1: could not determine a constructor"),
    "a vault": ("$ANSIBLE_VAULT;1.1;AES256\n00", "must be a mapping, is a vaulted value"),
    "a large number": ("cards: [0x" + "f" * 9000 + "]", "cards[0]: must be a number up to 1e+15"),
    "a key that is a large number": ("? 0x" + "f" * 9000 + "\n: x", "a key must be a number up to 1e+15"),
    "another number": ("cards: [1" + "0" * 9000 + "]", "cannot be read as YAML"),
}


@pytest.mark.parametrize(("text", "expected"), FILES.values(), ids=FILES)
def test_a_file_that_is_none_is_one_line(text: str | bytes, expected: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        workloads.load(str(path), build)
    assert str(caught.value).startswith(str(path))
    assert expected in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    """By the command itself: one line, status 2, no waiting for a FIFO's other end."""
    os.mkfifo(tmp_path / "fifo.yml")
    (tmp_path / "folder.yml").mkdir()
    for name in ("fifo.yml", "folder.yml", "nothing.yml", "x" * 5000 + ".yml", "fifo.yml/x.yml"):
        argv = [sys.executable, "-m", "runner", "bench", "--dry-run", "-w", str(tmp_path / name)]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=20)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert "no such workload" in done.stderr


@pytest.mark.parametrize("case", PUBLISHED[:1], indirect=True)
def test_the_largest_matrix_is_looked_through_in_bounded_time(case: Case) -> None:
    """Every list as long as it may be, and nothing wrong before the variants are compared."""
    variant = {**case.document["variants"][0], "modes": [], "cards": [], "precisions": []}
    precisions = [f"p{i}" for i in range(16)]
    counts = list(range(1, 65))
    variants = [
        {**variant, "precisions": [precisions[i % 16]], "cards": counts[i // 16 * 8 :][:8]}
        for i in range(128)
    ]
    document = {**case.document, "precisions": precisions, "cards": counts, "variants": variants}
    began = time.process_time()
    assert len(case.load(document).variants) == 128
    assert time.process_time() - began < 10
