"""The corpus on a Spark session: our engine of `tests/slt/engines.py`, connected to it."""

from __future__ import annotations

from typing import Any

import tsql
from tests.slt.engines import Config, Tsql


class SparkTsql(Tsql):
    """Our engine on a Spark session; the name of its configuration in the corpus is `spark`."""

    def __init__(self, session: Any, progressive: bool = False, **settings: Any):
        super().__init__(Config("spark", progressive=progressive))
        self._db.close()
        self._db = tsql.connect(spark=session, **settings)
