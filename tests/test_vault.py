"""Vaults: opened by the password that the environment names, else one line; and no secret gets out."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from kit import Kit, processes, traces

from runner.errors import UsageError
from runner.io import ansible, inventory
from runner.names import shown

ROOT = Path(__file__).resolve().parents[1]
SECRET = "Planted-Secret-77"
PASSWORD = "Planted-Password-78"
VARIABLE = "ANSIBLE_VAULT_PASSWORD_FILE"


def ansible_vault(*words: str, password: Path) -> str:
    program = str(Path(sys.executable).parent / "ansible-vault")
    command = [program, *words, "--vault-password-file", str(password)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(autouse=True)
def no_password_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (VARIABLE, "ANSIBLE_VAULT_IDENTITY_LIST", "ANSIBLE_ASK_VAULT_PASS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "right"
    path.write_text(f"{PASSWORD}\n")
    return path


def plant(cluster: Path, whole: bool, password: Path) -> str:
    """Put the secret into the folder, as a vaulted file or value; return where a message finds it."""
    path = cluster / "group_vars" / "all" / "vault.yml"
    if whole:
        path.write_text(f"ansible_become_password: {SECRET}\n")
        ansible_vault("encrypt", str(path), password=password)
        return "vault.yml: "
    path.write_text(
        ansible_vault("encrypt_string", SECRET, "--name", "ansible_become_password", password=password)
    )
    return "vault.yml:1: ansible_become_password: "


@pytest.mark.parametrize("whole", [True, False], ids=["file", "value"])
def test_what_cannot_be_opened_is_one_line_with_file_and_remedy(
    tmp_path: Path, password: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    cluster = shutil.copytree(ROOT / "inventory" / "local", tmp_path / "closed")
    where = plant(cluster, whole, password)
    (tmp_path / "other").write_text("of another vault\n")

    def refusal() -> str:
        ansible.inventory_list.cache_clear()
        with pytest.raises(UsageError) as caught:
            inventory.load(str(cluster), ansible.inventory_list)
        message = str(caught.value)
        assert f"{where}the vault cannot be opened: " in message
        assert "\n" not in message
        return message

    assert f"no password; write it to a file and name that, {VARIABLE}=FILE" in refusal()
    monkeypatch.setenv("ANSIBLE_ASK_VAULT_PASS", "True")  # nobody is asked
    assert "no password" in refusal()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "other"))
    assert f"not by the password of {shown(str(tmp_path / 'other'))}" in refusal()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone"))
    assert "which does not exist" in refusal()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, password.name)  # relative to where the user is
    assert inventory.load(str(cluster), ansible.inventory_list).cards == 32
    ansible.inventory_list.cache_clear()


def test_a_damaged_vault_is_named_and_no_file_of_ours(
    tmp_path: Path, password: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = shutil.copytree(ROOT / "inventory" / "local", tmp_path / "damaged")
    (cluster / "group_vars" / "all" / "vault.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")
    monkeypatch.setenv(VARIABLE, str(password))
    ansible.inventory_list.cache_clear()
    with pytest.raises(UsageError) as caught:
        inventory.load(str(cluster), ansible.inventory_list)
    ansible.inventory_list.cache_clear()
    assert "vault.yml: the vault cannot be opened: " in str(caught.value)
    assert "runkit-vault" not in str(caught.value)


def test_what_is_vaulted_is_seen_by_roles(
    tmp_path: Path, password: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = shutil.copytree(ROOT / "inventory" / "local", tmp_path / "open")
    plant(cluster, True, password)
    monkeypatch.setenv(VARIABLE, str(password))
    log = tmp_path / "ansible.log"  # a site may have stated one: Ansible logs what it prints there
    monkeypatch.setenv("ANSIBLE_LOG_PATH", str(log))
    ansible.inventory_list.cache_clear()
    hostvars = inventory.hostvars(cluster, ansible.inventory_list)
    assert hostvars["localhost"]["ansible_become_password"] == SECRET
    assert SECRET not in (log.read_text() if log.exists() else "")
    ansible.inventory_list.cache_clear()


def test_provision_refuses_a_closed_vault_before_it_starts(kit: Kit, password: Path) -> None:
    plant(kit.cluster, True, password)
    done = kit.runner("provision")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "vault.yml: the vault cannot be opened: no password" in done.stderr
    assert not (kit.folder / "runs").exists()


def test_a_secret_is_in_no_file_no_output_and_no_process(kit: Kit, password: Path) -> None:
    """Neither what is vaulted nor the password of the vault: looked for during the run, and after it."""
    plant(kit.cluster, True, password)
    marks = [SECRET.encode(), PASSWORD.encode()]
    seen: set[bytes] = set()
    over = Event()

    def look() -> None:
        while not over.wait(0.02):
            found = b"".join(map(traces, processes()))
            seen.update(mark for mark in (*marks, bytes(password)) if mark in found)

    watcher = Thread(target=look)
    watcher.start()
    done = kit.bench("--cards", "1", ANSIBLE_VAULT_PASSWORD_FILE=str(password))
    over.set()
    watcher.join()
    assert done.returncode == 0, done.stderr
    assert kit.states() == {"c01": "measured"}
    assert seen == {bytes(password)}  # the file's name, which shows that the watcher sees
    written = [path for path in files(kit) if any(mark in path.read_bytes() for mark in marks)]
    assert written == [password]
    assert SECRET not in done.stdout + done.stderr


def files(kit: Kit) -> Iterator[Path]:
    """All that the test's folder holds: the cluster, the runs, the agent's own folders."""
    return (path for path in kit.folder.rglob("*") if path.is_file())
