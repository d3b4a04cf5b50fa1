"""The tables of the big data benchmark of Quill's evaluation (sections 6.1 and 6.3), generated: pages with their ranks,
and visits to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.cluster.data import GROUP_ROWS, made_once, write

SEED = 6
RANKS = 10_000
"""Ranks are spread evenly from 0 to this, so that a bound on them is a share of the rows."""
DAYS = 16_384
"""Visits are spread evenly over so many days from the first of 1970."""
PREFIX_GROUPS = {3: 256, 6: 6_656, 9: 196_608, 15: 1 << 32}
"""How many source addresses there can be by the length of their prefix: few, thousands, hundreds of thousands, and so
many that nearly each visit has its own."""


def tables(visits: int, pages: int) -> dict[str, Path]:
    """The path of each table with so many rows. Missing tables are made."""

    def make(folder: Path) -> None:
        write(folder / "rankings.parquet", _rankings(pages), pages)
        write(folder / "uservisits.parquet", _visits(visits, pages), visits)

    folder = made_once(f"visits-{visits}-{pages}", make)
    return {name: folder / f"{name}.parquet" for name in ("rankings", "uservisits")}


def _rankings(rows: int) -> Iterator[pa.Table]:
    for number, first in enumerate(range(0, rows, GROUP_ROWS)):
        count = min(GROUP_ROWS, rows - first)
        random = np.random.default_rng([SEED, 0, number])
        yield pa.table(
            {
                "pageURL": _urls(np.arange(first, first + count)),
                "pageRank": pa.array(random.integers(0, RANKS, count), pa.int32()),
                "avgDuration": pa.array(random.integers(1, 100, count), pa.int32()),
            }
        )


def _visits(rows: int, pages: int) -> Iterator[pa.Table]:
    for number, first in enumerate(range(0, rows, GROUP_ROWS)):
        count = min(GROUP_ROWS, rows - first)
        random = np.random.default_rng([SEED, 1, number])
        yield pa.table(
            {
                "sourceIP": _addresses(random.integers(0, 256, (4, count))),
                "destURL": _urls(random.integers(0, pages, count)),
                "visitDate": pa.array(random.integers(0, DAYS, count), pa.int32()).cast(pa.date32()),
                "adRevenue": pa.array(random.integers(1, 100_000, count) / 100),
                "duration": pa.array(random.integers(1, 1_000, count), pa.int32()),
            }
        )


def _urls(numbers: np.ndarray) -> pa.Array:
    """Addresses of pages that begin alike, as those of one site do."""
    return pc.binary_join_element_wise("http://example.org/", pa.array(numbers).cast(pa.string()), "")


def _addresses(octets: np.ndarray) -> pa.Array:
    """Addresses with three digits for each number, so that a prefix is a number of groups."""
    words = pa.array([f"{number:03}" for number in range(256)])
    parts = [pa.DictionaryArray.from_arrays(pa.array(part.astype(np.int16)), words) for part in octets]
    return pc.binary_join_element_wise(*(part.cast(pa.string()) for part in parts), ".")
