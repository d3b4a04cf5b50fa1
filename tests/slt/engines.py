"""The engines that the corpus runs on, behind one small interface, and the configurations of ours (DESIGN 10)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.duck import empty_duckdb
from tests.slt.datasets import DATASETS

_SELECT = re.compile(r"\s*(select|with|from)\b", re.IGNORECASE)
_CHANGE = re.compile(r"\b(insert|update|delete)\b", re.IGNORECASE)
_QUERY = re.compile(r"\s*\(*\s*(select|from|values|with|table|pivot|unpivot|describe|show)\b", re.IGNORECASE)


def reads_only(sql: str) -> bool:
    """Whether a statement has rows and changes nothing."""
    return _QUERY.match(sql) is not None


@dataclass(frozen=True)
class Config:
    """One way to run the corpus: the settings of the session, the backend, and the treatment of the plan or the
    tables."""

    name: str
    backend: str = "local"
    settings: dict[str, Any] = field(default_factory=dict)
    reload_plan: bool = False
    blocks: bool = False
    stored: bool = False
    repeated: bool = False
    progressive: bool = False


CONFIGS = {
    config.name: config
    for config in (
        Config("default"),
        Config("batch_rows_1", settings={"batch_rows": 1}),
        Config("equal_hashes", settings={"equal_hashes": True}),
        Config("shards_3", settings={"shards": 3}),
        Config("no_optimizer", settings={"optimizer": False}),
        Config("interp", backend="interp"),
        Config("plan_text", reload_plan=True),
        Config("blocks", blocks=True),
        Config("stored_plans", blocks=True, stored=True),
        Config("repeated", blocks=True, repeated=True),
        Config("spill", settings={"spill_after": 1}),
        Config("progressive", progressive=True),
    )
}


class Tsql:
    """Our engine under one configuration."""

    name = "tsql"

    def __init__(self, config: Config):
        import tsql
        from tsql.kernels.expr.errors import TsqlError

        self.error = TsqlError
        self._tsql = tsql
        self._config = config
        self._db = tsql.connect(backend=config.backend, **config.settings)

    def load(self, dataset: str) -> None:
        if self._config.blocks:
            self._db.register(f"{dataset}_arrow", DATASETS[dataset])
            self._db.execute(f"CREATE TABLE {dataset} AS SELECT * FROM {dataset}_arrow")
        else:
            self._db.register(dataset, DATASETS[dataset])

    def query(self, sql: str, params: Any = None) -> pa.Table:
        relation = self._db.sql(sql, params) if params is not None else self._db.sql(sql)
        # DESCRIBE and INSERT .. RETURNING have no plan; the plan of EXECUTE has parameters whose values are in the
        # statement.
        if self._config.reload_plan and relation._describe_plan is not None and not sql.upper().startswith("EXECUTE"):
            plan = self._tsql.load_plan_text(relation.plan())
            return (plan.run(self._db, params) if params is not None else plan.run(self._db)).arrow()
        if self._config.progressive and _SELECT.match(sql) and not _CHANGE.search(sql):
            return self._last_snapshot(sql, params)
        if self._config.stored and relation._describe_plan is not None:
            return self._stored(sql, params, relation)
        if self._config.repeated and relation._describe_plan is not None:
            # The second run of a plan may be recorded, and the third repeats it (backends/local/run/repeat.py).
            for _ in range(2):
                self._db.sql(sql, params).arrow()
            return self._db.sql(sql, params).arrow()
        return relation.arrow()

    def _stored(self, sql: str, params: Any, relation: Any) -> pa.Table:
        """The rows of a query, computed from the plan and the programs that its first run left on disk."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TSQL_STORED_PLANS", "1")
            self._db._plans.clear()
            self._db.sql(sql, params).arrow()
            self._db._plans.clear()
            return self._db.sql(sql, params).arrow()

    def _last_snapshot(self, sql: str, params: Any) -> pa.Table:
        """The rows of a query behind all of its snapshots. Units are small, so that there are several."""
        text = re.split(r"(?i)\bemit\s+(?:final|changes|every)\b", sql)[0].rstrip().rstrip(";")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tsql.backends.local.progressive.units.LEAST_ROWS", 1)
            patch.setattr("tsql.backends.local.progressive.units.MOST_ROWS", 4)
            found = self._db.sql(f"{text}\nPROGRESSIVE EVERY 30 PERCENT SEED {len(sql)}", params)
            *shown, last = found.snapshots()
            assert last.is_final and not any(one.is_final for one in shown)
            assert all(one.table.schema.equals(last.table.schema) for one in shown)
            return last.table

    def execute(self, sql: str, params: Any = None) -> None:
        if reads_only(sql):
            self.query(sql, params)
        elif params is not None:
            self._db.execute(sql, params)
        else:
            self._db.execute(sql)

    def close(self) -> None:
        self._db.close()


class DuckDB:
    """The oracle. One thread, so that rows without ORDER BY keep the order of the table."""

    name = "duckdb"
    error = duckdb.Error

    def __init__(self) -> None:
        self._db = empty_duckdb()
        self._db.execute("SET TimeZone = 'UTC'")

    def load(self, dataset: str) -> None:
        table = DATASETS[dataset]
        # Arrow has no HUGEINT: a column of decimal128(38, 0) stands for one, as in our engine.
        hugeints = [f.name for f in table.schema if f.type == pa.decimal128(38, 0)]
        replaced = f" REPLACE ({', '.join(f'{name}::HUGEINT AS {name}' for name in hugeints)})" if hugeints else ""
        self._db.register("arrow_input", table)
        self._db.execute(f"CREATE TABLE {dataset} AS SELECT *{replaced} FROM arrow_input")
        self._db.unregister("arrow_input")

    def query(self, sql: str, params: Any = None) -> pa.Table:
        return self._db.sql(sql, params=params).to_arrow_table()

    def execute(self, sql: str, params: Any = None) -> None:
        if reads_only(sql):
            self.query(sql, params)
        else:
            self._db.execute(sql, params)

    def close(self) -> None:
        self._db.close()
