"""The agent: works through the cells of a run on the launch host, and leaves nothing behind on any host.

usage: agent.py start  RUN_DIR         on the launch host: have the work begun, in the background
       agent.py work   RUN_DIR         work through the cells; `start` calls it
       agent.py attend RUN_DIR HOST    on every other host: keep its lock, and end the run's processes there
       agent.py follow RUN_DIR         print the journal as it grows; read beat, stop and now from stdin
       agent.py stop   RUN_DIR         end everything the run left on this host
       agent.py pack   RUN_DIR         write what the run measured to standard output, as one archive

RUN_DIR is the run's folder on this host. Beside it lies `lock`: while a run works here it is held with
flock(2), which the kernel gives back whenever the holder dies, however it dies.

Every process of a run carries RUNKIT_RUN=<run> in its environment. That is how all of them are found
at the end, in whichever session or process group they are by then.

Standard library only, Python 3.8 or later: hosts need nothing installed for it.
"""

import contextlib
import errno
import fcntl
import glob
import hashlib
import io
import json
import os
import pwd
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

TICK_S = 0.5  # between two looks at logs, deadlines, disk and controller
GRACE_S = 5.0  # from SIGTERM to SIGKILL
RESERVE_BYTES = 256 * 1024  # given back to a full disk, so that the journal can still say so
LOW_BYTES = 64 * 1024  # a disk with less free than this is full
SETTLE_S = 0.3  # what a launcher's daemons on other hosts may need to end after it
BEAT_S = 1.0  # between two signs of life, of the agent to an attendant
STUCK_S = 120.0  # an agent that stood at one thing for so long is not said to live any more
SILENT_S = 8.0  # a connection to an attendant that is silent for so long is made anew
LOST_S = (
    20.0  # a host whose attendant is silent for so long is lost; an attendant ends its ranks after it too
)
ENGINE_S = 10.0  # for the container engine to answer
GATHER_S = 15.0  # for all attendants to be there at the start
SSH = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=5"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)
BLOCK = 1 << 16  # bytes that travel at once
SCAN_BYTES = 256 * 1024  # of new log text read per file and look; more than any record needs
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - only folders of our own are made there
BUSY = 75  # exit status of `start` when another run holds the host (EX_TEMPFAIL)
INHERITED = ("HOME", "LANG", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "TMPDIR", "USER")
LEAF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")  # a file of a cell's logs that the controller takes
LEFT_THERE = "left-there.txt"  # names the others
NOT_PACKED = {
    *("agent.py", "agent.log", "beat", "host", "progress.json", "reserve", "rsh.sh"),
    *("shim.sh", "ssh_config", "stage.pyz", "unpack.py", "work.json", "workload", "__main__.py"),
}


# --- files ---------------------------------------------------------------------------------


def read_json(*parts: str) -> Dict[str, Any]:
    with open(os.path.join(*parts), encoding="utf-8") as stream:
        document: Dict[str, Any] = json.load(stream)
    return document


def write_json(document: Dict[str, Any], *parts: str) -> None:
    path = os.path.join(*parts)
    with open(path + ".tmp", "w", encoding="utf-8") as stream:
        json.dump(document, stream)
    os.replace(path + ".tmp", path)


class Journal:
    """What the agent did, in order, one JSON object a line. A full disk costs the reserve, not the line."""

    def __init__(self, run_dir: str) -> None:
        self.path = os.path.join(run_dir, "journal.jsonl")
        self.reserve = os.path.join(run_dir, "reserve")

    def write(self, event: str, **fields: Any) -> None:
        line = (json.dumps({"t": round(time.time(), 3), "event": event, **fields}) + "\n").encode()
        try:
            self._append(line)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.free_reserve()
            self._append(line)

    def make_reserve(self) -> None:
        with open(self.reserve, "wb") as stream:
            stream.write(os.urandom(RESERVE_BYTES))  # a disk that compresses must not shrink it

    def free_reserve(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.reserve)

    def mend(self) -> List[Dict[str, Any]]:
        """The events so far; a line that was cut short when the host lost power is taken off."""
        with open(self.path, "ab+") as stream:
            stream.seek(0)
            whole, _, torn = stream.read().rpartition(b"\n")
            if torn:
                stream.truncate(len(whole) + 1 if whole else 0)
        return [json.loads(line) for line in whole.splitlines()]

    def _append(self, line: bytes) -> None:
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.lseek(handle, 0, os.SEEK_END)
            if os.write(handle, line) != len(line):
                os.ftruncate(handle, size)  # no torn line stays behind
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        finally:
            os.close(handle)


# --- processes -----------------------------------------------------------------------------


def processes_of(run: str) -> List[int]:
    """Process ids on this host that carry the run's mark; those that are only waiting to be reaped do not."""
    mark = b"RUNKIT_RUN=" + run.encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open("/proc/%s/environ" % name, "rb") as stream:
                if mark in stream.read().split(b"\0"):
                    found.append(int(name))
        except OSError:
            continue  # it ended, or it is somebody else's
    return found


def end_processes(run: str, hurry: Callable[[], bool]) -> List[int]:
    """SIGTERM once, SIGKILL after GRACE_S or as soon as ``hurry()``; returns those that survive even that."""
    left = processes_of(run)
    if not hurry():
        _signal_all(left, signal.SIGTERM)
    began = time.monotonic()
    while left and time.monotonic() < began + 2 * GRACE_S:
        if hurry() or time.monotonic() > began + GRACE_S:
            _signal_all(left, signal.SIGKILL)  # again and again: some may have been forked meanwhile
        time.sleep(0.02)
        left = processes_of(run)
    return left


def settle(run: str) -> List[int]:
    """What is still there after the launcher's end, once what was about to end by itself has ended."""
    deadline, left = time.monotonic() + SETTLE_S, processes_of(run)
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = processes_of(run)
    return left


def _signal_all(pids: Sequence[int], signum: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)


def at_once() -> bool:
    """For ``end_processes``: no grace."""
    return True


def scratch(run: str) -> List[str]:
    """Folders for what ranks and launchers leave behind when they are killed: shared memory, sessions."""
    return [os.path.join(folder, "runkit-" + run) for folder in (SHARED_MEMORY, tempfile.gettempdir())]


def clean_up(run: str, hurry: Callable[[], bool]) -> List[int]:
    """End all processes of a run and remove what they left; returns the survivors."""
    survivors = end_processes(run, hurry)
    remove_containers(run)
    for folder in [] if survivors else scratch(run):
        shutil.rmtree(folder, ignore_errors=True)
    return survivors


def remove_containers(run: str) -> None:
    """By their label: a container outlives the client that started it, and may not be ours to signal."""
    docker = shutil.which("docker")
    if docker is None:
        return
    quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "timeout": ENGINE_S}  # type: Any
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        listed = [docker, "ps", "--all", "--quiet", "--filter", "label=runkit.run=" + run]
        found = subprocess.run(listed, stdout=subprocess.PIPE, check=False, **quiet).stdout.decode().split()
        if found:
            subprocess.run([docker, "rm", "--force", *found], stdout=subprocess.DEVNULL, check=False, **quiet)


# --- the lock ------------------------------------------------------------------------------


def lock_path(run_dir: str) -> str:
    return os.path.join(os.path.dirname(run_dir), "lock")


def try_lock(run_dir: str, kind: int) -> Optional[int]:
    """The open, locked file, or None where somebody else holds it."""
    handle = os.open(lock_path(run_dir), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def lock_holder(run_dir: str) -> Dict[str, Any]:
    """What the last holder wrote: {"run", "pid"}; {} where it left in good order."""
    try:
        return read_json(lock_path(run_dir))
    except (OSError, ValueError):
        return {}


def take_lock(run_dir: str) -> Optional[int]:
    for _ in range(10):  # a follower may hold it for an instant, to see whether it is free
        lock = try_lock(run_dir, fcntl.LOCK_EX)
        if lock is not None:
            return lock
        time.sleep(0.1)
    return None


def sign_lock(lock: int, run: str) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps({"run": run, "pid": os.getpid()}).encode(), 0)


def workers(run: str) -> List[int]:
    """Agents, their guards and attendants of a run on this host, stopped ones too."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open("/proc/%s/cmdline" % name, "rb") as stream:
            words = os.fsdecode(stream.read()).split("\0")[1:4]  # after the name of Python
            is_ours = words[0:1] and words[0].endswith("agent.py") and words[1:2] in (["work"], ["attend"])
            if is_ours and os.path.basename(words[2]) == run and int(name) != os.getpid():
                found.append(int(name))
    return found


def is_working(run_dir: str) -> bool:
    """Whether the agent of this run (or what it left to clean up after it) is alive."""
    handle = try_lock(run_dir, fcntl.LOCK_SH)
    if handle is not None:
        os.close(handle)
        return False
    return bool(lock_holder(run_dir).get("run") == os.path.basename(run_dir))


# --- watching a cell -----------------------------------------------------------------------


class Watch:
    """Counts the records in the logs of a cell as they grow."""

    def __init__(self, folder: str, progress: str) -> None:
        self.pattern = re.compile(progress.encode())
        self.glob = os.path.join(folder, "logs", "*", "rank-*.std*")
        self.offsets: Dict[str, int] = {}
        self.records = 0
        self.line = ""

    def look(self) -> bool:
        """Read what is new; True where a record was among it."""
        before = self.records
        for path in sorted(glob.glob(self.glob)):
            with contextlib.suppress(OSError):
                size = os.stat(path).st_size
                start = max(self.offsets.get(path, 0), size - SCAN_BYTES)
                if size > start:
                    with open(path, "rb") as stream:
                        stream.seek(start)
                        self.offsets[path] = start + self._count(stream.read(SCAN_BYTES))
        return self.records > before

    def _count(self, text: bytes) -> int:
        whole = text.rfind(b"\n") + 1  # a line still being written is looked at the next time
        for line in text[:whole].splitlines():
            if self.pattern.search(line):
                self.records += 1
                self.line = line[-2000:].decode("utf-8", "replace")
        return whole if whole else max(0, len(text) - SCAN_BYTES // 2)


# --- silence -------------------------------------------------------------------------------


class Awake:
    """The seconds in which this process ran, by which it judges how long others were silent.

    While its machine stands still (a guest that is paused, copied or moved), or runs by fits and starts,
    nobody can be heard: between two looks at this clock it goes on by ``MOST_S`` at most.
    """

    MOST_S = BEAT_S  # whoever waits for others looks at least that often

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.last, self.seconds = clock, clock(), 0.0

    def __call__(self) -> float:
        now = self.clock()
        self.seconds += min(now - self.last, self.MOST_S)
        self.last = now
        return self.seconds


awake = Awake()


# --- other hosts ---------------------------------------------------------------------------


class Attendant:
    """The run's hand on another host: ``agent.py attend`` there, at the end of an SSH connection.

    Each side tells the other that it lives. A connection that ends or falls silent is made anew, and takes
    the place of the old one. ``heard`` is when the host last gave a sign of life.
    """

    def __init__(self, host: Dict[str, str], work: Dict[str, Any]) -> None:
        self.name = host["name"]
        folder = work["root"] + "/" + work["run"]
        folder = folder[2:] if folder.startswith("~/") else folder  # sshd starts commands at home
        command = [work["python"], folder + "/agent.py", "attend", folder, self.name]
        self.argv = [*SSH, host["address"], " ".join(map(shlex.quote, command))]
        self.process: "Optional[subprocess.Popen[bytes]]" = None
        self.heard = self.tried = awake()
        self.writing = threading.Lock()  # of its standard input, which another thread writes to as well
        self.tries, self.rest = 0, b""
        self.ready: Optional[Dict[str, Any]] = None  # what it said of its host
        self.refusal, self.complaint = "", ""  # why it will not attend; what ssh said last
        self.task, self.word, self.swept = 0, "", (0, 0)  # the newest thing asked for; its result
        self.done = 0

    def tend(self) -> None:
        """Hear what came; connect where nobody is at the other end."""
        now = awake()
        self._hear()
        gone = self.process is None or self.process.poll() is not None or now > self._newest() + SILENT_S
        if gone and (self.process is None or now > self.tried + 1):
            self._connect()

    def beat(self) -> None:
        """Tell that the agent lives."""
        self._say("beat")

    def ask(self, word: str) -> None:
        """``sweep`` the run's processes away, ``now`` without grace; the answer makes it ``idle``."""
        if self.idle():
            self.task += 1
        self.word = word
        self._say("%s %d" % (word, self.task))

    def idle(self) -> bool:
        return self.done == self.task

    def lost(self) -> bool:
        return awake() > self.heard + LOST_S

    def close(self) -> None:
        """The end of its standard input is the end of its work."""
        with self.writing:
            self.drop()

    def drop(self) -> None:
        """The same, in a process of one thread that was forked from one of two."""
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def _newest(self) -> float:
        return max(self.heard, self.tried)

    def _connect(self) -> None:
        self.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.tries, self.tried, self.rest = self.tries + 1, awake(), b""
        pipe = subprocess.PIPE
        process = subprocess.Popen(self.argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        for stream in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(stream.fileno(), False)  # type: ignore[union-attr]
        self.process = process

    def _hear(self) -> None:
        if self.process is None:
            return
        said = _read(self.process.stderr).decode("utf-8", "replace").strip()
        self.complaint = said.splitlines()[-1] if said else self.complaint
        *lines, self.rest = (self.rest + _read(self.process.stdout)).split(b"\n")
        for line in lines:
            self._take(line.decode("utf-8", "replace").split(" ", 1))

    def _take(self, words: List[str]) -> None:
        if words[0] not in ("alive", "ready", "swept", "refused"):
            return  # what a login says of its own accord
        self.heard, self.complaint = awake(), ""
        if words[0] == "refused":
            self.refusal = words[1]
        elif words[0] == "ready":
            self.ready = json.loads(words[1])
            if not self.idle():  # the one who was asked is gone
                self._say("%s %d" % (self.word, self.task))
        elif words[0] == "swept":
            task, found, survivors = map(int, words[1].split())
            if task == self.task:
                self.done, self.swept = task, (found, survivors)

    def _say(self, line: str) -> None:
        with self.writing:
            stdin = self.process.stdin if self.process is not None else None
            if stdin is not None and not stdin.closed:
                with contextlib.suppress(OSError):
                    os.write(stdin.fileno(), line.encode() + b"\n")


def _read(stream: Any) -> bytes:
    """What a pipe holds just now."""
    try:
        return os.read(stream.fileno(), 1 << 16)
    except BlockingIOError:
        return b""


class Attending:
    """The other end: keeps the host's lock; ends the run's processes when asked to, or when left alone."""

    def __init__(self, run: str, lock: int) -> None:
        self.run, self.lock = run, lock
        self.heard, self.alone, self.rest = awake(), False, b""
        self.task, self.done, self.urgent = 0, 0, False

    def main(self) -> int:
        while not self._left_alone():
            select.select([0], [], [], BEAT_S)
            self._listen()
            if self.task > self.done:
                found = len(processes_of(self.run) if self.urgent else settle(self.run))
                survivors = clean_up(self.run, self._hurry)
                self.done = self.task
                tell("swept %d %d %d" % (self.done, found, len(survivors)))
        survivors = clean_up(self.run, at_once)
        if not survivors:
            os.ftruncate(self.lock, 0)
        return 1 if survivors else 0

    def _left_alone(self) -> bool:
        return self.alone or awake() > self.heard + LOST_S

    def _hurry(self) -> bool:
        self._listen()
        return self.urgent or self._left_alone()

    def _listen(self) -> None:
        try:
            text = os.read(0, 4096)
        except BlockingIOError:
            return
        self.alone = not text
        self.heard = awake()
        *lines, self.rest = (self.rest + text).split(b"\n")
        for line in lines:
            word, _, task = line.partition(b" ")
            if word == b"beat":
                tell("alive")
            elif int(task) > self.done:
                self.task, self.urgent = int(task), word == b"now"


def tell(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody may be listening any more
        os.write(1, line.encode() + b"\n")


def attend(run_dir: str, host: str) -> int:
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_IGN)
    os.set_blocking(0, False)
    run = os.path.basename(run_dir)
    here = read_json(run_dir, "facts.json")
    if here["host"] != host:
        text = "%s is one folder for %s and %s; put bench_agent_root on a disk of each host"
        tell("refused " + text % (run_dir, host, here["host"]))
        return 1
    lock = take_lock(run_dir)
    if lock is None and lock_holder(run_dir).get("run") == run:  # an attendant that lost its agent
        _signal_all(workers(run), signal.SIGKILL)
        lock = take_lock(run_dir)
    if lock is None:
        tell("refused busy %s" % lock_holder(run_dir).get("run", "unknown"))
        return BUSY
    dead = lock_holder(run_dir).get("run", run)
    if dead != run:  # those who should have ended it died with it
        clean_up(dead, at_once)
    sign_lock(lock, run)
    tell("ready " + json.dumps({"mpi": here["mpi"]}))
    return Attending(run, lock).main()


# --- the agent -----------------------------------------------------------------------------


class Verdict(Exception):
    """Why a cell must end now: ``outcome`` in one word, ``reason`` for people, ``last`` ends the run too."""

    def __init__(self, outcome: str, reason: str, last: bool = False) -> None:
        super().__init__(reason)
        self.outcome, self.reason, self.last = outcome, reason, last


class Agent:
    """One run on its launch host."""

    def __init__(self, run_dir: str, lock: int) -> None:
        self.dir, self.lock = run_dir, lock
        self.work = read_json(run_dir, "work.json")
        self.run = self.work["run"]
        self.journal = Journal(run_dir)
        self.journal.mend()
        self.stops = 0
        self.guard: Optional[int] = None
        self.guard_pipe: Optional[int] = None
        self.wake, wake_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_in)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._on_stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.beat = (0, awake())
        others = [host for host in self.work["hosts"] if host["name"] != self.work["launch_host"]]
        self.attendants = [Attendant(host, self.work) for host in others]
        self.turned = time.monotonic()  # when the other hosts were last looked after
        threading.Thread(target=self._tell_that_it_lives, daemon=True).start()

    def _tell_that_it_lives(self) -> None:
        """In a thread of its own: a disk that takes nothing for half a minute must not end the run."""
        while True:
            if time.monotonic() < self.turned + STUCK_S:
                for each in self.attendants:
                    each.beat()
            time.sleep(BEAT_S)

    def _tend(self) -> None:
        self.turned = time.monotonic()
        for each in self.attendants:
            each.tend()

    def _on_stop(self, *_: object) -> None:
        self.stops += 1

    def gather(self) -> str:
        """Wait until every other host is attended; returns what is in the way of the run, or ""."""
        deadline = awake() + GATHER_S
        while any(each.ready is None for each in self.attendants):
            self._tend()
            for each in self.attendants:
                if each.refusal.startswith("busy "):
                    return "%s on %s" % (each.refusal, each.name)
                if each.refusal:
                    return each.refusal
                if each.ready is None and (each.tries > 3 or awake() > deadline):
                    text = "%s: cannot be reached over ssh from %s: %s; set it right with: %s"
                    said = each.complaint or "no answer"
                    return text % (each.name, self.work["launch_host"], said, self.work["remedy"])
            time.sleep(0.02)
        return self._mpi_differs()

    def _mpi_differs(self) -> str:
        if not self.attendants:
            return ""
        own = read_json(self.dir, "facts.json")
        found = [(own["host"], own["mpi"])] + [
            (one.name, (one.ready or {})["mpi"]) for one in self.attendants
        ]
        for host, version in found:
            if version is None:
                return "%s: %s does not run there; %s" % (host, self.work["mpirun"], self.work["remedy"])
        if len({version for _, version in found}) == 1:
            return ""
        listed = ", ".join("%s: %s" % pair for pair in found)
        return "all ranks of a job need the same Open MPI (%s); give the hosts one release" % listed

    def main(self) -> None:
        self.journal.write("agent_started", run=self.run, pid=os.getpid(), cells=self.work["cells"])
        reason = "done"
        try:
            self.journal.make_reserve()
            self._sweep("now")  # what an earlier try left on a host that was lost
            for cell in self.work["cells"]:
                if self.stops:
                    raise Verdict("stopped", "stopped on request")
                self._watch_guard()
                self._cell(cell)
        except Verdict as verdict:
            reason = verdict.reason
        except OSError as error:
            reason = "%s: %s" % (error.filename or self.dir, error.strerror)
        found = self._sweep("now")  # nothing is left by now, unless an OSError cut a cell short
        self.journal.free_reserve()
        self.journal.write(
            "agent_ended", reason=reason, survivors=found["survivors"], unswept=found["unswept"]
        )
        for each in self.attendants:
            each.close()
        os.ftruncate(self.lock, 0)
        if self.guard_pipe is not None:
            os.write(self.guard_pipe, b"q")

    def _cell(self, cell_id: str) -> None:
        folder = os.path.join(self.dir, "cells", cell_id)
        cell = read_json(folder, "cell.json")
        keep_earlier(folder)
        os.makedirs(os.path.join(folder, "logs"))
        self.journal.write("cell_started", cell=cell_id, argv=cell["argv"])
        began, watch = time.monotonic(), Watch(folder, cell["progress"])
        process, last = None, False
        try:
            process = self._launch(folder, cell)
            status = self._watch(process, cell, watch, began)
            if status:
                self._confirm_hosts()
            outcome, reason = "exited", "%s exited with %d" % (os.path.basename(cell["argv"][0]), status)
            if status and free_bytes(self.dir) < LOW_BYTES:
                raise Verdict("failed", "no space left in %s" % self.dir, last=True)
        except Verdict as verdict:
            outcome, reason, last = verdict.outcome, verdict.reason, verdict.last
        found = self._sweep("sweep")
        self.journal.write(
            "cell_ended",
            cell=cell_id,
            outcome=outcome,
            reason=reason,
            status=exit_status(process),
            seconds=round(time.monotonic() - began, 3),
            **found,
        )
        if last:
            raise Verdict(outcome, reason)

    def _sweep(self, word: str) -> Dict[str, Any]:
        """End what the run left, on all hosts at once: how many processes were found, where, and survived."""
        for each in self.attendants:
            each.ask(word)
        found = {
            self.work["launch_host"]: len(settle(self.run) if word == "sweep" else processes_of(self.run))
        }
        survivors = len(clean_up(self.run, self._hurry if word == "sweep" else at_once))
        while any(not each.idle() and not each.lost() for each in self.attendants):
            self._hurry()
            time.sleep(0.01)
        answered = [each for each in self.attendants if each.idle()]
        found.update((each.name, each.swept[0]) for each in answered)
        return {
            "swept": sum(found.values()),
            "swept_on": {host: count for host, count in found.items() if count},
            "survivors": survivors + sum(each.swept[1] for each in answered),
            "unswept": [each.name for each in self.attendants if each not in answered],
        }

    def _hurry(self) -> bool:
        """Whether there is no time for grace; the attendants are kept alive, and told so."""
        self._tend()
        for each in self.attendants:
            if self.stops > 1 and each.word == "sweep" and not each.idle():
                each.ask("now")
        return self.stops > 1

    def _confirm_hosts(self) -> None:
        """A launcher may see before the agent does that a host is gone: ask before its status is believed."""
        asked = awake()
        while any(each.heard < asked for each in self.attendants):
            self._watch_hosts()
            time.sleep(0.05)

    def _watch_hosts(self) -> None:
        self._tend()
        for each in self.attendants:
            if each.lost():
                text = "%s was lost: no sign of life for %g s" % (each.name, LOST_S)
                raise Verdict(
                    "lost", "%s (%s)" % (text, each.complaint) if each.complaint else text, last=True
                )

    def _launch(self, folder: str, cell: Dict[str, Any]) -> "subprocess.Popen[bytes]":
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        env.setdefault("HOME", os.path.expanduser("~"))  # Open MPI does not start without
        temporary = scratch(self.run)[1]
        env.update(cell["env"], RUNKIT_RUN=self.run, RUNKIT_CELL=cell["id"], TMPDIR=temporary)
        logs = os.path.join(folder, "logs")
        try:
            os.makedirs(temporary, mode=0o700, exist_ok=True)
            with open(logs + "/launcher.stdout", "wb") as out, open(logs + "/launcher.stderr", "wb") as err:
                return subprocess.Popen(
                    cell["argv"],
                    cwd=self.dir,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
        except OSError as error:
            text = "%s cannot be started: %s" % (cell["argv"][0], error.strerror)
            raise Verdict("failed", text, last=error.errno == errno.ENOSPC) from error

    def _watch(
        self, process: "subprocess.Popen[bytes]", cell: Dict[str, Any], watch: Watch, began: float
    ) -> int:
        """Wait for the end of the launcher; returns its status, or raises the Verdict that ends it sooner."""
        limits, looked, newest = cell["deadlines"], began, awake()
        while process.poll() is None:
            self._sleep(looked + TICK_S - time.monotonic())
            if self.stops:
                raise Verdict("stopped", "stopped on request", last=True)
            now = time.monotonic()
            if now < looked + TICK_S:
                continue
            looked = now
            if watch.look():
                newest = awake()
                write_progress(self.dir, cell["id"], watch, now - began)
            self._watch_guard()
            self._watch_hosts()
            self._watch_world()
            quiet_s = awake() - newest
            if now - began > limits["total_s"]:
                raise Verdict("timeout", "not done after %g s" % limits["total_s"])
            if not watch.records and quiet_s > limits["start_s"]:
                raise Verdict("timeout", "no record within %g s of the start" % limits["start_s"])
            if watch.records and quiet_s > limits["progress_s"]:
                raise Verdict(
                    "timeout", "no record for %g s after %d" % (limits["progress_s"], watch.records)
                )
        return int(process.wait())

    def _sleep(self, seconds: float) -> None:
        """Until ``seconds`` have passed, or a signal came: a child that ended, a request to stop."""
        select.select([self.wake], [], [], max(0.0, seconds))
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 4096)

    def _watch_world(self) -> None:
        if free_bytes(self.dir) < LOW_BYTES:
            raise Verdict("failed", "no space left in %s" % self.dir, last=True)
        if self.work["detached"]:
            return
        with contextlib.suppress(FileNotFoundError):
            stamp = os.stat(os.path.join(self.dir, "beat")).st_mtime_ns
            if stamp != self.beat[0]:
                self.beat = (stamp, awake())
        if awake() - self.beat[1] > self.work["lost_after_s"]:
            text = "the controller was not heard of for %g s" % self.work["lost_after_s"]
            raise Verdict("stopped", text, last=True)

    def _watch_guard(self) -> None:
        """Keep a second process that ends the ranks should this one be killed with SIGKILL."""
        if self.guard is not None and os.waitpid(self.guard, os.WNOHANG)[0] == 0:
            return
        if self.guard_pipe is not None:
            os.close(self.guard_pipe)
        read_end, self.guard_pipe = os.pipe2(os.O_CLOEXEC)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the guard takes no lock
            self.guard = os.fork()
        if self.guard == 0:
            os.close(self.guard_pipe)
            self._stand_guard(read_end)
            os._exit(0)
        os.close(read_end)

    def _stand_guard(self, agent_alive: int) -> None:
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, signal.SIG_IGN)
        for each in self.attendants:  # they must see the agent's end, too
            each.drop()
        if os.read(agent_alive, 1) == b"q":
            return
        survivors = clean_up(self.run, at_once)
        self.journal.free_reserve()
        self.journal.write("agent_lost", survivors=len(survivors))
        if not survivors:
            os.ftruncate(self.lock, 0)


def keep_earlier(folder: str) -> None:
    """Logs of an earlier try at the cell are kept beside the new ones, never mixed with them."""
    logs = os.path.join(folder, "logs")
    if os.path.exists(logs):
        number = 1
        while os.path.exists(os.path.join(folder, "earlier-%d" % number)):
            number += 1
        os.rename(logs, os.path.join(folder, "earlier-%d" % number))


def write_progress(run_dir: str, cell: str, watch: Watch, seconds: float) -> None:
    with contextlib.suppress(OSError):  # on a full disk the run matters, the display does not
        write_json(
            {"cell": cell, "records": watch.records, "line": watch.line, "seconds": round(seconds, 1)},
            run_dir,
            "progress.json",
        )


def exit_status(process: "Optional[subprocess.Popen[bytes]]") -> Optional[int]:
    """Of an ended launcher; None where it was never started, or survives SIGKILL."""
    try:
        return process.wait(timeout=1) if process else None
    except subprocess.TimeoutExpired:
        return None


def free_bytes(path: str) -> int:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


# --- start ---------------------------------------------------------------------------------


def start(run_dir: str) -> int:
    """Begin the work where the end of this login cannot end it, and wait for its first word."""
    argv = [sys.executable, os.path.join(run_dir, "agent.py"), "work", run_dir]
    said = _spawn(run_dir, [*scope(os.path.basename(run_dir)), *argv]) or _spawn(run_dir, argv)
    if said == "started":
        return 0
    if said.startswith("busy"):
        if not os.path.exists(os.path.join(run_dir, "journal.jsonl")):
            shutil.rmtree(run_dir)  # a run that never began leaves nothing
        print(said.partition(" ")[2], file=sys.stderr)
        return BUSY
    print(said or "the agent did not start; see agent.log in %s" % run_dir, file=sys.stderr)
    return 1


def scope(run: str) -> List[str]:
    """What puts the agent out of reach of a login's end, where systemd may end what a login leaves.

    A user's own systemd outlives the user's logins only where it lingers; elsewhere a scope would not help.
    """
    if not os.path.isdir("/run/systemd/system"):
        return []
    words = ["systemd-run", "--quiet", "--collect", "--scope", "--unit=runkit-" + run]
    if os.geteuid() == 0:
        return words
    lingers = os.path.exists("/var/lib/systemd/linger/" + pwd.getpwuid(os.geteuid()).pw_name)
    return [*words, "--user"] if lingers else []


def _spawn(run_dir: str, argv: Sequence[str]) -> str:
    env = dict({"XDG_RUNTIME_DIR": "/run/user/%d" % os.geteuid()}, **os.environ)
    with open(os.path.join(run_dir, "agent.log"), "ab") as log:
        try:
            child = subprocess.Popen(
                argv,
                cwd=run_dir,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        except OSError:
            return ""
    assert child.stdout is not None
    return child.stdout.read().decode("utf-8", "replace")


def work(run_dir: str) -> int:
    lock = take_lock(run_dir)
    if lock is None:
        tell("busy %s" % lock_holder(run_dir).get("run", "unknown"))
        return BUSY
    dead = lock_holder(run_dir).get("run")
    if dead:  # its agent and the guard died without a word: what it left is ended first
        clean_up(dead, at_once)
    agent = Agent(run_dir, lock)
    sign_lock(lock, agent.run)
    trouble = agent.gather()
    os.write(1, (trouble or "started").encode())
    os.dup2(2, 1)  # `start` has heard enough
    if trouble:
        for each in agent.attendants:
            each.close()
        os.ftruncate(lock, 0)
        return 1
    agent.main()
    return 0


# --- follow --------------------------------------------------------------------------------


def follow(run_dir: str) -> int:
    """Print events until the agent is gone. Stdin says beat (the controller lives), stop, now; EOF ends."""
    position, shown, ended = 0, "", False
    os.set_blocking(0, False)
    while True:
        working = is_working(run_dir)  # asked before the last look at the journal, so that none is missed
        position, ended = _print_journal(run_dir, position, ended)
        shown = _print_progress(run_dir, shown)
        if not working:
            if not ended:
                _print({"event": "agent_lost"})
            return 0
        if select.select([0], [], [], 0.25)[0] and not _obey(run_dir):
            return 0


def _print_journal(run_dir: str, position: int, ended: bool) -> Tuple[int, bool]:
    with contextlib.suppress(FileNotFoundError), open(os.path.join(run_dir, "journal.jsonl"), "rb") as stream:
        stream.seek(position)
        for line in stream:
            if not line.endswith(b"\n"):
                break
            position += len(line)
            event = json.loads(line)
            ended = event["event"] in ("agent_ended", "agent_lost")
            _print(event)
    return position, ended


def _print_progress(run_dir: str, shown: str) -> str:
    try:
        with open(os.path.join(run_dir, "progress.json"), encoding="utf-8") as stream:
            text = stream.read()
    except OSError:
        return shown
    if text != shown:
        _print({"event": "progress", **json.loads(text)})
    return text


def _print(event: Dict[str, Any]) -> None:
    print(json.dumps(event), flush=True)


def _obey(run_dir: str) -> bool:
    words = os.read(0, 4096)
    for word in words.split():
        if word == b"beat":
            with open(os.path.join(run_dir, "beat"), "w", encoding="utf-8"):
                pass
            os.utime(os.path.join(run_dir, "beat"))
            _print({"event": "beat"})
        elif word in (b"stop", b"now"):
            for _ in range(1 if word == b"stop" else 2):
                signal_agent(run_dir, signal.SIGTERM)
                time.sleep(0.05)  # two signals that come as one would count once
    return bool(words)


# --- stop ----------------------------------------------------------------------------------


def stop(run_dir: str) -> int:
    """Ask, then insist, then kill; returns 0 when nothing of the run is left on this host."""
    run, asked = os.path.basename(run_dir), False
    for signum, wait_s in ((signal.SIGTERM, GRACE_S + 3), (signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
        if not is_working(run_dir):
            break
        asked = True
        _signal_all(workers(run), signum)
        _signal_all(workers(run), signal.SIGCONT)  # one that was stopped hears nothing else
        deadline = time.monotonic() + wait_s
        while is_working(run_dir) and time.monotonic() < deadline:
            time.sleep(0.05)
    left = processes_of(run)
    survivors = clean_up(run, at_once)
    if left or asked:
        print("ended")
    if survivors:
        print("processes that survive SIGKILL: %s" % " ".join(map(str, survivors)), file=sys.stderr)
    return 1 if survivors else 0


def signal_agent(run_dir: str, signum: int) -> None:
    holder = lock_holder(run_dir)
    if holder.get("run") == os.path.basename(run_dir) and is_working(run_dir):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(holder["pid"], signum)


# --- pack ----------------------------------------------------------------------------------


def close_journal(run_dir: str) -> None:
    """Where agent and guard died together (a host that lost power), the journal says so from now on."""
    journal = Journal(run_dir)
    if not os.path.exists(journal.path) or is_working(run_dir):
        return
    events = journal.mend()
    if events and events[-1]["event"] not in ("agent_ended", "agent_lost"):
        journal.write("agent_lost", survivors=len(processes_of(os.path.basename(run_dir))))


def pack(run_dir: str) -> int:
    """Write everything the run measured here to standard output, and a SHA256SUMS of exactly those bytes."""
    close_journal(run_dir)
    sums = []
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", bufsize=BLOCK) as tar:
        tar.copybufsize = BLOCK  # type: ignore[attr-defined]
        for path in sorted(_packed(run_dir)):
            name = os.path.relpath(path, run_dir)
            with open(path, "rb") as stream:
                data = _Hashing(stream, os.fstat(stream.fileno()).st_size)
                _add(tar, name, data, data.size)
            sums.append("%s  %s\n" % (data.digest.hexdigest(), name))
        for folder in sorted(glob.glob(os.path.join(glob.escape(run_dir), "cells", "*", "*", "*", ""))):
            note = "".join("%s: %s\n" % (ascii(name), why) for name, why in _left_there(folder)).encode()
            if note:
                name = os.path.relpath(os.path.join(folder, LEFT_THERE), run_dir)
                _add(tar, name, io.BytesIO(note), len(note))
                sums.append("%s  %s\n" % (hashlib.sha256(note).hexdigest(), name))
        text = "".join(sums).encode()
        _add(tar, "SHA256SUMS", io.BytesIO(text), len(text))
    return 0


def _packed(run_dir: str) -> Iterator[str]:
    for folder, folders, names in os.walk(run_dir):
        if folder == run_dir:
            folders[:] = [name for name in folders if name not in NOT_PACKED]
        skipped = NOT_PACKED if folder == run_dir else set()
        if os.path.relpath(folder, run_dir).count(os.sep) == 3:  # cells/CELL/logs/HOST, or of an earlier try
            skipped = {LEFT_THERE, *(name for name, _ in _left_there(folder))}
            folders[:] = []
        for name in names:
            path = os.path.join(folder, name)
            if name in skipped:
                continue
            if os.path.isfile(path) and not os.path.islink(path) and not name.endswith(".tmp"):
                yield path


def _left_there(folder: str) -> Iterator[Tuple[str, str]]:
    """What does not come home of a host's logs, and why: a container writes there what it likes, as root."""
    for name in sorted(os.listdir(folder)) if os.access(folder, os.R_OK | os.X_OK) else ():
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            yield name, "a folder"
        elif not LEAF.fullmatch(name):
            yield name, "its name has more than letters, digits, . _ and -"
        elif not os.access(path, os.R_OK):
            yield name, "only its owner may read it"


class _Hashing:
    """Hands out the first ``size`` bytes of a file, which may be growing, and hashes them on the way."""

    def __init__(self, stream: Any, size: int) -> None:
        self.stream, self.size, self.left = stream, size, size
        self.digest = hashlib.sha256()

    def read(self, count: int) -> bytes:
        data: bytes = self.stream.read(min(count, self.left))
        self.left -= len(data)
        self.digest.update(data)
        return data


def _add(tar: tarfile.TarFile, name: str, stream: Any, size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, int(time.time()), 0o644
    tar.addfile(member, stream)


COMMANDS = {
    "start": (start, 1),
    "work": (work, 1),
    "attend": (attend, 2),
    "follow": (follow, 1),
    "stop": (stop, 1),
    "pack": (pack, 1),
}


def main(argv: Sequence[str]) -> int:
    command, count = COMMANDS.get(argv[0] if argv else "", (None, 0))
    if command is None or len(argv) - 1 != count:
        print(__doc__, file=sys.stderr)
        return 2
    run_dir = os.path.abspath(os.path.expanduser(argv[1]))
    status: int = command(run_dir, *argv[2:])  # type: ignore[operator]
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
