"""Lines of NDJSON or CSV from standard input or TCP → the rows of a stream. Connectors `stdin` and `socket`.

`socket` connects to a server, whose end of the connection is the end of the stream; with `listen = true` it is a server
itself, takes lines from any number of clients and does not end. It listens on the loopback interface unless `host` says
otherwise: whoever reaches it can write rows.

What was read is gone, so a stream of lines does not replay. Its offset counts the lines. No more is read while there
are lines that nobody has polled: the sender waits."""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tsql.backends.live.formats.format import LineFormat, format_of
from tsql.backends.live.sources.columns import empty_batch
from tsql.backends.live.sources.line_buffer import LineBuffer
from tsql.backends.live.sources.notices import Notices
from tsql.backends.live.sources.reader import Arrival, Offset
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process import forks

PARTITION = "lines"
PART_BYTES = 1 << 18
MOST_CLIENTS = 256


class LinesReader:
    """Reads lines from descriptors that become ready. What it reads from is up to a subclass."""

    replays = False

    def __init__(self, options: Mapping[str, Any], schema: Schema, name: str) -> None:
        self.schema, self.name, self.notices = schema, name, Notices()
        self._header: bool = options["header"]
        self._format: LineFormat = format_of(options, schema, self.notices)
        self._selector = selectors.PollSelector()
        self._wake, self._waker = socket.socketpair()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._ready: list[LineBuffer] = []
        """Those with whole lines."""
        self._count = 0
        self._ended = self._told = self._closed = False
        self._busy = forks.lock()

    def open(self, offsets: Mapping[str, Offset]) -> None:
        offset = offsets.get(PARTITION, 0)
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise SourceError(f"the offset of {self.name} in the checkpoint is damaged")
        self._count = offset
        self._start()

    def poll(self, rows: int, seconds: float) -> Sequence[Arrival] | None:
        deadline = time.monotonic() + seconds
        with self._busy:
            while not self._closed:
                if not self._told:
                    self._told = True
                    return [Arrival(PARTITION, empty_batch(self.schema), self._count)]
                if self._ready:
                    return [self._arrival(rows)]
                if self._ended:
                    return None
                left = deadline - time.monotonic()
                for key, _ in self._selector.select(max(0.0, left)):
                    if key.fileobj is self._wake:
                        return []
                    self._receive(key)
                if left <= 0 and not self._ready and not self._ended:
                    return []
        return []

    def behind(self) -> int | None:
        return None

    def acknowledge(self, offsets: Mapping[str, Offset]) -> None:
        """Nobody waits for it."""

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._waker.send(b"x")
        with self._busy:
            self._stop()
            self._selector.close()
            self._wake.close()
            self._waker.close()

    def _start(self) -> None:
        """Open what is read, and register it."""
        raise NotImplementedError

    def _stop(self) -> None:
        """Close it."""
        raise NotImplementedError

    def _receive(self, key: selectors.SelectorKey) -> None:
        """Read from what is ready."""
        raise NotImplementedError

    def _arrival(self, rows: int) -> Arrival:
        lines = self._ready[0]
        block, first = lines.take(rows)
        if not lines.has_lines:
            self._ready.pop(0)
        self._count += block.count(b"\n")
        if first == 1:
            block = block.removeprefix(b"\xef\xbb\xbf")
            if self._header:
                block = block[block.find(b"\n") + 1 :]
                first += 1
        batch = self._format.decode_lines(block, lambda i: f"{lines.name}: line {first + i}")
        return Arrival(PARTITION, batch, self._count)

    def _take(self, lines: LineBuffer, data: bytes) -> None:
        """What came; no bytes are the end."""
        lines.feed(data) if data else lines.finish()
        if lines.has_lines and lines not in self._ready:
            self._ready.append(lines)


class StdinReader(LinesReader):
    """Reads standard input until its end."""

    descriptor = 0

    def _start(self) -> None:
        self._lines = LineBuffer("standard input")
        try:
            self._selector.register(self.descriptor, selectors.EVENT_READ)
        except (OSError, ValueError):
            raise SourceError("standard input is closed") from None

    def _stop(self) -> None:
        """Standard input belongs to the process."""

    def _receive(self, key: selectors.SelectorKey) -> None:
        try:
            data = os.read(self.descriptor, PART_BYTES)
        except OSError as error:
            raise SourceError(f"standard input: {error.strerror}") from None
        self._take(self._lines, data)
        self._ended = not data


class SocketReader(LinesReader):
    """Reads one connection that it makes, or all that it takes."""

    def __init__(self, options: Mapping[str, Any], schema: Schema, name: str) -> None:
        super().__init__(options, schema, name)
        self._host: str = options["host"]
        self.port: int = options["port"]
        self._listens: bool = options["listen"]
        self._timeout: float = options["timeout"]
        self._listener: socket.socket | None = None
        self._connections: dict[socket.socket, LineBuffer] = {}

    @property
    def _address(self) -> str:
        return f"{self._host}:{self.port}"

    def _start(self) -> None:
        if self.port > 65_535 or (self.port == 0 and not self._listens):
            raise SourceError(f"option port is the number of a port, not {self.port}")
        try:
            if self._listens:
                family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
                listener = socket.create_server((self._host, self.port), family=family)
                listener.setblocking(False)
                self.port = listener.getsockname()[1]
                self._listener = listener
                self._selector.register(listener, selectors.EVENT_READ)
            else:
                self._add(socket.create_connection((self._host, self.port), self._timeout), self._address)
        except OSError as error:
            what = "listen on" if self._listens else "connect to"
            raise SourceError(f"{self.name} cannot {what} {self._address}: {error.strerror or error}") from None

    def _stop(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections = {}
        if self._listener is not None:
            self._listener.close()

    def _receive(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._listener:
            self._accept(self._listener)
            return
        connection = key.fileobj
        assert isinstance(connection, socket.socket)
        lines = self._connections[connection]
        try:
            data = connection.recv(PART_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if not self._listens:
                raise SourceError(f"{lines.name}: {error.strerror}") from None
            # The line that it was sending may be half: it is not taken.
            self.notices.tell(f"{lines.name}: {error.strerror}")
            self._drop(connection)
            return
        self._take(lines, data)
        if not data:
            self._drop(connection)
            self._ended = not self._listens

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, address = listener.accept()
        except OSError:
            return  # it was gone before it was taken
        self._add(connection, f"{address[0]}:{address[1]}")
        if len(self._connections) == MOST_CLIENTS:
            self._selector.unregister(listener)

    def _add(self, connection: socket.socket, name: str) -> None:
        connection.setblocking(False)
        self._connections[connection] = LineBuffer(name)
        self._selector.register(connection, selectors.EVENT_READ)

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._connections[connection]
        connection.close()
        if self._listener is not None and len(self._connections) == MOST_CLIENTS - 1:
            self._selector.register(self._listener, selectors.EVENT_READ)
