"""On the launch host: starts an MPI job, gives back what it wrote, and ends it as a whole.

usage: python3 -c START, with two lines of JSON on standard input: this text, and the request:
    argv, env     the launcher and its words; they name `hostfile` and `rsh.sh` of the folder it starts in
    hostfile      its text
    address       of this host
    deadline_s    for all of it

It ends when the job does, at its deadline, soon after a rank has said that it is through, or when standard
input ends: whoever asked is gone. On other hosts the deadline lies around the launcher's daemon, so that a
host that nobody can reach ends by itself what runs there. Prints one JSON document, schema runkit/job:
`out`, `err`, `why` it was ended (null where it ended by itself), and `status`, with which it did, else null.
Standard library only, Python 3.8 or later.
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, Optional

CUT = 4000000  # bytes of each stream that are kept
GRACE_S = 2.0  # from SIGTERM to SIGKILL
AFTER_S = 1.5  # from the first rank that is through to the end of those that are not
THROUGH = b'"event": "end"'
INHERITED = ("HOME", "LANG", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "USER")
# As rsh.sh of a run reaches a host. What the launcher starts there is ended at the deadline. The login shell
# may be any: sh gets words that bash, dash, zsh, fish and tcsh read alike, with ', \ and ! outside of quotes.
RSH = r"""host=$1
shift
quoted() {
    printf "'%%s'" "$(printf %%s "$1" | sed "s/['\\\\!]/'\\\\&'/g")"
}
there='export RUNKIT_DOCTOR_HOST="$1" TMPDIR="%(folder)s"; mkdir -p -m 700 "$TMPDIR";'
there="$there timeout -k 2 %(seconds)d sh -c"' "$2"; said=$?; rm -rf "$TMPDIR";'
there="$there"' [ $said = 0 ] || echo "daemon on $1 ended with status $said" >&2; exit $said'
exec ssh -T -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=6 -o ControlMaster=no \
    -o ControlPath=none -o UpdateHostKeys=no -o ServerAliveInterval=5 -o ServerAliveCountMax=3 -- "$host" \
    "sh -c $(quoted "$there") sh $(quoted "$host") $(quoted "$*")"
"""


class Job:
    """A launcher with everything it started here, in a folder of its own."""

    def __init__(self, request: Dict[str, Any], folder: str) -> None:
        self.began, self.deadline_s = time.monotonic(), float(request["deadline_s"])
        for name, text in (
            ("hostfile", request["hostfile"]),
            ("rsh.sh", RSH % {"folder": folder, "seconds": int(self.deadline_s) + 1}),
        ):
            with open(os.path.join(folder, name), "w") as stream:
                stream.write(text)
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        env.update(request["env"], TMPDIR=folder, RUNKIT_DOCTOR_HOST=request["address"])
        self.kept = {1: bytearray(), 2: bytearray()}
        self.child = subprocess.Popen(
            request["argv"],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def watch(self) -> Optional[str]:
        """Why it is to be ended, None where it has ended by itself."""
        end, through = self.began + self.deadline_s, False
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.child.stdout, selectors.EVENT_READ, 1)  # type: ignore[arg-type]
            waiting.register(self.child.stderr, selectors.EVENT_READ, 2)  # type: ignore[arg-type]
            waiting.register(0, selectors.EVENT_READ, 0)
            while len(waiting.get_map()) > 1:
                left = end - time.monotonic()
                if left <= 0:
                    return "timeout"
                for key, _ in waiting.select(left):
                    block = os.read(key.fd, 65536)
                    if not block and key.data == 0:
                        return "nobody waits"
                    if not block:
                        waiting.unregister(key.fileobj)
                    elif key.data:
                        kept = self.kept[key.data]
                        kept.extend(block[: max(0, CUT - len(kept))])
                        if not through and THROUGH in kept:
                            through, end = True, min(end, time.monotonic() + AFTER_S)
        return None

    def end(self) -> None:
        """Ask the launcher to end its daemons and ranks, then make sure of what is here."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(GRACE_S)
        # What is not of its group has a deadline of its own: ranks, and the launcher's daemons elsewhere.


def main(request: Dict[str, Any]) -> Dict[str, Any]:
    # A TMPDIR of this host alone would have to be made on the others, and would stay there.
    folder = tempfile.mkdtemp(prefix="runkit-doctor-", dir="/tmp")
    said: Dict[str, Any] = {"schema": "runkit/job", "version": 1, "out": "", "err": "", "why": None}
    said["status"] = None
    try:
        job = Job(request, folder)
        try:
            said["why"] = job.watch()
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                said["status"] = job.child.wait(0.0 if said["why"] else GRACE_S)
            job.end()
        said["out"], said["err"] = (bytes(job.kept[n]).decode("utf-8", "replace") for n in (1, 2))
    except OSError as error:
        said["why"], said["err"] = "missing", "%s: %s" % (request["argv"][0], error.strerror)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return said


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    print(json.dumps(main(json.loads(sys.stdin.readline()))), flush=True)
