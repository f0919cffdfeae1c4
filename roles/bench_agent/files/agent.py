"""The agent: works through the cells of a run on the launch host, and leaves nothing behind.

usage: agent.py start  RUN_DIR HOST    describe this host; on the launch host: take the lock, go into the
                                       background and work through the cells
       agent.py follow RUN_DIR         print the journal as it grows; read beat, stop and now from stdin
       agent.py stop   RUN_DIR         end everything the run left on this host
       agent.py pack   RUN_DIR         put what the run measured into one archive and print its path

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
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

TICK_S = 0.5  # between two looks at logs, deadlines, disk and controller
GRACE_S = 5.0  # from SIGTERM to SIGKILL
RESERVE_BYTES = 256 * 1024  # given back to a full disk, so that the journal can still say so
LOW_BYTES = 64 * 1024  # a disk with less free than this is full
SCAN_BYTES = 256 * 1024  # of new log text read per file and look; more than any record needs
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - only folders of our own are made there
BUSY = 75  # exit status of `start` when another run holds the host (EX_TEMPFAIL)
INHERITED = ("HOME", "LANG", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "TMPDIR", "USER")
NOT_PACKED = {
    *("agent.py", "agent.log", "beat", "collect.tar.gz", "host", "progress.json", "reserve", "shim.sh"),
    *("stage.pyz", "unpack.py", "work.json", "workload", "__main__.py"),
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
    for folder in [] if survivors else scratch(run):
        shutil.rmtree(folder, ignore_errors=True)
    return survivors


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
        self.beat = (0, time.monotonic())

    def _on_stop(self, *_: object) -> None:
        self.stops += 1

    def main(self) -> None:
        self.journal.write("agent_started", run=self.run, pid=os.getpid(), cells=self.work["cells"])
        reason = "done"
        try:
            self.journal.make_reserve()
            for cell in self.work["cells"]:
                if self.stops:
                    raise Verdict("stopped", "stopped on request")
                self._watch_guard()
                self._cell(cell)
        except Verdict as verdict:
            reason = verdict.reason
        except OSError as error:
            reason = "%s: %s" % (error.filename or self.dir, error.strerror)
        survivors = clean_up(self.run, at_once)  # nothing is left by now, unless an OSError cut a cell short
        self.journal.free_reserve()
        self.journal.write("agent_ended", reason=reason, survivors=len(survivors))
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
            status = self._attend(process, cell, watch, began)
            outcome, reason = "exited", "%s exited with %d" % (os.path.basename(cell["argv"][0]), status)
            if status and free_bytes(self.dir) < LOW_BYTES:
                raise Verdict("failed", "no space left in %s" % self.dir, last=True)
        except Verdict as verdict:
            outcome, reason, last = verdict.outcome, verdict.reason, verdict.last
        swept = len(processes_of(self.run))
        survivors = clean_up(self.run, lambda: self.stops > 1)
        self.journal.write(
            "cell_ended",
            cell=cell_id,
            outcome=outcome,
            reason=reason,
            status=exit_status(process),
            seconds=round(time.monotonic() - began, 3),
            swept=swept,
            survivors=len(survivors),
        )
        if last:
            raise Verdict(outcome, reason)

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

    def _attend(
        self, process: "subprocess.Popen[bytes]", cell: Dict[str, Any], watch: Watch, began: float
    ) -> int:
        """Wait for the end of the launcher; returns its status, or raises the Verdict that ends it sooner."""
        limits, last_record, looked = cell["deadlines"], None, began
        while process.poll() is None:
            self._sleep(looked + TICK_S - time.monotonic())
            if self.stops:
                raise Verdict("stopped", "stopped on request", last=True)
            now = time.monotonic()
            if now < looked + TICK_S:
                continue
            looked = now
            if watch.look():
                last_record = now
                write_progress(self.dir, cell["id"], watch, now - began)
            self._watch_guard()
            self._watch_world(now)
            if now - began > limits["total_s"]:
                raise Verdict("timeout", "not done after %g s" % limits["total_s"])
            if last_record is None and now - began > limits["start_s"]:
                raise Verdict("timeout", "no record within %g s of the start" % limits["start_s"])
            if last_record is not None and now - last_record > limits["progress_s"]:
                raise Verdict(
                    "timeout", "no record for %g s after %d" % (limits["progress_s"], watch.records)
                )
        return int(process.wait())

    def _sleep(self, seconds: float) -> None:
        """Until ``seconds`` have passed, or a signal came: a child that ended, a request to stop."""
        select.select([self.wake], [], [], max(0.0, seconds))
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 4096)

    def _watch_world(self, now: float) -> None:
        if free_bytes(self.dir) < LOW_BYTES:
            raise Verdict("failed", "no space left in %s" % self.dir, last=True)
        if self.work["detached"]:
            return
        with contextlib.suppress(FileNotFoundError):
            stamp = os.stat(os.path.join(self.dir, "beat")).st_mtime_ns
            if stamp != self.beat[0]:
                self.beat = (stamp, now)
        if now - self.beat[1] > self.work["lost_after_s"]:
            text = "the controller was not heard of for %g s" % self.work["lost_after_s"]
            raise Verdict("stopped", text, last=True)

    def _watch_guard(self) -> None:
        """Keep a second process that ends the ranks should this one be killed with SIGKILL."""
        if self.guard is not None and os.waitpid(self.guard, os.WNOHANG)[0] == 0:
            return
        if self.guard_pipe is not None:
            os.close(self.guard_pipe)
        read_end, self.guard_pipe = os.pipe2(os.O_CLOEXEC)
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


def start(run_dir: str, host: str) -> int:
    work = read_json(run_dir, "work.json")
    with open(os.path.join(run_dir, "host"), "w", encoding="utf-8") as stream:
        stream.write(host + "\n")
    write_json(facts(host, work), run_dir, "facts.json")
    if host != work["launch_host"]:
        return 0
    answer, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answer)
        os.setsid()
        if os.fork() == 0:
            _background(run_dir, tell)
        os._exit(0)
    os.close(tell)
    os.waitpid(child, 0)
    with os.fdopen(answer) as stream:
        said = stream.read()
    if said == "started":
        return 0
    if said.startswith("busy"):
        if not os.path.exists(os.path.join(run_dir, "journal.jsonl")):
            shutil.rmtree(run_dir)  # a run that never began leaves nothing
        print(said.partition(" ")[2], file=sys.stderr)
        return BUSY
    print(said or "the agent did not start; see agent.log in %s" % run_dir, file=sys.stderr)
    return 1


def _background(run_dir: str, tell: int) -> None:
    log = os.open(os.path.join(run_dir, "agent.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.chdir(run_dir)
    lock = _take_lock(run_dir)
    if lock is None:
        os.write(tell, b"busy " + str(lock_holder(run_dir).get("run", "unknown")).encode())
        os._exit(0)
    dead = lock_holder(run_dir).get("run")
    if dead:  # its agent and the guard died without a word: what it left is ended first
        clean_up(dead, at_once)
    agent = Agent(run_dir, lock)
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps({"run": agent.run, "pid": os.getpid()}).encode(), 0)
    os.write(tell, b"started")
    os.close(tell)
    agent.main()
    os._exit(0)


def _take_lock(run_dir: str) -> Optional[int]:
    for _ in range(10):  # a follower may hold it for an instant, to see whether it is free
        lock = try_lock(run_dir, fcntl.LOCK_EX)
        if lock is not None:
            return lock
        time.sleep(0.1)
    return None


def facts(host: str, work: Dict[str, Any]) -> Dict[str, Any]:
    """What this machine is; every value as the machine states it, None where it does not."""
    release = dict(_pairs("/etc/os-release", "="))
    memory = dict(_pairs("/proc/meminfo", ":")).get("MemTotal", "").split()
    models = [value for key, value in _pairs("/proc/cpuinfo", ":") if key == "model name"]
    return {
        "schema": "runkit/facts",
        "version": 1,
        "host": host,
        "hostname": platform.node(),
        "os": release.get("PRETTY_NAME"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu": models[0] if models else None,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_kib": int(memory[0]) if memory else None,
        "python": platform.python_version(),
        "mpi": _first_line([work["mpirun"], "--version"]),
    }


def _pairs(path: str, separator: str) -> Iterator[Tuple[str, str]]:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as stream:
        for line in stream:
            key, found, value = line.partition(separator)
            if found:
                yield key.strip(), value.strip().strip('"')


def _first_line(argv: Sequence[str]) -> Optional[str]:
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    try:
        done = subprocess.run(
            argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return (done.stdout.decode("utf-8", "replace").splitlines() or [""])[0].strip() or None


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
        signal_agent(run_dir, signum)
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


def settle(run_dir: str) -> None:
    """Where agent and guard died together (a host that lost power), the journal says so from now on."""
    journal = Journal(run_dir)
    if not os.path.exists(journal.path) or is_working(run_dir):
        return
    events = journal.mend()
    if events and events[-1]["event"] not in ("agent_ended", "agent_lost"):
        journal.write("agent_lost", survivors=len(processes_of(os.path.basename(run_dir))))


def pack(run_dir: str) -> int:
    """Everything the run measured here, and a SHA256SUMS of exactly the bytes that were packed."""
    settle(run_dir)
    paths = sorted(_packed(run_dir))
    folder = run_dir
    if free_bytes(run_dir) - sum(os.path.getsize(path) for path in paths) < LOW_BYTES:
        folder = scratch(os.path.basename(run_dir))[1]
        os.makedirs(folder, mode=0o700, exist_ok=True)
    archive = os.path.join(folder, "collect.tar.gz")
    sums = []
    writing = "%s.%d.tmp" % (archive, os.getpid())  # two controllers may collect at once
    with tarfile.open(writing, "w:gz", compresslevel=1) as tar:
        for path in paths:
            name = os.path.relpath(path, run_dir)
            with open(path, "rb") as stream:
                data = _Hashing(stream, os.fstat(stream.fileno()).st_size)
                _add(tar, name, data, data.size)
            sums.append("%s  %s\n" % (data.digest.hexdigest(), name))
        text = "".join(sums).encode()
        _add(tar, "SHA256SUMS", io.BytesIO(text), len(text))
    os.replace(writing, archive)
    print(archive)
    return 0


def _packed(run_dir: str) -> Iterator[str]:
    for folder, folders, names in os.walk(run_dir):
        if folder == run_dir:
            folders[:] = [name for name in folders if name not in NOT_PACKED]
        for name in names:
            path = os.path.join(folder, name)
            if folder == run_dir and name in NOT_PACKED:
                continue
            if os.path.isfile(path) and not os.path.islink(path) and not name.endswith(".tmp"):
                yield path


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


COMMANDS = {"start": (start, 2), "follow": (follow, 1), "stop": (stop, 1), "pack": (pack, 1)}


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
