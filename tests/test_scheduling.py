"""A test that kills its worker is one failure, and the run goes on without it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

from tests.scheduling import OneCluster

SUITE = """
import os
import pytest

@pytest.mark.parametrize("i", range(40))
def test_one(i):
    if i in (10, 39):
        os._exit(9)
"""

CONFTEST = """
def pytest_xdist_make_scheduler(config, log):
    from tests.scheduling import OneCluster
    return OneCluster(config, log)
"""


def test_a_crash_is_one_failure(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(SUITE)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    root = Path(__file__).parent.parent
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 38 passed" in done.stdout
    assert "crashed while running" in done.stdout and "test_one[10]" in done.stdout and "test_one[39]" in done.stdout


def test_one_worker_has_all_tests_of_the_cluster() -> None:
    """A module with a test or a fixture that takes the session is a part of the scope."""
    fixtures = {"spark": "spark", "remote": "connect", "server": "connect"}
    scheduler = OneCluster.__new__(OneCluster)
    for path in sorted(Path(__file__).parent.glob("spark/test_*.py")):
        functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
        scopes = {fixtures[a.arg] for node in functions for a in node.args.args if a.arg in fixtures}
        nodeid = f"tests/spark/{path.name}::test"
        assert scopes <= {scheduler._split_scope(nodeid)}, nodeid


class Dead:
    """A worker that has died since it was last heard of."""

    shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        raise OSError("cannot send (already closed?)")


def test_work_for_a_worker_that_has_died_comes_back() -> None:
    """Its end is told to the scheduler after the last test that it has done."""
    dead, scheduler = Dead(), OneCluster.__new__(OneCluster)
    scheduler.workqueue = OrderedDict({name: {name: False} for name in ("a", "b", "c")})
    scheduler.assigned_work, scheduler.registered_collections = {dead: {}}, {dead: ["a", "b", "c"]}
    scheduler._reschedule(dead)
    assert scheduler.remove_node(dead) == "a"
    assert list(scheduler.workqueue) == ["b", "c"]
