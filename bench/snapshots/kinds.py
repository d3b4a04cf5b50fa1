"""Kinds of data over which bounds are checked, the values that are asked for, and their exact results, by DuckDB.

Rows that lie together are in the same unit of a sample. So a kind says how alike neighbours are and where groups live:
that decides how far an estimate may be off."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

UNITS = 1_000
"""The units that tables are made for: a group of the kind `rare` lives in 5 or in 20 of so many."""
GROUPS = 8
SEED = 11

VALUES = {
    "count": "count(*)",
    "sum": "sum({x})",
    "avg": "avg({x})",
    "ratio": "sum({x}) / sum({y})",
    "stddev": "stddev_samp({x})",
    "median": "median({x})",
    "p90": "quantile_cont({x}, 0.9)",
    "corr": "corr({x}, {y})",
    "distinct": "count(DISTINCT {d})",
    "min": "min({x})",
    "max": "max({x})",
}
TOGETHER = (("count", "sum", "avg", "ratio", "stddev"), ("median", "p90"), ("corr",), ("distinct",), ("min", "max"))
"""Values that one query asks for. One value that cannot progress would keep all others of its query from it."""
STOPPING = (
    *(("count", "sum"), ("avg", "ratio"), ("stddev",), ("median",), ("p90",), ("corr",), ("distinct",)),
    *(("min",), ("max",)),
)
"""Values that stop together: a query stops when the last of its values is close enough."""


@dataclass(frozen=True)
class Kind:
    """Tables and what is asked of them. `x`, `y` and `d` are what {x}, {y} and {d} stand for in values; `part` names
    the cells that a group counts for."""

    name: str
    tables: Callable[[int], dict[str, pa.Table]]
    source: str = "t"
    x: str = "x"
    y: str = "y"
    d: str = "d"
    key: str = "g"
    part: Callable[[int], str] = lambda group: ""

    def query(self, values: Iterable[str]) -> str:
        """The query for some values of each group."""
        asked = [f"{VALUES[value].format(x=self.x, y=self.y, d=self.d)} AS {value}" for value in values]
        return f"SELECT {self.key} AS g, {', '.join(asked)} FROM {self.source} GROUP BY {self.key}"

    def cell(self, group: int) -> str:
        """The name of the cells that a group counts for."""
        return ", ".join(filter(None, (self.name, self.part(group))))


def _drawn(rows: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(SEED)
    return rng, rng.integers(0, GROUPS, rows), rng.uniform(0, 1, rows)


def _table(rng: np.random.Generator, g: np.ndarray, x: np.ndarray) -> dict[str, pa.Table]:
    """With a second measure that goes with the first, and whole numbers of which some are rare."""
    y = x * rng.uniform(0.5, 1.5, len(x)) + 1
    d = np.minimum(rng.geometric(0.01, len(x)), 5_000)
    return {"t": pa.table({"g": g.astype(np.int64), "x": x, "y": y, "d": d})}


def uniform(rows: int) -> dict[str, pa.Table]:
    """Nothing depends on the place."""
    rng, g, x = _drawn(rows)
    return _table(rng, g, x)


def lognormal(rows: int) -> dict[str, pa.Table]:
    """Few rows have a large part of a sum."""
    rng, g, _ = _drawn(rows)
    return _table(rng, g, rng.lognormal(0, 1.5, rows))


def ordered(rows: int) -> dict[str, pa.Table]:
    """Sorted by the measure: a unit has nearly equal values."""
    rng, g, x = _drawn(rows)
    return _table(rng, g, np.sort(x))


def clustered(rows: int) -> dict[str, pa.Table]:
    """Each group lives in an eighth of the table, in adjacent units, and has a mean of its own."""
    rng, _, x = _drawn(rows)
    g = np.arange(rows) * GROUPS // rows
    return _table(rng, g, x + g / GROUPS)


def trended(rows: int) -> dict[str, pa.Table]:
    """The measure rises from the first row to the last."""
    rng, g, x = _drawn(rows)
    return _table(rng, g, x + np.linspace(0, 2, rows))


RARE = {GROUPS: 5, GROUPS + 1: 20}
"""Groups that live in so many adjacent units of `rare`."""


def rare(rows: int) -> dict[str, pa.Table]:
    """Two groups live in few units that lie together, and have half of the rows there."""
    rng, g, x = _drawn(rows)
    unit = rows // UNITS
    for place, (group, units) in enumerate(RARE.items()):
        first = (300 + 400 * place) * unit
        here = slice(first, first + units * unit)
        g[here] = np.where(rng.uniform(0, 1, units * unit) < 0.5, group, g[here])
    return _table(rng, g, x)


def joined(rows: int) -> dict[str, pa.Table]:
    """A table of facts and one of what they are about: measures from both, and groups from the small one."""
    rng, _, x = _drawn(rows)
    products = 1_000
    dim = pa.table({
        "k": np.arange(products),
        "g": rng.integers(0, GROUPS, products),
        "w": rng.lognormal(0, 0.5, products),
    })  # fmt: skip
    fact = pa.table({
        "k": rng.integers(0, products, rows),
        "v": x,
        "d": np.minimum(rng.geometric(0.01, rows), 5_000),
    })  # fmt: skip
    return {"fact": fact, "dim": dim}


def skewed(rows: int) -> dict[str, pa.Table]:
    """Two hundred groups; the first has a sixth of the rows, the last a thousandth."""
    rng, _, x = _drawn(rows)
    shares = 1 / np.arange(1, 201)
    return _table(rng, rng.choice(200, rows, p=shares / shares.sum()), x)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("uniform", uniform),
        Kind("lognormal", lognormal),
        Kind("sorted", ordered),
        Kind("clustered", clustered),
        Kind("trended", trended),
        Kind("rare", rare, part=lambda group: f"{RARE[group]} units" if group in RARE else "others"),
        Kind("joined", joined, "fact JOIN dim ON fact.k = dim.k", "v * w", "w", "fact.d", "dim.g"),
        Kind("skewed keys", skewed, part=lambda group: "first 20" if group < 20 else "others"),
    )
}


def exact(kind: Kind, tables: dict[str, pa.Table], values: Iterable[str]) -> dict[int, dict[str, float]]:
    """The results of each group, by DuckDB."""
    import duckdb

    with duckdb.connect(config={"threads": 2}) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        found: list[dict[str, Any]] = connection.sql(kind.query(values)).to_arrow_table().to_pylist()
    return {int(row.pop("g")): {name: float(value) for name, value in row.items()} for row in found}
