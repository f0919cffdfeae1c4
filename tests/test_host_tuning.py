"""Tuning of what no rehearsal host has: PCI bridges, cores, NFS mounts, by files as kernels have them."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kit import ROOT

ROLE = ROOT / "roles" / "host_tuning"


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The module, with the parts that Ansible puts beside it, on a machine that is ``tmp_path``."""
    parts = [f"ansible.module_utils.{path.stem}" for path in sorted(ROLE.glob("module_utils/*.py"))]
    loaded = {name: load(ROLE / "module_utils" / f"{name.split('.')[-1]}.py", name) for name in parts}
    for module in loaded.values():
        for name in ("SYS", "PROC"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, str(tmp_path / name.lower()))
    yield load(ROLE / "library" / "host_tuning_settings.py", "host_tuning_settings")
    for name in [*parts, "host_tuning_settings"]:
        del sys.modules[name]


def apply(settings: ModuleType, record: Path, *wanted: tuple[str, str, Any], check: bool = False) -> Any:
    asked = [{"kind": kind, "name": name, "value": value} for kind, name, value in wanted]
    done = settings.Settings(asked, settings.Record(str(record)))
    done.refuse()
    done.restore(check)
    done.apply(check)
    return done


def put(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def config(*capabilities: tuple[int, int, int]) -> bytes:
    """A configuration space: each extended capability is id, where it lies, and the word at its offset 6."""
    space = bytearray(4096)
    for (number, place, word), (_, following, _) in zip(
        capabilities, [*capabilities[1:], (0, 0, 0)], strict=True
    ):
        space[place : place + 4] = (number | 1 << 16 | following << 20).to_bytes(4, "little")
        space[place + 6 : place + 8] = word.to_bytes(2, "little")
    return bytes(space)


def test_acs_of_bridges_alone_is_off_and_comes_back(settings: ModuleType, tmp_path: Path) -> None:
    pci = tmp_path / "sys/bus/pci/devices"
    aer, acs = 0x0001, 0x000D
    spaces = {
        "0000:00:01.0": ("0x060400", config((aer, 0x100, 0x1234), (acs, 0x148, 0x001D))),
        "0000:01:00.0": ("0x060400", config((acs, 0x100, 0x005F))),
        "0000:02:00.0": ("0x060400", config((aer, 0x100, 0x001D))),  # a bridge without
        "0000:03:00.0": ("0x030200", config((acs, 0x100, 0x001D))),  # a GPU
        "0000:04:00.0": ("0x060400", config((aer, 0x100, 7), (aer, 0x100, 7))),  # points to itself
        "0000:05:00.0": ("0x060400", bytes(64)),  # what others than root may read
    }
    for address, (kind, space) in spaces.items():
        put(pci / address / "class", kind + "\n")
        put(pci / address / "config", space)
    record = tmp_path / "tuning.json"
    wanted = ("acs", "bridges", "off")
    assert apply(settings, record, wanted, check=True).set == ["acs bridges"]
    assert not record.exists()
    assert apply(settings, record, wanted).refused == []
    now = {address: (pci / address / "config").read_bytes() for address in spaces}
    changed = {address for address, (_, space) in spaces.items() if now[address] != space}
    assert changed == {"0000:00:01.0", "0000:01:00.0"}
    assert now["0000:00:01.0"] == config((aer, 0x100, 0x1234), (acs, 0x148, 0))
    assert apply(settings, record, wanted).set == []
    assert apply(settings, record).restored == ["acs bridges"]
    assert {address: (pci / address / "config").read_bytes() for address in spaces} == {
        address: space for address, (_, space) in spaces.items()
    }
    assert not record.exists()


def test_governor_of_all_cores(settings: ModuleType, tmp_path: Path) -> None:
    record = tmp_path / "tuning.json"
    wanted = ("governor", "cores", "performance")
    assert "in a virtual machine" in apply(settings, record, wanted).refused[0]
    assert not record.exists()  # nothing was changed, so nothing is to be brought back
    cores = [tmp_path / f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor" for n in (0, 1, 10)]
    for core, governor in zip(cores, ("schedutil", "powersave", "performance"), strict=True):
        put(core, governor + "\n")
    assert apply(settings, record, wanted).set == ["governor cores"]
    assert [core.read_text() for core in cores] == ["performance", "performance", "performance\n"]
    cores[2].write_text("ondemand")  # somebody else, later: what was before stays what it was
    apply(settings, record, wanted)
    apply(settings, record)
    assert [core.read_text() for core in cores] == ["schedutil", "powersave", "performance"]


def test_read_ahead_of_nfs_mounts_alone(settings: ModuleType, tmp_path: Path) -> None:
    put(
        tmp_path / "proc/self/mountinfo",
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "90 22 0:52 / /data rw,relatime shared:9 - nfs4 server:/data rw,vers=4.2\n"
        "91 22 0:53 / /home rw,relatime shared:9 - nfs server:/home rw,vers=3\n",
    )
    knobs = [put(tmp_path / f"sys/class/bdi/{bdi}/read_ahead_kb", "128\n") for bdi in ("8:1", "0:52", "0:53")]
    record = tmp_path / "tuning.json"
    apply(settings, record, ("read_ahead", "nfs", "15380"))
    assert [knob.read_text() for knob in knobs] == ["128\n", "15380", "15380"]
    apply(settings, record)
    assert [knob.read_text() for knob in knobs] == ["128\n", "128", "128"]


def test_record_is_written_before_and_once(
    settings: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    knob = put(tmp_path / "proc/sys/vm/swappiness", "60\n")
    record = tmp_path / "state" / "tuning.json"
    kind = settings.KINDS["sysctl"]

    def power_loss(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kind, "write", power_loss)
        with pytest.raises(KeyboardInterrupt):
            apply(settings, record, ("sysctl", "vm.swappiness", 10))
    assert json.loads(record.read_text())["before"] == [
        {"kind": "sysctl", "name": "vm.swappiness", "before": "60"}
    ]
    assert record.stat().st_mode & 0o777 == 0o600
    for value in (10, 20):
        apply(settings, record, ("sysctl", "vm.swappiness", value))
    with monkeypatch.context() as patch:
        patch.setattr(kind, "restore", power_loss)
        with pytest.raises(KeyboardInterrupt):
            apply(settings, record)
    assert record.exists()  # until it is back
    apply(settings, record)
    assert knob.read_text() == "60"
    assert not record.parent.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"before": [{"kind": "no"}]}', '{"before": 3}'])
def test_broken_record_is_one_sentence(settings: ModuleType, tmp_path: Path, text: str) -> None:
    path = put(tmp_path / "tuning.json", text)
    with pytest.raises(Exception, match="is no record of what was before"):
        settings.Record(str(path))
    assert path.read_text() == text


def test_a_value_the_kernel_does_not_give(settings: ModuleType, tmp_path: Path) -> None:
    """Of huge pages a kernel gives what memory it finds, and says how much by the file itself."""
    wanted = ("sysctl", "vm.nr_hugepages", 512)
    (tmp_path / "proc/sys/vm").mkdir(parents=True)
    (tmp_path / "proc/sys/vm/nr_hugepages").symlink_to("/dev/null")
    done = apply(settings, tmp_path / "tuning.json", wanted)
    assert "was set to 512 and is ; the kernel cannot give more now" in done.refused[0]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("vm.nosuchthing", 1, "host_tuning_sysctl: vm.nosuchthing is no setting of this kernel"),
        ("vm.nr_hugepages", -1, "host_tuning_hugepages: -1 must be from 0 to 4096"),
        ("vm.nr_hugepages", 100000000000, "must be from 0 to 4096"),
    ],
)
def test_a_value_that_the_host_cannot_have_is_refused_before_anything(
    settings: ModuleType, tmp_path: Path, name: str, value: int, sentence: str
) -> None:
    put(tmp_path / "proc/meminfo", "MemTotal:  8388608 kB\nHugepagesize:     2048 kB\n")
    put(tmp_path / "proc/sys/vm/nr_hugepages", "0\n")
    knob = put(tmp_path / "proc/sys/vm/swappiness", "60\n")
    with pytest.raises(Exception, match=sentence):
        apply(settings, tmp_path / "tuning.json", ("sysctl", "vm.swappiness", 10), ("sysctl", name, value))
    assert (knob.read_text(), (tmp_path / "tuning.json").exists()) == ("60\n", False)


def test_what_the_kernel_refuses_is_not_left_for_the_next_boot(settings: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "proc/sys/vm/swappiness").mkdir(parents=True)  # nobody can write that
    file = tmp_path / "90-runkit-tuning.conf"
    done = apply(
        settings,
        tmp_path / "tuning.json",
        ("sysctl", "vm.swappiness", 10),
        ("file", str(file), "vm.swappiness = 10\n"),
    )
    assert "vm.swappiness is not taken" in done.refused[0]
    assert (file.exists(), (tmp_path / "tuning.json").exists()) == (False, False)
