"""The list of connectors: names, options and their types, what is missing; and docs/sources-live.md, whose tables are
made from it (`pytest --regen` rewrites them)."""

from __future__ import annotations

import builtins
import datetime as dt
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tsql.backends.io.kinds import CONNECTORS as FILE_CONNECTORS
from tsql.backends.live.sources.connectors import ALIASES, CONNECTORS, check_options, connector_of, open_reader
from tsql.backends.live.sources.options import Option, seconds_of
from tsql.kernels.expr.errors import CatalogError, SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT

PAGE = Path(__file__).resolve().parents[3] / "docs" / "sources-live.md"
BLOCK = re.compile(r"^<!-- connector: (\w+) -->\n\n((?:\|.*\n)*)", re.MULTILINE)
SCHEMA = Schema.of(("id", BIGINT))


def test_names() -> None:
    """Whatever CREATE STREAM calls a kind of files is a connector."""
    for name in FILE_CONNECTORS:
        assert connector_of(name.upper()).files is not None
    assert {ALIASES.get(name, name) for name in ALIASES.values()} <= CONNECTORS.keys()
    with pytest.raises(CatalogError, match="unknown connector 'kafak'") as raised:
        check_options("kafak", {})
    assert "connectors are parquet, csv" in str(raised.value)


@pytest.mark.parametrize(
    ("connector", "options", "message"),
    [
        ("parquet", {}, 'connector parquet needs the option "path": a file, a folder or a pattern'),
        (
            "parquet",
            {"path": "x", "folow": True},
            "unknown option folow for connector parquet\nhint: did you mean follow",
        ),
        (
            "parquet",
            {"path": "x", "zzz": 1},
            "unknown option zzz for connector parquet\nhint: options are path, follow",
        ),
        ("parquet", {"path": "x", "settle": "1 second"}, "unknown option settle"),
        ("parquet", {"path": []}, "option path is a path or a list of paths, not []"),
        ("parquet", {"path": "a\0b"}, "option path is a path or a list of paths"),
        ("parquet", {"path": "x", "follow": "maybe"}, "option follow is true or false, not 'maybe'"),
        ("parquet", {"path": "x", "follow": None}, "option follow is NULL"),
        (
            "csv",
            {"path": "x", "poll_interval": "soon"},
            "option poll_interval is a length of time, such as '5 seconds'",
        ),
        ("csv", {"path": "x", "poll_interval": "1 month"}, "option poll_interval is a length of time"),
        ("csv", {"path": "x", "poll_interval": "-1 second"}, "option poll_interval is a length of time"),
        ("socket", {"port": True}, "option port is a number of at least 0, not True"),
        ("socket", {"port": -1}, "option port is a number of at least 0, not -1"),
        ("socket", {"port": 1, "host": ""}, "option host is a string, not ''"),
        ("tail", {"path": "x", "format": "binary"}, "option format is one of json, csv, not 'binary'"),
        ("flight", {"port": 1, "token": 5}, "option token is a string, not another value"),
    ],
)
def test_wrong_options(connector: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError) as raised:
        check_options(connector, options)
    assert message in str(raised.value)


def test_right_options() -> None:
    check_options("csv", {"PATH": "x", "Follow": "true", "delim": ";", "poll_interval": dt.timedelta(seconds=1)})
    check_options("json", {"path": ["x", Path("y")], "hive_partitioning": False, "settle": "0 seconds"})
    check_options("kafka", {"brokers": "x", "topic": "t", "KAFKA.sasl.username": "u"})
    assert seconds_of("x", "1 day 00:00:01.5") == 86401.5
    assert seconds_of("x", pa.MonthDayNano([0, 1, 1_000_000])) == 86400.001
    assert seconds_of("x", dt.timedelta(milliseconds=5)) == 0.005


@pytest.mark.parametrize("connector", [name for name, about in CONNECTORS.items() if about.declared])
def test_columns_must_be_declared(connector: str) -> None:
    options = {name: _example(option) for name, option in CONNECTORS[connector].options.items() if option.required}
    with pytest.raises(SourceError, match=f"the columns of s are not known: connector {connector} does not tell them"):
        open_reader(connector, options, None, "s")


def _example(option: Option) -> Any:
    return 1 if option.kind == "count" else "x"


@pytest.mark.parametrize(("connector", "library"), [("kafka", "confluent_kafka"), ("postgres", "psycopg")])
def test_libraries_that_are_missing(connector: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message that says how to install it; and options are checked without it."""
    import sys

    imported = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.split(".")[0] == library:
            raise ModuleNotFoundError(f"No module named '{library}'", name=library)
        return imported(name, *rest, **named)

    for name in [name for name in sys.modules if name.startswith(f"tsql.backends.live.sources.{connector}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    options = {name: _example(option) for name, option in CONNECTORS[connector].options.items() if option.required}
    check_options(connector, options)
    with pytest.raises(SourceError) as raised:
        open_reader(connector, options, SCHEMA, "s")
    assert str(raised.value) == (
        f"connector {connector} needs a library: No module named '{library}'\nhint: pip install 'tsql[{connector}]'"
    )


def table_of(connector: str) -> str:
    lines = ["| option | value | default | |", "|---|---|---|---|"]
    for name, option in CONNECTORS[connector].options.items():
        kind = {"length": "a length of time", "object": "a Python object", "flag": "true or false"}.get(
            option.kind, f"a {option.kind}"
        )
        value = ", ".join(f"`{choice}`" for choice in option.choices) or {"a paths": "a path or a list"}.get(kind, kind)
        default = "required" if option.required else "" if option.default is None else f"`{_shown(option.default)}`"
        lines.append(f"| `{name}` | {value} | {default} | {option.about} |")
    return "\n".join(lines) + "\n"


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_page(regen: bool) -> None:
    """The tables of options, and an entry for each connector."""
    page = PAGE.read_text(encoding="utf-8")
    if regen:
        PAGE.write_text(BLOCK.sub(lambda m: f"<!-- connector: {m[1]} -->\n\n{table_of(m[1])}", page), encoding="utf-8")
        return
    shown = BLOCK.findall(page)
    assert len(shown) == 7
    for connector, table in shown:
        assert table == table_of(connector), connector
    for connector in CONNECTORS:
        assert re.search(rf"^\| .*`{connector}`", page, re.MULTILINE), connector
