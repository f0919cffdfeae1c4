"""Following a run: its progress is shown, a person's wishes are passed on, a lost connection is mended."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from runner import parsers, progress
from runner.conduct import Run, agent, command, variables
from runner.errors import HostError
from runner.io import ssh
from runner.io.follow import Follower
from runner.io.signals import Signals
from runner.io.terminal import Display
from runner.model import Cell, Line, Problem

FOLLOWERS = 5  # a follower that is killed is replaced so often
SILENT_S = 10.0  # one that gives no sign of life for so long is replaced
OUT_OF_REACH_S = 30.0  # the launch host counts as lost when none heard of it for so long


def follow(
    run: Run, todo: Sequence[Cell], signals: Signals, display: Display, seen: int = 0
) -> progress.View:
    """Show the agent's progress until it is done; a first signal asks it to stop, a second ends it at once.

    A detached run is only watched: a signal ends the watching, the run goes on. A follower that is lost is
    replaced. The first ``seen`` events of the journal are passed over: those of an earlier try.
    Raises HostError where the launch host stays out of reach.
    """
    view, argv = progress.View(tuple(todo)), agent(run, run.launch_host, "follow")
    wishes, patience = _Wishes(run, signals, display), _Patience()
    while True:
        began, passed = time.monotonic(), 0
        with Follower(argv) as follower:
            for came in follower.events(0.5):
                lives = came is None or came["event"] == "beat"
                event = {"event": "tick", "seconds": time.monotonic() - began} if lives or not came else came
                passed += "t" in event
                if "t" not in event or passed > seen:
                    began = time.monotonic() if event["event"] == "cell_started" else began
                    view = progress.fold(view, event, sample)
                    _tell(view, event, display)
                if wishes.leave() or not patience.goes_on(came is not None):
                    break
                wishes.pass_on(follower)
        seen = max(seen, passed)
        if view.over is not None or wishes.leave():
            break
        if patience.ends(follower):
            display.clear()
            raise _lost(run, follower.said)
        if signals.count > 1:  # nobody can be asked to end it at once
            break
        time.sleep(0.2)
    display.clear()
    return view


class _Patience:
    """How long to wait for a launch host that is out of reach: not for a refusal, not for more than 30 s."""

    def __init__(self) -> None:
        self._heard = self._began = time.monotonic()
        self._ended = 0

    def goes_on(self, heard: bool) -> bool:
        """Whether to listen on, after something was heard or half a second passed without."""
        now = time.monotonic()
        self._heard = now if heard else self._heard
        return now < max(self._heard, self._began) + SILENT_S

    def ends(self, follower: Follower) -> bool:
        """Whether another follower would be no use."""
        self._began = time.monotonic()
        self._ended += follower.status not in (None, ssh.FAILED)
        refused = follower.status == ssh.FAILED and any(word in follower.said for word in ssh.REFUSALS)
        return refused or self._ended >= FOLLOWERS or self._began > self._heard + OUT_OF_REACH_S


def _lost(run: Run, said: str) -> HostError:
    host, name = run.launch_host, run.plan.run
    why = ssh.explained(host, variables(run, host), said) if said and host.connection == "ssh" else said
    fate = "the run goes on there if it can" if run.plan.detached else "the run ends there by itself"
    attach, end = command("bench", "--attach", name), command("stop", name)
    return HostError(
        f"{host.name} is out of reach{': ' if why else ''}{why}; {fate}; once it is back: {attach} or {end}"
    )


class _Wishes:
    """What a person asked for while a run goes on, by signals or by ``stop``; each is passed on once."""

    def __init__(self, run: Run, signals: Signals, display: Display) -> None:
        self._run, self._signals, self._display = run, signals, display
        self._asked = 0

    def leave(self) -> bool:
        """Whether a person leaves a run that goes on without them."""
        return self._run.plan.detached and self._signals.count > 0

    def pass_on(self, follower: Follower) -> None:
        """Say to the agent what was not said yet."""
        wanted = max(self._signals.count, int(self._run.folder.stop.exists()))
        if wanted > self._asked:
            self._asked = wanted
            follower.say("stop" if wanted == 1 else "now")
            self._display.say("stopping ..." if wanted == 1 else "stopping now ...")


def sample(cell: Cell, text: str) -> progress.Sample:
    """What a record line of a cell says; nothing where it is not quite one."""
    run = parsers.parse_cell([Line(1, text)], cell.log_name, parsers.Known(family=cell.family))
    if isinstance(run, Problem) or not run.records:
        return progress.Sample()
    record = run.records[-1]
    return progress.Sample(record.step, record.rate, record.done)


def _tell(view: progress.View, event: Mapping[str, object], display: Display) -> None:
    if event["event"] == "cell_ended" and view.ended is event:
        display.say(progress.ended(view))
    elif view.over is None and view.ended is None:
        display.show(progress.line(view))
