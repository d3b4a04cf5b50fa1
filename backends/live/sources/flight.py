"""Batches that producers put over Arrow Flight → the rows of a stream. Connector `flight`.

The reader is a server. Any number of producers call `do_put` with a descriptor whose path is the stream's name, and
batches that have the declared columns by name. Batches wait in a queue of bounded length; when it is full, producers
wait. A batch that does not fit the columns is an error for its producer, not for the job.

The stream does not replay: what is in the queue is lost when the job is killed. So a producer is told what it need not
send again: when a checkpoint has more of its batches, it gets the metadata {"acknowledged": n}: the first n batches of
this `do_put` are in it. When it is done writing, the call ends after the last of them. A producer that keeps what is
not acknowledged, and sends it again after a failure, loses nothing; rows whose acknowledgement was on its way come
twice.

The server listens on the loopback interface unless `host` says otherwise, without encryption. With a `token`, producers
must send it."""

from __future__ import annotations

import hmac
import json
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from tsql.backends.live.sources.columns import conformed_batches, empty_batch
from tsql.backends.live.sources.notices import Notices
from tsql.backends.live.sources.reader import Arrival, Offset
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema

PARTITION = "batches"
WAKE_SECONDS = 0.05


class FlightReader:
    """Serves producers, and reads what they put."""

    replays = False

    def __init__(self, options: Mapping[str, Any], schema: Schema, name: str) -> None:
        self.schema, self.name, self.notices = schema, name, Notices()
        self.host: str = options["host"]
        self.port: int = options["port"]
        self._token: str | None = options.get("token")
        self._waiting: queue.Queue[_Put] = queue.Queue(max(1, options["batches"]))
        self._parts: deque[pa.RecordBatch] = deque()
        self._taken: deque[tuple[int, _Producer]] = deque()
        """Whose the batches are that were given and are in no checkpoint, by number."""
        self._current: _Put | None = None
        self._count = 0
        self._told = False
        self._server: _Server | None = None
        self.closing = threading.Event()

    def open(self, offsets: Mapping[str, Offset]) -> None:
        offset = offsets.get(PARTITION, 0)
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise SourceError(f"the offset of {self.name} in the checkpoint is damaged")
        self._count = offset
        middleware = {} if self._token is None else {"token": _TokenCheck(self._token)}
        host = f"[{self.host}]" if ":" in self.host else self.host
        try:
            self._server = _Server(self, f"grpc://{host}:{self.port}", middleware)
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{self.name} cannot listen on {self.host}:{self.port}: {error}") from None
        self.port = self._server.port

    def poll(self, rows: int, seconds: float) -> Sequence[Arrival] | None:
        if not self._told:
            self._told = True
            return [Arrival(PARTITION, empty_batch(self.schema), self._count)]
        deadline = time.monotonic() + seconds
        while not self._parts:
            if self.closing.is_set():
                return []
            try:
                put = self._waiting.get(timeout=max(0.0, min(WAKE_SECONDS, deadline - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= deadline:
                    return []
                continue
            self._current = put
            self._parts.extend(put.batches)
            if not put.batches:
                return [Arrival(PARTITION, empty_batch(self.schema), self._given(put))]
        first = self._parts.popleft()
        taken, rest = first.slice(0, rows), first.slice(rows)
        if rest.num_rows:
            self._parts.appendleft(rest)
        elif not self._parts and self._current is not None:
            self._given(self._current)
        return [Arrival(PARTITION, taken, self._count)]

    def _given(self, put: _Put) -> int:
        """Count a batch of which all rows were given."""
        self._count += 1
        self._taken.append((self._count, put.producer))
        self._current = None
        return self._count

    def behind(self) -> int | None:
        """Rows in the queue."""
        with self._waiting.mutex:
            return sum(batch.num_rows for put in self._waiting.queue for batch in put.batches)

    def acknowledge(self, offsets: Mapping[str, Offset]) -> None:
        """Tell the producers which of their batches are in the checkpoint."""
        done = offsets.get(PARTITION, 0)
        told: dict[int, _Producer] = {}
        while self._taken and self._taken[0][0] <= done:
            _, producer = self._taken.popleft()
            producer.in_checkpoint += 1
            told[id(producer)] = producer
        for producer in told.values():
            producer.tell(self.notices)

    def close(self) -> None:
        self.closing.set()
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()

    def take(self, put: _Put) -> bool:
        """Wait until there is room for a batch of a producer; False if the reader is closed."""
        while not self.closing.is_set():
            try:
                self._waiting.put(put, timeout=WAKE_SECONDS)
                return True
            except queue.Full:
                continue
        return False


class _Producer:
    """One call of `do_put`: how many of its batches came, and how many of them are in a checkpoint."""

    def __init__(self, writer: Any) -> None:
        self.came = self.in_checkpoint = 0
        self._writer: Any = writer
        self._lock = threading.Lock()

    def tell(self, notices: Notices) -> None:
        with self._lock:
            if self._writer is None:
                return  # it did not wait for it
            try:
                self._writer.write(json.dumps({"acknowledged": self.in_checkpoint}).encode())
            except (pa.ArrowException, OSError) as error:
                notices.tell(f"a producer went away before its rows were acknowledged: {error}")
                self._writer = None

    def leave(self) -> None:
        with self._lock:
            self._writer = None


class _Put:
    """A batch of a producer, in the columns of the stream."""

    def __init__(self, batches: list[pa.RecordBatch], producer: _Producer) -> None:
        self.batches, self.producer = batches, producer


class _Server(flight.FlightServerBase):
    """Takes batches; all other calls are refused."""

    def __init__(self, reader: FlightReader, location: str, middleware: Mapping[str, Any]) -> None:
        super().__init__(location, middleware=dict(middleware))
        self._reader = reader

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Called in a thread for each producer."""
        stream = self._reader
        path = [part.decode("utf-8", "replace") for part in descriptor.path or ()]
        if path != [stream.name]:
            raise flight.FlightServerError(f"there is no stream {'/'.join(path)}: the path is {stream.name}")
        origin = f"a producer of {stream.name}"
        producer = _Producer(writer)
        try:
            conformed_batches(reader.schema.empty_table(), stream.schema, origin, stream.notices)
            while not stream.closing.is_set():
                try:
                    chunk = reader.read_chunk()
                except StopIteration:
                    break
                if chunk.data is None:
                    continue
                table = pa.Table.from_batches([chunk.data])
                put = _Put(conformed_batches(table, stream.schema, origin, stream.notices), producer)
                if stream.take(put):
                    producer.came += 1
            while producer.in_checkpoint < producer.came and not context.is_cancelled():
                if stream.closing.wait(WAKE_SECONDS):
                    break
        except SourceError as error:
            raise flight.FlightServerError(str(error)) from None
        finally:
            producer.leave()
        if stream.closing.is_set() and producer.in_checkpoint < producer.came:
            raise flight.FlightUnavailableError(f"the stream {stream.name} ended before all rows were acknowledged")


class _TokenCheck(flight.ServerMiddlewareFactory):
    """Refuses calls without the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: Mapping[str, list[Any]]) -> None:
        given = next(iter(headers.get("authorization", ())), "")
        shown = given if isinstance(given, bytes) else str(given).encode()
        if not hmac.compare_digest(shown, self._expected):
            raise flight.FlightUnauthenticatedError("the token is missing or wrong")
