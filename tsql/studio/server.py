"""`Studio`: the server of the page, on this machine. `serve` starts one in background threads.

HTTP gives the files of the page (`files.py`), and the socket everything else (`connection.py`); `guards.py` says who is
served. Each connection has its threads; `close` ends them, their queries, and the listening socket."""

from __future__ import annotations

import logging
import socket
import threading
from http import HTTPStatus
from pathlib import Path
from types import TracebackType

from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection
from websockets.sync.server import serve as serve_sockets

from tsql.kernels.expr.errors import CatalogError
from tsql.session import Session
from tsql.studio import files
from tsql.studio.connection import Connection
from tsql.studio.guards import WILDCARDS, Guards, Refusal
from tsql.studio.history import History
from tsql.studio.runs import Served

MOST_MESSAGE_BYTES = 4 << 20
"""A longer message closes the connection."""

MOST_WAITING = 16
"""So many messages of a page may wait until one is taken."""

OPEN_SECONDS, CLOSE_SECONDS = 5.0, 2.0

_quiet = logging.getLogger("tsql.studio.sockets")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False  # a browser that goes away in a handshake is nobody's business


class Studio:
    """A studio that is served. `address` opens its page; a context manager, which closes it."""

    def __init__(
        self,
        session: Session,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        read_only: bool = False,
        history: Path | None = None,
    ):
        self.served = Served(session, read_only, History(history))
        self._connections: set[Connection] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        listening = _listen(host, port)
        self.guards = Guards(host, listening.getsockname()[1])
        self._server = serve_sockets(
            self._serve,
            sock=listening,
            process_request=self._respond,
            compression=None,
            server_header=None,
            open_timeout=OPEN_SECONDS,
            close_timeout=CLOSE_SECONDS,
            max_size=MOST_MESSAGE_BYTES,
            max_queue=MOST_WAITING,
            logger=_quiet,
        )
        self._thread = threading.Thread(target=self._server.serve_forever, name="tsql-studio", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """The address of the page, with the token without which nothing is served."""
        name = "127.0.0.1" if self.guards.host in WILDCARDS else self.guards.host
        name = f"[{name}]" if ":" in name else name
        return f"http://{name}:{self.guards.port}/?token={self.guards.token}"

    def close(self) -> None:
        """Stop serving: queries end, sockets close, threads end. The session stays open."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.end()
        self._server.shutdown()
        self._thread.join()

    def wait(self) -> None:
        """Wait until the studio is closed, by another thread or by Ctrl-C in this one."""
        while not self._closed.wait(1.0):  # a wait without end would hold back Ctrl-C on some systems
            pass

    def __enter__(self) -> Studio:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _respond(self, connection: ServerConnection, request: Request) -> Response | None:
        """The response to a request; None opens a socket."""
        refused = self.guards.refuse_host(request.headers)
        if refused is not None:
            return _refusal(refused, "")
        host = request.headers["Host"]
        if request.method != "GET":
            return _refusal(Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "the studio answers to GET only"), host)
        if "websocket" in ",".join(request.headers.get_all("Upgrade")).lower():
            refused = self.guards.refuse_token(request.path) or self.guards.refuse_origin(request.headers)
            return None if refused is None else _refusal(refused, host)
        if request.path.partition("?")[0] in ("/", "/index.html"):
            refused = self.guards.refuse_token(request.path)
            return files.index(host) if refused is None else _refusal(refused, host)
        return files.asset(request.path, host)

    def _serve(self, socket: ServerConnection) -> None:
        connection = Connection(socket, self.served)
        with self._lock:
            self._connections.add(connection)
        try:
            if self._closed.is_set():
                connection.end()
            connection.serve()
        finally:
            with self._lock:
                self._connections.discard(connection)


def _refusal(refused: Refusal, host: str) -> Response:
    return files.answer(HTTPStatus(refused.status), refused.text, host)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CatalogError(f"the studio cannot be served on {host}:{port}: {reason}", hint="another --port?") from error


def serve(
    session: Session,
    *,
    port: int = 0,
    host: str = "127.0.0.1",
    read_only: bool = False,
    history: Path | None = None,
) -> Studio:
    """Serve the studio of a session in background threads; port 0 is one that is free. `history` is a file that keeps
    queries for later studios."""
    session._check_open()
    return Studio(session, port=port, host=host, read_only=read_only, history=history)
