"""The page in tests: a socket that asks and collects answers; and a backend whose snapshots wait for the test."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from websockets.sync.client import ClientConnection, connect

from tests.patience import PATIENCE_SECONDS
from tsql.backends import Run
from tsql.backends.local import LocalBackend
from tsql.backends.snapshots import Snapshot
from tsql.studio import Studio


class Frame:
    """A binary frame: its header and its rows."""

    def __init__(self, data: bytes) -> None:
        length = int.from_bytes(data[:4], "little")
        assert (4 + length) % 8 == 0, "the rows can be read in place"
        self.header: dict[str, Any] = json.loads(data[4 : 4 + length])
        self.table: pa.Table = pa.ipc.open_stream(data[4 + length :]).read_all()


class Page:
    """One open page."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.last_id = 0

    def ask(self, op: str, **request: Any) -> int:
        """Send a request; its id."""
        self.last_id += 1
        self.socket.send(json.dumps({"op": op, "id": self.last_id, **request}))
        return self.last_id

    def next(self) -> dict[str, Any] | Frame:
        """The next message or frame."""
        data = self.socket.recv(timeout=PATIENCE_SECONDS)
        return Frame(data) if isinstance(data, bytes) else json.loads(data)

    def answer(self, op: str, **request: Any) -> dict[str, Any]:
        """The answer to a request that has one."""
        id = self.ask(op, **request)
        return self.until(id, lambda message: True)[-1]

    def rows(self, of: int, first: int, count: int) -> Frame:
        """The rows of a run."""
        id = self.ask("rows", of=of, first=first, count=count)
        while True:
            found = self.next()
            if isinstance(found, Frame) and found.header["id"] == id:
                return found
            assert isinstance(found, Frame) or found["id"] != id, found

    def until(self, id: int, ends: Any) -> list[Any]:
        """The messages and frames of a request up to the first that `ends` takes; others are passed over."""
        found: list[Any] = []
        while True:
            one = self.next()
            if isinstance(one, Frame):
                if one.header["id"] == id:
                    found.append(one)
            elif one["id"] == id:
                found.append(one)
                if ends(one):
                    return found

    def run(self, sql: str, **request: Any) -> Told:
        """Run a query to its end."""
        return self.told(self.ask("run", sql=sql, **request))

    def told(self, id: int) -> Told:
        """What a run tells until its end."""
        return Told(self.until(id, lambda one: one["type"] in ("done", "error")))

    def snapshot(self, id: int) -> dict[str, Any]:
        """The next snapshot of a run."""
        return self.until(id, lambda one: one["type"] == "snapshot")[-1]


class Told:
    """Everything that a run has sent, sorted by what it is."""

    def __init__(self, messages: list[Any]) -> None:
        self.messages = messages
        self.frames = [one for one in messages if isinstance(one, Frame)]
        texts = [one for one in messages if not isinstance(one, Frame)]
        self.snapshots = [one for one in texts if one["type"] == "snapshot"]
        self.flows = [one for one in texts if one["type"] == "flow"]
        self.started = next((one for one in texts if one["type"] == "started"), None)
        self.last = texts[-1]

    @property
    def table(self) -> pa.Table:
        """The rows of the last frame."""
        return self.frames[-1].table

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of the last frame as tuples, without bounds."""
        names = [name for name in self.table.column_names if name.isdigit()]
        return list(zip(*(self.table.column(name).to_pylist() for name in names), strict=True))


def socket_address(studio: Studio) -> str:
    return studio.address.replace("http://", "ws://")


def origin(studio: Studio) -> str:
    return f"http://{urlsplit(studio.address).netloc}"


@contextmanager
def opened(studio: Studio) -> Iterator[Page]:
    """A page of a studio."""
    with connect(socket_address(studio), origin=origin(studio), max_size=None, compression=None) as socket:
        yield Page(socket)


def get(studio: Studio, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of an HTTP request."""
    client = http.client.HTTPConnection("127.0.0.1", studio.guards.port, timeout=PATIENCE_SECONDS)
    try:
        client.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in {"Host": f"127.0.0.1:{studio.guards.port}", **headers}.items():
            client.putheader(name, value)
        client.endheaders()
        response = client.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    finally:
        client.close()


class GatedBackend(LocalBackend):
    """Hands out a snapshot for each `release` of its gate, and waits as backends must."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Semaphore(0)
        self.released = threading.Event()
        """A run has ended."""

    def snapshots(self, plan: Any, run: Run) -> Iterator[Snapshot]:
        try:
            for snapshot in super().snapshots(plan, run):
                while not self.gate.acquire(timeout=0.02):
                    run.check()
                yield snapshot
        finally:
            self.released.set()
