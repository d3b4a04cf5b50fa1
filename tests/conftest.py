"""Options of the test run that several test modules share."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.watchdog import Watchdog
from tsql.kernels.emit import program_store

FULL_IN = 16
"""One kernel in this many is compiled in full, which takes ten times as long."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tsql")
    group.addoption(
        "--config",
        action="append",
        default=[],
        metavar="NAME",
        help="run the slt corpus under this configuration only, in full (repeatable)",
    )
    group.addoption(
        "--all-configurations",
        action="store_true",
        help=(
            "run every record of the slt corpus under every configuration, and all tests marked "
            "all_configurations or in_turn"
        ),
    )
    group.addoption(
        "--complete",
        action="store_true",
        help="fill in the expected rows of the slt corpus from DuckDB instead of testing",
    )
    group.addoption(
        "--regen",
        action="store_true",
        help="rewrite golden texts (rules, plans, errors, documents) instead of testing; review reads the diff",
    )
    group.addoption(
        "--engine",
        default="tsql",
        choices=("tsql", "duckdb"),
        help="duckdb: check the slt corpus against the oracle alone",
    )
    group.addoption(
        "--strict-names",
        action="store_true",
        help="compare also the column names that DuckDB makes up from expressions",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Not in the process that waits for xdist's workers: each worker has its own watchdog.
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Watchdog(sys.__stderr__.fileno() if sys.__stderr__ else 2))


@pytest.fixture(scope="session", autouse=True)
def no_user_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Plans use the default costs, whatever `tsql calibrate` has measured for the user who runs the tests."""
    before = os.environ.get("XDG_CONFIG_HOME")
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    yield
    if before is None:
        del os.environ["XDG_CONFIG_HOME"]
    else:
        os.environ["XDG_CONFIG_HOME"] = before


@pytest.fixture(scope="session", autouse=True)
def no_stored_plans() -> Iterator[None]:
    """Tests that patch rules, costs or the catalog must not find plans that other tests left on disk. The tests of
    stored plans turn them on."""
    os.environ["TSQL_STORED_PLANS"] = "0"
    program_store.CHECKED = True
    yield
    del os.environ["TSQL_STORED_PLANS"]


@pytest.fixture(scope="session", autouse=True)
def one_level_of_code() -> Iterator[None]:
    """Code is compiled only once (`kernels/codegen/levels.py`), also in processes that tests start. Most test queries
    run once: recompiling in the background took a tenth of the suite's time and was never ready in time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TSQL_BETTER_CODE", f"1/{FULL_IN}")
        yield


@pytest.fixture(autouse=True)
def sigint_as_it_was() -> Iterator[None]:
    """A test that leaves another SIGINT handler behind fails, instead of the test after it. The run may have been
    started with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture
def regen(request: pytest.FixtureRequest) -> bool:
    """Whether golden texts are to be rewritten."""
    return request.config.getoption("--regen")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "slt_config" not in metafunc.fixturenames:
        return
    from tests.slt.engines import CONFIGS
    from tests.slt_runner import CORPUS, corpus_files

    chosen = metafunc.config.getoption("--config") or list(CONFIGS)
    unknown = sorted(set(chosen) - set(CONFIGS))
    if unknown:
        raise pytest.UsageError(f"--config {unknown[0]}: the configurations are {', '.join(CONFIGS)}")
    if metafunc.config.getoption("--complete") or metafunc.config.getoption("--engine") == "duckdb":
        chosen = chosen[:1]
    # By file, then by configuration: a worker gets neighbours and asks the oracle once for all of them.
    pairs = [(path, name) for path in corpus_files() for name in chosen]
    metafunc.parametrize(
        ("slt_path", "slt_config"),
        pairs,
        ids=[f"{path.relative_to(CORPUS).with_suffix('')}-{name}" for path, name in pairs],
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that are marked all_configurations or whose turn it is not, unless they are asked for."""
    if config.getoption("--all-configurations"):
        return
    from tests.turns import runs_by_default

    chosen = [runs_by_default(item) for item in items]
    left_out = [item for item, runs in zip(items, chosen) if not runs]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item, runs in zip(items, chosen) if runs]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Freeze imported and collected objects, so that the garbage collector does not walk them again and again, and
    collect less often: a compilation makes thousands of objects. (Both together save a fifth of the suite's time.)"""
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000_000, 20, 100)


@pytest.fixture(scope="module")
def settled() -> None:
    """For tests that look for leaks or measure: they collect garbage dozens of times. Without this each collection
    walks what earlier modules left (kernels, caches), which takes a second by the end of the suite."""
    gc.collect()
    gc.freeze()


@atexit.register
def thaw() -> None:
    """Unfreeze at the end of the process: otherwise DuckDB complains about leaks."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A worker sends xdist one report for a passing test instead of three. With ten thousand tests, reporting takes a
    fiftieth of the time."""
    if not hasattr(item.config, "workerinput"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadgroup` with one group: one worker runs all tests of the Spark cluster and starts it once. (The
    xdist_group mark has no effect under pytest 9.2: xdist 3.8 writes groups into node ids, which can no longer be
    changed.)"""
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.scheduling import OneCluster

    return OneCluster(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the failed records of the corpus by what is wrong with them."""
    kinds = Counter(
        kind
        for report in terminalreporter.getreports("failed")
        for name, found in report.user_properties
        if name == "slt_failures"
        for kind in found
    )
    if kinds:
        terminalreporter.write_line(
            "slt records that fail: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        )
