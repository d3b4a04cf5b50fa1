"""Rows that the Python workers of one executor share: the first that asks computes them, the others map its memory.

Workers of an executor are processes with the same parent, so a name made of that parent, the run and the entry is known
to all of them. It is the name of an abstract socket (Linux): whoever binds it computes the rows, and sends the
descriptor of the memory that holds them to all that connect. The system removes name and memory with the last process
that has them, so a worker that is killed leaves nothing behind, and the next one that asks computes the rows again. An
abstract socket has no owner: both ends look at the user of the other one."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pyarrow as pa

ALIGNMENT = 64
"""Blobs start at a multiple of this, where Arrow expects buffers."""
WAITING = 128
"""Workers that may wait for one that computes."""
RETRY_SECONDS = 0.002
CREDENTIALS = struct.Struct("3i")
INDEX = struct.Struct("<2q")
"""Where the sizes of the blobs begin, and how many there are."""


def can_share() -> bool:
    """Whether processes of this system can share memory by descriptors."""
    return sys.platform == "linux" and hasattr(os, "memfd_create") and hasattr(socket, "SO_PEERCRED")


class SharedBlobs:
    """Blobs in memory that other workers can map. `close` takes the name away: what is mapped stays until nobody uses
    it."""

    def __init__(self, blobs: list[pa.Buffer], server: socket.socket | None = None):
        self.blobs, self._server = blobs, server

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            # Ends the thread that waits for others, too.
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            server.close()


def shared_blobs(name: str, compute: Callable[[], Iterable[Any]]) -> SharedBlobs:
    """The blobs that `compute` gives, computed by one worker of this executor. If it fails, each worker tries."""
    address = _address(name)
    while True:
        try:
            server = _bound(address)
            if server is not None:
                return _computed(server, compute)
            found = _received(address)
        except PermissionError:
            # A system without such sockets, or the name in the hands of another user: this worker computes for itself.
            return SharedBlobs([pa.py_buffer(blob) for blob in compute()])
        if found is not None:
            try:
                return SharedBlobs(_mapped(found))
            finally:
                os.close(found)
        time.sleep(RETRY_SECONDS)


def _address(name: str) -> bytes:
    """The name among the workers of this executor. A process identifier is used again one day: its start tells apart
    two parents."""
    parent = os.getppid()
    try:
        with open(f"/proc/{parent}/stat", "rb") as file:
            start = file.read().rpartition(b")")[2].split()[19]
    except (OSError, IndexError):
        start = b""
    digest = hashlib.blake2b(f"{os.geteuid()} {parent} {start!r} {name}".encode(), digest_size=24).hexdigest()
    return b"\0tsql-" + digest.encode()


def _bound(address: bytes) -> socket.socket | None:
    """A socket with this name; None if another one has it."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.bind(address)
        server.listen(WAITING)
    except OSError as error:
        server.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise PermissionError(error.errno, "abstract sockets cannot be used here") from error
    return server


def _computed(server: socket.socket, compute: Callable[[], Iterable[Any]]) -> SharedBlobs:
    """Compute the blobs, and serve them."""
    try:
        memory = _stored(compute())
        return _served(server, memory)
    except BaseException:
        # Those that wait are told by the end of their connection, and compute for themselves.
        server.close()
        raise


def _served(server: socket.socket, memory: int) -> SharedBlobs:
    """The blobs in this memory, which a thread gives to others."""
    try:
        blobs = _mapped(memory)
    except BaseException:
        os.close(memory)
        raise
    try:
        threading.Thread(target=_serve, args=(server, memory), name="tsql-spark-shared", daemon=True).start()
    except RuntimeError:
        # The system starts no more threads. The rows are here, and others compute for themselves.
        os.close(memory)
        server.close()
        return SharedBlobs(blobs)
    return SharedBlobs(blobs, server)


def _stored(blobs: Iterable[Any]) -> int:
    """The descriptor of new memory with these blobs. Nobody can change it."""
    memory = os.memfd_create("tsql-shared", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        sizes = []
        with open(memory, "wb", closefd=False) as file:
            for blob in blobs:
                file.write(blob)
                file.write(bytes(-len(blob) % ALIGNMENT))
                sizes.append(len(blob))
            start = file.tell()
            file.write(struct.pack(f"<{len(sizes)}q", *sizes))
            file.write(INDEX.pack(start, len(sizes)))
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    except BaseException:
        os.close(memory)
        raise
    return memory


def _mapped(memory: int) -> list[pa.Buffer]:
    """The blobs in this memory; they are not copied."""
    whole = pa.py_buffer(mmap.mmap(memory, 0, prot=mmap.PROT_READ))
    start, count = INDEX.unpack(whole.slice(whole.size - INDEX.size).to_pybytes())
    found, position = [], 0
    for size in struct.unpack(f"<{count}q", whole.slice(start, 8 * count).to_pybytes()):
        found.append(whole.slice(position, size))
        position += size + -size % ALIGNMENT
    return found


def _serve(server: socket.socket, memory: int) -> None:
    """Send a descriptor to all of this user's processes that ask, until the socket is closed. If the system fails, it
    is closed here: they would wait for an answer as long as the socket listens, and now compute for themselves."""
    try:
        while True:
            try:
                other, _ = server.accept()
            except ConnectionAbortedError:  # only that one has gone
                continue
            except OSError:
                return
            with other, suppress(OSError):
                if _user(other) == os.geteuid():
                    socket.send_fds(other, [b"!"], [memory])
    finally:
        server.close()
        os.close(memory)


def _received(address: bytes) -> int | None:
    """The descriptor that the worker with this name sends, once it is done; None if it ends without."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        try:
            other.connect(address)
            user = _user(other)
            told, descriptors, _, _ = (b"", [], 0, None) if user != os.geteuid() else socket.recv_fds(other, 1, 1)
        except OSError:
            return None
    if user != os.geteuid():
        raise PermissionError(errno.EPERM, "the name belongs to another user")
    return descriptors[0] if told and descriptors else None


def _user(other: socket.socket) -> int:
    """The user of the process at the other end."""
    _, user, _ = CREDENTIALS.unpack(other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return user
