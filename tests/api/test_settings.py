"""Settings from Python, SQL and the command line."""

import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.backends import Settings
from tsql.kernels.expr.errors import CatalogError
from tsql.settings import UTC_NAMES, change, key_of, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"), [("2GB", 2 * 10**9), ("512 MiB", 512 * 2**20), ("1.5kb", 1500), ("100", 100), (4096, 4096)]
)
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "2 parsecs", "-1", 0, "0", True])
def test_bad_sizes(text):
    with pytest.raises(CatalogError):
        parse_bytes(text)


def test_change_and_reset():
    settings = Settings()
    for name, value in [("THREADS", "3"), ("memory_limit", "1GB"), ("optimizer", "off")]:
        change(settings, name, value)
    assert (settings.threads, settings.memory_limit, settings.optimizer) == (3, 10**9, False)
    assert key_of(settings) != key_of(Settings())
    for name in ("threads", "memory_limit", "optimizer"):
        change(settings, name, None)
    assert key_of(settings) == key_of(Settings())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("thread", 1, "did you mean threads"),
        ("threads", "many", "a whole number"),
        ("threads", -1, "at least 0"),
        ("optimizer", "maybe", "true or false"),
    ],
)
def test_bad_settings(name, value, message):
    with pytest.raises(CatalogError) as caught:
        change(Settings(), name, value)
    assert message in str(caught.value)


def test_connect_takes_settings():
    assert tsql.connect(threads=2, memory_limit="1GB", batch_rows=7).settings == Settings(
        threads=2, memory_limit=10**9, batch_rows=7
    )
    with pytest.raises(CatalogError, match="unknown setting speed"):
        tsql.connect(speed=11)
    with pytest.raises(CatalogError, match="a session in memory cannot be read-only"):
        tsql.connect(read_only=True)
    with pytest.raises(CatalogError, match="unknown backend cloud"):
        tsql.connect(backend="cloud")


def test_the_time_zone_is_utc():
    """Under every name that DuckDB has for it, however it is written."""
    db, oracle = tsql.connect(), empty_duckdb()
    for name in sorted(UTC_NAMES):
        for spelt in (name, name.upper(), name.title()):
            for statement in (
                f"SET TimeZone = '{spelt}'",
                f"SET TIME ZONE '{spelt}'",
                f"SET SESSION timezone TO '{spelt}'",
            ):
                oracle.execute(statement)
                db.execute(statement)
        assert oracle.sql("SELECT strftime(TIMESTAMPTZ '2024-07-01 12:00:00+00', '%H:%M')").fetchall() == [("12:00",)]
    for statement in ("RESET TimeZone", "SET TimeZone TO DEFAULT", "SET TimeZone = UTC"):
        oracle.execute(statement)
        db.execute(statement)
    assert tsql.connect(TimeZone="UTC").sql("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "nonsense", "+02:00", ""])
def test_other_time_zones_are_refused(zone):
    db = tsql.connect()
    for statement, column in ((f"SET TimeZone = '{zone}'", 5), (f"SET TIME ZONE '{zone}'", 5)):
        with pytest.raises(CatalogError, match="the time zone is UTC, and cannot be") as caught:
            db.sql(statement)
        assert "SET TimeZone = 'UTC' works" in caught.value.hint and caught.value.line_column == (1, column)
