"""What Ansible's events say: who failed at what, what changed, what roles tell, how it ended.

An event is a mapping as ansible-runner writes it. Results come from hosts: their text is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MOST_TEXT = 8000  # characters of what a failed task said
RECAP = {  # ansible-runner's word -> that of Ansible's own recap
    "ok": "ok",
    "changed": "changed",
    "dark": "unreachable",
    "failures": "failed",
    "skipped": "skipped",
    "rescued": "rescued",
    "ignored": "ignored",
}

# Of which packages apt says on stderr that it may not change or cannot install them.
_LISTED = re.compile(
    r"(?m)^The following (held packages will be changed|packages have unmet dependencies):\r?\n((?: .*\n?)+)"
)
# What ssh says behind a command on a terminal, as task raw starts them; its own words are in stdout.
_FAREWELL = re.compile(r"(?m)^(?:Shared c|C)onnection to \S+ closed\.\r?\n?")

Event = Mapping[str, Any]
Watch = Callable[[str, str, str], None]  # role, task, and the host that is done with it; "" when it begins


@dataclass(frozen=True, slots=True)
class Failure:
    """A task that failed on a host. ``status`` is the exit status of its command, None where it ran none.

    ``message`` is the last line of what was said, ``text`` all of it.
    """

    host: str
    task: str
    status: int | None
    message: str
    unreachable: bool = False
    role: str = ""
    text: str = ""

    def __str__(self) -> str:
        return f"{self.host}: {self.task}: {self.message}"


@dataclass(frozen=True, slots=True)
class Change:
    """A task that changed something on a host, or would; ``diffs`` as Ansible's modules give them."""

    host: str
    role: str
    task: str
    diffs: tuple[Any, ...]


def handler(watch: Watch) -> Callable[[Event], bool]:
    """Return what ansible-runner calls with each event as it happens."""

    def handle(event: Event) -> bool:
        kind = event["event"]
        if kind == "playbook_on_task_start" or kind in ("runner_on_ok", "runner_on_skipped"):
            data = event["event_data"]
            watch(_word(data, "role"), _word(data, "task"), _word(data, "host"))
        return True  # keep the event

    return handle


def failures(events: Iterable[Event], *, ignored: bool = False) -> tuple[Failure, ...]:
    """Return the failures that count, or those that the playbook passes over."""
    return tuple(
        _failure(event)
        for event in events
        if event["event"] in ("runner_on_failed", "runner_on_unreachable")
        and bool(event["event_data"].get("ignore_errors")) == ignored
    )


def changes(events: Iterable[Event]) -> tuple[Change, ...]:
    """Return the tasks that changed something, in order."""
    return tuple(
        Change(
            _word(data, "host"),
            _word(data, "role"),
            _word(data, "task"),
            tuple(each["diff"] for each in _items(result, "changed") if each.get("diff")),
        )
        for data, result in _results(events, "runner_on_ok")
        if result.get("changed")
    )


def notes(events: Iterable[Event]) -> tuple[tuple[str, str], ...]:
    """Return host and text of what roles tell with debug."""
    return tuple(
        (_word(data, "host"), str(result.get("msg", ""))[:MOST_TEXT])
        for data, result in _results(events, "runner_on_ok")
        if data.get("task_action") in ("debug", "ansible.builtin.debug")
    )


def recap(stats: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return per host the counts of Ansible's recap, by Ansible's words."""
    hosts = sorted({host for key in RECAP for host in stats.get(key) or ()})
    return {
        host: {word: int((stats.get(key) or {}).get(host, 0)) for key, word in RECAP.items()}
        for host in hosts
    }


def _failure(event: Event) -> Failure:
    data = event["event_data"]
    result = _items(data.get("res") or {}, "failed")[0]
    # A module that never began, for sudo refused say, has its reason elsewhere.
    said = [result.get(key) for key in ("msg", "failures", "module_stdout", "module_stderr")]
    lines = [line for each in said if each for line in (each if isinstance(each, list) else [each])]
    said_last = str(result.get("stderr") or "")
    own = _FAREWELL.sub("", said_last)
    printed = str(result.get("stdout") or "") if own != said_last else ""
    text = next((each for each in (own, printed, said_last) if each.strip()), "\n".join(map(str, lines)))
    text = "\n".join((text, *_listed(str(result.get("stdout") or "")))).strip() or "failed without a word"
    return Failure(
        _word(data, "host"),
        _word(data, "task"),
        result.get("rc"),
        text.splitlines()[-1],
        event["event"] == "runner_on_unreachable",
        _word(data, "role"),
        text[-MOST_TEXT:],
    )


def _listed(stdout: str) -> Iterator[str]:
    """Yield a line for each list of packages: all that are held, the first one with what it depends on."""
    for what, names in _LISTED.findall(stdout):
        first = names.splitlines()[0] if "unmet" in what else names
        yield f"{what}: {' '.join(first.split())}"


def _results(events: Iterable[Event], kind: str) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    for event in events:
        if event["event"] == kind:
            yield event["event_data"], event["event_data"].get("res") or {}


def _items(result: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The results of a loop that have ``key``; of a task without a loop its own."""
    return [each for each in result.get("results") or () if each.get(key)] or [result]


def _word(data: Mapping[str, Any], key: str) -> str:
    return str(data.get(key) or "")
