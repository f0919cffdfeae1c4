"""A mount that shows the files of a folder as belonging to other user ids (idmapped mount, Linux 5.12).

mount(8) of util-linux 2.39 can do it (X-mount.idmap); Debian 12 has 2.38, hence the system calls themselves.
Numbers and structures are those of open_tree(2), mount_setattr(2), move_mount(2), the same on all machines.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442  # system calls
AT_FDCWD, AT_EMPTY_PATH = -100, 0x1000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH = 4
MOUNT_ATTR_RDONLY, MOUNT_ATTR_IDMAP = 0x1, 0x100000

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: Path, target: Path, uid: int, count: int) -> None:
    """Mount ``source`` at ``target``, read-only; 0 in it becomes ``uid``, and so on. Raises OSError."""
    tree = _call(OPEN_TREE, AT_FDCWD, bytes(source), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)
    try:
        with _user_namespace(uid, count) as namespace:
            attributes = struct.pack("=4Q", MOUNT_ATTR_RDONLY | MOUNT_ATTR_IDMAP, 0, 0, namespace)
            _call(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, len(attributes))
        _call(MOVE_MOUNT, tree, b"", AT_FDCWD, bytes(target), MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(tree)


@contextlib.contextmanager
def _user_namespace(uid: int, count: int) -> Iterator[int]:
    """An open user namespace with that mapping; a process that waits on a pipe carries it meanwhile."""
    argv = ["unshare", "--user", "sh", "-c", "echo; read -r end"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()  # it is in its namespace by now
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{process.pid}/{name}").write_text(f"0 {uid} {count}")
        handle = os.open(f"/proc/{process.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield handle
        finally:
            os.close(handle)
            process.stdin.close()


def _call(number: int, *arguments: int | bytes) -> int:
    ctypes.set_errno(0)
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
