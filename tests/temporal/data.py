"""Small tables with the shapes that break temporal operators, the same rows in other orders and pieces, and the
comparison of answers.

`events(shape, seed)` and `periods(shape, seed)` are plain seeded generators; `event_tables` and `period_tables` are
Hypothesis strategies over the same columns, which shrink. `to_rows` gives what the references take."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from tests.temporal.reference.rows import DAY, HOUR, MINUTE, SECOND, Row, Rows, moment, us

EVENTS = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.int64()),
        ("name", pa.string()),
        ("v", pa.int64()),
        ("x", pa.float64()),
        ("ts", pa.timestamp("us")),
    ]
)
"""Points in time: `id` numbers the rows of a table, `k` and `name` are keys, `v` and `x` values; all but `id` may be
NULL."""
PERIODS = pa.schema(
    [("id", pa.int64()), ("k", pa.int64()), ("v", pa.int64()), ("vs", pa.timestamp("us")), ("ve", pa.timestamp("us"))]
)
"""Lifetimes: NULL `ve` is open; NULL `vs` and `ve <= vs` are never alive."""

NOON = us("2024-02-29 12:00:00")
SIZE = 10 * SECOND
"""The window size that the data is made for: multiples of it, of its tenth and of its sixfold are on bounds."""
BATCH_ROWS = (1, 2, 7, 64, None)
"""Batch sizes for metamorphic tests; None is everything at once."""


def repeatable(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A property test that tries the same examples in every run."""
    return hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        print_blob=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


Times = Callable[[random.Random, int], list[int | None]]
Keys = Callable[[random.Random, int], list[int | None]]


def _spread(first: int, span: int) -> Times:
    return lambda rng, rows: [first + rng.randrange(span) for _ in range(rows)]


def _sorted(rng: random.Random, rows: int) -> list[int | None]:
    return list(sorted(NOON + rng.randrange(MINUTE) for _ in range(rows)))


def _on_bounds(rng: random.Random, rows: int) -> list[int | None]:
    """On a bound, or a microsecond beside it."""
    return [
        NOON + rng.randrange(-6, 7) * SIZE + rng.choice((0, SECOND)) + rng.choice((-1, 0, 0, 1)) for _ in range(rows)
    ]


def _around_1970(rng: random.Random, rows: int) -> list[int | None]:
    return [rng.choice((-1, 1)) * rng.randrange(3 * SIZE) for _ in range(rows)]


def _gaps(rng: random.Random, rows: int) -> list[int | None]:
    """Bursts with seconds, days or decades between them."""
    result, time = [], us("1969-12-31 23:00:00")
    for _ in range(rows):
        time += rng.choice(
            (0, SECOND // 2, SECOND, 2 * SECOND, SIZE, SIZE + 1, 3 * DAY, 3_650 * DAY if rng.random() < 0.1 else SECOND)
        )
        result.append(time)
    return list(result)


def _some_null(rng: random.Random, rows: int) -> list[int | None]:
    return [None if rng.random() < 0.3 else NOON + rng.randrange(MINUTE) for _ in range(rows)]


def _few_keys(rng: random.Random, rows: int) -> list[int | None]:
    return [rng.randrange(4) for _ in range(rows)]


def _null_keys(rng: random.Random, rows: int) -> list[int | None]:
    return [rng.choice((None, None, 1, 2)) for _ in range(rows)]


def _skewed(rng: random.Random, rows: int) -> list[int | None]:
    """One key has most of the rows, many have one."""
    return [7 if rng.random() < 0.8 else rng.randrange(-1_000_000, 1_000_000) for _ in range(rows)]


SHAPES: dict[str, tuple[Times, Keys]] = {
    "ordered": (_sorted, _few_keys),
    "unsorted": (_spread(NOON, MINUTE), _few_keys),
    "equal_times": (lambda rng, rows: [NOON] * rows, _few_keys),
    "few_times": (lambda rng, rows: [NOON + rng.randrange(4) * SECOND for _ in range(rows)], _few_keys),
    "on_bounds": (_on_bounds, _few_keys),
    "before_1970": (_spread(us("1901-03-01"), HOUR), _few_keys),
    "around_1970": (_around_1970, _few_keys),
    "long_gaps": (_gaps, _few_keys),
    "null_keys": (_spread(NOON, MINUTE), _null_keys),
    "null_times": (_some_null, _null_keys),
    "all_null_times": (lambda rng, rows: [None] * rows, _few_keys),
    "skewed": (_spread(NOON, MINUTE), _skewed),
    "all_in_one_key": (_spread(NOON, MINUTE), lambda rng, rows: [3] * rows),
    "every_row_its_key": (_spread(NOON, MINUTE), lambda rng, rows: list(range(rows))),
}
"""What times and keys look like. `empty`, `one_row` and `duplicates` are shapes as well."""

ALL_SHAPES = ("empty", "one_row", "duplicates", *SHAPES)


@cache
def events(shape: str, seed: int = 0, rows: int = 60) -> pa.Table:
    """A table of `EVENTS` with a shape of `ALL_SHAPES`; the same arguments give the same table."""
    rng = random.Random(f"{shape} {seed} {rows}")
    if shape == "duplicates":
        some = events("few_times", seed, max(rows // 3, 1)).to_pylist()
        repeated = [rng.choice(some) | {"id": place} for place in range(rows)]
        return pa.Table.from_pylist(repeated, EVENTS)
    rows = {"empty": 0, "one_row": 1}.get(shape, rows)
    times, keys = SHAPES["unsorted" if shape in ("empty", "one_row") else shape]
    made = [
        {
            "id": place,
            "k": key,
            "name": rng.choice(("a", "b", "", "ä long name of a key, past any inlined prefix", None)),
            "v": rng.choice((None, 0, 1, -1, 5, 5, 10**12, rng.randrange(-100, 100))),
            "x": rng.choice((None, 0.0, 0.5, -0.25, rng.randrange(1000) / 8)),
            "ts": None if time is None else moment(time),
        }
        for place, (time, key) in enumerate(zip(times(rng, rows), keys(rng, rows)))
    ]
    return pa.Table.from_pylist(made, EVENTS)


@cache
def periods(shape: str, seed: int = 0, rows: int = 40, closed: bool = False) -> pa.Table:
    """A table of `PERIODS` whose starts have the shape; ends are often equal to other ends. `closed`: none is open."""
    rng = random.Random(f"periods {shape} {seed} {rows}")
    starts = events(shape, seed, rows)
    durations = (0, 1, SECOND, SIZE, SIZE, SIZE - 1, MINUTE, -SECOND, rng.randrange(1, MINUTE))
    made = []
    for row in starts.select(["id", "k", "v", "ts"]).to_pylist():
        start = row.pop("ts")
        end = (
            None if start is None or (not closed and rng.random() < 0.15) else moment(us(start) + rng.choice(durations))
        )
        made.append(row | {"v": rng.randrange(3), "vs": start, "ve": end})
    return pa.Table.from_pylist(made, PERIODS)


def event_times() -> st.SearchStrategy[int]:
    """Times that meet each other and the bounds of windows often, before and after 1970."""
    near = st.builds(
        lambda base, tens, rest: base + tens * SIZE + rest,
        st.sampled_from((0, NOON)),
        st.integers(-4, 4),
        st.sampled_from((-1, 0, 0, 1, SECOND)),
    )
    return near | st.integers(-3 * SIZE, 3 * SIZE) | st.integers(us("1900-01-01"), us("2200-01-01"))


def event_tables(max_rows: int = 25, null_times: bool = True) -> st.SearchStrategy[pa.Table]:
    """Tables of `EVENTS`."""
    times = event_times()
    row = st.fixed_dictionaries(
        {
            "k": st.none() | st.integers(0, 3),
            "name": st.none() | st.sampled_from(("a", "b", "")),
            "v": st.none() | st.integers(-5, 5),
            "x": st.none() | st.sampled_from((0.0, 0.5, -2.0)),
            "ts": (st.none() | times) if null_times else times,
        }
    )
    return st.lists(row, max_size=max_rows).map(
        lambda made: to_table([{"id": place} | one for place, one in enumerate(made)], EVENTS)
    )


def period_tables(max_rows: int = 15, closed: bool = False) -> st.SearchStrategy[pa.Table]:
    """Tables of `PERIODS` over few instants, so that lifetimes meet, nest and cross."""
    instants = st.integers(-4, 8)
    row = st.fixed_dictionaries(
        {
            "k": st.none() | st.integers(0, 1),
            "v": st.integers(0, 2),
            "vs": instants if closed else st.none() | instants,
            "ve": instants if closed else st.none() | instants,
        }
    )
    return st.lists(row, max_size=max_rows).map(
        lambda made: to_table([{"id": place} | one for place, one in enumerate(made)], PERIODS)
    )


def to_rows(table: pa.Table) -> Rows:
    """The rows as the references take them: dicts, with times as microseconds since 1970."""
    columns = [_plain(column) for column in table.columns]
    return [dict(zip(table.column_names, values)) for values in zip(*columns)]


def to_table(rows: Rows, schema: pa.Schema) -> pa.Table:
    """The inverse of `to_rows`; columns that the schema does not name are left out."""
    columns = [
        pa.array([row[field.name] for row in rows], pa.int64()).cast(field.type) if _is_time(field.type) else None
        for field in schema
    ]
    return pa.table(
        [
            pa.array([row[field.name] for row in rows], field.type) if column is None else column
            for field, column in zip(schema, columns)
        ],
        schema=schema,
    )


def assert_same_rows(ours: pa.Table | Rows, expected: pa.Table | Rows) -> None:
    """The same multiset of rows. Two tables must have the same names and types; values must have the same Python type
    in any case (1 is not 1.0)."""
    if isinstance(ours, pa.Table) and isinstance(expected, pa.Table):
        described = [[(field.name, str(field.type)) for field in table.schema] for table in (ours, expected)]
        assert described[0] == described[1], f"columns {described[0]}, expected {described[1]}"
    found, wanted = (to_rows(side) if isinstance(side, pa.Table) else side for side in (ours, expected))
    if found and wanted:
        assert list(found[0]) == list(wanted[0]), f"columns {list(found[0])}, expected {list(wanted[0])}"
    extra, missing = _counted(found), _counted(wanted)
    extra, missing = extra - missing, missing - extra
    if extra or missing:
        raise AssertionError(
            f"{len(found)} rows, expected {len(wanted)}; {extra.total()} too many, {missing.total()} missing\n"
            + _shown("-", missing)
            + _shown("+", extra)
        )


def selected(rows: Rows, *columns: str, **renamed: str) -> Rows:
    """The columns of a reference's rows that a query selects, in its order; `new=old` renames."""
    return [{name: row[name] for name in columns} | {new: row[old] for new, old in renamed.items()} for row in rows]


def shuffled(table: pa.Table, seed: int, keep: Sequence[str] = ()) -> pa.Table:
    """The rows in another order. Rows that are equal in all columns of `keep` stay in their order among each other:
    name the columns that decide a tie by input order (ASOF's and a count window's key and time)."""
    rng = random.Random(seed)
    order = rng.sample(range(table.num_rows), table.num_rows)
    if keep and order:
        ties = list(zip(*(table[name].to_pylist() for name in keep)))
        waiting: dict[Any, list[int]] = {}
        for place in reversed(range(table.num_rows)):
            waiting.setdefault(ties[place], []).append(place)
        order = [waiting[ties[place]].pop() for place in order]
    return table.take(pa.array(order, pa.int64()))


def pieces(table: pa.Table, parts: int, seed: int = 0) -> list[pa.Table]:
    """The table cut into `parts` pieces of random sizes, some perhaps empty, in order."""
    rng = random.Random(seed)
    cuts = [0, *sorted(rng.randint(0, table.num_rows) for _ in range(parts - 1)), table.num_rows]
    return [table.slice(start, end - start) for start, end in zip(cuts, cuts[1:])]


def write_pieces(table: pa.Table, parts: int, folder: Path, seed: int = 0) -> list[Path]:
    """The pieces as Parquet files, whose names are in the order of the rows."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, piece in enumerate(pieces(table, parts, seed)):
        paths.append(folder / f"part-{number:03}.parquet")
        pq.write_table(piece, paths[-1])
    return paths


def batches(table: pa.Table, rows: int | None) -> Iterator[pa.RecordBatch]:
    """The table as record batches of so many rows; None: one."""
    whole = table.combine_chunks()
    yield from whole.to_batches(max_chunksize=rows or max(table.num_rows, 1))


def arrangements(table: pa.Table, keep: Sequence[str] = (), seed: int = 0) -> Iterator[tuple[str, pa.Table]]:
    """The same rows arranged in other ways, each with its name: shuffled, and in chunks of every size of
    `BATCH_ROWS`."""
    for turn in range(2):
        yield f"shuffled {turn}", shuffled(table, seed + turn, keep)
    for rows in BATCH_ROWS:
        yield f"batches of {rows or 'all'}", pa.Table.from_batches(batches(table, rows), schema=table.schema)


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column. Arrow makes numbers of times much faster than of moments with a time zone or another
    unit, which answers seldom have."""
    if column.type == pa.timestamp("us"):
        return column.cast(pa.int64()).to_pylist()
    return [us(value.replace(tzinfo=None)) if isinstance(value, datetime) else value for value in column.to_pylist()]


def _is_time(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind)


def _counted(rows: Rows) -> Counter[tuple[Any, ...]]:
    """Rows with the type of each value beside it; NaN is equal to itself."""
    return Counter(tuple((type(value), "NaN" if value != value else value) for value in row.values()) for row in rows)


def _shown(sign: str, rows: Counter[tuple[Any, ...]], limit: int = 10) -> str:
    lines = [f"{sign} {tuple(value for _, value in row)} x {copies}\n" for row, copies in rows.items()]
    return "".join(lines[:limit]) + (f"{sign} and {len(lines) - limit} more\n" if len(lines) > limit else "")


def row_of(schema: pa.Schema, **given: Any) -> Row:
    """A row with NULL in every column that is not given."""
    return {field.name: given.get(field.name) for field in schema}
