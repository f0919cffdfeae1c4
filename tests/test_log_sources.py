"""Where logs come from: packed files, archives and a file per rank; nothing is written, memory is bounded."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import pickle
import subprocess
import sys
import tarfile
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.cli import main
from runner.errors import UsageError
from runner.io import packing
from runner.io.logfolders import CellLog, walk
from runner.io.logs import Log
from runner.io.packing import zstd
from runner.io.ranks import RankLog

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "tests/parsers/dll_tf_resnet50"
SKIPPABLE = b"\x5a\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"  # a zstd frame that holds no data


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def texts(log: Log | RankLog) -> list[str]:
    return [line.text for line in log]


def bits(data: bytes) -> bytes:
    """As many bytes that nothing can pack."""
    return b"".join(hashlib.sha256(bytes([n % 256, n // 256])).digest() for n in range(len(data) // 32))


def filled(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


# --- packed files ----------------------------------------------------------------------------

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}),
}
LONG = b"".join(b"step %d\n" % number for number in range(30_000))


@pytest.mark.parametrize("kind", PACK)
def test_packed_log_is_read_through_and_hashed_as_it_lies_there(kind: str, tmp_path: Path) -> None:
    pack = PACK[kind]
    data = pack(LONG) + pack(b"") + pack(b"step 30000\nla") + pack(b"st")  # frames may end within a line
    if kind == "zstd":
        data = SKIPPABLE + data + SKIPPABLE
    path = tmp_path / "a.txt"  # its name says nothing
    path.write_bytes(data)
    (log,) = walk(path)
    assert texts(log) == [*(f"step {number}" for number in range(30_001)), "last"]
    assert (log.name, log.sha256) == ("a.txt", sha256(data))


@pytest.mark.parametrize("kind", PACK)
def test_tools_of_the_system_pack_what_is_read(kind: str, tmp_path: Path) -> None:
    argv = {"zstd": ["zstd", "-q", "--long=27", "-19"]}.get(kind, [kind, "-9"])
    try:
        packed = subprocess.run([*argv, "-c"], input=LONG, capture_output=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip(f"{kind} is not installed")
    (tmp_path / "a.log").write_bytes(packed)
    assert len(texts(Log(tmp_path / "a.log", "a.log"))) == 30_000


def test_zeros_behind_a_packed_file_are_no_part_of_it(tmp_path: Path) -> None:
    for kind, pack in PACK.items():
        path = tmp_path / kind
        path.write_bytes(pack(b"a\n") + b"\0" * 70_000 + pack(b"b\n") + b"\0" * 8)
        assert texts(Log(path, kind)) == ["a", "b"]


@pytest.mark.parametrize("kind", PACK)
def test_damaged_packed_file_is_refused_in_a_line(kind: str, tmp_path: Path) -> None:
    whole = PACK[kind](bits(LONG))
    path = tmp_path / "a.log"
    for data in (whole[:-20], whole[:5000] + b"\0\xff\0\xff" * 50 + whole[5200:], whole + b"rubbish"):
        path.write_bytes(data)
        with pytest.raises(UsageError, match=f"a.log: damaged {kind} file") as failure:
            list(Log(path, path.name))
        assert "\n" not in str(failure.value)


def test_window_that_takes_much_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 28})
    wide = compressor.compress(b"x" * 1000) + compressor.flush()  # of unknown size: the window is as stated
    xz = lzma.compress(b"x", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 28}])
    for data in (wide, xz):
        path.write_bytes(data)
        with pytest.raises(UsageError, match="takes more than 128 MiB to unpack"):
            list(Log(path, path.name))


def test_what_unpacks_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert packing.UNPACKED_LIMIT == 16 << 30
    monkeypatch.setattr(packing, "UNPACKED_LIMIT", 3 << 20)
    for kind, pack in PACK.items():
        (tmp_path / kind).write_bytes(pack((b"x" * 65_535 + b"\n") * 64))
        with pytest.raises(UsageError, match=f"{kind}: unpacks to more than 0 GiB"):
            list(Log(tmp_path / kind, kind))
    inner = gzip.compress((b"x" * 65_535 + b"\n") * 32)  # one is allowed, two of them are not
    logs = walk(made_tar(tmp_path / "a.tar", {"a.log": inner, "b.log": inner}))
    assert len(texts(logs[0])) == 32
    with pytest.raises(UsageError, match=r"a\.tar: unpacks to more"):
        list(logs[1])


PEAK = """
import json, pathlib, resource, sys
from runner.errors import UsageError
from runner.io.logfolders import walk
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before, found = peak(), []
try:
    for log in walk(pathlib.Path(sys.argv[1])):
        found += [(one.number, len(one.text)) for one in log][-2:]
except UsageError as error:
    found = str(error)
print(json.dumps([found, peak() - before]))
"""


def peak(path: Path) -> tuple[object, int]:
    """What reading gives, and how many kB of memory it takes beyond what the interpreter has."""
    argv = [sys.executable, "-c", PEAK, path]
    found, kilobytes = json.loads(subprocess.run(argv, cwd=ROOT, capture_output=True, check=True).stdout)
    return found, kilobytes


def bomb(kind: str) -> bytes:
    """200 MB in one line, then one that counts."""
    parts = [b"y" * 1_000_000] * 200 + [b"\nlast"]
    if kind == "zstd":
        compressor = zstd.ZstdCompressor(1)
        return b"".join(map(compressor.compress, parts)) + compressor.flush()
    if kind == "gzip":
        out = io.BytesIO()
        with gzip.open(out, "wb", 1) as stream:
            stream.writelines(parts)
        return out.getvalue()
    one = bz2.BZ2Compressor() if kind == "bzip2" else lzma.LZMACompressor(preset=0)
    return b"".join(map(one.compress, parts)) + one.flush()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", PACK)
def test_memory_is_bounded(kind: str, tmp_path: Path) -> None:
    data = bomb(kind)
    assert len(data) < 2_000_000
    path = made_tar(tmp_path / "a.tar", {"a.log": data})
    path.write_bytes(PACK["zstd"](path.read_bytes()))  # packed twice, in an archive
    found, kilobytes = peak(path)
    assert found == [[1, 1 << 16], [2, 4]]
    assert kilobytes < 32_000


# --- archives --------------------------------------------------------------------------------


def made_tar(path: Path, members: Mapping[str, bytes], form: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=form) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def made_zip(path: Path, members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


DEEP = "runs/" + "d" * 120 + "/" + "f" * 150 + ".log"  # too long for the oldest headers
MEMBERS = {
    "logs/b.log": b"b 1\nb 2",
    "logs/训练.log": "训练\n".encode(),
    "logs/a.log": bits(2 * LONG) + b"\nend\n",
    "logs/packed.log": gzip.compress(b"packed\n"),
    DEEP: b"deep\n",
    "logs/empty.log": b"",
}


def packed(path: Path, kind: str) -> Path:
    path.write_bytes(PACK[kind](path.read_bytes()))
    return path


ARCHIVES: dict[str, Callable[[Path], Path]] = {
    "tar, pax": lambda path: made_tar(path, MEMBERS),
    "tar, GNU": lambda path: made_tar(path, MEMBERS, tarfile.GNU_FORMAT),
    "tar.gz": lambda path: packed(made_tar(path, MEMBERS), "gzip"),
    "tar.bz2": lambda path: packed(made_tar(path, MEMBERS), "bzip2"),
    "tar.xz": lambda path: packed(made_tar(path, MEMBERS), "xz"),
    "tar.zst": lambda path: packed(made_tar(path, MEMBERS), "zstd"),
    "zip": lambda path: made_zip(path, MEMBERS),
    "zip, stored": lambda path: made_zip(path, MEMBERS, zipfile.ZIP_STORED),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_archive_gives_what_the_folder_gives(kind: str, tmp_path: Path) -> None:
    folder = filled(tmp_path / "folder", MEMBERS)
    archive = ARCHIVES[kind](tmp_path / "archive")  # its name says nothing
    before = sorted(tmp_path.rglob("*"))
    in_folder = {log.name: (list(log), log.sha256) for log in walk(folder)}
    logs = walk(archive)
    in_archive = {log.name: (list(log), log.sha256) for log in logs}
    assert in_archive == in_folder
    assert [log.name for log in logs] == list(MEMBERS)
    assert in_archive["logs/packed.log"][1] == sha256(MEMBERS["logs/packed.log"])
    assert [(list(log), log.sha256) for log in reversed(logs)] == list(reversed(in_archive.values()))
    assert list(pickle.loads(pickle.dumps(logs[2]))) == in_folder["logs/a.log"][0]
    assert sorted(tmp_path.rglob("*")) == before  # and nothing was written


def test_tools_of_the_system_make_archives_that_are_read(tmp_path: Path) -> None:
    filled(tmp_path / "logs", {"one.log": b"one.log", "two.log": b"two.log"})
    for form in ("v7", "oldgnu", "gnu", "ustar", "posix"):
        argv = ["tar", f"--format={form}", "-cf", tmp_path / form, "-C", tmp_path / "logs", "."]
        subprocess.run(argv, check=True)
        assert {log.name: texts(log) for log in walk(tmp_path / form)} == {
            "one.log": ["one.log"],
            "two.log": ["two.log"],
        }


def refusals(path: Path) -> dict[str, str]:
    """Name and reason of every log that cannot be read; "" where it can."""
    found = {}
    for log in walk(path):
        found[log.name] = ""
        try:
            list(log)
        except UsageError as error:
            found[log.name] = str(error).removeprefix(f"{path}: ")
    return found


def odd(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_members_that_are_no_logs_are_refused_one_by_one(tmp_path: Path) -> None:
    outside = tmp_path / "outside.log"
    outside.write_text("secret")
    path = tmp_path / "a.tar"
    inner = made_tar(tmp_path / "inner", {"x.log": b"x"}).read_bytes()
    with tarfile.open(path, "w") as tar:
        tar.addfile(odd("folder", tarfile.DIRTYPE))
        for info in (
            odd("link.log", tarfile.SYMTYPE, str(outside)),
            odd("hard.log", tarfile.LNKTYPE, str(outside)),
            odd("fifo.log", tarfile.FIFOTYPE),
            odd("zero.log", tarfile.CHRTYPE),
            odd("/absolute.log", tarfile.REGTYPE),
            odd("../up.log", tarfile.REGTYPE),
            odd("a/../../up2.log", tarfile.REGTYPE),
            odd("/".join("d" * 40), tarfile.REGTYPE),
            odd(".hidden", tarfile.REGTYPE),
            odd("logs/.hidden/a.log", tarfile.REGTYPE),
            odd("red\x1b[31m.log", tarfile.REGTYPE),
        ):
            tar.addfile(info)
        for name, data in {"inner.tar": inner, "inner.tgz": gzip.compress(inner), "good.log": b"x"}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    found = refusals(path)
    assert [name for name, why in found.items() if not why] == ["red\\x1b[31m.log", "good.log"]
    for name, why in {
        "link.log": "a link",
        "hard.log": "a link",
        "fifo.log": "no regular file",
        "zero.log": "no regular file",
        "absolute.log": "a name that leads out",
        "../up.log": "a name that leads out",
        "a/../../up2.log": "a name that leads out",
        "/".join("d" * 40): "more than 32 levels",
        "inner.tar": "an archive within an archive",
        "inner.tgz": "an archive within an archive",
    }.items():
        assert found[name].startswith(f"{name}: {why}")
    assert not any("hidden" in name or "folder" in name for name in found)


def test_members_of_a_zip_that_are_no_logs_are_refused_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    link = zipfile.ZipInfo("link.log")
    link.create_system, link.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(link, "/etc/passwd")
        archive.writestr("bz2.log", b"x", zipfile.ZIP_BZIP2)
        archive.writestr("../up.log", b"x")
        archive.writestr("folder/", b"")
        archive.writestr("secret.log", b"x")
        archive.writestr("good.log", b"x")
    data = bytearray(path.read_bytes())
    data[data.rindex(b"PK\x01\x02", 0, data.rindex(b"secret.log")) + 8] |= 1  # encrypted, says its flag
    path.write_bytes(data)
    only = "; only regular files of an archive are read"
    assert refusals(path) == {
        "link.log": f"link.log: a link{only}",
        "bz2.log": f"bz2.log: packed by method 12{only}",
        "../up.log": f"../up.log: a name that leads out of the archive{only}",
        "secret.log": f"secret.log: encrypted{only}",
        "good.log": "",
    }


def test_sparse_member_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "holes.log").open("wb") as stream:
        stream.truncate(1 << 20)
        stream.write(b"x")
    for form in ("gnu", "posix"):
        argv = ["tar", f"--format={form}", "-Scf", tmp_path / form, "-C", tmp_path, "holes.log"]
        subprocess.run(argv, check=True)
        (why,) = refusals(tmp_path / form).values()
        assert "a sparse file" in why


def test_damaged_archives_are_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a"
    tar = made_tar(path, MEMBERS).read_bytes()
    at = tar.index(b"logs/a.log")
    for data, says in {
        tar[: at + 300]: "truncated header",
        tar[:at] + b"\xff" + tar[at + 1 :]: "bad checksum",
        gzip.compress(tar)[:-300]: "damaged gzip",
        b"PK\x03\x04....": "not a zip",
    }.items():
        path.write_bytes(data)
        with pytest.raises(UsageError, match=says) as failure:
            for log in walk(path):
                list(log)
        assert str(failure.value).startswith(str(path))
        assert "\n" not in str(failure.value)
    path.write_bytes(tar[: at + 5000])  # a member that is cut off; those before it are there
    assert [name for name, why in refusals(path).items() if not why] == ["logs/b.log", "logs/训练.log"]
    whole = made_zip(path, MEMBERS).read_bytes()
    at = whole.index(b"logs/a.log") + 1000
    path.write_bytes(whole[:at] + b"\0\xff" * 100 + whole[at + 200 :])
    assert [name for name, why in refusals(path).items() if "damaged" in why] == ["logs/a.log"]


EDITS = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True), st.integers(0, 600), st.binary(max_size=9) | st.just(b"\xff" * 8)
    ),
    min_size=1,
    max_size=6,
)


@given(st.sampled_from(sorted(ARCHIVES)), EDITS)
@settings(deadline=None, max_examples=60)
def test_whatever_is_done_to_an_archive_is_read_or_refused(
    kind: str, edits: list[tuple[float, int, bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "archive"
        data = whole(kind)
        for where, cut, put in edits:
            at = int(where * len(data))
            data = data[:at] + put + data[at + cut :]
        path.write_bytes(data)
        with suppress(UsageError):
            for log in walk(path):
                with suppress(UsageError):
                    list(log)


@cache
def whole(kind: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return ARCHIVES[kind](Path(folder) / "archive").read_bytes()


def test_table_of_a_zip_that_leads_out_of_it_is_refused(tmp_path: Path) -> None:
    path = made_zip(tmp_path / "a.zip", {"a.log": b"x"})
    data = path.read_bytes()
    table = data.rindex(b"PK\x05\x06")
    before = (
        b"\xf0\xff\xff\x00"  # where it says that it begins: so far behind that members lie before the file
    )
    path.write_bytes(data[: table + 16] + before + data[table + 20 :])
    with pytest.raises(UsageError, match="damaged archive"):
        for log in walk(path):
            list(log)


# --- bombs -----------------------------------------------------------------------------------


def header(kind: bytes, size: int, name: str = "x") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def many_headers() -> Iterator[bytes]:
    for number in range(20_001):
        yield header(tarfile.REGTYPE, 0, f"{number}.log")


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a pax header of 200 MB": (
        lambda: zstd.compress(header(tarfile.XHDTYPE, 200_000_000) + b"x" * 200_000_000),
        "a name of 200000000 bytes",
    ),
    "a long name of 200 MB": (
        lambda: zstd.compress(header(tarfile.GNUTYPE_LONGNAME, 200_000_000) + b"x" * 200_000_000),
        "a name of 200000000 bytes",
    ),
    "a size without end": (lambda: header(tarfile.REGTYPE, 1 << 62) + b"\0" * 1024, "a size of"),
    "many members": (lambda: zstd.compress(b"".join(many_headers())), "more than 20000 members"),
    "a table of contents of 4 GB": (
        lambda: b"PK\x03\x04" + b"\0" * 40 + b"PK\x05\x06" + b"\0" * 8 + b"\xf0" * 8 + b"\0\0",
        "damaged archive",
    ),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", BOMBS)
def test_bombs_take_neither_memory_nor_time(kind: str, tmp_path: Path) -> None:
    make, says = BOMBS[kind]
    (tmp_path / "bomb").write_bytes(make())
    found, kilobytes = peak(tmp_path / "bomb")
    assert says in str(found)
    assert kilobytes < 32_000


def test_large_table_of_a_zip_is_not_taken_to_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    members = {f"{number}{'n' * 60_000}": b"" for number in range(200)}  # 12 MB of names
    made_zip(path, members, zipfile.ZIP_STORED)
    tracemalloc.start()
    with pytest.raises(UsageError, match="damaged archive: a table of contents of"):
        walk(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10_000_000


# --- folders of archives, and the commands ---------------------------------------------------


def test_folder_may_hold_archives_and_what_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = (LOGS / "tf_gpu8_amp_bs64.log").read_bytes()
    made_tar(tmp_path / "a.tar", {"tf_gpu8_amp_bs64.log": log, "inner.tar": b"PK\x03\x04"})
    (tmp_path / "b.gz").write_bytes(gzip.compress(log)[:-20])
    (tmp_path / "c.log.zst").write_bytes(zstd.compress(log))
    (tmp_path / "d.zip").write_bytes(b"PK\x03\x04")
    assert [log.name for log in walk(tmp_path)] == [
        "a.tar/tf_gpu8_amp_bs64.log",
        "a.tar/inner.tar",
        "b.gz",
        "c.log.zst",
        "d.zip",
    ]
    for command in ("parse", "report"):
        assert main([command, str(tmp_path)]) == 0
        said = capsys.readouterr()
        assert "a.tar/tf_gpu8_amp_bs64.log" in said.out
        assert "c.log.zst" in said.out
        lines = [line.split(": ", 2)[1:] for line in said.err.splitlines()]
        assert [Path(place).name for place, _ in lines] == ["a.tar", "b.gz", "d.zip"]
        assert all(text.endswith("; passed over") for _, text in lines)


def test_one_damaged_log_of_several_spoils_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = (LOGS / "tf_gpu8_amp_bs64.log").read_bytes()
    folder = filled(tmp_path / "logs", {"bad.log": gzip.compress(log)[:-20], "good.log": log})
    assert main(["parse", str(folder / "bad.log"), str(folder / "good.log"), "--json"]) == 1
    said = capsys.readouterr()
    assert [run["log"] for run in json.loads(said.out)] == ["good.log"]
    assert "bad.log: damaged gzip" in said.err
    (tmp_path / "claims.csv").write_text("log,published\nbad.log,2000\ngood.log,1992.3077\n")
    assert main(["audit", str(tmp_path / "claims.csv"), "--logs", str(folder), "--json"]) == 1
    assert [row["verdict"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["no_log", "reproduced"]
    assert main(["parse", str(folder / "bad.log")]) == 2


def test_archive_is_parsed_as_its_log_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = LOGS / "tf_gpu8_amp_bs64.log"
    main(["parse", str(path), "--json"])
    wanted = json.loads(capsys.readouterr().out)
    for archive in (
        made_zip(tmp_path / "a.zip", {path.name: path.read_bytes()}),
        packed(made_tar(tmp_path / "a.tar.zst", {path.name: path.read_bytes()}), "zstd"),
    ):
        assert main(["parse", str(archive), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == wanted


# --- a file per rank -------------------------------------------------------------------------

RANKS: dict[
    str, tuple[str, list[tuple[int, str | None, str]]]
] = {  # name, and rank, stream and file in order
    "Open MPI from 3.1 on": (
        "a/1",
        [
            (0, "stdout", "a/1/rank.0/stdout"),
            (0, "stderr", "a/1/rank.0/stderr"),
            (2, "stdout", "a/1/rank.2/stdout"),
            (10, "stdout", "a/1/rank.10/stdout"),
        ],
    ),
    "Open MPI 5": (
        "prterun-h-14@1",
        [(0, "stdout", "prterun-h-14@1/rank.00/stdout"), (10, "stderr", "prterun-h-14@1/rank.10/stderr")],
    ),
    "Open MPI 5, files": (
        "out.prterun-h-14@1",
        [
            (0, "stdout", "out.prterun-h-14@1.0.out"),
            (0, "stderr", "out.prterun-h-14@1.0.err"),
            (1, "stdout", "out.prterun-h-14@1.1.out"),
        ],
    ),
    "Open MPI before 3.1": ("out.1", [(0, None, "out.1.0"), (1, None, "out.1.1"), (10, None, "out.1.10")]),
    "horovodrun": ("folder", [(0, "stdout", "rank.0/stdout"), (1, "stdout", "rank.1/stdout")]),
    "torchrun": (
        "none_x1/attempt_0",
        [
            (0, "stdout", "none_x1/attempt_0/0/stdout.log"),
            (0, "stderr", "none_x1/attempt_0/0/stderr.log"),
            (1, "stdout", "none_x1/attempt_0/1/stdout.log"),
        ],
    ),
    "paddle.distributed.launch": ("log", [(0, None, "log/workerlog.0"), (1, None, "log/workerlog.1")]),
    "runkit": (
        "cells/c/logs",
        [
            (0, "stdout", "cells/c/logs/b/rank-0000.stdout"),
            (1, "stdout", "cells/c/logs/a/rank-0001.stdout"),
            (1, "stderr", "cells/c/logs/a/rank-0001.stderr"),
        ],
    ),
}


@pytest.mark.parametrize(("name", "files"), RANKS.values(), ids=RANKS)
def test_files_of_ranks_are_one_log(
    name: str, files: list[tuple[int, str | None, str]], tmp_path: Path
) -> None:
    data = {file: file.encode() + b"\n" for _, _, file in files}
    digests = "".join(sha256(one) + "\n" for one in data.values())
    folder = filled(tmp_path / "folder", dict(sorted(data.items())))
    archive = packed(made_tar(tmp_path / "folder.tgz", dict(sorted(data.items()))), "gzip")
    for source in (folder, archive):
        (log,) = walk(source)
        assert [(line.rank, line.stream, line.text) for line in log] == files
        assert log.name == name.replace("folder", source.name)
        assert log.sha256 == sha256(digests.encode())


def test_what_only_looks_like_files_of_ranks_stays_apart(tmp_path: Path) -> None:
    names = ["pytorch_2.1.0", "pytorch_2.1.1", "out.2.0", "out.2.1", "log.2022.1.5", "log.2022.1.6"]
    folder = filled(tmp_path / "a", dict.fromkeys(names, b"x"))
    assert [log.name for log in walk(folder)] == sorted(names)
    folder = filled(tmp_path / "b", dict.fromkeys(["workerlog.0", "two/workerlog.0"], b"x"))
    assert [log.name for log in walk(folder)] == [
        "two/workerlog.0",
        "workerlog.0",
    ]  # two runs of one rank each
    folder = filled(tmp_path / "c", {"rank.0/stdout": b"x", "rank.00/stdout": b"x"})
    assert len(walk(folder)) == 2  # who is rank 0?


def test_tags_in_the_files_of_ranks_say_more_than_their_names(tmp_path: Path) -> None:
    folder = filled(tmp_path, {"workerlog.0": b"[1,8]<stderr>:x\ny", "workerlog.1": b"\xff"})
    (log,) = walk(folder)
    found = [(line.rank, line.stream, line.number, line.text) for line in log]
    assert found == [(8, "stderr", 1, "x"), (0, None, 2, "y"), (1, None, 1, "\ufffd")]
    assert [(one.code, one.detail[:12]) for one in log.problems] == [("decode_errors", "workerlog.1:")]


def test_files_of_ranks_are_one_run_and_not_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = (LOGS / "tf_gpu8_amp_bs64.log").read_bytes()
    main(["parse", str(LOGS / "tf_gpu8_amp_bs64.log"), "--json"])
    (one,) = json.loads(capsys.readouterr().out)
    for names in (["rank.0/stdout", "rank.1/stdout"], ["workerlog.0", "workerlog.1"]):
        folder = filled(tmp_path / names[0][:4] / "tf_gpu8_amp_bs64", dict.fromkeys(names, data))
        assert main(["parse", str(folder), "--json"]) == 0
        (run,) = json.loads(capsys.readouterr().out)
        assert (run["log"], run["rate"], run["cards"]) == ("tf_gpu8_amp_bs64", one["rate"], one["cards"])
        assert run["records"] == one["records"]
        assert any(problem["code"] == "mixed_ranks" for problem in run["problems"])


MPIRUN = Path(sys.executable).with_name("mpirun")


@pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun beside this Python; install requirements.txt")
@pytest.mark.parametrize(
    "output", ["dir=out", "file=out/file", "dir=out,merge", "file=out/file,tag,timestamp"]
)
def test_files_as_the_installed_mpi_writes_them(output: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    argv = [MPIRUN, "-np", "2", "--oversubscribe", "--output", output, "sh", "-c", "echo rate 5"]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    subprocess.run(argv, env=os.environ | root, capture_output=True, cwd=tmp_path, check=True, timeout=60)
    (log,) = walk(tmp_path / "out")
    assert [(line.rank, line.stream, line.text) for line in log] == [
        (0, "stdout", "rate 5"),
        (1, "stdout", "rate 5"),
    ]


def test_cell_is_the_files_of_its_ranks_in_order(tmp_path: Path) -> None:
    filled(
        tmp_path / "logs",
        {
            "b/rank-0002.stdout": b"two",
            "a/rank-0000.stderr": b"warning",
            "a/rank-0000.stdout": b"zero\n\xff",
            "a/rank-0010.stdout": b"ten",
            "a/rank-0000.json": b"{}",
            "a/workerlog.0": b"of something else",
            "launcher.stderr": b"mpirun says",
        },
    )
    cell = CellLog(tmp_path)
    found = [(line.rank, line.stream, line.number, line.text) for line in cell]
    assert found == [
        (0, "stdout", 1, "zero"),
        (0, "stdout", 2, "\ufffd"),
        (0, "stderr", 1, "warning"),
        (2, "stdout", 1, "two"),
        (10, "stdout", 1, "ten"),
    ]
    assert [(problem.code, problem.detail[:19]) for problem in cell.problems] == [
        ("decode_errors", "a/rank-0000.stdout:")
    ]
    assert list(CellLog(tmp_path / "none")) == []


def test_log_that_is_read_again_tells_the_same(tmp_path: Path) -> None:
    folder = filled(tmp_path, {"workerlog.0": b"\xff\n\xd6\xd0\n", "workerlog.1": b"x" * 70_000})
    (log,) = walk(folder)
    first = list(log), log.problems, log.sha256
    assert {one.code for one in log.problems} == {"decode_errors", "gbk_text", "line_too_long"}
    assert (list(log), log.problems, log.sha256) == first
