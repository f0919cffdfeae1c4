"""Writes down what every task said, a JSON object a line, to the file that RECORDED_EVENTS names."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible.plugins.callback import CallbackBase
from provisioning import standin  # noqa: F401 - loaded here once, and not by every worker

DOCUMENTATION = """
    name: recorded
    type: notification
    short_description: what every task said
    description: [Writes what every task said to a file.]
"""
KEPT = ("changed", "msg", "diff", "rc", "cmd")


class CallbackModule(CallbackBase):
    """One line a task and host; one an item where a task loops."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "recorded"

    def __init__(self) -> None:
        super().__init__()
        self._file = open(os.environ["RECORDED_EVENTS"], "w", encoding="utf-8")  # noqa: SIM115 - as long as the play

    def _note(self, result: Any, **flags: bool) -> None:
        if "results" in result.result:  # its items were told
            return
        task = result.task
        event = {
            "host": result.host.get_name(),
            "role": task._role.get_name() if task._role else "",
            "task": task.name,
            "action": task.action.rpartition(".")[2],
            "args": result.task_fields.get("args", {}),
            **flags,
            **{key: result.result[key] for key in KEPT if key in result.result},
        }
        self._file.write(json.dumps(event, default=str) + "\n")
        self._file.flush()

    def v2_runner_on_ok(self, result: Any) -> None:
        self._note(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._note(result, skipped=True)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._note(result, refused=True)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._note(result, refused=not ignore_errors)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        self._note(result)

    def v2_runner_item_on_skipped(self, result: Any) -> None:
        self._note(result, skipped=True)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        self._note(result, refused=not result.task.ignore_errors)
