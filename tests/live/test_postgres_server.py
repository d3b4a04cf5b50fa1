"""The PostgreSQL server of the tests: databases are empty and apart, and a crash keeps what is committed."""

from __future__ import annotations

import psycopg

from tests.live.postgres import Server


def test_databases(postgres_server: Server) -> None:
    first, second = postgres_server.database(), postgres_server.database()
    with psycopg.connect(first) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
    with psycopg.connect(second) as connection:
        assert connection.execute("SELECT to_regclass('t')").fetchall() == [(None,)]


def test_crash(postgres_server: Server, postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
        connection.commit()
        connection.execute("INSERT INTO t VALUES (2)")
        postgres_server.kill()
        postgres_server.start()
        connection.close()
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
