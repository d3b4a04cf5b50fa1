"""strip_accents and nfc_normalize: host functions, as the tables of Unicode's normal forms are in pyarrow already."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tsql.kernels.expr.types import VARCHAR
from tsql.kernels.functions.registry import function
from tsql.kernels.process.arrow_compute import pc


def _each(strings: Any, apply: Any) -> Any:
    """Apply to an array, or to the one value of a constant."""
    return apply(pa.array([strings.as_py()], pa.string()))[0] if isinstance(strings, pa.Scalar) else apply(strings)


@function(
    "strip_accents",
    args=(VARCHAR,),
    returns=VARCHAR,
    host=True,
    examples=(("strip_accents('mühleisen')", "muhleisen"), ("strip_accents('ß')", "ß")),
)
def strip_accents(strings: Any) -> Any:
    """Without the marks on letters."""
    return _each(
        strings,
        lambda a: pc.utf8_normalize(pc.replace_substring_regex(pc.utf8_normalize(a, "NFD"), r"\p{M}+", ""), "NFC"),
    )


@function(
    "nfc_normalize",
    args=(VARCHAR,),
    returns=VARCHAR,
    host=True,
    examples=(("nfc_normalize('arde\u0301ch')", "ard\u00e9ch"),),
)
def nfc_normalize(strings: Any) -> Any:
    """In Unicode's normal form C."""
    return _each(strings, lambda a: pc.utf8_normalize(a, "NFC"))
