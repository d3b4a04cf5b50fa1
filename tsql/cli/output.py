"""Writes results, timings and errors for people and for pipes; shared by the CLI and the shell."""

from __future__ import annotations

import errno
import io
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from tsql.backends.io.whole_files import write_text
from tsql.cli.display import print_table
from tsql.cli.modes import MODES, write_mode
from tsql.cli.progress_bar import ProgressBar
from tsql.cli.terminal import console_of
from tsql.kernels.expr.errors import CancelledError, TsqlError
from tsql.relation import Relation

TEXT_FORMATS = ("table", "csv", "json", *MODES)
FORMATS = (*TEXT_FORMATS, "arrow", "parquet")
ALIASES = {"box": "table", "duckbox": "table", "jsonlines": "json", "ndjson": "json", "md": "markdown"}
"""The names of these formats in other shells."""
PIPE_ROWS = 10_000
"""The maximum number of rows of a table that is not cut to a terminal."""


def emit(
    relation: Relation,
    kind: str = "table",
    path: str | None = None,
    *,
    max_rows: int | None = None,
    progress: bool = True,
) -> int | None:
    """Write one result to stdout or to a file; the number of its rows where that is known."""
    terminal = sys.stdout.isatty()
    if path is None and relation.is_progressive and (kind == "json" or (terminal and kind == "table")):
        from tsql.cli.snapshots import print_snapshots, show_snapshots

        if kind == "json":
            return print_snapshots(relation, sys.stdout)
        return show_snapshots(relation.snapshots(), max_rows)
    # A progress bar on the same screen would be overwritten by the rows that stream past.
    with ProgressBar(
        lambda: relation.progress,
        activity=lambda: relation.activity,
        enabled=progress and not (terminal and path is None and kind != "table"),
    ):
        if kind in MODES:
            return _write_text(path, lambda file: write_mode(relation, kind, file))
        if kind != "table":
            if path is not None:
                return relation.write(path, kind)
            sys.stdout.flush()
            rows = relation.write_to(sys.stdout.buffer, kind)
            sys.stdout.buffer.flush()
            return rows
        return _write_text(path, lambda file: _print(relation, file, max_rows))


def _write_text(path: str | None, write: Callable[[TextIO], int | None]) -> int | None:
    """Have a text written to stdout, or to a file once it is whole."""
    if path is None:
        rows = write(sys.stdout)
        sys.stdout.flush()
        return rows
    text = io.StringIO()
    rows = write(text)
    write_text(path, text.getvalue())
    return rows


def _print(relation: Relation, file: TextIO, max_rows: int | None) -> int | None:
    if relation.text is not None:
        file.write(relation.text().rstrip("\n") + "\n")
        return None
    rows = print_table(relation, max_rows=max_rows, file=file, plain_rows=PIPE_ROWS)
    file.flush()
    return rows


def timing(relation: Relation, begun: float, rows: int | None = None) -> str:
    """One line with the milliseconds of each stage, and of everything since `begun`."""
    stages = [f"{name} {ms:.1f} ms" for name, ms in relation.timings.items()]
    stages.append(f"total {(time.perf_counter() - begun) * 1000:.1f} ms")
    return ", ".join(stages) + ("" if rows is None else f" ({rows:,} row{'s' * (rows != 1)})")


def message_of(error: BaseException) -> str:
    """The message of an error for the user."""
    if isinstance(error, CancelledError):
        return "cancelled"
    if isinstance(error, TsqlError):
        return f"error: {error}"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"error: {where}{error.strerror or error}"
    if isinstance(error, MemoryError):
        return "error: out of memory"
    if isinstance(error, RecursionError):
        return "error: the query is nested too deeply"
    return f"internal error: {type(error).__name__}: {error}\nhint: --debug shows where; please report it"


def report(error: BaseException, *, debug: bool = False) -> None:
    """Print one message about an error to stderr; with `debug` the traceback before it."""
    sys.stdout.flush()
    if debug:
        traceback.print_exception(error)
    text = message_of(error)
    console = console_of(sys.stderr)
    if console is not None:
        from rich.text import Text

        first, _, rest = text.partition(":")
        console.print(Text.assemble((first, "bold red"), ":" * (":" in text), rest), soft_wrap=True)
    else:
        print(text, file=sys.stderr, flush=True)


def read_text(path: str, what: str) -> tuple[str, str]:
    """The text of a file (or of stdin for `-`) and the name by which errors call it."""
    if path == "-":
        return sys.stdin.read(), "<stdin>"
    try:
        return Path(path).read_text(encoding="utf-8-sig"), path
    except UnicodeDecodeError as error:
        raise TsqlError(f"{path} is no {what}: byte {error.start} is not UTF-8") from error


class ClosedOutput(io.TextIOBase):
    """A stdout that was closed before the command started. Python has none then; here, writing to it is an ordinary
    error."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "it is closed", "stdout")

    @property
    def buffer(self) -> Any:
        """Where bytes are written, which is an error too."""
        return self.write("")


def replace_closed() -> None:
    """Replace missing streams, so that commands without output work. Otherwise `print` would write messages for stderr
    to stdout."""
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")


def tolerate_encoding(*streams: Any) -> None:
    """Let text that a stream's encoding cannot hold appear escaped instead of failing."""
    for stream in streams:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
