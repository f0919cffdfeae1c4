"""Signals as something to look at between two steps, instead of an exception in the middle of one."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType


class Signals:
    """While entered, SIGINT, SIGTERM and SIGHUP only count. ``last`` is the newest's number, 0 before any."""

    def __init__(self) -> None:
        self.count = 0
        self.last = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> Signals:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGINT:  # nohup stays nohup
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.last = number

    @property
    def name(self) -> str:
        """Of the newest signal."""
        return signal.Signals(self.last).name if self.last else ""
