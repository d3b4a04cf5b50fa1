"""Files in FROM: `FROM 'logs/*.parquet'` and read_parquet, read_csv, read_json, .. with their options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlglot import exp

from tsql.backends.io.kinds import ALIASES, FILE_FUNCTIONS
from tsql.kernels.expr.errors import BindError, TsqlError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import VARCHAR
from tsql.planner.bind.query_text import QueryText, position_of
from tsql.planner.bind.syntax_nodes import CallNode


def open_path(
    catalog: Any,
    path: str | list[str],
    position: int | None,
    text: str,
    kind: str | None = None,
    options: dict[str, Any] | None = None,
) -> Any:
    """The source of a file; its errors get the place where the query names it."""
    try:
        return catalog.open_file(path, kind=kind, options=options or {})
    except TsqlError as error:
        if error.position is None:
            error.position = position
        raise error.locate(text) from None


def look_up(
    catalog: Any, name: str, position: int | None, text: str, outer_parts: tuple[str, ...] | None = None
) -> Any:
    """What stands under a name; if its files cannot be read, that is an error at the place where the query names it.
    `outer_parts`: those of a qualified name that the backend may know."""
    try:
        return catalog.lookup(name) if outer_parts is None else catalog.lookup_outer(outer_parts)
    except TsqlError as error:
        error.position = position if error.position is None else error.position
        raise error.locate(text) from None


def open_function(catalog: Any, node: CallNode, source: QueryText) -> tuple[str, Any]:
    """The name and the source of `read_csv('a.csv', delim => '|')`."""
    paths: Any = None
    options: dict[str, Any] = {}
    for argument in node.expressions:
        if isinstance(argument, (exp.Kwarg, exp.PropertyEQ, exp.EQ)):
            name = argument.this.name.lower()
            if name in options:
                raise BindError(f"option {name} is given twice", position=position_of(argument), text=source.text)
            options[name] = constant(argument.expression, source)
        elif paths is None:
            paths = constant(argument, source)
        else:
            raise BindError(
                f"{node.name} takes one path, or a list of them; options are named: header => true",
                position=position_of(argument),
                text=source.text,
            )
    strings = paths if isinstance(paths, list) else [paths]
    if not strings or not all(isinstance(path, str) for path in strings):
        raise BindError(f"{node.name} takes a path or a list of paths", position=position_of(node), text=source.text)
    found = open_path(catalog, paths, position_of(node), source.text, FILE_FUNCTIONS[node.name], options)
    return ", ".join(strings), found


def constant(node: exp.Expr, source: QueryText) -> Any:
    """The Python value of an option: a string, a number, true or false, NULL, a list, {'name': value}, or *."""
    match node:
        case exp.Literal():
            if node.is_string:
                return node.this
            text = node.this.replace("_", "")
            return int(text) if text.isdigit() else float(text)
        case exp.RawString() | exp.ByteString():
            return node.name
        case exp.Boolean():
            return bool(node.this)
        case exp.Null():
            return None
        case exp.Star():
            return "*"
        case exp.Paren():
            return constant(node.this, source)
        case exp.Neg() if isinstance(node.this, exp.Literal):
            return -constant(node.this, source)
        case exp.Array() | exp.Tuple():
            return [constant(item, source) for item in node.expressions]
        case exp.Struct():
            return _struct([item for item in node.expressions if isinstance(item, exp.PropertyEQ)], source)
        case CallNode() if node.name == "list_value":
            return [constant(item, source) for item in node.expressions]
    raise BindError("an option takes a constant", position=position_of(node), text=source.text)


def _struct(items: list[exp.PropertyEQ], source: QueryText) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in items:
        if item.this.name in found:
            raise BindError(
                f'"{item.this.name}" is given twice', position=position_of(item.expression), text=source.text
            )
        found[item.this.name] = constant(item.expression, source)
    return found


def source_for(
    catalog: Any, path: str, options: Mapping[str, Any], columns: Schema, position: int | None, text: str
) -> Any:
    """The source of COPY table FROM 'path': text files take the names and types of the table's columns. Errors are at
    `position` of `text`."""
    from tsql.relation import FORMATS

    given = {name.lower(): value for name, value in options.items()}
    named = given.pop("format", None)
    kind = ALIASES.get(str(named).lower(), str(named).lower()) if named is not None else None
    suffix = Path(path).suffix.lower()
    if kind is None and FORMATS.get(suffix) in (None, "csv") and suffix not in (".gz", ".zst"):
        kind = "csv"
    if given.get("null") is not None:
        given["nullstr"] = given.pop("null")
    if kind in ("csv", "json") and "columns" not in given:
        given["columns"] = {f.name: VARCHAR if f.type.name == "INTERVAL" else f.type for f in columns}
    return open_path(catalog, path, position, text, kind, given)
