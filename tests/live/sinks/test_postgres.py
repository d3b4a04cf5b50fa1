"""The PostgreSQL sink: types, names, changes by key, tables that do not take the rows, and a server that crashes."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.live.postgres import Server
from tests.live.sinks.jobs import Checkpoint, batches_of, expected, ordered, output, run
from tests.live.sinks.targets import Postgres, rows_in
from tsql.backends.live.sinks import postgres as module
from tsql.backends.live.sinks.changes import fold
from tsql.backends.live.sinks.connectors import sink_of
from tsql.backends.live.sinks.sink import CHANGE, Output, Sink
from tsql.kernels.expr import types as t
from tsql.kernels.expr.errors import TsqlError

CHANGES = pa.schema([("k", pa.int64()), ("j", pa.string()), ("n", pa.int64()), (CHANGE, pa.int8())])
CHANGE_TYPES = (t.BIGINT, t.VARCHAR, t.BIGINT, t.TINYINT)
UTC = datetime.timezone.utc

VALUES: list[tuple[t.Type, list[Any]]] = [
    (t.BOOLEAN, [True, False]),
    (t.TINYINT, [-128, 127]),
    (t.SMALLINT, [-(2**15), 2**15 - 1]),
    (t.INTEGER, [-(2**31), 2**31 - 1]),
    (t.BIGINT, [-(2**63), 2**63 - 1]),
    (t.HUGEINT, [Decimal(-(10**38) + 1), Decimal(10**38 - 1)]),
    (t.UTINYINT, [0, 255]),
    (t.USMALLINT, [0, 2**16 - 1]),
    (t.UINTEGER, [0, 2**32 - 1]),
    (t.UBIGINT, [0, 2**64 - 1]),
    (t.FLOAT, [0.1, float("inf")]),
    (t.DOUBLE, [0.1, -1e300]),
    (t.DECIMAL(18, 3), [Decimal("-1.500"), Decimal("999999999999999.999")]),
    (t.DECIMAL(38, 38), [Decimal("0." + "1" * 38), Decimal("0." + "0" * 38)]),
    (t.VARCHAR, ["", "\\."]),
    (t.VARCHAR, ['a"b,\n\r\t\\N', "é☃😀 NULL #"]),
    (t.BLOB, [b"", b"\x00\\x'\xff"]),
    (t.DATE, [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    (t.TIME, [datetime.time(0), datetime.time(23, 59, 59, 999999)]),
    (t.TIMESTAMP, [datetime.datetime(1, 1, 1), datetime.datetime(2024, 2, 29, 1, 2, 3, 4)]),
    (t.TIMESTAMPTZ, [datetime.datetime(1970, 1, 1, tzinfo=UTC), datetime.datetime(2024, 2, 29, 1, 2, 3, 4, UTC)]),
    (t.INTERVAL, [pa.MonthDayNano([0, 0, -1_000_000]), pa.MonthDayNano([0, 3, 4_000_000_000])]),
]


def ask(url: str, text: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(text)  # type: ignore[call-overload]
        return done.fetchall() if done.description else []


def begun(url: str, about: Output, **options: str) -> Sink:
    sink = sink_of("postgres", {"url": url, "table": "out", **options})
    sink.open(about)
    sink.recover(0, None)
    return sink


def message(url: str, about: Output | None = None, **options: str) -> str:
    sink = sink_of("postgres", {"url": url, "table": "out", **options})
    try:
        with pytest.raises(TsqlError) as caught:
            sink.open(about or output())
            sink.recover(0, None)
    finally:
        sink.close()
    return caught.value.message


def epoch(sink: Sink, number: int, *batches: pa.RecordBatch) -> None:
    for rows in batches:
        sink.write(rows)
    sink.commit(number, sink.prepare(number))


def python_value(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return pa.MonthDayNano([0, value.days, (value - datetime.timedelta(value.days)) // datetime.timedelta(0, 0, 1)
                                * 1000])  # fmt: skip
    return value


def test_types(postgres: str) -> None:
    """Each value is the same there, in a table that is made and in one that is found."""
    types = [kind for kind, _ in VALUES]
    schema = pa.schema([(f"c{i}", kind.to_arrow()) for i, kind in enumerate(types)])
    columns = [pa.array([*values, None], kind.to_arrow()) for kind, values in VALUES]
    for number, job in enumerate(("job-a", "job-b"), 1):
        sink = begun(postgres, Output(schema, tuple(types), job))
        epoch(sink, 1, pa.RecordBatch.from_arrays(columns, schema=schema))
        sink.close()
        assert ask(postgres, "SELECT count(*) FROM out") == [(3 * number,)]
    with psycopg.connect(postgres) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        found = connection.execute("SELECT * FROM out").fetchall()[:3]
    for place, (kind, values) in enumerate(VALUES):
        got = [python_value(row[place]) for row in found]
        wanted: list[Any] = [*values, None]
        if kind == t.FLOAT:
            wanted = [pytest.approx(values[0]), values[1], None]
        if kind == t.INTERVAL:
            wanted, got = wanted[1:], got[1:]
        assert got == wanted, kind
    assert ask(postgres, "SELECT c21 FROM out LIMIT 1") == [(datetime.timedelta(microseconds=-1000),)]


def test_numbers_as_they_are(postgres: str) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    made = random.Random(seed)
    doubles = [made.uniform(-1, 1) * 10.0 ** made.randint(-300, 300) for _ in range(2000)] + [-0.0, 5e-324]
    wide = [Decimal(made.randint(-(10**30), 10**30)).scaleb(-made.choice((0, 9, 20))) for _ in doubles]
    kinds = (t.DOUBLE, t.FLOAT, t.DECIMAL(38, 20), t.DECIMAL(10, 9))
    small = [Decimal(made.randint(-9999, 9999)).scaleb(-9) for _ in doubles]
    columns = [pa.array(doubles), pa.array(doubles).cast(pa.float32(), safe=False)]
    columns += [pa.array([v % 10**17 for v in wide], kinds[2].to_arrow()), pa.array(small, kinds[3].to_arrow())]
    batch = pa.RecordBatch.from_arrays(columns, names=["d", "f", "w", "s"])
    sink = begun(postgres, Output(batch.schema, kinds, "job-a"))
    epoch(sink, 1, batch)
    sink.close()
    found = ask(postgres, "SELECT d, f::double precision, w, s FROM out")
    wanted = list(zip(*(column.to_pylist() for column in batch.columns)))
    assert [(str(row[0]), *row[1:]) for row in sorted(found)] == [(str(row[0]), *row[1:]) for row in sorted(wanted)]


def test_times_far_away(postgres: str) -> None:
    schema = pa.schema([("at", pa.timestamp("us")), ("day", pa.date32())])
    sink = begun(postgres, Output(schema, (t.TIMESTAMP, t.DATE), "job-a"))
    micros = pa.array([2**63 - 1, -(2**63 - 1), -62_167_219_200_000_000 - 1], pa.int64()).view(pa.timestamp("us"))
    days = pa.array([2**31 - 1, -(2**31 - 1), -719_163], pa.int32()).view(pa.date32())
    epoch(sink, 1, pa.RecordBatch.from_arrays([micros, days], schema=schema))
    sink.close()
    assert ask(postgres, "SELECT at::text, day::text FROM out ORDER BY at DESC") == [
        ("infinity", "infinity"),
        ("0002-12-31 23:59:59.999999 BC", "0001-12-31 BC"),
        ("-infinity", "-infinity"),
    ]


def test_names(postgres: str) -> None:
    """Names with all that SQL and the library have a meaning for."""
    names = ['a"b', "select", "%s", "100%", "{x}", "é", "A", "a", "x;--"]
    schema = pa.schema([(name, pa.int64()) for name in [*names, CHANGE]])
    about = Output(schema, (t.BIGINT,) * 10, "job-a", True, ("%s", 'a"b'))
    schema_name = 'my "%s" {schema}'
    ask(postgres, 'CREATE SCHEMA "my ""%s"" {schema}"')
    for job in ("job-a", "job-b"):
        sink = sink_of("postgres", {"url": postgres, "table": "t%t\"{}'", "schema": schema_name})
        sink.open(Output(schema, about.types, job, True, about.keys))
        sink.recover(0, None)
        columns = [pa.array([i, 10 + i]) for i in range(9)]
        epoch(sink, 1, pa.RecordBatch.from_arrays([*columns, pa.array([1, 1])], schema=schema))
        sink.close()
    found = ask(postgres, 'SELECT * FROM "my ""%s"" {schema}"."t%t""{}\'\'" ORDER BY 1'.replace("''", "'"))
    assert found == [tuple(range(9)), tuple(range(10, 19))]


def changes(rows: list[tuple[int | None, str | None, int, int]]) -> pa.RecordBatch:
    columns = zip(*rows) if rows else [[] for _ in CHANGES]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, CHANGES)], schema=CHANGES)


@pytest.mark.parametrize("made_before", ["", "UNIQUE NULLS NOT DISTINCT (k, j)", "UNIQUE NULLS NOT DISTINCT (j, k)"])
def test_changes_by_key(postgres: str, made_before: str) -> None:
    """The table has the folded changes behind each epoch, whatever order the changes of an epoch come in."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    made = random.Random(seed)
    if made_before:
        ask(postgres, f"CREATE TABLE out (k bigint, more text DEFAULT 'x', n bigint, j text, {made_before})")
    sink = begun(postgres, Output(CHANGES, CHANGE_TYPES, "job-a", True, ("k", "j")))
    state: dict[Any, int] = {}
    everything = [changes([])]
    for number in range(1, 12):
        rows: list[Any] = []
        for _ in range(made.choice((0, 1, 20))):
            key = (made.choice((None, 1, 2, 3)), made.choice((None, "a", "b")))
            if key in state:
                rows.append((*key, state.pop(key), -1))
            if made.random() < 0.6:
                state[key] = made.randrange(5)
                rows.append((*key, state[key], 1))
        made.shuffle(rows)
        everything.append(changes(rows))
        epoch(sink, number, *[changes(part) for part in (rows[:3], rows[3:]) if part])
        found = Counter(ask(postgres, "SELECT k, j, n FROM out"))
        assert found == Counter((*key, n) for key, n in state.items())
        assert found == Counter(rows_in(fold(pa.Table.from_batches(everything))))
    sink.close()


def test_changes_of_keys_alone(postgres: str) -> None:
    schema = pa.schema([("k", pa.int64()), (CHANGE, pa.int8())])
    sink = begun(postgres, Output(schema, (t.BIGINT, t.TINYINT), "job-a", True, ("k",)))
    for number, rows in enumerate(([(1, 1), (2, 1)], [(1, -1), (2, -1), (2, 1), (3, 1)]), 1):
        epoch(sink, number, pa.record_batch([pa.array(c, f.type) for c, f in zip(zip(*rows), schema)], schema=schema))
    sink.close()
    assert ask(postgres, "SELECT k FROM out ORDER BY k") == [(2,), (3,)]


@pytest.mark.parametrize(("keys", "made_before"), [((), ""), (("k", "j"), "UNIQUE (k, j)"), (("k", "j"), "UNIQUE (k)")])
def test_changes_as_rows(postgres: str, keys: tuple[str, ...], made_before: str) -> None:
    """Without keys, and where the table has no index that makes them unique."""
    if made_before:
        ask(postgres, f"CREATE TABLE out (k bigint, j text, n bigint, change smallint, {made_before})")
    sink = begun(postgres, Output(CHANGES, CHANGE_TYPES, "job-a", True, keys))
    epoch(sink, 1, changes([(1, "a", 5, 1)]))
    epoch(sink, 2, changes([(2, "a", 5, -1)]))
    sink.close()
    assert ask(postgres, "SELECT * FROM out ORDER BY k") == [(1, "a", 5, 1), (2, "a", 5, -1)]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("epoch bigint, row bigint, text text", "it has no column ts"),
        ("epoch int, row bigint, text text, ts timestamp", "its column epoch is integer, and the query gives BIGINT"),
        ("epoch bigint, row bigint, text text, ts date", "its column ts is date, and the query gives TIMESTAMP"),
        (
            "epoch bigint, row bigint, text text, ts timestamp(3)",
            "its column ts is timestamp without time zone, and the query gives TIMESTAMP",
        ),
        (
            "epoch bigint, row bigint, text text, ts timestamp, need int NOT NULL",
            "its column need is NOT NULL, and the query does not give it",
        ),
        (
            "epoch bigint GENERATED ALWAYS AS IDENTITY, row bigint, text text, ts timestamp",
            "its column epoch is generated",
        ),
    ],
)
def test_tables_with_other_columns(postgres: str, columns: str, said: str) -> None:
    ask(postgres, f"CREATE TABLE out ({columns})")
    assert message(postgres) == f"cannot write PostgreSQL table public.out: {said}"
    assert ask(postgres, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(1,)]


@pytest.mark.parametrize(
    ("column", "kind", "is_taken"),
    [
        ("numeric", t.DECIMAL(10, 2), True),
        ("numeric(20,2)", t.DECIMAL(10, 2), True),
        ("numeric(20,1)", t.DECIMAL(10, 2), False),
        ("numeric(20,-2)", t.BIGINT, False),
        ("numeric(20)", t.UBIGINT, True),
        ("varchar(10)", t.VARCHAR, True),
        ("jsonb", t.VARCHAR, False),
        ("real", t.DOUBLE, False),
        ("double precision", t.FLOAT, True),
        ("timestamptz", t.TIMESTAMP, False),
    ],
)
def test_types_of_columns(postgres: str, column: str, kind: t.Type, is_taken: bool) -> None:
    ask(postgres, f"CREATE TABLE out (c {column})")
    about = Output(pa.schema([("c", kind.to_arrow())]), (kind,), "job-a")
    if is_taken:
        begun(postgres, about).close()
    else:
        assert f"and the query gives {kind}" in message(postgres, about)


def test_things_that_are_no_table(postgres: str) -> None:
    ask(postgres, "CREATE VIEW out AS SELECT 1 AS epoch")
    assert message(postgres) == "cannot write PostgreSQL table public.out: it is no table"
    ask(postgres, "CREATE SCHEMA two")
    begun(postgres, output(), table="two.out").close()
    begun(postgres, output("job-b"), table="t.wo.out", schema="two").close()
    tables = ask(postgres, "SELECT tablename FROM pg_tables WHERE schemaname = 'two' AND tablename LIKE '%out'")
    assert sorted(tables) == [("out",), ("t.wo.out",)]
    assert message(postgres, schema="none").startswith("cannot write PostgreSQL table none.out: schema \"none\" does")


def test_no_server(postgres: str) -> None:
    said = message("postgresql://someone:secret@127.0.0.1:1/x")
    assert said.startswith("cannot write PostgreSQL table public.out: connection") and "secret" not in said
    assert "secret" not in message("postgresql:/someone:secret@127.0.0.1:1/x")
    assert "authentication failed" in message(postgres.replace("tester:", "tester:x"))


def test_values_that_the_table_refuses(postgres: str) -> None:
    ask(postgres, "CREATE TABLE out (c varchar(3))")
    sink = begun(postgres, Output(pa.schema([("c", pa.string())]), (t.VARCHAR,), "job-a"))
    sink.write(pa.record_batch({"c": pa.array(["long"])}))
    token = sink.prepare(1)
    with pytest.raises(TsqlError, match=r"public.out: value too long for type character varying\(3\)"):
        sink.commit(1, token)
    with pytest.raises(TsqlError, match="0x00"):
        sink.write(pa.record_batch({"c": pa.array(["a\0"])}))
    sink.close()


def test_two_processes(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = begun(postgres, output())
    monkeypatch.setattr(module, "LOCK_SECONDS", 1)
    assert message(postgres) == "cannot write PostgreSQL table public.out: another process runs job job-a"
    begun(postgres, output("job-b")).close()
    sink.close()


def test_staged_rows_that_are_gone(postgres: str) -> None:
    sink = begun(postgres, output())
    for rows in batches_of(1):
        sink.write(rows)
    token = sink.prepare(1)
    (name,) = ask(postgres, "SELECT tablename FROM pg_tables WHERE tablename LIKE 'tsql_staged%'")
    ask(postgres, f"DELETE FROM {name[0]}")
    with pytest.raises(TsqlError, match="the rows of epoch 1 were written before the checkpoint, and are gone"):
        sink.commit(1, token)
    sink.close()
    assert ask(postgres, "SELECT count(*) FROM out") == [(0,)]


def test_server_that_crashes(postgres: str, postgres_server: Server, tmp_path: Any) -> None:
    """Rows that were prepared are there when the server is up again; what was not is gone."""
    target, checkpoint = Postgres(tmp_path, postgres), Checkpoint()
    run(target.sink(), checkpoint, 2, output())
    sink = target.sink()
    sink.open(output())
    sink.recover(*checkpoint.get())
    for rows in batches_of(3):
        sink.write(rows)
    token = sink.prepare(3)
    for rows in batches_of(5):
        sink.write(rows)
    postgres_server.kill()
    postgres_server.start()
    with pytest.raises(TsqlError):
        sink.commit(3, token)
    sink.close()
    checkpoint.put(3, token)
    run(target.sink(), checkpoint, 6, output())
    assert ordered(target.rows()) == expected(6)


def test_what_is_left(postgres: str) -> None:
    """Staged rows are deleted as they are moved."""
    run(sink_of("postgres", {"url": postgres, "table": "out"}), Checkpoint(), 6, output())
    (name,) = ask(postgres, "SELECT tablename FROM pg_tables WHERE tablename LIKE 'tsql_staged%'")
    assert ask(postgres, f"SELECT count(*) FROM {name[0]}") == [(0,)]
    assert ask(postgres, "SELECT * FROM tsql_epochs") == [("job-a", 6)]
