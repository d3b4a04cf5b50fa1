"""JSON: detection and contents as DuckDB reads them, all three layouts, and one clear error for each kind of damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.sources.support import duck, ours, rows_of
from tsql.backends.io.json import values as json_values
from tsql.backends.io.json.columns import JsonColumns
from tsql.backends.io.open import open_source
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import parse_type

SAME_AS_DUCKDB = [
    '{"a":1,"b":"x"}\n{"a":2}\n', '[{"a":1},{"a":2}]', '{"a":1}{"a":2}', '{\n"a":1\n}\n{"a":\n2}', "", "[]",
    '{"a":1}\n\n{"a":2}\n', '{"a":1.5}\n{"a":1}', '{"a":1}\n{"a":"x"}', '{"a":true}\n{"a":1}', '{"a":"2020-01-01"}',
    '{"a":"2020-01-01 10:00:00"}', '{"a":"2020-01-01T10:00:00Z"}', '{"a":"10:00:00"}', '{"a":"5"}', '{"a":null}',
    '{"a":18446744073709551615}', '{"a":9223372036854775808}\n{"a":-1}', '{"a":99999999999999999999999}', '{"a":1e400}',
    "1\n2\n", '"x"\n', '{"A":1,"a":2}', '{"a":"2020-01-01"}\n{"a":"x"}', '{"a":"2020-01-01"}\n{"a":1}',
    '{"a":"\\u00e9\\n"}', "[1,2]", '{"a":1}\n[{"a":2}]', '{"a":{"b":1}}\n{"a":5}', '{"a":0.1}\n{"a":true}',
    '{"a":1,"b":2}\n{"b":3,"c":4}', '\ufeff{"a":1}', '{"a":"01/02/2020"}', 'null\n{"a":1}',
    '{"a":""}\n{"a":"2020-01-01"}', '{"a":1.0}', '{"a":"true"}', '{"a":true}\n{"a":"x"}',
    '{"a":1.5}\n{"a":"x"}\n{"a":1}', '{"a":1e2}', '{"a":"2020-01-01 10:00:00.123456"}', '{"a":"2020-01-01 25:00:00"}',
    '{"a":"2020-01-01 10:00"}', '{"a":"20200101"}', '{"a":"😀"}', "[ ]\n", '[\n{"a":1},\n\n{"a":"x"}\n]\n',
]  # fmt: skip


@pytest.mark.parametrize("text", SAME_AS_DUCKDB)
def test_detects_and_reads_as_duckdb(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(text.encode())
    assert ours(path) == duck("read_json", path)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('{"a":1}\nxx\n{"a":3}', {"ignore_errors": True}),
        ('{"a":1}\n{"a":2}', {"columns": {"a": "VARCHAR"}}),
        ('{"a":"x"}', {"columns": {"a": "INTEGER"}, "ignore_errors": True}),
        ('{"a":{"b":1.50,"c":"é"}}', {"columns": {"a": "VARCHAR"}}),
        ('{"a":1.5}', {"columns": {"a": "INTEGER"}}),
        ('{"a":1.25,"b":"2020-01-01"}', {"columns": {"a": "DECIMAL(6,2)", "b": "TIMESTAMP"}}),
        ('{"b":1}', {"columns": {"a": "INTEGER"}}),
    ],
)
def test_options_mean_what_they_mean_in_duckdb(tmp_path: Path, text: str, options: dict[str, Any]) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(text.encode())
    assert ours(path, **options) == duck("read_json", path, **options)


def test_nested_values_are_json_text(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"a":[1, 2.50],"b":{"x":"é"},"c":[]}\n{"a":null,"b":{}}\n')
    assert ours(path) == (
        [("a", "VARCHAR"), ("b", "VARCHAR"), ("c", "VARCHAR")],
        [("[1,2.5]", '{"x":"é"}', "[]"), (None, "{}", None)],
    )


ERRORS: list[tuple[bytes, dict[str, Any], str]] = [
    (b'{"a":1}\n{"a":}\n', {}, "line 2: malformed JSON: Expecting value at column 6"),
    (b'{"a":1}\n{"a":2', {}, "line 2: malformed JSON"),
    (b'[{"a":1},\n{"a":2}', {}, "line 2: malformed JSON: the array is not closed"),
    (b'[{"a":1}\n{"a":2}]', {}, "line 2: malformed JSON: expected , or ]"),
    (b'[{"a":1}] x', {}, "text after the end of the array"),
    (b'{"a":\n1}\n{"a":\n}', {}, "line 4: malformed JSON"),
    (b'{"a":"\xff"}\n', {}, "not valid UTF-8"),
    (b'{"a":1}\n{"a":"x"}', {"columns": {"a": "INTEGER"}}, "line 2: column a: could not convert 'x' to INTEGER"),
    (b'{"a":1}\n5\n', {"columns": {"a": "INTEGER"}}, "line 2: expected an object"),
    (b"[" * 100_000, {}, "nested too deeply"),
    (b'{"a":' * 100_000 + b"\n", {}, "malformed JSON"),
    (b'{"a":1}', {"format": "yaml"}, "option format is one of"),
    (b'{"a":"\\ud800"}', {}, "t.json"),
]


@pytest.mark.parametrize(("content", "options", "message"), ERRORS)
def test_bad_input_is_one_clear_error(tmp_path: Path, content: bytes, options: dict[str, Any], message: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(SourceError) as error:
        ours(path, **options)
    assert message in str(error.value)


def test_small_pieces_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [{"i": i, "s": "x" * (i % 90) + '"\\,[]{}é', "n": [i, {"k": None}]} for i in range(500)]
    layouts = {
        "lines": "\n".join(map(json.dumps, records)),
        "array": json.dumps(records, indent=1),
        "loose": " ".join(json.dumps(r, indent=2) for r in records),
    }
    monkeypatch.setattr(json_values, "BLOCK_BYTES", 64)
    monkeypatch.setattr(json_values, "CHUNK_CHARS", 7)
    expected = [(r["i"], r["s"], json.dumps(r["n"], separators=(",", ":"))) for r in records]
    for name, text in layouts.items():
        path = tmp_path / f"{name}.json"
        path.write_text(text)
        assert ours(path)[1] == expected


def test_types_past_the_sample_are_cast_or_reported(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    lines = [json.dumps({"i": i, "t": "2020-01-01 00:00:00"}) for i in range(25_000)]
    lines[22_000] = '{"i": "22000", "t": null}'
    path.write_text("\n".join(lines) + "\n")
    assert rows_of(open_source(path), ("i",)) == [(i,) for i in range(25_000)]
    lines[22_000] = '{"i": [1]}'
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(SourceError, match=r"line 22001: column i: could not convert '\[1\]' to BIGINT"):
        rows_of(open_source(path))


def test_several_files_share_one_schema(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text('{"a":1}\n')
    (tmp_path / "2.json").write_text('[{"b":"x"},{"a":2.5}]')
    assert ours(str(tmp_path / "*.json")) == (
        [("a", "DOUBLE"), ("b", "VARCHAR")],
        [(1.0, None), (None, "x"), (2.5, None)],
    )


WRITTEN = (
    "1 -1 0 1.0 1.5 2.5 -0.5 1e2 1E+2 1e-2 1.005 127 128 -129 255 256 2147483648 9223372036854775807 1e400 1e308 0.1 "
    "9223372036854775808 18446744073709551615 123456789.125 99999999.99 -99999999.99 99999999.999 100000000 0.005 "
    'true false null "1" "x" "" "1.5" "1e2" "+1.25" "-0" "true" "t" "2026-01-01" "2026-01-01T00:00:00Z" "12:00:00" '
    '"2026-1-1" "2026-01-01T00:00:00+02:00" [] [1] {} {"a":1} "infinity" "NaN" NaN Infinity -Infinity 01 +1 .5 1.'
).split()
PLAIN = "BOOLEAN TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER UBIGINT DOUBLE DECIMAL(10,2) "
PLAIN += "DECIMAL(38,10) DECIMAL(18,0) VARCHAR DATE TIME TIMESTAMP TIMESTAMPTZ"


@pytest.mark.parametrize("kind", PLAIN.split())
def test_blocks_are_read_as_values_are(kind: str) -> None:
    """pyarrow gives what we give, or leaves the block to us."""
    columns = JsonColumns(Schema.of(("a", parse_type(kind))), {"a": "a"}, ("a",))
    taken = 0
    for text in [*WRITTEN, '" 1 "', '"2026-01-01 00:00:00"']:
        block = f'{{"a": {text}}}\n{{"b": 1}}\n'.encode()
        fast = columns.fast(block)
        if fast is None:
            continue
        taken += 1
        careful = columns.careful("f", json_values.block_values("f", 1, block, False))
        assert str(pa.Table.from_batches(fast).to_pydict()) == str(pa.Table.from_batches(careful).to_pydict()), text
    assert taken > 1
