"""Zone maps: which blocks of a table can hold rows that satisfy a filter. Only blocks that cannot match are ruled
out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tsql.kernels.blocks.encode import BlockColumn
from tsql.kernels.emit.batch import Dictionary
from tsql.kernels.emit.dictionary import code_bound
from tsql.kernels.expr.nodes import Call, Column, Expr, InList, Literal

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
                assert isinstance(option, Literal)
                one = np.ones(blocks, np.bool_)
                _compare(one, columns.get(name), "=", option.value)
                possible |= one
    return possible


def _compare(possible: np.ndarray, column: BlockColumn | None, op: str, value: Any) -> None:
    if column is None or column.lows is None or column.highs is None:
        return
    if value is None:
        possible[:] = False
        return
    dictionary = column.source.dictionary
    if dictionary is not None:
        op, value = _as_code(dictionary, op, value)
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


def _as_code(dictionary: Dictionary, op: str, value: str | bytes) -> tuple[str, int]:
    """The same comparison on codes."""
    bound = code_bound(dictionary, op, value)
    return {"<=": "<", ">": ">="}.get(op, op), bound
