"""Looks at one host and changes nothing: a table of commands, files and functions, asked all at once.

usage: python3 - REQUEST < probe.py

REQUEST is one JSON object; every key may be missing:
    peers             [{"name", "address", "port"}, ...]: the other hosts, and where their sshd listens
    mpi_ports         [port, ...]: tried on each peer
    interfaces_cidr   "10.0.0.0/24": the network that the ranks talk over
    interface         the interface that the inventory states for it
    mpirun            the MPI launcher that the inventory states
    deadline_s        what a look may take at most, and a second less than all of it together
    only              names of looks, or null for all
    gpus, rdma        false where the inventory states no such hardware: what asks for it is left out
    become            whether sudo may be asked for those that need root

Prints one JSON document, schema runkit/probe. A look that hangs costs its own deadline: what it started is
killed as a group, and it is reported as "timeout". To add a look, add a line to one of the tables below.
"""

import contextlib
import glob
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

CUT = 200000  # bytes of each stream that are kept
DEADLINE_S = 20.0
SYSTEM = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"  # a login by ssh often lacks sbin
Request = Dict[str, Any]
Answer = Dict[str, Any]


class Look(NamedTuple):
    """What is asked: ``argv``, or ``function`` that returns text. ``seconds`` is its deadline."""

    argv: Tuple[str, ...]
    seconds: float = 10.0
    root: bool = False
    function: Optional[Callable[[Request], str]] = None


class Unanswered(Exception):
    """What a function raises that has no answer: why, as in an answer."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def command(*argv: str, seconds: float = 10.0, root: bool = False) -> Look:
    """A program and its arguments; never through a shell."""
    return Look(argv, seconds, root)


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
    return json.dumps({**{name: os.environ.get(name, "") for name in names}, "uid": os.geteuid()})


def looks_os(request: Request) -> Dict[str, Look]:
    return {
        "session": function(session),
        "os_release": read("/etc/os-release"),
        "kernel": command("uname", "-srvm"),
        "limits": read("/proc/self/limits"),
    }


# --- names, interfaces, connections ----------------------------------------------------------------


def looks_net(request: Request) -> Dict[str, Look]:
    return {}


# --- MPI -------------------------------------------------------------------------------------------


def looks_mpi(request: Request) -> Dict[str, Look]:
    return {}


# --- accelerators ----------------------------------------------------------------------------------


DRIVER_PACKAGES = ("*nvidia*", "cuda-drivers*")
LOCKS = ("/etc/apt/preferences.d/*", "/etc/dnf/plugins/versionlock.*", "/etc/dnf/versionlock.toml")
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


def acs(request: Request) -> str:
    """The bridges that have Access Control Services, with what of it is on; reading them takes root."""
    bridges = [
        folder
        for folder in sorted(glob.glob("/sys/bus/pci/devices/*"))
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
    return json.dumps(controls)


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


def looks_gpu(request: Request) -> Dict[str, Look]:
    if not request.get("gpus", True):
        return {}
    form = "${db:Status-Abbrev} ${Package} ${Version}\\n"
    apps = "--query-compute-apps=pid,process_name,used_gpu_memory"
    seen = ("--no-pager", "--quiet", "--lines=200", "--output=cat", "--grep=NVRM: Xid")
    return {
        "gpu_query": command("nvidia-smi", "-q"),
        "gpu_processes": command("nvidia-smi", apps, "--format=csv"),
        "gpu_topology": command("nvidia-smi", "topo", "-m"),
        "gpu_nvlink": command("nvidia-smi", "nvlink", "-s"),
        "gpu_module": read("/proc/driver/nvidia/version"),
        "gpu_module_installed": command("modinfo", "-F", "version", "nvidia"),
        "gpu_pci": function(nvidia_pci),
        "gpu_xid": command("journalctl", "--dmesg", "--boot", *seen, root=True),
        "gpu_packages_deb": command("dpkg-query", "--show", "--showformat=" + form, *DRIVER_PACKAGES),
        "gpu_packages_rpm": command("rpm", "-qa", "--qf", "%{NAME} %{VERSION}\\n", *DRIVER_PACKAGES),
        "gpu_locks": read(*LOCKS),
        "gpu_fabric_manager": command("systemctl", "is-active", "nvidia-fabricmanager"),
        "gpu_acs": function(acs),
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


LIKELY = ("cuda", "nvidia", "torch", "tensorflow", "paddle", "mxnet", "mmseg")  # names of images for cards
# What every container of the workloads is started with (workloads/*.yml), and what is asked inside.
AS_TRAINING = ("--gpus", "all", "--ipc=host", "--ulimit", "memlock=-1", "--ulimit", "stack=67108864")
INSIDE = "cat /proc/self/limits; df -k /dev/shm; nvidia-smi -L"


def cdi_specs(request: Request) -> str:
    """The files that describe cards of NVIDIA to container engines (CDI), one a line."""
    found = []
    for path in sorted(glob.glob("/etc/cdi/*") + glob.glob("/var/run/cdi/*")):
        with open(path, "rb") as stream:
            if b"nvidia.com/gpu" in stream.read(1000000):
                found.append(path)
    return "\n".join(found)


def container_start(request: Request) -> str:
    """Start a container on the cards, of an image that lies here already, and look around in it.

    Tried only where NVIDIA's kernel module is loaded. Nothing is fetched, nothing stays behind.
    """
    if not os.path.exists("/proc/driver/nvidia/version") or not found("docker"):
        raise Unanswered("missing")
    listed = docker(request, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}")
    if listed["status"] != 0:
        raise Unanswered(listed["why"] or "missing")
    images = [name for name in listed["out"].split() if "<none>" not in name]
    image = next((name for name in images if any(word in name for word in LIKELY)), None)
    if image is None:
        return json.dumps({"image": None, "images": len(images)})
    name = "runkit-doctor-%d" % os.getpid()
    options = ("--rm", "--pull", "never", "--network", "none", "--name", name, *AS_TRAINING)
    most = float(request.get("deadline_s") or DEADLINE_S) - 8
    said = docker(request, "run", *options, "--entrypoint", "sh", image, "-c", INSIDE, seconds=most)
    if said["why"] == "timeout":  # the client is gone, its container may not be
        docker(request, "rm", "--force", name)
    return json.dumps({"image": image, **{key: said[key] for key in ("status", "out", "err", "why")}})


def docker(request: Request, *words: str, seconds: float = 4) -> Answer:
    look = command("docker", *words)
    return run(look, look.argv, request, time.monotonic() + seconds)


def looks_container(request: Request) -> Dict[str, Look]:
    if not request.get("gpus", True):
        return {}
    return {
        "docker_info": command("docker", "info", "--format", "{{json .}}"),
        "docker_settings": read("/etc/docker/daemon.json"),
        "cdi_specs": function(cdi_specs),
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
    status, out, err = run_until(words, deadline)
    if len(words) > len(argv) and status == 1 and "sudo:" in err and not out:
        return answer(look.argv, None, "", err, "needs root")
    late = status is None or (len(words) > len(argv) and status in (137, -9))
    return answer(look.argv, None if late else status, out, err, "timeout" if late else None)


def found(program: str) -> Optional[str]:
    """Where a program lies: in the PATH, or where the system keeps its own."""
    if "/" in program:
        return program if os.access(program, os.X_OK) and os.path.isfile(program) else None
    for folder in (os.environ.get("PATH", "") + ":" + SYSTEM).split(":"):
        path = os.path.join(folder, program)
        if folder and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def run_until(words: List[str], deadline: float) -> Tuple[Optional[int], str, str]:
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
        out, err = drain(child, deadline)
        in_time = ended(child)
    finally:
        kill(child)
        _groups.pop(child.pid, None)
    return child.returncode if in_time else None, text_of(out), text_of(err)


def text_of(kept: bytearray) -> str:
    return bytes(kept).decode("utf-8", "replace")


def drain(child: "subprocess.Popen[bytes]", deadline: float) -> Tuple[bytearray, bytearray]:
    """What a program writes until it has ended; what its own children write after it is not waited for."""
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
                key.data.extend(block[: max(0, CUT - len(key.data))])
                if not block:
                    waiting.unregister(key.fileobj)
            if last and not ready:
                break
            if not waiting.get_map():  # it has closed both: it ends, or works on in silence
                time.sleep(0.002)
    return kept


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

    threads = {name: threading.Thread(target=take, args=(name, looks[name]), daemon=True) for name in looks}
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        thread.join(max(0.0, start + patience(looks[name], most) - time.monotonic()))
    seconds = round(time.monotonic() - start, 3)
    for name, look in looks.items():
        answers.setdefault(name, dict(answer(look.argv, None, why="timeout"), seconds=seconds))
    return {name: answers[name] for name in looks}


def patience(look: Look, most: float) -> float:
    """How long to wait for a thread: one that reads a file or resolves a name cannot be ended, only left."""
    killed = look.function is None and look.argv[0] != "read"
    return most if killed else min(look.seconds, most)


def end_all(signum: int, frame: object) -> None:
    for child in list(_groups.values()):
        kill(child)
    os._exit(128 + signum)


def main(argv: List[str]) -> int:
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
