"""Looks at one host and changes nothing: a table of commands, files and functions, asked all at once.

usage: python3 - REQUEST < probe.py

REQUEST is one JSON object; every key may be missing:
    peers             [{"name", "address", "port"}, ...]: the other hosts, and where their sshd listens
    name, address     of this host, as the peers know it
    is_launch         whether jobs start here; then ssh from here to each peer is tried
    mpi_ports         [port, ...]: opened here for as long as the look lasts, and tried on each peer
    look              a word that is the same on all hosts that look together
    mpirun, python    the MPI launcher and the ranks' Python that the inventory states
    data_root, agent_root   where the data sets and the runs lie
    deadline_s        what a look may take at most, and a second less than all of it together
    only              names of looks, or null for all
    gpus, rdma        false where the inventory states no such hardware: what asks for it is left out
    nccl_tests        where all_reduce_perf lies, "" for the PATH
    become            whether sudo may be asked for those that need root

Prints one JSON document, schema runkit/probe. A look that hangs costs its own deadline, a file or a function
that of all looks: what it started is killed as a group, and it is reported as "timeout". To add a look, add a
line to one of the tables below.
"""

import contextlib
import errno
import fcntl
import glob
import json
import os
import select
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

CUT = 200000  # bytes of each stream that are kept
LONG = 1000000  # ... of a look at all cards, of which one takes 14 kB
DEADLINE_S = 20.0
FILES_S = 3.0  # how long a file system may take to tell its size
MOUNTS_S = 8.0  # ... and one of a file server, which may have much to do
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "fuse", "9p", "afs")
MOST_MOUNTS = 64
MARK = b"RUNKIT_RUN="  # in the environment of every process of a run
TIME_UNITS = ("chrony", "chronyd", "systemd-timesyncd", "ntp", "ntpd", "ntpsec", "openntpd")
NAMES_S = 5.0  # how long a name may take; training would wait as long
NAME_S, NAME_TRIES = 0.5, 3  # one that takes longer is looked up again: a busy host is no slow name service
HELLO = b"runkit"  # what a peer says to the ports that are open for the looks
PAIRS_S = 9.0  # for how long they are open: hosts do not start at the same instant
SILENT_S = 3.0
LOOPBACK_S = 4.0  # two packets that are lost are sent again within it
ROUNDS = 3  # questions for the time; the shortest round trip counts
# Large packets behind that: less than a peer's kernel takes in by itself, so that a busy peer is no bad path.
BULK, BULK_S = 16384, 2.5
NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EINVAL, errno.EACCES, errno.EPERM)
SSH_S = 12.0
# As ranks' launcher logs in (rsh.sh), by no connection that is open already: that keeps the limits it had.
SSH = (
    *("-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=6"),
    *("-o", "UpdateHostKeys=no", "-o", "ControlMaster=no", "-o", "ControlPath=none"),
)
PROCESSES = "/proc/self/ns/pid"  # the same file for all processes of a machine, another in each container
SEEN = (  # by sh, since csh has no ``command``
    "sh -c 'cat /proc/self/limits; command -v mpirun; command -v orted; command -v prted;"
    " stat -L -c processes:%i " + PROCESSES + "; true'"
)
MPI_PLACES = (
    *("/usr/bin/mpirun", "/usr/local/bin/mpirun", "/usr/lib64/*mpi*/bin/mpirun"),
    *("/opt/*mpi*/bin/mpirun", "/opt/*/*mpi*/bin/mpirun", "/usr/local/*mpi*/bin/mpirun"),
    "/usr/mpi/gcc/*/bin/mpirun",
)
# What ranks load; MPI is not initialized, for that starts a daemon and writes into /tmp.
LOADED = (
    "import importlib.util as u; found = [(n, u.find_spec(n)) for n in ('numpy', 'mpi4py')]\n"
    "[print(n, s.origin) for n, s in found if s]\n"
    "import numpy, mpi4py; mpi4py.rc.initialize = False; import mpi4py.MPI"
)
SYSTEM = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"  # a login by ssh often lacks sbin
Request = Dict[str, Any]
Answer = Dict[str, Any]


class Look(NamedTuple):
    """What is asked: ``argv``, or ``function`` that returns text; its deadline, and what is kept at most."""

    argv: Tuple[str, ...]
    seconds: float = 10.0
    root: bool = False
    function: Optional[Callable[[Request], str]] = None
    most: int = CUT


class Unanswered(Exception):
    """What a function raises that has no answer: why, as in an answer."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def command(*argv: str, seconds: float = 10.0, root: bool = False, most: int = CUT) -> Look:
    """A program and its arguments; never through a shell."""
    return Look(argv, seconds, root, None, most)


def read(*paths: str, root: bool = False) -> Look:
    """Files, or patterns of files; with a pattern or several paths each is headed by ==> PATH <==."""
    return Look(("read", *paths), 5.0, root)


def function(called: Callable[[Request], str], seconds: float = 10.0) -> Look:
    """A function of this file."""
    return Look(("python", called.__name__), seconds, False, called)


# --- the operating system --------------------------------------------------------------------------


def session(request: Request) -> str:
    """What a process that ssh starts is given; sudo and service managers give other things."""
    names = ("PATH", "LD_LIBRARY_PATH", "SHELL", "HOME", "USER", "SSH_CONNECTION")
    found: Answer = {name: os.environ.get(name, "") for name in names}
    processes = os.stat(PROCESSES).st_ino if os.path.exists(PROCESSES) else 0
    return json.dumps(dict(found, uid=os.geteuid(), processes=processes))


def at_once(called: Callable[[Any], Answer], things: List[Any], until: float) -> List[Optional[Answer]]:
    """What ``called`` says of each thing, all asked at once; None for those without an answer in time."""
    answers: Dict[int, Answer] = {}

    def ask(at: int) -> None:
        answers[at] = called(things[at])

    threads = [threading.Thread(target=ask, args=(at,), daemon=True) for at in range(len(things))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return [answers.get(at) for at in range(len(things))]


def space(request: Request) -> str:
    """Bytes and inodes where a run writes to; of a folder that is not there yet, where it would be made.

    By a program each, since a file system that does not answer would hold this one.
    """
    asked = {
        "data": request.get("data_root"),
        "runs": request.get("agent_root"),
        "tmp": "/tmp",  # noqa: S108 - only looked at
        "shm": "/dev/shm",  # noqa: S108 - the same
    }
    uses = {use: os.path.expanduser(path) for use, path in asked.items() if path}
    until = time.monotonic() + FILES_S
    told = at_once(lambda path: filled(path, until), list(uses.values()), until + 1)
    found = {use: said for use, said in zip(uses, told) if said}
    for use in ("tmp", "shm"):  # of this machine alone: no file server holds these
        if use in found and os.path.isdir(uses[use]):
            found[use]["writable"] = os.access(uses[use], os.W_OK | os.X_OK)
    return json.dumps(found)


def runs_root(request: Request) -> str:
    """Where the folder of the runs is, or would be made: whether that is a folder that may be written to."""
    path = os.path.expanduser(request.get("agent_root") or "~/.runkit")
    at = path
    while not os.path.lexists(at) and at != os.path.dirname(at):
        at = os.path.dirname(at)
    said = {"folder": os.path.isdir(at), "writable": os.access(at, os.W_OK | os.X_OK)}
    return json.dumps(dict(said, path=path, at=at))


def filled(path: str, until: float) -> Answer:
    """{} where nothing is known."""
    tries = [path]
    while tries[-1] != os.path.dirname(tries[-1]):
        tries.append(os.path.dirname(tries[-1]))
    program = found("stat") or "stat"
    _, out, _ = run_until([program, "--file-system", "--format=%S %b %a %c %d %n", *tries], until)
    for line in out.splitlines():
        block, blocks, free, inodes, inodes_free, at = line.split(" ", 5)
        size = int(block)
        return {
            "path": path,
            "at": at,
            "size": size * int(blocks),
            "free": size * int(free),
            "inodes": int(inodes),
            "inodes_free": int(inodes_free),
        }
    return {}


def mounts(request: Request) -> str:
    """Whether mounts of file servers answer, each asked by a program of its own."""
    with open("/proc/self/mounts") as stream:
        rows = [line.split() for line in stream]
    remote = [row for row in rows if row[2].partition(".")[0] in REMOTE][:MOST_MOUNTS]
    seconds = max(1.0, min(MOUNTS_S, float(request.get("deadline_s") or DEADLINE_S) - 3))
    until = time.monotonic() + seconds

    def ask(row: List[str]) -> Answer:
        path = row[1].encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "replace")
        status, _, err = run_until([found("stat") or "stat", "--file-system", "--", path], until)
        return {"hangs": status is None, "error": err.strip()}

    told = at_once(ask, remote, until + 1)
    lost = {"hangs": True, "error": ""}
    shown = [dict(zip(("source", "at", "type"), row), seconds=seconds) for row in remote]
    return json.dumps([dict(row, **(said or lost)) for row, said in zip(shown, told)])


def runs(request: Request) -> str:
    """Who holds the lock of the runs, by the kernel's list of locks; processes that carry a run's mark."""
    lock = os.path.join(os.path.expanduser(request.get("agent_root") or "~/.runkit"), "lock")
    held, run = False, ""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        number = os.stat(lock).st_ino
        with open("/proc/locks") as stream:
            rows = [line.split() for line in stream]
        held = any(row[1] == "FLOCK" and row[5].endswith(":%d" % number) for row in rows)
        with open(lock) as stream:
            run = str(json.loads(stream.read(4096)).get("run") or "")
    return json.dumps({"lock": lock, "held": held, "run": run, "processes": marked()})


def marked() -> List[Answer]:
    """Processes of runs that no agent looks after, as far as this user may look at them."""
    rows, attended = [], set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open("/proc/%s/cmdline" % pid, "rb") as stream:
                said = stream.read(CUT).decode("utf-8", "replace").split("\0")
            for program, word in zip(said, said[1:]):
                if program.endswith("/agent.py") and word in ("work", "attend"):
                    attended.add(os.path.basename(os.path.dirname(program)))
            with open("/proc/%s/environ" % pid, "rb") as stream:
                words = stream.read(CUT).split(b"\0")
            of = [word[len(MARK) :].decode("utf-8", "replace") for word in words if word.startswith(MARK)]
            if of:
                with open("/proc/%s/comm" % pid) as stream:
                    rows.append({"pid": int(pid), "name": stream.read().strip(), "run": of[0]})
    return [row for row in rows if row["run"] not in attended][:200]


DPKG = "/var/lib/dpkg"
AT_REST = ("installed", "config-files", "not-installed", "triggers-awaited", "triggers-pending")


def half_installed(request: Request) -> str:
    """Packages that dpkg began with and did not finish, and its steps that are only in its journal."""
    found, name = [], ""
    try:
        with open(DPKG + "/status", encoding="utf-8", errors="replace") as stream:
            for line in stream:
                key, _, value = line.partition(":")
                if key == "Package":
                    name = value.strip()
                elif key == "Status" and (value.split()[-1:] or [""])[0] not in AT_REST:
                    found.append("%s: %s" % (name, value.strip()))
        steps = [each for each in os.listdir(DPKG + "/updates") if each.isdigit()]
    except FileNotFoundError as error:
        raise Unanswered("missing") from error
    return json.dumps({"packages": found[:50], "journal": len(steps)})


def looks_os(request: Request) -> Dict[str, Look]:
    return {
        "session": function(session),
        "os_release": read("/etc/os-release"),
        "kernel": command("uname", "-srvm"),
        "limits": read("/proc/self/limits"),
        "meminfo": read("/proc/meminfo"),
        "service_limits": command("systemctl", "show", "--property=DefaultLimitMEMLOCK"),
        "container": command("systemd-detect-virt", "--container"),
        "time_units": command("systemctl", "is-active", *TIME_UNITS),
        "time_state": command("timedatectl", "show"),
        "selinux": read("/sys/fs/selinux/enforce"),
        "apparmor": read("/sys/module/apparmor/parameters/enabled"),
        "space": function(space),
        "runs_root": function(runs_root),
        "mounts": function(mounts),
        "runs": function(runs),
        "half_installed": function(half_installed),
    }


# --- names, interfaces, connections ----------------------------------------------------------------


def names(request: Request) -> str:
    """What the names of all hosts mean here, and how long that took; and this host's own name."""
    wanted = [peer["name"] for peer in request.get("peers") or ()]
    wanted += [name for name in (request.get("name"), socket.gethostname()) if name and name not in wanted]
    until = time.monotonic() + NAMES_S
    # A try that is late leaves what there is here.
    told: Dict[str, Answer] = {
        name: {"addresses": [], "error": "no answer", "seconds": NAMES_S} for name in wanted
    }

    def ask(name: str) -> Answer:
        for _ in range(NAME_TRIES):
            tries = told[name], looked_up(name)
            told[name] = min(tries, key=lambda said: (not said["addresses"], said["seconds"]))
            if told[name]["seconds"] <= NAME_S or time.monotonic() > until:
                break
        return {}

    at_once(ask, wanted, until)
    return json.dumps(told)


def looked_up(name: str) -> Answer:
    began, error = time.monotonic(), ""
    addresses: List[str] = []
    try:
        addresses = sorted({str(row[4][0]) for row in socket.getaddrinfo(name, None, socket.AF_INET)})
    except OSError as problem:
        error = problem.strerror or str(problem)
    return {"addresses": addresses, "error": error, "seconds": round(time.monotonic() - began, 3)}


def loopback(request: Request) -> str:
    """What is in the way of this host's connections to itself, by address; its processes talk so."""
    own = ["127.0.0.1", str(request.get("address") or "")]
    told = at_once(
        to_itself, [address for address in own if is_address(address)], time.monotonic() + LOOPBACK_S + 1
    )
    return json.dumps([said for said in told if said])


def is_address(text: str) -> bool:
    try:
        socket.inet_aton(text)
    except OSError:
        return False
    return True


def to_itself(address: str) -> Answer:
    """{} where it opens, or where the address is a router's."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        try:
            listener.bind((address, 0))
            listener.listen(1)
        except OSError:
            return {}
        try:
            socket.create_connection(listener.getsockname(), timeout=LOOPBACK_S).close()
        except OSError as error:
            return {"address": address, "error": error.strerror or str(error)}
    return {}


class Door:
    """A port that is open for the looks of the peers: it tells each the time, and remembers who came.

    It tells the peers of its own look, too, which ports of this host could not be opened, so that none waits
    for them: for a minute after a run that is so of the ports its ranks listened on.
    """

    def __init__(self, address: str, port: int, look: str = "") -> None:
        self.heard: Set[str] = set()
        self.look = look.encode()
        self.error, self.shut = "", b""
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind(address, port)
            self.listener.listen(128)
        except OSError as error:
            self.error = error.strerror or str(error)

    def start(self, shut: Iterable[int] = ()) -> None:
        self.shut = b"".join(b" %d" % port for port in shut)
        threading.Thread(target=self.serve, daemon=True).start()

    def bind(self, address: str, port: int) -> None:
        """To the address that the peers know; to all if it is a router's, or a name: that may be loopback."""
        try:
            self.listener.bind((address if is_address(address) else "", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                raise
            self.listener.bind(("", port))

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.tell, args=(connection,), daemon=True).start()

    def tell(self, connection: socket.socket) -> None:
        """The time for each line, three times at most; who is silent has seconds: it may be very busy.

        Who comes from another doctor's look is told as well, and does not count as heard. What follows is
        taken until it ends: a connection closed over unread data would be reset.
        """
        with contextlib.suppress(OSError), connection:
            connection.settimeout(SILENT_S)
            for _ in range(ROUNDS):
                words = connection.recv(300).split()
                if words[:1] != [HELLO] or len(words) not in (2, 3):
                    return
                ours = b"".join(words[2:]) == self.look
                connection.sendall(b"%s %.6f%s\n" % (HELLO, time.time(), self.shut if ours else b""))
                if ours:
                    self.heard.add(words[1].decode("utf-8", "replace"))
            connection.settimeout(BULK_S)
            while connection.recv(BULK):
                pass


def pairs(request: Request) -> str:
    """A real connection to each peer on each port, while the peers try this host: firewall, and clocks.

    All hosts do this at about the same time. It ends as soon as all have met; else when the time is over.
    """
    peers, ports = request.get("peers") or [], request.get("mpi_ports") or []
    look, began = str(request.get("look") or ""), time.monotonic()
    own = "%s %s" % (request.get("name") or socket.gethostname(), look)
    until = began + max(1.0, min(PAIRS_S, float(request.get("deadline_s") or DEADLINE_S) - 3))
    doors = {port: Door(str(request.get("address") or ""), port, look) for port in ports} if peers else {}
    doctor = any(door.error for door in [*doors.values()][:1]) and is_doctor(request, ports[0])
    open_doors = [door for door in doors.values() if not door.error]
    for door in open_doors:
        door.start(port for port in doors if doors[port].error)
    # A try that is late leaves its row as it is here: it did not reach the port.
    reached: Dict[str, Dict[int, Answer]] = {
        peer["name"]: {port: {"open": False, "said": {}} for port in ports} for peer in peers
    }
    shut: Dict[str, Set[int]] = {peer["name"]: set() for peer in peers}  # as they say themselves

    def is_shut(pair: Tuple[Dict[str, Any], int]) -> bool:
        return not reached[pair[0]["name"]][pair[1]]["open"]

    def meet(pair: Tuple[Dict[str, Any], int]) -> Answer:
        peer, port = pair
        said = reach(own, peer["address"], port, until, shut[peer["name"]])
        if said["open"] or not reached[peer["name"]][port]["said"]:
            reached[peer["name"]][port] = said
        return {}

    ways = [(peer, port) for peer in peers for port in ports]
    at_once(meet, ways, until + 0.5)
    while time.monotonic() < until and any(reached.keys() - door.heard for door in open_doors):
        time.sleep(0.02)
    # Who came may have opened its own ports behind the last try.
    heard = {name for door in open_doors for name in door.heard}
    until += 1
    at_once(meet, [way for way in ways if is_shut(way) and way[0]["name"] in heard], until + 0.2)
    told = {
        "seconds": round(time.monotonic() - began, 3),
        "doctor": doctor,
        "ports": {port: door.error for port, door in doors.items()},
        "heard": {port: sorted(door.heard) for port, door in doors.items()},
        "reached": {name: dict(rows) for name, rows in reached.items()},
    }
    for door in doors.values():
        door.listener.close()
    return json.dumps(told)


def is_doctor(request: Request, port: int) -> bool:
    """Whether a port of this host is another doctor's, which looks at the same moment."""
    with contextlib.suppress(OSError):
        where = str(request.get("address") or "127.0.0.1"), port
        with socket.create_connection(where, timeout=0.5) as connection:
            return "offset" in clock("another", connection, set())
    return False


def reach(own: str, address: str, port: int, until: float, shut: Set[int]) -> Answer:
    """Try until it is reached, the time is over, or the peer has told on another port that this one is shut.

    ``said`` counts what the failed tries said. ``here`` is there where this host's own kernel has no way to
    it, ``stalled`` where it was reached.
    """
    said: Dict[str, int] = {}
    here: Answer = {}
    pause = 0.1
    while True:
        left = until - time.monotonic()
        if left <= 0 or port in shut:
            return dict({"open": False, "said": said}, **here)
        try:
            with socket.create_connection((address, port), timeout=min(1.0, left)) as connection:
                told = clock(own, connection, shut)
                more = large(connection, until) if told else {}
                return dict({"open": True, "said": said}, **told, **more)
        except OSError as error:
            here = no_way(address, port) if error.errno in NO_WAY else {}
            why = "timed out" if isinstance(error, socket.timeout) else error.strerror or str(error)
            said[why] = said.get(why, 0) + 1
        time.sleep(max(0.0, min(pause, until - time.monotonic())))
        pause = min(0.5, pause * 2)


def clock(own: str, connection: socket.socket, shut: Set[int]) -> Answer:
    """How many seconds the peer's clock is ahead, and how wrong that may be: half of the round trip.

    The ports that it says it could not open are added to those that are ``shut``.
    """
    best: Answer = {}
    with contextlib.suppress(OSError, ValueError):
        connection.settimeout(1.0)
        for _ in range(ROUNDS):
            before = time.time()
            connection.sendall(b"%s %s\n" % (HELLO, own.encode()))
            hello, there, *others = connection.recv(300).split()
            after = time.time()
            if hello != HELLO:
                break
            error = (after - before) / 2
            if 0 <= error < best.get("error", 60.0):
                best = {"offset": float(there) - before - error, "error": error}
            shut.update(int(port) for port in others)
    return best


def large(connection: socket.socket, until: float) -> Answer:
    """Whether large packets stay on the way: {"stalled": ...}, {} where that is not known.

    The kernels alone decide it: what the peer's has not acknowledged still waits in this one.
    """
    end = time.monotonic() + BULK_S
    with contextlib.suppress(OSError):
        connection.setblocking(False)
        if end > until or not connection.send(bytes(BULK)):
            return {}
        while True:
            (waits,) = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, b"\0" * 4))
            if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return {}
            if not waits or time.monotonic() > end:
                return {"stalled": bool(waits)}
            time.sleep(0.005)
    return {}


def no_way(address: str, port: int) -> Answer:
    """What the own kernel says where it has no route there; such a socket sends nothing."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tried:
            tried.connect((address, port))
    except socket.gaierror:
        return {}
    except OSError as error:
        return {"here": error.strerror or str(error)} if error.errno in NO_WAY else {}
    return {}


def ssh(request: Request) -> str:
    """On the launch host: log in to each peer as the launcher of ranks does; see what a rank would have."""
    peers = request.get("peers") or [] if request.get("is_launch") else []
    until, program = time.monotonic() + SSH_S, found("ssh")

    def log_in(peer: Dict[str, Any]) -> Answer:
        words = [program or "ssh", *SSH, "--", peer["address"], SEEN]
        status, out, err = run_until(words, until) if program else (127, "", "ssh is not installed")
        return {"status": status, "out": out[:4000], "err": err[-2000:], "port": peer.get("port")}

    told = at_once(log_in, peers, until + 1)
    late = {"status": None, "out": "", "err": "", "port": None}
    return json.dumps({peer["name"]: said or late for peer, said in zip(peers, told)})


def looks_net(request: Request) -> Dict[str, Look]:
    return {
        "interfaces": command("ip", "-json", "-4", "address"),
        "names": function(names),
        "nsswitch": read("/etc/nsswitch.conf"),
        "loopback": function(loopback, LOOPBACK_S + 2),
        "pairs": function(pairs, PAIRS_S + 3),
        "ssh": function(ssh, SSH_S + 3),
    }


# --- MPI -------------------------------------------------------------------------------------------


def mpi(request: Request) -> str:
    """Where the launcher is that the inventory states, its version, and others that are there."""
    stated = str(request.get("mpirun") or "mpirun")
    on_path = shutil.which(stated)
    others = sorted(path for pattern in MPI_PLACES for path in glob.glob(pattern))
    until = time.monotonic() + FILES_S
    asked = list(dict.fromkeys(path for path in (on_path, *others) if path and os.access(path, os.X_OK)))[:8]

    def version(path: str) -> Answer:
        status, out, err = run_until([path, "--version"], until)
        return {"path": os.path.realpath(path), "status": status, "says": (out or err).strip()[:300]}

    told = dict(zip(asked, at_once(version, asked, until + 1)))
    daemon = shutil.which("orted") or shutil.which("prted")
    return json.dumps({"stated": stated, "path": on_path, "daemon": daemon, "versions": told})


def looks_mpi(request: Request) -> Dict[str, Look]:
    python = str(request.get("python") or "python3")
    return {"mpi": function(mpi), "python_packages": command(python, "-B", "-c", LOADED)}


# --- accelerators ----------------------------------------------------------------------------------


DRIVER = "/proc/driver/nvidia/version"  # there where the module is loaded
SMI_S = 18.0  # without persistence mode the driver wakes one card after the other
DRIVER_PACKAGES = ("*nvidia*", "cuda-drivers*")
MODULES = ("nvidia", "nvidia-current", "nvidia-current-open")  # Debian gives its own names to what it builds
LOCKS = (
    *("/etc/apt/preferences.d/*", "/etc/dnf/plugins/versionlock.*", "/etc/dnf/versionlock.toml"),
    "/etc/zypp/locks",
)
# Of cards and switches; without faults of programs, of which one can leave thousands.
FAULTS = r"NVRM: Xid \([^)]*\): (?!(?:13|31|43|45)\b)|SXid \([^)]*\): \d+, Fatal"
NVIDIA, BRIDGE = "0x10de", 0x0604
SECOND_PART, ACS = 0x100, 0x000D  # of a PCI device's configuration: where its extended capabilities begin


def nvidia_pci(request: Request) -> str:
    """The devices of vendor NVIDIA, one a line: address, class, device, kind of IOMMU group if in one."""
    lines = []
    for folder in sorted(glob.glob("/sys/bus/pci/devices/*")):
        if first_line(folder + "/vendor") == NVIDIA:
            kind, number = (first_line(folder + "/" + name) for name in ("class", "device"))
            group = first_line(folder + "/iommu_group/type")
            lines.append(" ".join((os.path.basename(folder), kind, number, group)).rstrip())
    return "\n".join(lines)


def module_installed(request: Request) -> str:
    """The version of NVIDIA's module that would be loaded, "" where none is installed."""
    for name in MODULES:
        look = command("modinfo", "-F", "version", name)
        said = run(look, look.argv, request, time.monotonic() + 3)
        if said["why"]:
            raise Unanswered(said["why"])
        if said["status"] == 0 and said["out"].strip():
            return str(said["out"])
    return ""


def acs(request: Request) -> str:
    """The bridges that have Access Control Services, with what of it is on; reading them takes root."""
    return json.dumps(acs_controls(request, sorted(glob.glob("/sys/bus/pci/devices/*"))))


def acs_controls(request: Request, folders: List[str]) -> Dict[str, int]:
    """The control registers of those of these devices that are bridges and have the capability."""
    bridges = [
        folder
        for folder in folders
        if int(first_line(folder + "/class") or "0", 16) >> 8 == BRIDGE
        and os.stat(folder + "/config").st_size > SECOND_PART
    ]
    controls = {}
    for start in range(0, len(bridges), 12):  # what one program prints is cut
        some = bridges[start : start + 12]
        look = command("od", "-An", "-v", "-tx1", "-w4096", *(each + "/config" for each in some), root=True)
        said = run(look, look.argv, request, time.monotonic() + 4)
        if said["why"]:
            raise Unanswered(said["why"])
        for folder, line in zip(some, said["out"].splitlines()):
            control = acs_control(bytes.fromhex(line.replace(" ", "")))
            if control is not None:
                controls[os.path.basename(folder)] = control
    return controls


def acs_control(config: bytes) -> Optional[int]:
    """The control register of Access Control Services, None where the device has no such capability."""
    at = SECOND_PART
    for _ in range(64):  # a chain that bites its tail ends here
        if not SECOND_PART <= at <= len(config) - 8:
            break
        head = int.from_bytes(config[at : at + 4], "little")
        if head & 0xFFFF == ACS:
            return int.from_bytes(config[at + 6 : at + 8], "little")
        at = head >> 20
    return None


def first_line(path: str) -> str:
    """The first line of a file, "" where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(4096).decode("utf-8", "replace").partition("\n")[0].strip()
    except OSError:
        return ""


def nccl_tests(request: Request) -> str:
    """Where all_reduce_perf of NVIDIA's nccl-tests lies."""
    program = found(str(request.get("nccl_tests") or "all_reduce_perf"))
    if program is None:
        raise Unanswered("missing")
    return program


def looks_gpu(request: Request) -> Dict[str, Look]:
    if not request.get("gpus", True):
        return {}
    form = "${db:Status-Abbrev} ${Package} ${Version}\\n"
    apps = "--query-compute-apps=pid,process_name,used_gpu_memory"
    seen = ("--no-pager", "--quiet", "--lines=200", "--output=cat", "--grep=" + FAULTS)
    return {
        "gpu_query": command("nvidia-smi", "-q", seconds=SMI_S, most=LONG),
        "gpu_processes": command("nvidia-smi", apps, "--format=csv", seconds=SMI_S),
        "gpu_topology": command("nvidia-smi", "topo", "-m", seconds=SMI_S),
        "gpu_nvlink": command("nvidia-smi", "nvlink", "-s", seconds=SMI_S),
        "gpu_module": read(DRIVER),
        "gpu_module_installed": function(module_installed),
        "gpu_pci": function(nvidia_pci),
        "gpu_xid": command("journalctl", "--dmesg", "--boot", *seen, root=True),
        "gpu_packages_deb": command("dpkg-query", "--show", "--showformat=" + form, *DRIVER_PACKAGES),
        "gpu_packages_rpm": command("rpm", "-qa", "--qf", "%{NAME} %{VERSION}\\n", *DRIVER_PACKAGES),
        "gpu_locks": read(*LOCKS),
        "gpu_fabric_manager": command("systemctl", "is-active", "nvidia-fabricmanager"),
        "gpu_acs": function(acs),
        "gpu_nccl_tests": function(nccl_tests),
        "kernel_modules": read("/proc/modules"),
        "kernel_command_line": read("/proc/cmdline"),
    }


# --- RDMA ------------------------------------------------------------------------------------------


PORT = ("state", "phys_state", "rate", "link_layer")
GIDS = 64  # entries of a port's table that are looked at; the kernel keeps unused ones as zeroes


def rdma_ports(request: Request) -> str:
    """Every port of every RDMA device, by its name such as mlx5_0/1, with its GIDs that are not zero."""
    ports = {}
    for folder in sorted(glob.glob("/sys/class/infiniband/*/ports/*")):
        device, number = folder.split("/")[4], os.path.basename(folder)
        said = {name: first_line(folder + "/" + name) for name in PORT}
        for name in ("fw_ver", "board_id"):
            said[name] = first_line("/sys/class/infiniband/%s/%s" % (device, name))
        ports["%s/%s" % (device, number)] = dict(said, gids=gids(folder))
    return json.dumps(ports)


def gids(port: str) -> List[Dict[str, Any]]:
    found = []
    for index in range(GIDS):
        gid = first_line("%s/gids/%d" % (port, index))
        if gid.strip("0:"):
            kind, device = (first_line("%s/gid_attrs/%s/%d" % (port, x, index)) for x in ("types", "ndevs"))
            found.append({"index": index, "gid": gid, "type": kind, "device": device})
    return found


def peer_memory(request: Request) -> str:
    """Whether nvidia_peermem (or its forerunner nv_peer_mem) is loaded, and the kernel has what it needs."""
    with open("/proc/modules") as stream:
        loaded = [line.split(" ", 1)[0] for line in stream]
    with open("/proc/kallsyms") as stream:
        symbol = any("ib_register_peer_memory_client" in line for line in stream)
    modules = [name for name in loaded if name in ("nvidia_peermem", "nv_peer_mem")]
    return json.dumps({"modules": modules, "symbol": symbol})


def looks_rdma(request: Request) -> Dict[str, Look]:
    if not request.get("rdma", True):
        return {}
    return {"rdma_ports": function(rdma_ports), "rdma_peer_memory": function(peer_memory)}


# --- containers ------------------------------------------------------------------------------------


# Names of images for cards. First those that train: others may have no shell, or ask for a newer driver.
LIKELY = ("runkit/", "torch", "tensorflow", "paddle", "mxnet", "mmseg", "cuda", "nvidia")
# What every container of the workloads is started with (workloads/*.yml), and what is asked inside.
AS_TRAINING = ("--gpus", "all", "--ipc=host", "--ulimit", "memlock=-1", "--ulimit", "stack=67108864")
VERBS = ("/usr/lib*", "/usr/lib/*", "/usr/local/lib*", "/opt/conda/lib", "/opt/*/lib*")  # libibverbs' places
INSIDE = "cat /proc/self/limits; df -k /dev/shm; echo libibverbs:; ls -d %s 2>/dev/null; nvidia-smi -L" % (
    " ".join(folder + "/libibverbs.so.1.*" for folder in VERBS)
)


def container_ways(request: Request) -> str:
    """How an engine can give cards to containers: files that describe them (CDI), and the toolkit's hook."""
    files = []
    for path in sorted(glob.glob("/etc/cdi/*") + glob.glob("/var/run/cdi/*")):
        with open(path, "rb") as stream:
            if b"nvidia.com/gpu" in stream.read(1000000):
                files.append(path)
    return json.dumps({"cdi": files, "hook": found("nvidia-container-runtime-hook")})


def container_start(request: Request) -> str:
    """Start a container on the cards, of an image that lies here already, and look around in it.

    Tried only where NVIDIA's kernel module is loaded. Nothing is fetched, nothing stays behind.
    """
    if not os.path.exists(DRIVER) or not found("docker"):
        raise Unanswered("missing")
    listed = docker(request, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}")
    if listed["status"] != 0:
        raise Unanswered(listed["why"] or "missing")
    images = [name for name in listed["out"].split() if "<none>" not in name]
    image = next((name for word in LIKELY for name in images if word in name), None)
    if image is None:
        return json.dumps({"image": None, "images": len(images)})
    name = "runkit-doctor-%d" % os.getpid()
    options = ("--rm", "--pull", "never", "--network", "none", "--name", name, *AS_TRAINING)
    most = float(request.get("deadline_s") or DEADLINE_S) - 8
    said = docker(request, "run", *options, "--entrypoint", "sh", image, "-c", INSIDE, seconds=most)
    if said["why"] == "timeout":  # the client is gone, its container may not be
        docker(request, "rm", "--force", name)
        raise Unanswered("timeout")  # be it that cards take long to wake: that is no fault of the engine
    return json.dumps({"image": image, **{key: said[key] for key in ("status", "out", "err")}})


def docker(request: Request, *words: str, seconds: float = 4) -> Answer:
    look = command("docker", *words)
    return run(look, look.argv, request, time.monotonic() + seconds)


def looks_container(request: Request) -> Dict[str, Look]:
    if not request.get("gpus", True):
        return {}
    return {
        "docker_info": command("docker", "info", "--format", "{{json .}}"),
        "container_ways": function(container_ways),
        "container_start": function(container_start, seconds=30),
    }


SECTIONS = (looks_os, looks_net, looks_mpi, looks_gpu, looks_rdma, looks_container)


def table(request: Request) -> Dict[str, Look]:
    """Every look by its name, or those that are asked for."""
    found = {name: look for section in SECTIONS for name, look in section(request).items()}
    only = request.get("only")
    return found if only is None else {name: found[name] for name in found if name in only}


# --- how a look is taken ---------------------------------------------------------------------------

_groups: Dict[int, "subprocess.Popen[bytes]"] = {}  # what runs now, by process group


def taken(look: Look, request: Request, deadline: float) -> Answer:
    """The answer of one look; it is back by ``deadline``, of the monotonic clock, or little later."""
    if look.function is not None:
        try:
            return answer(look.argv, 0, look.function(request))
        except Unanswered as gone:
            return answer(look.argv, None, why=gone.why)
    if look.argv[0] == "read":
        return read_files(look, request, deadline)
    return run(look, look.argv, request, deadline)


def answer(
    argv: Tuple[str, ...], status: Optional[int], out: str = "", err: str = "", why: Optional[str] = None
) -> Answer:
    return {"argv": list(argv), "status": status, "out": out[:CUT], "err": err[:CUT], "why": why}


def read_files(look: Look, request: Request, deadline: float) -> Answer:
    """Every file that the patterns match."""
    patterns = look.argv[1:]
    paths = [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    if not paths:
        return answer(look.argv, None, why="missing")
    if look.root and os.geteuid() != 0:
        return run(look, ("head", "-v", "-c", str(CUT), *paths), request, deadline)
    texts, errors, denied = [], [], 0
    for path in paths:
        try:
            with open(path, "rb") as stream:
                text = stream.read(CUT).decode("utf-8", "replace")
        except OSError as error:
            errors.append("%s: %s" % (path, error.strerror))
            denied += isinstance(error, PermissionError)
        else:
            texts.append(text if list(patterns) == paths[:1] else "==> %s <==\n%s\n" % (path, text))
    if not texts:
        why = "needs root" if denied else None
        return answer(look.argv, None if denied else 1, "", "\n".join(errors), why)
    return answer(look.argv, 0, "".join(texts), "\n".join(errors))


def run(look: Look, argv: Tuple[str, ...], request: Request, deadline: float) -> Answer:
    """Run a program in a session of its own, which is killed as a whole."""
    program = found(argv[0])
    if program is None:
        return answer(look.argv, None, why="missing")
    words: List[str] = [program, *argv[1:]]
    if look.root and os.geteuid() != 0:
        sudo, timeout = found("sudo"), found("timeout")
        if not (request.get("become") and sudo and timeout):
            return answer(look.argv, None, why="needs root")
        # What root runs can only be killed by root.
        words = [sudo, "-n", timeout, "-s", "KILL", "%.1f" % (deadline - time.monotonic()), *words]
    status, out, err = run_until(words, deadline, look.most)
    if len(words) > len(argv) and status == 1 and "sudo:" in err and not out:
        return answer(look.argv, None, "", err, "needs root")
    late = status is None or (len(words) > len(argv) and status in (137, -9))
    said = answer(look.argv, None if late else status, "", err, "timeout" if late else None)
    return dict(said, out=out)


def found(program: str) -> Optional[str]:
    """Where a program lies: in the PATH, or where the system keeps its own."""
    if "/" in program:
        return program if os.access(program, os.X_OK) and os.path.isfile(program) else None
    for folder in (os.environ.get("PATH", "") + ":" + SYSTEM).split(":"):
        path = os.path.join(folder, program)
        if folder and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def run_until(words: List[str], deadline: float, most: int = CUT) -> Tuple[Optional[int], str, str]:
    """The exit status, None where it did not end in time, and what it wrote until then."""
    environment = dict(os.environ, LC_ALL="C", LANGUAGE="C", TERM="dumb")
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return 126, "", "%s: %s" % (words[0], error.strerror)
    _groups[child.pid] = child
    try:
        in_time, out, err = drain(child, deadline, most)
    finally:
        kill(child)
        _groups.pop(child.pid, None)
    return child.returncode if in_time else None, text_of(out), text_of(err)


def text_of(kept: bytearray) -> str:
    return bytes(kept).decode("utf-8", "replace")


def drain(child: "subprocess.Popen[bytes]", deadline: float, most: int) -> Tuple[bool, bytearray, bytearray]:
    """Whether a program ends in time, and what it writes; what it leaves running is not waited for."""
    kept = (bytearray(), bytearray())
    with contextlib.ExitStack() as open_now:
        waiting = open_now.enter_context(selectors.DefaultSelector())
        for stream, into in zip((child.stdout, child.stderr), kept):
            assert stream is not None
            waiting.register(open_now.enter_context(stream), selectors.EVENT_READ, into)
        while time.monotonic() < deadline:
            last = ended(child)
            ready = waiting.select(0 if last else 0.05)
            for key, _ in ready:
                block = os.read(key.fd, 65536)
                key.data.extend(block[: max(0, most - len(key.data))])
                if not block:
                    waiting.unregister(key.fileobj)
            if last and not ready:
                break
            if not waiting.get_map():  # it has closed both: it ends, or works on in silence
                time.sleep(0.002)
        return (ended(child), *kept)  # asked while its output is open: closing it may end the program


def ended(child: "subprocess.Popen[bytes]") -> bool:
    """Whether it has; its number stays taken until ``kill``, so that no other group can have it."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill(child: "subprocess.Popen[bytes]") -> None:
    """End what a look started. What cannot be killed, such as a wait for a dead disk, is left behind."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.5)


# --- all of them -----------------------------------------------------------------------------------


def look_at_all(request: Request) -> Dict[str, Answer]:
    """Take every look at once; each is answered, be it by "timeout"."""
    start, most = time.monotonic(), float(request.get("deadline_s") or DEADLINE_S)
    looks = table(request)
    answers: Dict[str, Answer] = {}

    def take(name: str, look: Look) -> None:
        began = time.monotonic()
        try:
            given = taken(look, request, began + min(look.seconds, most - 1))
        except Exception as error:  # one look that fails must not take the others along
            given = answer(look.argv, 1, "", "%s: %s" % (type(error).__name__, error))
        answers[name] = dict(given, seconds=round(time.monotonic() - began, 3))

    threads = [threading.Thread(target=take, args=each, daemon=True) for each in looks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, start + most - time.monotonic()))
    seconds = round(time.monotonic() - start, 3)
    for name, look in looks.items():
        answers.setdefault(name, dict(answer(look.argv, None, why="timeout"), seconds=seconds))
    return {name: answers[name] for name in looks}


def end_all(signum: int, frame: object) -> None:
    for child in list(_groups.values()):
        kill(child)
    os._exit(128 + signum)


def end_with_reader() -> None:
    """End where nobody reads what this prints: who asked is gone, and ssh without a terminal tells nobody."""
    watched = select.poll()
    watched.register(1, 0)
    watched.poll()
    end_all(signal.SIGHUP, None)


def main(argv: List[str]) -> int:
    threading.Thread(target=end_with_reader, daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end_all)
    try:
        request = json.loads(argv[1]) if len(argv) > 1 else {}
    except ValueError as error:
        sys.stderr.write("probe: the request is not JSON: %s\n" % error)
        return 2
    began, start = time.time(), time.monotonic()
    probes = look_at_all(request)
    document = {
        "schema": "runkit/probe",
        "version": 1,
        "hostname": socket.gethostname(),
        "seconds": round(time.monotonic() - start, 3),
        "began": began,  # seconds since 1970 by this host's clock
        "ended": time.time(),
        "probes": probes,
    }
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()
    for child in list(_groups.values()):
        kill(child)
    os._exit(0)  # not waiting for threads that hang


if __name__ == "__main__":
    sys.exit(main(sys.argv))
