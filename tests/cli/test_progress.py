"""The progress bar: on a terminal only, and only for runs that last."""

import io

import pytest
from rich.console import Console

from tests.patience import wait_until
from tsql.cli.progress_bar import ProgressBar


@pytest.fixture
def delay(monkeypatch):
    """How long a run lasts before it gets a bar."""
    return lambda seconds: monkeypatch.setattr("tsql.cli.progress_bar.DELAY_S", seconds)


def shown(until, *, terminal=True, progress=lambda: 0.5, kind="xterm"):
    """What is printed by a run that lasts until its output has some text."""
    out = io.StringIO()
    with ProgressBar(
        progress, console=Console(file=out, force_terminal=terminal, width=80, _environ={"TERM": kind})
    ) as bar:
        if bar._thread is not None:
            wait_until(lambda: until in out.getvalue() or not bar._thread.is_alive())
    return out.getvalue()


def test_a_long_run_on_a_terminal(delay):
    delay(0.01)
    assert "50%" in shown("50%")


def test_a_run_of_unknown_length(delay):
    delay(0.01)
    text = shown("running", progress=lambda: None)
    assert "running" in text and "%" not in text


def test_a_short_run_shows_nothing(delay):
    delay(1000)
    assert shown("") == ""


def test_a_terminal_that_cannot_redraw_shows_nothing(delay):
    delay(0)
    assert shown("running", kind="dumb") == ""


def test_a_pipe_shows_nothing(delay):
    delay(0)
    assert shown("running", terminal=False) == ""
