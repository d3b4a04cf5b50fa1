"""The last queries of the studio: text, when, how long, how many rows, and the error of those that failed.

They are kept in memory, and in a file beside the history of the shell if a path is given. A file that cannot be read or
written is left alone: queries run without it."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from pathlib import Path
from typing import Any

from tsql.cli.shell import history_path

MOST = 200
"""How many queries the page is told of."""

MOST_KEPT = 2_000
"""The lines of a file: with more, the older half goes."""

_KINDS: dict[str, tuple[type, ...]] = {
    "sql": (str,),
    "at": (str,),
    "ms": (int, float),
    "rows": (int, type(None)),
    "error": (str, type(None)),
}


def studio_history() -> Path:
    """The file for the queries of `tsql studio`, where the shell keeps its own."""
    return history_path().with_name("studio-history.jsonl")


class History:
    """The queries of one studio, with those of earlier ones if there is a file."""

    def __init__(self, path: Path | None = None):
        self._path = path
        self._lock = threading.Lock()
        self._entries: deque[dict[str, Any]] = deque(maxlen=MOST)
        if path is not None:
            self._read(path)

    def add(self, sql: str, at: str, ms: float, rows: int | None, error: str | None) -> None:
        """Note a query that has ended."""
        entry = {"sql": sql, "at": at, "ms": round(ms, 3), "rows": rows, "error": error}
        with self._lock:
            self._entries.append(entry)
            if self._path is not None:
                self._write(self._path, json.dumps(entry) + "\n", os.O_APPEND)

    def entries(self) -> list[dict[str, Any]]:
        """The last queries, the newest first."""
        with self._lock:
            return list(reversed(self._entries))

    def _read(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return
        for line in lines[-MOST:]:
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict) and all(isinstance(entry.get(k, ...), kinds) for k, kinds in _KINDS.items()):
                self._entries.append({name: entry[name] for name in _KINDS})
        if len(lines) > MOST_KEPT:
            self._write(path, "\n".join(lines[-MOST_KEPT // 2 :]) + "\n", os.O_TRUNC)

    def _write(self, path: Path, text: str, flag: int) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o600)
            with open(descriptor, "wb") as file:
                file.write(text.encode())
        except OSError:
            self._path = None
