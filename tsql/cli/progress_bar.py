"""A progress bar on a terminal's stderr for runs that last; the CLI and the shell wrap their runs in it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from tsql.cli.terminal import may_be_terminal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

DELAY_S = 0.5
_REFRESH_S = 0.1


class ProgressBar:
    """Shows `progress()` (0 to 1, None: unknown) and what `activity()` says while the context is active, from half a
    second on. Off a terminal, on one that cannot redraw a line, or with `enabled` false, it does nothing."""

    def __init__(
        self,
        progress: Callable[[], float | None],
        *,
        activity: Callable[[], str] = str,
        enabled: bool = True,
        console: Console | None = None,
    ) -> None:
        self._progress, self._activity = progress, activity
        self._console = console
        self._enabled = enabled and (console.is_terminal if console is not None else may_be_terminal(sys.stderr))
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ProgressBar:
        if self._enabled:
            self._thread = threading.Thread(target=self._show, name="tsql-progress", daemon=True)
            self._thread.start()
        return self

    def _show(self) -> None:
        if self._done.wait(DELAY_S):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = self._console or Console(file=sys.stderr)
        if not console.is_terminal or console.is_dumb_terminal:
            return
        share, doing = TextColumn("{task.fields[share]}"), TextColumn("{task.fields[doing]}")
        columns = (TextColumn("running"), BarColumn(), share, TimeElapsedColumn(), doing)
        with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
            task = bar.add_task("", total=None, share="", doing="")
            while True:
                self._update(bar, task)
                if self._done.wait(_REFRESH_S):
                    return

    def _update(self, bar: Progress, task: TaskID) -> None:
        part = self._progress()
        if part is not None:
            bar.update(task, total=1.0, completed=part, share=f"{part:4.0%}")
        doing = self._activity()
        if doing:
            bar.update(task, doing=doing)
        bar.refresh()

    def stop(self) -> None:
        """Take the bar away; what follows may print."""
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
