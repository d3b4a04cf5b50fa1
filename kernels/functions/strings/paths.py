"""Parts of file names: parse_filename, parse_dirname, parse_dirpath. Host functions: nothing about them is worth a
kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tsql.kernels.expr.types import BOOLEAN, VARCHAR
from tsql.kernels.functions.registry import function

_SEPARATORS = {"system": r"/", "forward_slash": r"/", "backslash": r"\\"}
"""What separates names, by the word for it; any other word means both."""
BOTH = r"[/\\]"


def _places(path: str, kind: str) -> list[int]:
    return [match.start() for match in re.finditer(_SEPARATORS.get(kind, BOTH), path)]


def filename(path: str, trim: bool = False, kind: str = "both_slash") -> str:
    """The last name of a path, without its extension if asked for."""
    name = path[max(_places(path, kind), default=-1) + 1 :]
    return name[: name.rfind(".")] if trim and "." in name else name


def dirname(path: str, kind: str = "both_slash") -> str:
    """The first name of a path; the separator itself if the path starts with it."""
    places = _places(path, kind)
    return path[: max(places[0], 1)] if places else ""


def dirpath(path: str, kind: str = "both_slash") -> str:
    """Everything before the last name."""
    places = _places(path, kind)
    return path if places and len(path) == 1 else path[: places[-1]] if places else ""


def _over_rows(one: Callable[..., str], *args: Any) -> Any:
    rows = next((len(arg) for arg in args if not isinstance(arg, pa.Scalar)), 1)
    columns = [[arg.as_py()] * rows if isinstance(arg, pa.Scalar) else arg.to_pylist() for arg in args]
    texts = pa.array([None if None in row else one(*row) for row in zip(*columns, strict=True)], pa.string())
    return texts[0] if all(isinstance(arg, pa.Scalar) for arg in args) else texts


@function(
    "parse_filename",
    args=(VARCHAR,),
    returns=VARCHAR,
    host=True,
    examples=(("parse_filename('a/b/c.csv')", "c.csv"), ("parse_filename('a\\b')", "b")),
)
@function("parse_filename", args=(VARCHAR, BOOLEAN), returns=VARCHAR, host=True)
@function("parse_filename", args=(VARCHAR, BOOLEAN, VARCHAR), returns=VARCHAR, host=True)
def parse_filename(*args: Any) -> Any:
    """The last name of a path; with TRUE without its extension. The last argument names the separator."""
    return _over_rows(filename, *args)


@function(
    "parse_filename",
    args=(VARCHAR, VARCHAR),
    returns=VARCHAR,
    host=True,
    examples=(("parse_filename('a/b\\c', 'forward_slash')", "b\\c"),),
)
def parse_filename_by(path: Any, kind: Any) -> Any:
    """The last name of a path, names being separated as the second argument says."""
    return _over_rows(lambda text, word: filename(text, False, word), path, kind)


@function(
    "parse_dirname",
    args=(VARCHAR,),
    returns=VARCHAR,
    host=True,
    examples=(("parse_dirname('a/b/c')", "a"), ("parse_dirname('/a/b')", "/")),
)
@function("parse_dirname", args=(VARCHAR, VARCHAR), returns=VARCHAR, host=True)
def parse_dirname(*args: Any) -> Any:
    """The first name of a path."""
    return _over_rows(dirname, *args)


@function(
    "parse_dirpath", args=(VARCHAR,), returns=VARCHAR, host=True, examples=(("parse_dirpath('a/b/c.csv')", "a/b"),)
)
@function("parse_dirpath", args=(VARCHAR, VARCHAR), returns=VARCHAR, host=True)
def parse_dirpath(*args: Any) -> Any:
    """Everything before the last name of a path."""
    return _over_rows(dirpath, *args)
