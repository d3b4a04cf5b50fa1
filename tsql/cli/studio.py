"""`tsql studio`: opens a database or files, serves the studio, and opens a browser. `command.py` calls it."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from tsql.backends.io import remote
from tsql.cli.command import UsageError
from tsql.kernels.expr.errors import CatalogError, TsqlError
from tsql.kernels.expr.keywords import quote
from tsql.parameters import literal
from tsql.session import Session
from tsql.storage.database import CURRENT
from tsql.studio import serve
from tsql.studio.history import studio_history


def sorted_paths(paths: Sequence[str]) -> tuple[str | None, list[str]]:
    """The folder of a database among the arguments, and all others: files, and folders of files."""
    databases: list[str] = []
    files: list[str] = []
    for path in paths:
        if not remote.is_remote(path) and not os.path.exists(path):
            raise UsageError(f"there is no file or folder {path}")
        (databases if os.path.isfile(os.path.join(path, CURRENT)) else files).append(path)
    if len(databases) > 1:
        raise UsageError("a studio opens one database")
    return (databases[0] if databases else None), files


def add_views(session: Session, paths: Sequence[str]) -> None:
    """Make each file a view with the name of its stem."""
    names: dict[str, str] = {}
    for path in paths:
        name = Path(path.rstrip("/")).name.partition(".")[0] or path
        taken = names.setdefault(name.lower(), path)
        if taken != path:
            raise UsageError(f"{taken} and {path} would both be the view {name}: name one with -t NAME=FILE")
        if session.catalog.entry(name) is not None:
            raise UsageError(f"{path} would be the view {name}, and the database has that name already")
        try:
            session.sql(f"CREATE TEMP VIEW {quote(name)} AS FROM {literal(path)}")
        except TsqlError as error:
            raise UsageError(f"{path}: {error.message}") from error


def run(session: Session, port: int, host: str, read_only: bool, with_browser: bool) -> None:
    """Serve the studio until Ctrl-C."""
    try:
        studio = serve(session, port=port, host=host, read_only=read_only, history=studio_history())
    except CatalogError as error:
        raise UsageError(error.message) from error
    with studio:
        print(f"the studio is at {studio.address} (Ctrl-C ends it)", flush=True)
        if with_browser and has_display():
            open_browser(studio.address)
        studio.wait()


def has_display() -> bool:
    """Whether a browser would have a window to open."""
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )


def open_browser(address: str) -> None:
    """Open the page; without a browser the address on the terminal has to do."""
    try:
        webbrowser.open(address)
    except (webbrowser.Error, OSError):
        pass
