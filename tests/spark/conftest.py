"""One Spark cluster for all tests of the folder: two executors with a core each, in processes of their own. And one
Spark Connect server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("tests.spark.suites")

MASTER = "local-cluster[2,1,2048]"


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    import pyspark

    from tsql.backends.spark.start import start

    session, ours = start(MASTER)
    application = session.sparkContext.applicationId
    yield session
    if ours:
        session.stop()
    # A local cluster keeps the logs of its executors inside of the installed package.
    shutil.rmtree(Path(pyspark.__file__).parent / "work" / application, ignore_errors=True)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server."""
    from tests.spark.server import connect_server

    with connect_server(
        tmp_path_factory.mktemp("server"), spark_python_daemon_module="tsql.backends.spark.daemon"
    ) as address:
        yield address


@pytest.fixture(scope="session")
def remote(server: str) -> Iterator[Any]:
    """A session of the server. (A builder of `pyspark.sql` would make every session of this process a remote one.)"""
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(server).create()
    yield session
    session.stop()
