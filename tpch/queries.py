"""The 22 TPC-H queries as SQL text, with the specification's validation parameters. Used by tests and benchmarks."""

from __future__ import annotations

from importlib.resources import files

NUMBERS = range(1, 23)


def query(number: int, scale: float = 1) -> str:
    """The text of query `number`. `scale` only matters for query 11, whose fraction is 0.0001 divided by the scale
    factor."""
    if number not in NUMBERS:
        raise ValueError(f"TPC-H has queries 1 to 22, not {number}")
    text = (files("tsql.tpch") / "queries" / f"q{number:02}.sql").read_text(encoding="utf-8").strip()
    return text.replace("0.0001", f"{0.0001 / scale:.10f}".rstrip("0")) if number == 11 else text


def queries(scale: float = 1) -> dict[int, str]:
    """All queries by number."""
    return {number: query(number, scale) for number in NUMBERS}
