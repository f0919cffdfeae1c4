"""Whether what is vaulted in a cluster's folder can be opened, before anything is started that needs it.

Ansible names neither file nor remedy, and tells of a value within a file only in the middle of a play. The
password never comes here: ANSIBLE_VAULT_PASSWORD_FILE names its file, and only Ansible reads that.
What ansible-vault decrypts goes to /dev/null.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from runner.errors import UsageError
from runner.io.inventory_folder import Folder
from runner.names import printable, shown

PASSWORD_FILE = "ANSIBLE_VAULT_PASSWORD_FILE"  # noqa: S105 - the name of a variable


def settled(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what Ansible must be told of the password: its file by its full path, and to ask nobody.

    Playbooks run in another folder than this process, and there is no terminal to answer on.
    """
    stated = environment.get(PASSWORD_FILE)
    file = {PASSWORD_FILE: os.path.abspath(os.path.expanduser(stated))} if stated else {}
    return {**file, "ANSIBLE_ASK_VAULT_PASS": "False"}


def refuse_closed(folder: Folder, environment: Mapping[str, str]) -> None:
    """Raise UsageError, which names file and remedy, for the first vault that ansible-vault cannot open."""
    for where, vault in folder.vaults.items():
        if wrong := _problem(vault.text, environment):
            raise UsageError(f"{where}: the vault cannot be opened: {wrong}")


def _problem(ciphertext: str, environment: Mapping[str, str]) -> str | None:
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="runkit-vault-") as file:
        file.write(ciphertext)
        file.flush()
        done = subprocess.run(
            ["ansible-vault", "decrypt", "--output", "-", file.name],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
            start_new_session=True,  # no terminal, so that it cannot wait for an answer there
        )
    if done.returncode == 0:
        return None
    named = environment.get(PASSWORD_FILE)
    said = [line for line in done.stderr.splitlines() if "ERROR" in line] or [
        "ansible-vault does not say why"
    ]
    if any("Decryption failed" in line for line in said):
        return (
            f"not by the password of {shown(named or 'Ansible')}; name the right file, {PASSWORD_FILE}=FILE"
        )
    if not named:
        return f"no password; write it to a file and name that, {PASSWORD_FILE}=FILE"
    if not Path(named).exists():
        return f"{PASSWORD_FILE} names {shown(named)}, which does not exist"
    reason = said[0].removeprefix("[ERROR]: ").replace(f" for {file.name}", "")  # our copy, gone by now
    return f"{printable(reason)[:300]}; {PASSWORD_FILE} names {shown(named)}"
