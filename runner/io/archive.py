"""The archives that travel: the staged run to the hosts, what it measured back home.

An archive from a host is hostile input: only the regular files that a run writes are taken, under names
that were planned, each only if its checksum is the one that was taken on the host.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

from runner.errors import HostError, StorageError
from runner.io.files import ROOT

AGENT_FILES = ROOT / "roles" / "bench_agent" / "files"
# Larger blocks are taken from the kernel and given back to it each time, which costs more than copying them.
BLOCK = 1 << 15
LEAF = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"


def stage(
    target: Path,
    work: Mapping[str, Any],
    cells: Mapping[str, Mapping[str, Any]],
    texts: Mapping[str, Mapping[str, str]],
    workloads: Path,
) -> None:
    """Write the file that ``playbooks/bench.yml`` brings to every host and runs there.

    ``cells`` by cell id, and so ``texts`` by the name of their file; ``workloads`` is a folder.
    """
    with zipfile.ZipFile(target, "w") as stage:
        stage.write(AGENT_FILES / "describe.py", "__main__.py")
        for name in ("agent.py", "rsh.sh", "shim.sh"):
            stage.write(AGENT_FILES / name, name)
        stage.writestr("work.json", _json({"schema": "runkit/work", "version": 1, **work}))
        for cell, body in cells.items():
            stage.writestr(f"cells/{cell}/cell.json", _json({"schema": "runkit/cell", "version": 1, **body}))
        for cell, files in texts.items():
            for name, text in files.items():
                stage.writestr(f"cells/{cell}/{name}", text)
        for path in sorted(workloads.rglob("*")):
            if path.is_file():
                stage.write(path, f"workload/{path.relative_to(workloads)}")


def unpack(archive: IO[bytes], host: str, run: Path, cells: Collection[str]) -> dict[str, str]:
    """Put what one host sends into the run's folder as it comes; returns its files, name to SHA-256.

    Raises HostError where the archive holds what no run writes, or a file that does not match its checksum;
    nothing of it is kept then.
    """
    wanted = _wanted(host, cells)
    temporary = run / f".collect-{host}"
    try:
        with tarfile.open(fileobj=archive, mode="r|", bufsize=BLOCK) as tar:
            digests = _extract(tar, temporary, wanted, f"{host}: its archive")
        _drop_stale(run, host, digests)
        for target in digests:
            (run / target).parent.mkdir(parents=True, exist_ok=True)
            (temporary / target).replace(run / target)
        return digests
    except (tarfile.TarError, EOFError) as error:
        raise HostError(f"{host}: its archive is not whole: {error}; collect again") from error
    except OSError as error:
        then = f"free space, then: python -m runner collect {run.name}"
        raise StorageError(f"{run}: cannot be written: {error.strerror}; {then}") from error
    finally:
        _remove(temporary)


def _drop_stale(run: Path, host: str, targets: Collection[str]) -> None:
    """A cell that was tried again has other files now; those of its earlier try come under ``earlier-N``."""
    for cell in {target.split("/")[1] for target in targets if target.startswith("cells/")}:
        for path in (run / "cells" / cell).glob(f"*/{host}/*"):
            if str(path.relative_to(run)) not in targets:
                path.unlink()


def _wanted(host: str, cells: Collection[str]) -> list[tuple[re.Pattern[str], str]]:
    """What a host may send, and where it goes; the template of re.Match.expand, by its own name mostly."""
    cell = "(?:" + "|".join(map(re.escape, sorted(cells))) + ")" if cells else "(?!)"
    logs = rf"cells/{cell}/(?:logs|earlier-[0-9]{{1,4}})"
    return [
        (re.compile(r"journal\.jsonl"), r"\g<0>"),
        (re.compile(r"facts\.json"), f"facts/{host}.json"),
        (re.compile(rf"cells/{cell}/(?:cell\.json|hostfile|node\.sh|peer\.sh)"), r"\g<0>"),
        (re.compile(rf"{logs}/launcher\.std(?:out|err)"), r"\g<0>"),
        (re.compile(rf"{logs}/{re.escape(host)}/{LEAF}"), r"\g<0>"),
    ]


def _extract(
    tar: tarfile.TarFile, folder: Path, wanted: list[tuple[re.Pattern[str], str]], where: str
) -> dict[str, str]:
    taken: dict[str, str] = {}
    digests: dict[str, str] = {}
    sums: dict[str, str] = {}
    for member in tar:
        stream = tar.extractfile(member) if member.isreg() else None
        if stream is None:
            raise HostError(f"{where}: {member.name!r} is not a regular file; nothing was taken")
        if member.name == "SHA256SUMS":
            sums = {name: digest for digest, _, name in (line.partition("  ") for line in _text(stream))}
        else:
            taken[member.name] = _target(member.name, wanted, where)
            digests[member.name] = _copy(stream, folder / taken[member.name])
    differing = sorted({name for name, _ in digests.items() ^ sums.items()})
    if differing:
        raise HostError(f"{where}: {differing[0]!r} does not match its checksum; collect again")
    return {target: digests[name] for name, target in taken.items()}


def _target(name: str, wanted: list[tuple[re.Pattern[str], str]], where: str) -> str:
    for pattern, target in wanted:
        found = pattern.fullmatch(name)
        if found:
            return found.expand(target)
    raise HostError(f"{where}: {name!r} is nothing that a run writes; nothing was taken")


def _copy(stream: IO[bytes], target: Path) -> str:
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with target.open("wb") as out:
        while block := stream.read(BLOCK):
            digest.update(block)
            out.write(block)
    return digest.hexdigest()


def _text(stream: IO[bytes]) -> list[str]:
    return stream.read(64 << 20).decode("utf-8", "replace").splitlines()


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1)


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    if folder.exists():
        folder.rmdir()
