"""By what the agent judges silence: where its own machine stood still, nobody else was lost."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

AGENT = Path(__file__).resolve().parents[1] / "roles" / "bench_agent" / "files" / "agent.py"
WORK = {"root": "/r", "run": "run", "python": "python3"}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def agent(clock: Clock) -> ModuleType:
    spec = importlib.util.spec_from_file_location("agent", AGENT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.awake = module.Awake(clock)  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize(
    ("steps", "lost"),
    [
        ([0.5] * 41, True),  # 20.5 s, looked at as often as the agent does
        ([0.5] * 39, False),
        ([3600.0], False),  # the machine stood still, once
        ([7.0] * 10, False),  # or by fits and starts
        ([0.5] * 30 + [60.0] + [0.5] * 8, False),  # 15 + 1 + 4 s in which it ran
        ([0.5] * 30 + [60.0] + [0.5] * 9, True),
    ],
)
def test_host_is_lost_by_the_seconds_in_which_its_watcher_ran(
    agent: ModuleType, clock: Clock, steps: list[float], lost: bool
) -> None:
    host = agent.Attendant({"name": "b", "address": "b"}, WORK)
    attending = agent.Attending("run", -1)
    assert agent.LOST_S == 20
    for step in steps:
        clock.now += step
        found = host.lost(), attending._left_alone()
    assert found == (lost, lost)
