"""Compares the answer of a plan with that of its query. `LoadedPlan.check` and `tsql check` call it.

Answers are bags of rows. With ORDER BY, only rows with equal keys may come in any order. With LIMIT, any of the rows
that tie at the cut may be returned. So the query runs with its sort keys as additional columns and, if that does not
decide, once more without its LIMIT. Floats are equal up to the rounding of another order of additions."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any

import pyarrow as pa

from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical import nodes as logical
from tsql.values import texts

TOLERANCE = 1e-9
FLOAT_TOLERANCE = 1e-5
"""The tolerance of FLOAT, which has 24 bits."""

SHOWN_ROWS = 5
"""A report shows this many rows of each kind."""

Answer = Callable[[logical.Output], pa.Table]
"""Runs a query."""


@dataclass(frozen=True)
class Reference:
    """A query whose sort keys are additional columns of its result, after its own. `limit` is the LIMIT that was
    removed."""

    output: logical.Output
    keys: int
    limit: logical.Limit | None = None


def reference(query: logical.Output, *, limited: bool = True) -> Reference:
    """The query with its sort keys as further columns, and without its LIMIT unless `limited`."""
    taken = {name for node in query.walk() for name in node.schema.names}
    node, keys, limit = _with_keys(query.input, taken, limited)
    return Reference(
        replace(query, input=node, columns=(*query.columns, *keys), names=(*query.names, *keys)), len(keys), limit
    )


def _with_keys(
    node: logical.Node, taken: set[str], limited: bool
) -> tuple[logical.Node, tuple[str, ...], logical.Limit | None]:
    """A node that also yields the keys by which its rows are ordered; no keys where it does not order them."""
    match node:
        case logical.Limit():
            inner, keys, _ = _with_keys(node.input, taken, True)
            return (replace(node, input=inner), keys, None) if limited else (inner, keys, node)
        case logical.Project():
            inner, keys, limit = _with_keys(node.input, taken, limited)
            columns = tuple((key, _column(key, inner.schema)) for key in keys)
            return replace(node, input=inner, columns=(*node.columns, *columns)), keys, limit
        case logical.Sort():
            own = tuple((f.name, _column(f.name, node.schema)) for f in node.schema)
            made = tuple(
                (_free(f"key{number}", taken), key.expr) for number, key in enumerate(node.keys) if key.expr.columns()
            )
            return logical.Project(node, (*own, *made)), tuple(name for name, _ in made), None
    return node, (), None


def _column(name: str, schema: Schema) -> Expr:
    return Column(name, schema[name].type, schema[name].nullable)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def difference(query: logical.Output, actual: pa.Table, answer: Answer) -> str | None:
    """Why `actual` is not an answer to the query, as lines of text; None if it is one."""
    asked = reference(query)
    found = answer(asked.output)
    width = actual.num_columns
    expected = found.select(range(width))
    if actual.equals(expected) or (not asked.keys and _sorted(actual).equals(_sorted(expected))):
        return None
    rows = _Rows(actual.schema)
    ours, theirs = rows.of(actual), rows.of(expected)
    extra, missing = rows.unmatched(ours, theirs)
    at = None if extra or missing else _out_of_order(rows, ours, theirs, _ties(found, width))
    if not extra and not missing and at is None:
        return None
    if len(ours) == len(theirs) and _is_another_cut(query, rows, ours, width, answer):
        return None
    if at is not None:
        return (
            f"the rows are those of the query, but not in its order\nrow {at + 1}: {_shown(actual, at)}, "
            f"expected {_shown(expected, at)}"
        )
    return _report(actual, expected, extra, missing)


def _sorted(table: pa.Table) -> pa.Table:
    """The rows in an order of their own, where Arrow can sort them; chunks play no part in `equals`."""
    names = [str(number) for number in range(table.num_columns)]
    try:
        return table.rename_columns(names).sort_by([(name, "ascending") for name in names]) if names else table
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return table


def _ties(found: pa.Table, width: int) -> list[int]:
    """The starts of the groups of rows with equal sort keys, which are the columns from `width` on, and the end of the
    last."""
    if found.num_columns == width or not found.num_rows:
        return [0, found.num_rows]
    rows = _Rows(pa.schema(list(found.schema)[width:]))
    keys = rows.of(found.select(range(width, found.num_columns)))
    return [0, *(at for at in range(1, len(keys)) if not rows.are_close(keys[at - 1], keys[at])), len(keys)]


def _out_of_order(rows: _Rows, ours: list[Row], theirs: list[Row], ties: list[int]) -> int | None:
    """The first row of ours that is not where the query has it."""
    for start, end in zip(ties, ties[1:], strict=False):
        if ours[start:end] != theirs[start:end]:
            extra, _ = rows.unmatched(ours[start:end], theirs[start:end])
            if extra:
                return start + extra[0]
    return None


def _is_another_cut(query: logical.Output, rows: _Rows, ours: list[Row], width: int, answer: Answer) -> bool:
    """Whether the LIMIT cuts through rows that tie, and ours are an equally valid choice."""
    whole = reference(query, limited=False)
    if whole.limit is None:
        return False
    skipped = 0
    if whole.limit.offset is not None:
        one = logical.Project(logical.Values(((),), Schema(())), (("skipped", whole.limit.offset),))
        skipped = answer(logical.Output(one, ("skipped",), ("skipped",))).column(0)[0].as_py() or 0
    found = answer(whole.output)
    theirs, ties = rows.of(found.select(range(width))), _ties(found, width)
    for start, end in zip(ties, ties[1:], strict=False):
        part = ours[max(start - skipped, 0) : max(end - skipped, 0)]
        if rows.unmatched(part, theirs[start:end])[0]:
            return False
    return True


Row = tuple[Any, ...]


@dataclass
class _Rows:
    """Rows of one schema as tuples that can be compared; `floats` are the columns that are equal up to rounding."""

    schema: pa.Schema
    floats: dict[int, float] = field(init=False)

    def __post_init__(self) -> None:
        self.floats = {
            i: FLOAT_TOLERANCE if f.type == pa.float32() else TOLERANCE
            for i, f in enumerate(self.schema)
            if pa.types.is_floating(f.type)
        }

    def of(self, table: pa.Table) -> list[Row]:
        if not table.num_columns:
            return [()] * table.num_rows
        columns = [column.to_pylist() if i in self.floats else _plain(column) for i, column in enumerate(table.columns)]
        # NaN is unequal to itself, and stands for one value here.
        columns = [
            ["NaN" if v != v else v for v in column] if i in self.floats else column for i, column in enumerate(columns)
        ]
        return list(zip(*columns, strict=True))

    def unmatched(self, ours: Sequence[Row], theirs: Sequence[Row]) -> tuple[list[int], list[int]]:
        """The indexes of the rows of each side that have no partner on the other."""
        extra, missing = _surplus(ours, theirs), _surplus(theirs, ours)
        return self._pair_close(ours, theirs, extra, missing) if self.floats and extra and missing else (extra, missing)

    def _pair_close(
        self, ours: Sequence[Row], theirs: Sequence[Row], extra: list[int], missing: list[int]
    ) -> tuple[list[int], list[int]]:
        """The rows of both sides that remain after pairing rows that differ only by rounding."""
        first = next(iter(self.floats))
        free: dict[Row, list[tuple[float, int]]] = defaultdict(list)
        for index in missing:
            free[self._exact(theirs[index])].append((_position(theirs[index][first]), index))
        for candidates in free.values():
            candidates.sort()
        left = []
        for index in extra:
            row = ours[index]
            candidates = free.get(self._exact(row), [])
            at = _position(row[first])
            room = 2 * max(abs(at) * self.floats[first], TOLERANCE) if math.isfinite(at) else 0.0
            low, high = bisect_left(candidates, (at - room, -1)), bisect_right(candidates, (at + room, len(theirs)))
            partner = next((i for i in range(low, high) if self.are_close(row, theirs[candidates[i][1]])), None)
            if partner is None:
                left.append(index)
            else:
                del candidates[partner]
        return left, sorted(index for candidates in free.values() for _, index in candidates)

    def _exact(self, row: Row) -> Row:
        return tuple(value for i, value in enumerate(row) if i not in self.floats)

    def are_close(self, left: Row, right: Row) -> bool:
        return all(
            _close(a, b, self.floats[i]) if i in self.floats else a == b
            for i, (a, b) in enumerate(zip(left, right, strict=True))
        )


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Values that can be hashed: dates, times and nested values as the text that a person sees."""
    kind = column.type
    if (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_binary(kind)
    ):
        return column.to_pylist()
    return [text for chunk in column.chunks for text in texts(chunk)]


def _position(value: Any) -> float:
    """Where a float stands among others; NULL and NaN at the ends."""
    return -math.inf if value is None else math.inf if value == "NaN" else value


def _close(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-12)
    return a == b


def _surplus(these: Sequence[Row], those: Sequence[Row]) -> list[int]:
    """The indexes of rows of `these` that `those` have less often."""
    there = Counter(those)
    found = []
    for index, row in enumerate(these):
        if there[row] > 0:
            there[row] -= 1
        else:
            found.append(index)
    return found


def _report(actual: pa.Table, expected: pa.Table, extra: list[int], missing: list[int]) -> str:
    lines = [
        f"{_count(actual.num_rows)}, expected {expected.num_rows:,}: {len(missing):,} missing, {len(extra):,} too many"
    ]
    for word, table, indexes in (("missing ", expected, missing), ("too many", actual, extra)):
        lines += [f"{word}  {_shown(table, index)}" for index in indexes[:SHOWN_ROWS]]
        if len(indexes) > SHOWN_ROWS:
            lines.append(f"{word}  .. and {len(indexes) - SHOWN_ROWS:,} more")
    return "\n".join(lines)


def _shown(table: pa.Table, index: int) -> str:
    return f"({', '.join(_cells(table, index))})"


def _cells(table: pa.Table, index: int) -> Iterator[str]:
    for name, column in zip(table.column_names, table.columns, strict=True):
        one = column.slice(index, 1).combine_chunks()
        text = texts(one.chunk(0) if isinstance(one, pa.ChunkedArray) else one)[0]
        quoted = pa.types.is_string(column.type) and text is not None
        yield f"{name} " + ("NULL" if text is None else repr(text) if quoted else text)


def _count(rows: int) -> str:
    return f"{rows:,} row{'s' * (rows != 1)}"
