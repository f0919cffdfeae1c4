"""What a host that is a file of facts says to the modules that Ansible sends it.

Modules about files are Ansible's own and run here, in --check, below the folder that has the host's files;
so do scripts that read the folder they are told. Packages, units, keys and commands are answered from the
facts, by the rules that the real modules have. What the facts do not speak of is an error of the test,
never a guess.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils import basic
from provisioning.host import UNSAID, Host
from provisioning.seen import ROLES, SEEN, run

Answer = dict[str, Any]
FILES = (
    "assemble",
    "blockinfile",
    "file",
    "find",
    "lineinfile",
    "replace",
    "slurp",
    "stat",
    "yum_repository",
)
MODULES = {name: importlib.import_module(f"ansible.modules.{name}") for name in FILES}
PATHS = ("path", "dest", "src", "paths", "reposdir")
OWNERSHIP = ("owner", "group")  # of whoever runs the test
READS_ITS_ARGUMENTS = ("pci_devices.py", "ports.py")


def answer(host: Host, module: str, params: Answer) -> Answer:
    """Return what ``module`` says to ``params``, as its JSON."""
    if module in FILES:
        return _below(host, module, params)
    if module not in ANSWERS:
        return _failed(f"the stand-in has no answer for the module {module}")
    return ANSWERS[module](host, params)


def shell(host: Host, line: str) -> Answer:
    """Return what a line of shell prints: what the role bootstrap asks, and Ansible itself."""
    if "MACHINE=" in line:
        return {"stdout": host.greeting}
    if "echo ~" in line:
        return {"stdout": "/root\n"}
    folder = re.search(r"echo (ansible-tmp-[\w.-]+)=", line)
    if folder:
        return {"stdout": f"{folder[1]}=/root/.ansible/tmp/{folder[1]}\n"}
    if re.search(r"rm -f -r /root/\.ansible/tmp/", line):
        return {}
    return {"rc": 1, "stderr": f"the stand-in has no answer for: {line}"}


def _failed(text: str, **more: Any) -> Answer:
    return {"failed": True, "changed": False, "msg": text, **more}


# --- files ------------------------------------------------------------------------------------


def _below(host: Host, module: str, params: Answer) -> Answer:
    """Run Ansible's own module with every path below the host's folder, in --check."""
    moved = {key: value for key, value in params.items() if key not in OWNERSHIP}
    for key in PATHS:
        if isinstance(moved.get(key), list):
            moved[key] = [f"{host.root}{each}" for each in moved[key]]
        elif str(moved.get(key) or "").startswith("/"):
            moved[key] = f"{host.root}{moved[key]}"
    if module == "yum_repository":
        moved["reposdir"] = f"{host.root}/etc/yum.repos.d"
    said: list[Answer] = []
    basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": {**moved, "_ansible_check_mode": True}}).encode()
    basic._ANSIBLE_PROFILE = "legacy"
    basic.AnsibleModule._record_module_result = lambda _, result: said.append(result)
    with contextlib.suppress(SystemExit):
        MODULES[module].main()
    text = json.dumps(
        said[-1], default=lambda value: value.decode() if isinstance(value, bytes) else str(value)
    )
    return json.loads(text.replace(str(host.root), ""))  # type: ignore[no-any-return]


# --- packages ---------------------------------------------------------------------------------


def _packages(host: Host, params: Answer) -> Answer:
    """As apt and dnf do: what is not to be had is a failure, what is there already no change."""
    names = params.get("name") or params.get("package") or params.get("pkg") or []
    wanted = [names] if isinstance(names, str) else list(names)
    if params.get("state") in ("absent", "removed"):
        return {"changed": any(map(host.has, wanted))}
    for each in wanted:
        if not host.offers(each):
            return _failed(f"No package matching '{each.split('=')[0]}' is available")
    return {"changed": not all(map(host.has, wanted))}


def _selection(host: Host, params: Answer) -> Answer:
    name = params["name"]
    if name not in host.installed:
        return _failed(f"Failed to find package '{name}' to perform selection '{params['selection']}'.")
    before = "hold" if name in host.held else "install"
    return {"changed": before != params["selection"], "before": before, "after": params["selection"]}


def _package_facts(host: Host, _: Answer) -> Answer:
    known = {name: [{"name": name, "version": at}] for name, at in host.installed.items()}
    return {"changed": False, "ansible_facts": {"packages": known}}


def _rpm_key(host: Host, params: Answer) -> Answer:
    wanted = {each.replace(" ", "").upper() for each in params.get("fingerprint") or []}
    known = {name for name in host.installed if name.startswith("gpg-pubkey:")}
    there = bool(wanted) and {f"gpg-pubkey:{each}" for each in wanted} <= known
    return {"changed": there == (params.get("state") == "absent")}


# --- units, users, commands ---------------------------------------------------------------------


def _unit(host: Host, params: Answer) -> Answer:
    name = str(params.get("name") or "").removesuffix(".service")
    if not name:
        return {"changed": False}  # daemon-reload alone
    if name not in host.units:
        return _failed(f"Could not find the requested service {name}: host")
    unit, state = host.units[name], params.get("state")
    changed = params.get("enabled") is not None and bool(params["enabled"]) != unit["enabled"]
    changed |= state in ("restarted", "reloaded") or (state or "")[:4] == (
        "stop" if unit["active"] else "star"
    )
    status = {"ActiveState": "active" if unit["active"] else "inactive"}
    return {"changed": changed, "name": name, "enabled": unit["enabled"], "state": state, "status": status}


def _getent(host: Host, params: Answer) -> Answer:
    known = {name: line.split(":")[1:] for name, line in host.users.items()}
    wanted = [params["key"]] if params.get("key") else list(known)
    return {"changed": False, "ansible_facts": {"getent_passwd": {each: known.get(each) for each in wanted}}}


def _user(host: Host, params: Answer) -> Answer:
    line = host.users.get(params["name"])
    if line is None:
        return {"changed": True}
    key = host.root / line.split(":")[5].lstrip("/") / f"{params.get('ssh_key_file') or 'none'}.pub"
    if not params.get("generate_ssh_key"):
        return {"changed": False}
    return {
        "changed": not key.exists(),
        **({"ssh_public_key": key.read_text().strip()} if key.exists() else {}),
    }


def _command(host: Host, params: Answer) -> Answer:
    words = [
        str(each) for each in params.get("argv") or shlex.split(params.get("_raw_params") or params["cmd"])
    ]
    for key, there in (("creates", True), ("removes", False)):
        if params.get(key) and (host.root / params[key].lstrip("/")).exists() == there:
            return {"changed": False, "rc": 0, "stdout": f"skipped, since {params[key]}", "stderr": ""}
    if params.get("_ansible_check_mode"):
        skipped = not (params.get("creates") or params.get("removes"))
        said = "Command would have run if not in check mode"
        return {"changed": not skipped, "skipped": skipped, "rc": 0, "msg": said, "stdout": "", "stderr": ""}
    done = _script(host, words, params["stdin"]) if params.get("stdin") else _known(host, words)
    answered = {"rc": 0, "stdout": "", "stderr": "", **done}
    lines = {f"{each}_lines": answered[each].splitlines() for each in ("stdout", "stderr")}
    bad = {"failed": True, "msg": "non-zero return code"} if answered["rc"] else {}
    return {"changed": True, "cmd": words, **answered, **lines, **bad}


def _known(host: Host, words: list[str]) -> Answer:
    """A command by its words; a program that no command of the facts has is not installed."""
    line = shlex.join(words)
    if words[0] == "cat" and line not in host.commands:
        files = [host.root / each.lstrip("/") for each in words[1:]]
        there = all(each.exists() for each in files)
        return {"stdout": "".join(each.read_text() for each in files)} if there else {"rc": 1}
    if line in host.commands:
        known = host.commands[line]
        return dict(known) if isinstance(known, dict) else {"stdout": str(known).rstrip("\n")}
    if any(shlex.split(each)[0] == words[0] for each in host.commands):
        return {"rc": UNSAID, "stderr": f"the facts do not say what {line} prints"}
    return {"rc": 2, "stderr": f"[Errno 2] No such file or directory: b'{words[0]}'"}


def _script(host: Host, words: list[str], text: str) -> Answer:
    """A script of a role, by its text: run below the host's folder, or answered from the facts."""
    name = next(
        (each.name for each in ROLES.glob("*/files/*.py") if each.read_text().strip() == text.strip()), ""
    )
    if name in READS_ITS_ARGUMENTS:
        return run(text, [f"{host.root}{each}" if each.startswith("/") else each for each in words[1:]])
    if name in SEEN:
        return {"stdout": json.dumps(SEEN[name](host, words[2:]))}
    if name not in host.scripts:
        return {"rc": UNSAID, "stderr": f"the facts do not say what the script {name or text[:60]} prints"}
    return {"stdout": host.scripts[name]}


def _tuning(_: Host, params: Answer) -> Answer:
    """The module of the role host_tuning on a host where nothing is as wanted, and nothing was ever tuned."""
    names = [f"{each['kind']} {each['name']}" for each in params["wanted"]]
    return {"changed": bool(names), "set": names, "restored": [], "notes": []}


ANSWERS: Mapping[str, Callable[[Host, Answer], Answer]] = {
    "setup": lambda host, _: {"changed": False, "ansible_facts": dict(host.ansible_facts)},
    "apt": _packages,
    "dnf": _packages,
    "dpkg_selections": _selection,
    "package_facts": _package_facts,
    "rpm_key": _rpm_key,
    "systemd": _unit,
    "systemd_service": _unit,
    "getent": _getent,
    "user": _user,
    "command": _command,
    "host_tuning_settings": _tuning,
}
