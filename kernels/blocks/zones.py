"""Zone maps: which blocks of a table can hold rows that satisfy a filter. Only ever rules blocks out that cannot match."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np

from tsql.kernels.blocks.encode import BlockColumn
from tsql.kernels.expr import Call, Column, Expr, InList, Literal

MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def possible_blocks(where: Expr | None, columns: dict[str, BlockColumn], blocks: int) -> np.ndarray:
    """For each block, whether it may hold a row for which `where` is true."""
    possible = np.ones(blocks, np.bool_)
    if where is None or blocks == 0:
        return possible
    match where:
        case Call("and", args):
            for arg in args:
                possible &= possible_blocks(arg, columns, blocks)
        case Call("or", args):
            possible[:] = False
            for arg in args:
                possible |= possible_blocks(arg, columns, blocks)
        case Call("<" | "<=" | ">" | ">=" | "=" as op, (Column(name), Literal() as literal)):
            _compare(possible, columns.get(name), op, literal.value)
        case Call("<" | "<=" | ">" | ">=" | "=" as op, (Literal() as literal, Column(name))):
            _compare(possible, columns.get(name), MIRROR[op], literal.value)
        case InList(Column(name), options) if all(isinstance(o, Literal) for o in options):
            possible[:] = False
            for option in options:
                one = np.ones(blocks, np.bool_)
                _compare(one, columns.get(name), "=", option.value)
                possible |= one
    return possible


def _compare(possible: np.ndarray, column: BlockColumn | None, op: str, value: object) -> None:
    if column is None or column.lows is None:
        return
    if value is None:
        possible[:] = False
        return
    dictionary = column.source.dictionary
    if dictionary is not None:
        op, value = _as_code(dictionary.values.to_pylist(), op, value)
    match op:
        case "<":
            possible &= column.lows < value
        case "<=":
            possible &= column.lows <= value
        case ">":
            possible &= column.highs > value
        case ">=":
            possible &= column.highs >= value
        case "=":
            possible &= (column.lows <= value) & (column.highs >= value)


def _as_code(values: list[object], op: str, value: object) -> tuple[str, int]:
    """The same comparison on codes: the rank at which the value stands, or would stand."""
    if isinstance(values[0], str):
        values, value = [v.encode() for v in values], value.encode() if isinstance(value, str) else value
    left, right = bisect_left(values, value), bisect_right(values, value)
    match op:
        case "<":
            return "<", left
        case "<=":
            return "<", right
        case ">":
            return ">=", right
        case ">=":
            return ">=", left
    return ("=", left) if left < right else ("<", -1)
