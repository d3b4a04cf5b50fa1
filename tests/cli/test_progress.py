"""The progress bar: on a terminal only, and only for runs that last."""

import io
import time

from rich.console import Console

from tsql.progress import DELAY_S, ProgressBar


def shown(seconds: float, *, terminal: bool, progress=lambda: 0.5, kind: str = "xterm") -> str:
    out = io.StringIO()
    with ProgressBar(progress, console=Console(file=out, force_terminal=terminal, width=80, _environ={"TERM": kind})):
        time.sleep(seconds)
    return out.getvalue()


def test_a_long_run_on_a_terminal():
    assert "50%" in shown(DELAY_S + 0.3, terminal=True)


def test_a_run_of_unknown_length():
    text = shown(DELAY_S + 0.3, terminal=True, progress=lambda: None)
    assert "running" in text and "%" not in text


def test_a_short_run_shows_nothing():
    assert shown(0.05, terminal=True) == ""


def test_a_terminal_that_cannot_redraw_shows_nothing():
    assert shown(DELAY_S + 0.2, terminal=True, kind="dumb") == ""


def test_a_pipe_shows_nothing():
    assert shown(DELAY_S + 0.2, terminal=False) == ""
