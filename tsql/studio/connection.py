"""One page: reads the requests of its socket and answers them.

Three threads serve a connection. The one that reads does at once what ends or steers a run. A second one looks at texts
(`check`, `complete`, `plan` ..), in order, and may take long over it. The outbox sends. Each run has a thread of its
own. When the socket is closed, runs are stopped and all threads end."""

from __future__ import annotations

import json
import logging
import queue
import socket as sockets
import threading
from collections.abc import Callable
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection

import tsql
from tsql.backends import Run
from tsql.kernels.expr.errors import CancelledError, TsqlError
from tsql.loaded import LoadedPlan
from tsql.running import CLOSE_SECONDS, AtWork
from tsql.studio import jobs, names
from tsql.studio.filters import filters_of
from tsql.studio.frames import Result
from tsql.studio.outbox import Outbox
from tsql.studio.places import error_fields, plain_error
from tsql.studio.plans import plan_fields
from tsql.studio.runs import PanelRun, Request, Served
from tsql.studio.statements import check, planned

log = logging.getLogger("tsql.studio")

MOST_PANELS = 64
"""A page has at most so many panels, each with a result in memory."""

SEND_SECONDS = 1.0
"""How long a connection that ends waits for a message that is being sent."""

Answer = dict[str, Any]


class BadRequest(Exception):
    """A message that is none of the contract."""


class Connection:
    """The server's side of one socket."""

    def __init__(self, socket: ServerConnection, served: Served):
        self.socket, self.served, self.session = socket, served, served.session
        self.panels: dict[Any, PanelRun] = {}
        self._replaced: list[PanelRun] = []
        """Runs that were stopped by a new one in their panel, and have not ended yet."""
        self._completer = names.StudioCompleter(self.session)
        self._ended = threading.Event()
        self._handle = Run()
        """What the thread that looks at texts works for."""
        self._requests: queue.SimpleQueue[tuple[int, Callable[[], Answer]] | None] = queue.SimpleQueue()
        self._outbox = Outbox(socket.send, self._tick, (ConnectionClosed, OSError))
        self._looking = threading.Thread(target=self._look, name="tsql-studio-look", daemon=True)
        self._looking.start()

    def serve(self) -> None:
        """Answer requests until the socket is closed."""
        try:
            for message in self.socket:
                self._take(message)
        except ConnectionClosed:
            pass
        finally:
            self.end()

    def end(self) -> None:
        """Stop all runs, send nothing more, and wait for the threads. Any thread may call it, and more than once."""
        self._ended.set()
        runs = [*self.panels.values(), *self._replaced]
        for run in runs:
            run.stop()
        self._handle.cancel("the page was closed")
        self._requests.put(None)
        self._outbox.close()
        self._outbox.thread.join(SEND_SECONDS)
        if self._outbox.thread.is_alive():  # the page does not read
            try:
                self.socket.socket.shutdown(sockets.SHUT_RDWR)
            except OSError:
                pass
            self._outbox.thread.join()
        for run in runs:
            run.join(CLOSE_SECONDS)
        self._looking.join(CLOSE_SECONDS)
        self.panels.clear()
        self._replaced.clear()

    def _take(self, message: str | bytes) -> None:
        """Answer one message, or hand it to who does."""
        id: Any = None
        try:
            request = _request(message)
            id, op = request["id"], request.get("op")
            if op == "run":
                self._run(id, request)
            elif op in ("stop", "finish", "pause", "resume"):
                run = self._found(request)
                if run is not None:
                    getattr(run, op)()
            elif op == "rows":
                self._send_rows(id, request)
            else:
                self._requests.put((id, self._looker(op, request)))
        except BadRequest as error:
            self._answer(id, {"type": "error", **plain_error(str(error))})
        except TsqlError as error:
            self._answer(id, {"type": "error", **error_fields(error, "")})

    def _looker(self, op: Any, request: dict[str, Any]) -> Callable[[], Answer]:
        """What answers a request about names and texts."""
        match op:
            case "hello":
                return self._hello
            case "check":
                sql = _text(request, "sql")
                return lambda: self._checked(sql)
            case "complete":
                sql, position = _text(request, "sql"), _number(request, "position")
                return lambda: {"type": "completions", **names.completions(self._completer, sql, position)}
            case "plan":
                return self._planner(request)
            case "history":
                return lambda: {"type": "history", "history": self.served.history.entries()}
            case "jobs":
                return lambda: {"type": "jobs", "jobs": jobs.entries()}
        raise BadRequest(f"the studio has no op {op!r}")

    def _hello(self) -> Answer:
        path = self.session.path
        return {
            "type": "hello",
            "version": tsql.__version__,
            "read_only": self.served.read_only,
            "database": self.session.catalog.database if path is not None else None,
            "tables": names.tables(self.session),
            "functions": names.functions(),
            "keywords": names.keywords(),
            "history": self.served.history.entries(),
        }

    def _checked(self, sql: str) -> Answer:
        try:
            check(self.session, sql, self.served.read_only)
        except CancelledError:
            raise
        except TsqlError as error:
            return {"type": "checked", "error": error_fields(error, sql)}
        return {"type": "checked", "error": None}

    def _planner(self, request: dict[str, Any]) -> Callable[[], Answer]:
        if "plan" in request:
            text = _text(request, "plan")
            return lambda: self._plan(text, lambda: plan_fields(LoadedPlan(text).bind(self.session), text))
        sql = _text(request, "sql")
        return lambda: self._plan(sql, lambda: plan_fields(planned(self.session, sql)))

    def _plan(self, text: str, find: Callable[[], dict[str, Any]]) -> Answer:
        try:
            return {"type": "plan", **find(), "error": None}
        except CancelledError:
            raise
        except TsqlError as error:
            return {"type": "plan", "file": None, "steps": [], "notes": [], "error": error_fields(error, text)}

    def _run(self, id: int, request: dict[str, Any]) -> None:
        panel = request.get("panel")
        if not isinstance(panel, str | int | None):
            raise BadRequest("a panel is a number or a text")
        if panel not in self.panels and len(self.panels) >= MOST_PANELS:
            raise BadRequest(f"a page has at most {MOST_PANELS} panels")
        if any(run.id == id for run in self.panels.values()):
            raise BadRequest(f"there is a run {id} already")
        if "plan" in request:
            asked = Request(None, _text(request, "plan"))
        else:
            asked = Request(
                _text(request, "sql"), None, filters_of(request.get("filters")), request.get("progressive") is True
            )
        before = self.panels.get(panel)
        if before is not None:
            before.stop()
            self._replaced = [*(run for run in self._replaced if not run.is_over), before]
        post = lambda message, frame, key: self._post(id, message, frame, key)
        run = PanelRun(id, asked, self.served, post)
        self.panels[panel] = run
        if not self._ended.is_set():
            run.start()
            self._outbox.wake()

    def _found(self, request: dict[str, Any]) -> PanelRun | None:
        of = _number(request, "of")
        return next((run for run in self.panels.values() if run.id == of), None)

    def _send_rows(self, id: int, request: dict[str, Any]) -> None:
        run, first, count = self._found(request), _number(request, "first"), _number(request, "count")
        result: Result | None = None if run is None else run.result
        if result is None:
            raise BadRequest(f"the run {request['of']} has no rows here")
        self._outbox.post(result.frame(id, first, count))

    def _tick(self) -> bool:
        """Tell how far the runs are; whether any still runs."""
        running = [run for run in list(self.panels.values()) if not run.is_over]
        for run in running:
            try:
                run.tell_flow()
            except Exception:  # the messages that wait are still to be sent
                log.exception("the progress of a query of the studio cannot be told")
        return bool(running)

    def _look(self) -> None:
        """Answer the requests about texts, one after the other."""
        while True:
            waiting = self._requests.get()
            if waiting is None or self._ended.is_set():
                return
            id, find = waiting
            try:
                with AtWork(self._handle, self.session._running):
                    answer = find()
            except TsqlError as error:
                answer = {"type": "error", **error_fields(error, "")}
            except Exception as error:  # the page is told, and the next request is answered
                log.exception("a request of the studio failed")
                answer = {"type": "error", **plain_error(f"{type(error).__name__}: {error}")}
            self._answer(id, answer)

    def _answer(self, id: Any, answer: Answer) -> None:
        self._outbox.post(json.dumps({"id": id, **answer}))

    def _post(self, id: int, message: Answer, frame: bytes | None, key: object) -> None:
        text = json.dumps({"id": id, **message})
        self._outbox.post(*(() if frame is None else (frame,)), text, key=key)


def _request(message: str | bytes) -> dict[str, Any]:
    """A message as the object that it is."""
    if isinstance(message, bytes):
        raise BadRequest("a request is text")
    try:
        request = json.loads(message)
    except (ValueError, RecursionError):
        raise BadRequest("a request is JSON") from None
    if not isinstance(request, dict):
        raise BadRequest("a request is an object")
    _number({"op": "a request", **request}, "id")
    return request


def _text(request: dict[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str):
        raise BadRequest(f"{request.get('op')} takes a text as its {name}")
    return value


def _number(request: dict[str, Any], name: str) -> int:
    value = request.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadRequest(f"{request.get('op')} takes a whole number as its {name}")
    return value
