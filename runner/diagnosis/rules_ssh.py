"""Whether ranks can be started: a login from the launch host to each other one, as their launcher does it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from runner.diagnosis import loose
from runner.diagnosis.model import Finding, HostView, Rule

TRUST = "run provision once for the whole cluster: it makes that trust"

RULES = (
    Rule(
        "ssh_host_key_unknown",
        "blocking",
        "The launch host does not know the host's key",
        "nobody logged in from there before, so ssh asks, and nobody answers",
        f"{TRUST}, with host keys that it read over its own connection",
    ),
    Rule(
        "ssh_host_key_changed",
        "blocking",
        "The host's key is another one than the launch host knows",
        "the host was set up anew, another machine has its address, or somebody is in between",
        "run provision, which shows both fingerprints; compare the new one with that on the host (ssh-keygen"
        " -lf /etc/ssh/ssh_host_ed25519_key.pub); then state ssh_trust_replace_host_keys: true in the"
        " inventory for one call",
    ),
    Rule(
        "ssh_denied",
        "blocking",
        "The host refuses the login from the launch host",
        "the launch host's key is not in authorized_keys there, its address is not among those allowed, or"
        " the user differs, or sshd there is told to refuse it (DenyUsers, AllowUsers)",
        f"{TRUST}; where it stays so, sshd on the host says why: journalctl -u ssh",
    ),
    Rule(
        "ssh_refused",
        "blocking",
        "Nothing listens for ssh where the launch host tries",
        "sshd does not run, or listens on another port than the one tried",
        "start sshd, or state its port as ansible_port and run provision, which tells the launch host",
    ),
    Rule(
        "ssh_no_answer",
        "blocking",
        "The login from the launch host gets no answer",
        "a firewall between the two drops it, no route leads there, or sshd of the host hangs",
        "let the launch host reach the port of sshd; if it can, look at sshd on the host (journalctl -u ssh)",
    ),
    Rule(
        "ssh_name",
        "blocking",
        "The launch host does not know the host's address",
        "the inventory has a name as address, and the launch host cannot look it up",
        "state an IPv4 address in ansible_host or host_names_address",
    ),
    Rule(
        "ssh_elsewhere",
        "warning",
        "The launch host logs in elsewhere than Ansible",
        "two sshd listen on that machine, such as its own and one in a container, and ssh on the launch host"
        " does not take the port that the inventory states: what was made ready is not where ranks start",
        "run provision, which tells the launch host the port; or state the other one as ansible_port",
    ),
    Rule(
        "login_shell_csh",
        "blocking",
        "The login shell of the user is csh or tcsh",
        "Ansible and the launchers of ranks send commands in the words of sh, which it does not take",
        "give the user another one: chsh -s /bin/bash USER",
    ),
    Rule(
        "ssh_config_broken",
        "blocking",
        "ssh on the launch host does not accept its own configuration",
        "a file of it has an unknown or wrong line, or belongs to somebody else or may be written by others",
        "correct the file that the evidence names, on the launch host; ssh -G ADDRESS there says nothing once"
        " it is right",
    ),
    Rule(
        "ssh_fails",
        "blocking",
        "The login from the launch host fails",
        "see the line that ssh said",
        "try it on the launch host: ssh -v -o BatchMode=yes ADDRESS true",
    ),
)
# What ssh says, as a pattern, to a code; the first that fits.
SAYS = (
    (
        r"terminating, \d+ bad configuration option|Bad owner or permissions on|"
        r"^/\S+ line \d+: (?!Deprecated|Unsupported)",
        "ssh_config_broken",
    ),
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key .* has changed", "ssh_host_key_changed"),
    (r"Host key verification failed|No \S+ host key is known", "ssh_host_key_unknown"),
    (r"Permission denied|Too many authentication failures", "ssh_denied"),
    (r"Could not resolve hostname", "ssh_name"),
    (r"Connection refused", "ssh_refused"),
    (r"timed out|No route to host|unreachable|not responding", "ssh_no_answer"),
)
_NOISE = re.compile(r"@{5,}|^$|Warning: Permanently added")
_PORT = re.compile(r"port (\d{1,5})\b")
_PROCESSES = re.compile(r"^processes:(\d{1,20})$", re.MULTILINE)


def check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Yield hosts that the launch host cannot log in to."""
    names = {host.name: host for host in hosts}
    refused = set()
    for host in hosts:
        yield from _shell(host)
    for launch in hosts:
        for name, said in loose.items(launch.data("ssh")):
            status = said.get("status")
            if name not in names:  # of a host that was not seen, more is known already
                continue
            if status == 0:
                yield from _elsewhere(launch, names[name], said)
                continue
            text = loose.text(said, "err")
            code = _code(text) if status is not None else "ssh_no_answer"
            ended = "no answer in time" if status is None else f"it ended with status {status} without a word"
            shown = _line(text, code) or ended
            if code == "ssh_config_broken":
                refused.add((launch.name, shown))
                continue
            yield Finding(code, name, shown, f"ssh from {launch.name}{_other_port(said, text)}")
    for launcher, shown in sorted(refused):
        yield Finding("ssh_config_broken", launcher, shown, "ssh to the other hosts does not start")


def _shell(host: HostView) -> Iterator[Finding]:
    """The one that sshd starts commands with; a look without ssh has that of whoever calls."""
    session = loose.mapping(host.data("session"))
    shell = loose.text(session, "SHELL")
    if loose.text(session, "SSH_CONNECTION") and shell.rpartition("/")[2] in ("csh", "tcsh"):
        shown = f"SHELL={shell} of {loose.text(session, 'USER') or 'the user'}"
        yield Finding("login_shell_csh", host.name, shown, f"commands that ssh starts are read by {shell}")


def _elsewhere(launch: HostView, host: HostView, said: Mapping[str, object]) -> Iterator[Finding]:
    """Whether the login sees other processes than the one that the host was looked at by."""
    here = loose.number(loose.mapping(host.data("session")), "processes")
    there = _PROCESSES.search(loose.text(said, "out"))
    if here and there and int(there[1]) != here:
        shown = f"/proc/self/ns/pid: {there[1]}, by the inventory's login {here:.0f}"
        port = loose.number(said, "port") or 22
        detail = f"ssh from {launch.name} sees other processes than a login at port {port:.0f}"
        yield Finding("ssh_elsewhere", host.name, shown, f"{detail}, which the inventory states")


def _code(text: str) -> str:
    return next((code for pattern, code in SAYS if re.search(pattern, text, re.MULTILINE)), "ssh_fails")


def _line(text: str, code: str) -> str:
    """The line that shows it, else the last one."""
    lines = [line.strip() for line in text.splitlines() if not _NOISE.search(line.strip())]
    telling = [line for line in lines if _code(line) == code]
    return (telling or lines or [""])[-1]


def _other_port(said: Mapping[str, object], text: str) -> str:
    """Told where ssh tried another port than the one that the inventory states."""
    stated = loose.number(said, "port")
    tried = _PORT.search(text)
    if stated and tried and int(tried[1]) != stated:
        return f" tried port {tried[1]}, and the inventory states {stated:.0f}"
    return ""
