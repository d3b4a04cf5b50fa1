"""PostgreSQL by a growing key: all types, any offset, writers that commit late, names that need quotes, errors."""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from tests.live.postgres import Server
from tests.live.sources.polling import check_close_wakes, check_restarts, poll_until, rows_of, steps
from tsql.backends.live.sources.connectors import open_reader
from tsql.backends.live.sources.postgres import PostgresReader
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, DECIMAL, DOUBLE, INTEGER, INTERVAL, VARCHAR

SCHEMA = Schema.of(("id", BIGINT), ("name", VARCHAR))


def opened(url: str, table: str = "t", schema: Schema | None = SCHEMA, **options: Any) -> PostgresReader:
    given = {"url": url, "table": table, "key": "id", "poll_interval": "10 milliseconds", **options}
    reader = open_reader("postgres", given, schema, "s")
    assert isinstance(reader, PostgresReader)
    return reader


def run(url: str, *statements: Any) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def test_any_offset(postgres: str) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    run(postgres, "CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    run(postgres, "INSERT INTO t SELECT i * 3 - 100, 'n' || i FROM generate_series(1, 300) i")
    expected = [{"id": i * 3 - 100, "name": f"n{i}"} for i in range(1, 301)]
    check_restarts(lambda: opened(postgres, follow=False), expected, random.Random(seed))
    check_restarts(lambda: opened(postgres), expected, random.Random(seed), all_at_once=False, restarts=3)


def test_every_type(postgres: str) -> None:
    run(
        postgres,
        "CREATE TYPE mood AS ENUM ('fine')",
        """CREATE TABLE t (id serial, b boolean, i2 smallint, i4 integer, i8 bigint, f4 real, f8 double precision,
           n numeric(12, 3), w numeric(38, 0), free numeric, s text, v varchar(5), x bytea, d date, c time,
           ts timestamp, tz timestamptz, u uuid, j jsonb, e mood, a integer[])""",
        r"""INSERT INTO t VALUES
           (1, true, -2, 3, 9223372036854775807, 0.1, 0.1, -1.5, 99999999999999999999999999999999999999, 0.25,
            E'a "quote", a\nbreak', 'v', '\x00ff', '2026-01-02', '23:59:59.5', '2026-01-02 03:04:05.000006',
            '2026-01-02 03:04:05+02', '00000000-0000-0000-0000-000000000001', '{"k": [1]}', 'fine', '{1,2}'),
           (2, NULL, NULL, NULL, NULL, 'NaN', '-Infinity', NULL, NULL, NULL, '', '', '', 'infinity', NULL, '-infinity',
            NULL, NULL, NULL, NULL, NULL),
           (3, false, 0, 0, 0, 0, 1e300, 0, 0, 0, E'\\.', ' ', '\x', '0001-01-01', '00:00',
            '1969-12-31 23:59:59.999999', '2026-07-01', NULL, '"x"', 'fine', '{}')""",
    )
    reader = opened(postgres, schema=None)
    kinds = "INTEGER BOOLEAN SMALLINT INTEGER BIGINT FLOAT DOUBLE DECIMAL(12,3) DECIMAL(38,0) DOUBLE VARCHAR VARCHAR "
    kinds += "BLOB DATE TIME TIMESTAMP TIMESTAMPTZ VARCHAR VARCHAR VARCHAR VARCHAR"
    assert [str(field.type) for field in reader.schema] == kinds.split()
    reader.open({})
    (batch,) = [arrival.rows for arrival in reader.poll(100, 1) or () if arrival.rows.num_rows] or [
        arrival.rows for arrival in reader.poll(100, 1) or ()
    ]
    batch.validate(full=True)
    found = {name: batch[name] for name in batch.schema.names}
    assert found["b"].to_pylist() == [True, None, False]
    assert found["i8"].to_pylist() == [2**63 - 1, None, 0]
    assert str(found["f4"].to_pylist()) == str([pa.scalar(0.1, pa.float32()).as_py(), float("nan"), 0.0])
    assert found["f8"].to_pylist() == [0.1, float("-inf"), 1e300]
    assert found["n"].to_pylist() == [Decimal("-1.500"), None, Decimal("0.000")]
    assert found["w"].to_pylist() == [Decimal(10**38 - 1), None, Decimal(0)]
    assert found["s"].to_pylist() == ['a "quote", a\nbreak', "", "\\."]
    assert found["v"].to_pylist() == ["v", "", " "]
    assert found["x"].to_pylist() == [b"\x00\xff", b"", b""]
    assert found["d"].cast(pa.int32()).to_pylist()[1] == 2**31 - 1
    assert found["c"].to_pylist() == [dt.time(23, 59, 59, 500_000), None, dt.time(0)]
    assert found["ts"][0].as_py() == dt.datetime(2026, 1, 2, 3, 4, 5, 6)
    assert found["ts"].cast(pa.int64()).to_pylist()[2] == -1
    assert found["tz"][0].as_py() == dt.datetime(2026, 1, 2, 1, 4, 5, tzinfo=dt.timezone.utc)
    assert found["j"].to_pylist() == ['{"k": [1]}', None, '"x"']
    assert found["a"].to_pylist() == ["{1,2}", None, "{}"]
    reader.close()


def test_bytes_with_nulls(postgres: str) -> None:
    run(
        postgres,
        "CREATE TABLE t (id int, x bytea)",
        r"INSERT INTO t VALUES (1, NULL), (2, '\x0102'), (3, NULL), (4, '\x')",
    )
    assert [row["x"] for row in rows_of(steps(opened(postgres, schema=None, follow=False), lambda: 3))] == [
        None, b"\1\2", None, b"",
    ]  # fmt: skip


def test_declared_columns(postgres: str) -> None:
    """In another order and as other types; one column alone, also if it is NULL."""
    run(
        postgres, 'CREATE TABLE t (id int, "Name" text, p numeric)', "INSERT INTO t VALUES (1, NULL, 1.25), (2, '7', 3)"
    )
    schema = Schema.of(("p", DECIMAL(5, 1)), ("id", VARCHAR), ("name", DOUBLE))
    rows = rows_of(steps(opened(postgres, schema=schema, follow=False), lambda: 10))
    assert rows == [{"p": Decimal("1.3"), "id": "1", "name": None}, {"p": Decimal("3.0"), "id": "2", "name": 7.0}]
    rows = rows_of(steps(opened(postgres, schema=Schema.of(("Name", VARCHAR)), follow=False), lambda: 10))
    assert rows == [{"Name": None}, {"Name": "7"}]


def test_names_that_need_quotes(postgres: str) -> None:
    """Names are names, whatever they hold."""
    table, key, schema = 'a"b; DROP TABLE x; --', "k'ey \"", "od d"
    run(
        postgres,
        "CREATE TABLE x (id int)",
        sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)),
        sql.SQL("CREATE TABLE {} ({} serial, name text)").format(sql.Identifier(schema, table), sql.Identifier(key)),
        sql.SQL("INSERT INTO {} (name) VALUES ('n')").format(sql.Identifier(schema, table)),
    )
    reader = opened(postgres, f"{schema}.{table}", None, key=key, follow=False)
    assert rows_of(steps(reader, lambda: 10)) == [{key: 1, "name": "n"}]
    again = opened(postgres, f"{schema}.{table}", None, key=key, follow=False)
    with pytest.raises(SourceError, match="PostgreSQL: invalid input syntax for type integer"):
        steps(again, lambda: 10, {"keys": {"key": "1; DROP TABLE x"}})
    run(postgres, "SELECT * FROM x")


@pytest.mark.parametrize("kind", ["text", "timestamp", "numeric(10, 2)", "date"])
def test_keys_of_other_types(postgres: str, kind: str) -> None:
    """Rows with equal keys stay together."""
    values = {
        "text": "chr(65 + i / 7)",
        "timestamp": "timestamp '2026-01-01' + i / 7 * interval '1 second'",
        "numeric(10, 2)": "i / 7 * 0.25",
        "date": "date '2026-01-01' + i / 7",
    }[kind]
    run(
        postgres,
        f"CREATE TABLE t (id {kind}, n int)",
        f"INSERT INTO t SELECT {values}, i FROM generate_series(0, 99) i",
    )
    run(postgres, "INSERT INTO t VALUES (NULL, -1)")
    expected = [{"n": i} for i in range(100)]
    schema = Schema.of(("n", INTEGER))
    check_restarts(lambda: opened(postgres, schema=schema, follow=False), expected, random.Random(1))


def test_a_key_that_is_committed_late(postgres: str) -> None:
    """A transaction with a small key is waited for, also if it has a younger number than one with a larger key."""
    run(postgres, "CREATE TABLE t (id serial PRIMARY KEY, name text)", "CREATE TABLE other (a int)")
    reader = opened(postgres)
    reader.open({})
    with psycopg.connect(postgres) as old, psycopg.connect(postgres) as slow, psycopg.connect(postgres) as idle:
        idle.execute("SELECT txid_current()")  # a transaction that does not write to the table holds nobody back
        old.execute("INSERT INTO other VALUES (1)")  # it has its number now
        slow.execute("INSERT INTO t (name) VALUES ('slow')")
        old.execute("INSERT INTO t (name) VALUES ('old')")
        old.commit()
        for _ in range(10):
            assert sum(arrival.rows.num_rows for arrival in reader.poll(10, 0.02) or ()) == 0
        slow.commit()
        rows, _ = poll_until(reader, lambda rows: len(rows) >= 2)
    assert rows == [{"id": 1, "name": "slow"}, {"id": 2, "name": "old"}]
    reader.close()


def test_without_waiting_rows_are_lost(postgres: str) -> None:
    """What `wait_for_writers` is for."""
    run(postgres, "CREATE TABLE t (id serial PRIMARY KEY, name text)")
    reader = opened(postgres, wait_for_writers=False)
    reader.open({})
    with psycopg.connect(postgres) as slow:
        slow.execute("INSERT INTO t (name) VALUES ('slow')")
        run(postgres, "INSERT INTO t (name) VALUES ('quick')")
        assert poll_until(reader, lambda rows: len(rows) >= 1)[0] == [{"id": 2, "name": "quick"}]
        slow.commit()
    run(postgres, "INSERT INTO t (name) VALUES ('next')")
    assert poll_until(reader, lambda rows: len(rows) >= 1)[0] == [{"id": 3, "name": "next"}]
    reader.close()


def test_delay_for_keys_that_are_taken_before(postgres: str) -> None:
    run(postgres, "CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    reader = opened(postgres, delay="400 milliseconds")
    reader.open({})
    run(postgres, "INSERT INTO t VALUES (2, 'second')")
    seen = time.monotonic()
    while reader._seen is None:
        assert sum(arrival.rows.num_rows for arrival in reader.poll(10, 0.01) or ()) == 0
        assert time.monotonic() < seen + 60
    run(postgres, "INSERT INTO t VALUES (1, 'first')")
    assert [row["id"] for row in poll_until(reader, lambda rows: len(rows) >= 2)[0]] == [1, 2]
    reader.close()


@pytest.mark.parametrize("partitioned", [False, True])
def test_many_writers(postgres: str, partitioned: bool) -> None:
    """Writers whose transactions take random times: each row comes once, in the order of the keys, across restarts."""
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    if partitioned:
        run(
            postgres,
            "CREATE SEQUENCE ids",
            "CREATE TABLE t (id bigint DEFAULT nextval('ids'), name text) PARTITION BY HASH (id)",
            *(f"CREATE TABLE t{i} PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER {i})" for i in range(2)),
        )
    else:
        run(postgres, "CREATE TABLE t (id bigserial PRIMARY KEY, name text)")

    def write(number: int) -> None:
        mine = random.Random(seed + number)
        with psycopg.connect(postgres) as connection:
            for _ in range(15):
                for _ in range(mine.randint(1, 3)):
                    connection.execute("INSERT INTO t (name) VALUES (%s)", [f"w{number}"])
                    time.sleep(mine.random() * 0.01)
                if mine.random() < 0.2:
                    connection.rollback()
                else:
                    connection.commit()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    seen: list[int] = []
    offsets: dict[str, Any] = {}
    while any(writer.is_alive() for writer in writers):
        reader = opened(postgres)
        reader.open(offsets)
        for _ in range(rng.randint(2, 20)):
            for arrival in reader.poll(rng.randint(1, 10), 0.02) or ():
                seen += arrival.rows["id"].to_pylist()
                offsets = {arrival.partition: arrival.offset}
        reader.close()
    seen += [row["id"] for row in rows_of(steps(opened(postgres, follow=False), lambda: 100, offsets))]
    with psycopg.connect(postgres) as connection:
        assert seen == [id for (id,) in connection.execute("SELECT id FROM t ORDER BY id").fetchall()]


def test_latest(postgres: str) -> None:
    run(postgres, "CREATE TABLE t (id serial, name text)", "INSERT INTO t (name) VALUES ('a'), ('b')")
    reader = opened(postgres, start="latest")
    reader.open({})
    (there,) = reader.poll(10, 0.0) or ()
    assert there.offset == {"key": "2"}
    run(postgres, "INSERT INTO t (name) VALUES ('c')")
    assert poll_until(reader, lambda rows: len(rows) >= 1)[0] == [{"id": 3, "name": "c"}]
    assert reader.behind() in (0, 1)
    reader.close()


def test_close_wakes(postgres: str) -> None:
    run(postgres, "CREATE TABLE t (id int, name text)")
    check_close_wakes(opened(postgres, poll_interval="1 hour"))


def test_close_while_the_server_works(postgres: str) -> None:
    """A statement that waits for a lock is cancelled."""
    run(postgres, "CREATE TABLE t (id int, name text)")
    reader = opened(postgres)
    reader.open({})
    reader.poll(10, 0.0)
    with psycopg.connect(postgres) as locking:
        locking.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        results: list[Any] = []
        polling = threading.Thread(target=lambda: results.append(reader.poll(10, 600)))
        polling.start()
        with psycopg.connect(postgres, autocommit=True) as observer:
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            while observer.execute(waits).fetchall() == [(0,)]:
                time.sleep(0.01)
        reader.close()
        polling.join(60)
        assert results == [[]]


def test_errors(postgres: str, postgres_server: Server) -> None:
    run(postgres, "CREATE TABLE t (id int, name text)", "CREATE VIEW v AS TABLE t", "INSERT INTO t VALUES (1, 'x')")
    password = postgres_server.password
    cases: list[tuple[dict[str, Any], str]] = [
        ({"table": "nothere"}, "nothere: there is no such table"),
        ({"table": "v"}, "v is no table"),
        ({"key": "nokey"}, "t: there is no column nokey\nhint: its columns are id, name"),
        ({"schema": Schema.of(("id", BIGINT), ("x", BIGINT))}, "t: there is no column x"),
        ({"schema": Schema.of(("id", INTERVAL))}, "t: column id cannot be read as INTERVAL"),
        ({"url": postgres.replace(password, "wrong")}, "s: PostgreSQL cannot be reached: connection failed"),
        ({"url": "postgresql://u:secret@127.0.0.1:1/x"}, "s: PostgreSQL cannot be reached"),
        ({"url": "no address secret"}, "s: option url is no address of a database"),
        ({"url": 5}, "option url is a string, not another value"),
    ]
    for options, message in cases:
        url = options.pop("url", postgres)
        with pytest.raises(SourceError) as raised:
            opened(url, **options)
        assert message in str(raised.value)
        assert "secret" not in str(raised.value) and password not in str(raised.value)
    with pytest.raises(SourceError, match='t: PostgreSQL: invalid input syntax for type bigint: "x"'):
        steps(opened(postgres, schema=Schema.of(("name", BIGINT))), lambda: 10)
    with pytest.raises(SourceError, match="the offset of s in the checkpoint is damaged"):
        opened(postgres).open({"keys": [1]})


def test_cached_sequence_is_told(postgres: str) -> None:
    run(postgres, "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY (CACHE 10), name text)")
    assert "has a CACHE" in opened(postgres).notices.texts[0]
    assert not opened(postgres, delay="1 second").notices.texts


def test_server_that_goes_away(postgres: str, postgres_server: Server) -> None:
    run(postgres, "CREATE TABLE t (id int, name text)")
    reader = opened(postgres)
    reader.open({})
    reader.poll(10, 0.0)
    postgres_server.kill()
    try:
        with pytest.raises(SourceError, match="t: PostgreSQL: "):
            while True:
                reader.poll(10, 0.01)
    finally:
        postgres_server.start()
    reader.close()
