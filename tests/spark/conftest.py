"""One Spark cluster for all tests of the folder: two executors with a core each, in processes of their own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
