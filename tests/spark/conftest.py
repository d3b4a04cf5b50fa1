"""One Spark cluster for all tests of the folder: two executors with a core each, in processes of their own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MASTER = "local-cluster[2,1,2048]"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of the cluster go to one worker of xdist, which starts it once."""
    for item in items:
        if Path(__file__).parent in item.path.parents and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"))
            item.add_marker(pytest.mark.xdist_group("spark"))


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
