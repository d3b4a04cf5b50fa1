"""Plan files: the text of a physical plan, printed and parsed back exactly.

One named step per line, inputs by name, expressions in SQL, `#` starts a comment. Whatever the file says is what runs:
parsing never adds, drops or reorders a step. Every error is a PlanError with the line.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tsql.kernels.expr.errors import PlanError, TsqlError
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Column, Expr, SortKey, rewrite
from tsql.kernels.expr.schema import Schema
from tsql.kernels.windows.call import WindowCall
from tsql.planner.bind.binder import parse_aggregate, parse_expression, parse_window
from tsql.planner.physical.attributes import MOST_SHARDS, Attributes, first_twice, split_assignment
from tsql.planner.physical.movement import Broadcast, Gather, Multicast, Redistribute, Rekey, Reshard
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.asof_join import AsofJoin
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.expand import Expand
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.limit import Limit
from tsql.planner.physical.operators.match import Match
from tsql.planner.physical.operators.merge_join import MergeJoin
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.recursive import Recursive, Working
from tsql.planner.physical.operators.replicate import Replicate
from tsql.planner.physical.operators.sample import Sample
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.operators.series import Series
from tsql.planner.physical.operators.snapshot import Snapshot
from tsql.planner.physical.operators.sort import Sort
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.values import Values
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.step import MOST_DEEP, PhysicalPlan, Step

VERSION = 1
STEPS = {
    s.op: s
    for s in (
        Scan,
        Values,
        Filter,
        Project,
        Aggregate,
        HashJoin,
        MergeJoin,
        AsofJoin,
        Sort,
        Limit,
        Window,
        Combine,
        Snapshot,
        Match,
        Union,
        Expand,
        Replicate,
        Series,
        Sample,
        Recursive,
        Working,
        Rekey,
        Redistribute,
        Reshard,
        Broadcast,
        Multicast,
        Gather,
        Input,
    )
}
INPUTS = {
    "scan": (0, 0),
    "values": (0, 0),
    "input": (0, 0),
    "union": (2, 1 << 20),
    "hash_join": (2, 2),
    "merge_join": (2, 2),
    "asof_join": (2, 2),
    "series": (0, 1),
    "working": (0, 0),
    "recursive": (2, 2),
}
TARGETS = ("local", "spark")

_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")


def identifier(name: str) -> str:
    """A column name as the file prints it; quoted unless it is plain."""
    return name if _SIMPLE.match(name) else quoted(name)


def quoted(name: str) -> str:
    """A name as SQL takes it whatever it is."""
    return '"' + name.replace('"', '""') + '"'


def identifiers(names: tuple[str, ...]) -> str:
    return f"({', '.join(map(identifier, names))})"


def assignment(name: str, value: Expr | AggregateCall | WindowCall, words: tuple[str, ...] = ()) -> tuple[str, str]:
    """(name, text) of a computed column; a text with spaces is put in parentheses. words: the attributes of the step; a
    column with such a name is told apart by its quotes."""
    text = value.sql()
    return quoted(name) if name in words else identifier(name), f"({text})" if _has_space(text) else text


def assignments(columns: tuple[tuple[str, Expr], ...]) -> str:
    """A list of columns: `a` alone if the column keeps its name, else `b=expression`."""
    parts = [identifier(n) if isinstance(e, Column) and e.name == n else "=".join(assignment(n, e)) for n, e in columns]
    return f"({', '.join(parts)})"


def table_text(table: str, source: Any) -> str:
    """How a scan names its source: a table or a stream by name, a file by its quoted path, or by its description as
    quoted JSON if there are several paths or options."""
    about = source.describe() if hasattr(source, "describe") else None
    if about is None or getattr(source, "catalog_name", None) == table.lower():
        return identifier(table)
    plain = len(about["paths"]) == 1 and not about.get("options") and not about["paths"][0].startswith("{")
    text = about["paths"][0] if plain else json.dumps(about, ensure_ascii=False, sort_keys=True)
    return "'" + text.replace("'", "''") + "'"


def _has_space(text: str) -> bool:
    return any(c.isspace() and depth == 0 for c, depth, quoted in _scan_text(text) if not quoted)


def _scan_text(text: str) -> list[tuple[str, int, bool]]:
    """Each character with its depth of parentheses and whether it is inside quotes (the quotes included)."""
    result, depth, quote = [], 0, ""
    for c in text:
        if quote:
            result.append((c, depth, True))
            if c == quote:
                quote = ""
            continue
        if c in "'\"":
            quote = c
            result.append((c, depth, True))
            continue
        if c in ")]":
            depth -= 1
        result.append((c, depth, False))
        if c in "([":
            depth += 1
    if quote or depth != 0:
        raise ValueError("unbalanced quotes or parentheses")
    return result


def split(text: str, separator: str = ",") -> list[str]:
    """Parts of a text at top-level separators (a space means any white space)."""
    parts, current = [], []
    for c, depth, quoted in _scan_text(text):
        at = not quoted and depth == 0 and (c.isspace() if separator == " " else c == separator)
        if at:
            parts.append("".join(current))
            current = []
        else:
            current.append(c)
    parts.append("".join(current))
    stripped = [p.strip() for p in parts]
    return [p for p in stripped if p] if separator == " " or stripped == [""] else stripped


_QUERY = re.compile(r'\s*query\s+"(?:[^"\\]|\\.)*"')


def _without_comment(line: str, quote: str) -> tuple[str, str]:
    """The line up to a # that is outside quotes, and the quote that is open at its end; `quote` is open at its
    start."""
    query = None if quote else _QUERY.match(line)
    start = query.end() if query else 0
    for i in range(start, len(line)):
        c = line[i]
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c == "#":
            return line[:i], ""
    return line, quote


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """(number, text without comment) of each line; a line end inside a quoted name does not end a line."""
    quote, first, parts = "", 1, []
    for number, raw in enumerate(text.split("\n"), 1):
        if not quote:
            first, parts = number, []
        kept, quote = _without_comment(raw, quote)
        parts.append(kept)
        if not quote:
            yield first, "\n".join(parts).strip()
    if quote:
        yield first, "\n".join(parts).strip()


def starts_plan(text: str) -> bool:
    """Whether a text begins as a plan file does, of this version or another."""
    first = next((line for _, line in lines_of(text) if line), "")
    return first.startswith("plan version ")


def print_plan(plan: PhysicalPlan, comments: dict[str, str] | None = None) -> str:
    """The plan file; `comments` are printed behind the steps of these names."""
    lines = [f"plan version {VERSION}"]
    if plan.query:
        lines.append(f"query {json.dumps(plan.query, ensure_ascii=False)}")
    lines.append(f"target {plan.target} shards={plan.shards}")
    lines.append("")
    steps = list(plan.root.walk())
    width = max(len(identifier(s.name)) for s in steps)
    for step in steps:
        words = [step.op, *(identifier(i.name) for i in step.inputs)]
        words += [f"{n}={t}" if n else t for n, t in step.attributes()]
        text = f"{identifier(step.name):<{width}} = {' '.join(words)}"
        comment = (comments or {}).get(step.name)
        lines.append(f"{text:<70} # {comment}" if comment else text)
    shown = ", ".join(
        identifier(c) if c == n else f"{identifier(c)} as {identifier(n)}"
        for c, n in zip(plan.columns, plan.names, strict=True)
    )
    lines.append(f"output {identifier(plan.root.name)} ({shown})")
    return "\n".join(lines) + "\n"


def unplaced(expr: Expr) -> Expr:
    """The expression without positions: those of a plan file's line are no positions in the query."""
    return rewrite(expr, lambda e: replace(e, position=None) if getattr(e, "position", None) is not None else e)


class LineContext:
    """What a line is read with: the catalog, the number and the text of the line."""

    def __init__(self, catalog: Any, parameters: dict[str, Any] | None, text: str, origin: str | None):
        self.catalog, self.parameters, self.full_text, self.origin = catalog, parameters, text, origin
        self.number = 1

    def error(self, message: str, hint: str | None = None, at: str | None = None) -> PlanError:
        """An error on this line; `at` is the attribute that it is about."""
        lines = self.full_text.split("\n")
        position = sum(len(t) + 1 for t in lines[: self.number - 1])
        found = None if at is None else re.search(rf"(?<=\s){re.escape(at)}=", lines[self.number - 1])
        position += 0 if found is None else found.start()
        return PlanError(message, position=position, text=self.full_text, origin=self.origin, hint=hint)

    def split(self, text: str) -> list[str]:
        try:
            return split(text)
        except ValueError as error:
            raise self.error(str(error)) from None

    def name(self, text: str) -> str:
        text = text.strip()
        if text.startswith('"') and text.endswith('"') and len(text) >= 2:
            return text[1:-1].replace('""', '"')
        if not _SIMPLE.match(text):
            raise self.error(f"{text!r} is not a name")
        return text

    def split_name(self, item: str) -> tuple[str, str]:
        """`name rest`, the name possibly quoted."""
        match = re.match(r'\s*([A-Za-z_]\w*|"(?:[^"]|"")*")\s+(.+)$', item, re.S)
        if match is None:
            raise self.error(f"{item!r} is not a name and a type")
        return self.name(match.group(1)), match.group(2)

    def assignments(self, items: list[str]) -> list[tuple[str, str]]:
        """`a` or `b=expression`."""
        result = []
        for item in items:
            parts = split_assignment(item)
            result.append(
                (self.name(item), quoted(self.name(item))) if parts is None else (self.name(parts[0]), parts[1])
            )
        return result

    def expression(self, text: str, schema: Schema) -> Expr:
        try:
            return unplaced(parse_expression(text, schema, self.parameters))
        except TsqlError as error:
            raise self.error(error.message, error.hint) from None

    def aggregate(self, text: str, schema: Schema) -> AggregateCall:
        try:
            call = parse_aggregate(_unwrap(text), schema, self.parameters)
        except TsqlError as error:
            raise self.error(error.message, error.hint) from None
        order = tuple(SortKey(unplaced(k.expr), k.descending, k.nulls_first) for k in call.order)
        condition = None if call.filter is None else unplaced(call.filter)
        return replace(call, args=tuple(map(unplaced, call.args)), filter=condition, order=order, position=None)

    def window(self, text: str, schema: Schema, order: tuple[SortKey, ...]) -> WindowCall:
        try:
            call = parse_window(_unwrap(text), schema, order, self.parameters)
        except TsqlError as error:
            raise self.error(error.message, error.hint) from None
        return replace(call.changed(unplaced), position=None)

    def constant(self, text: str) -> Expr:
        value = self.expression(text, Schema(()))
        if value.columns():
            raise self.error(f"{text} is not a constant")
        return value

    def sort_key(self, item: str, schema: Schema) -> SortKey:
        match = re.match(r"(.*\S)\s+(asc|desc)\s+nulls\s+(first|last)\s*$", item, re.S | re.I)
        if match is None:
            raise self.error(f"{item!r} is not of the form `expression asc|desc nulls first|last`")
        return SortKey(
            self.expression(match.group(1), schema), match.group(2).lower() == "desc", match.group(3).lower() == "first"
        )

    def _described(self, text: str) -> Any:
        """A file source from its description."""
        try:
            about = json.loads(text)
            return self.catalog.open_file(list(about["paths"]), about["kind"], dict(about.get("options") or {}))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self.error("this is not the description of a file source") from None

    def table(self, text: str) -> tuple[str, Any]:
        """The source that a scan names."""
        try:
            if text.startswith("'"):
                path = text[1:-1].replace("''", "'")
                return (path, self._described(path)) if path.startswith("{") else (path, self.catalog.open_file(path))
            name = self.name(text)
            source = self.catalog.lookup(name)
        except TsqlError as error:
            raise self.error(error.message, error.hint) from None
        if source is None or not hasattr(source, "schema"):
            raise self.error(f"there is no table {name}")
        return name, source


def _unwrap(text: str) -> str:
    """Without the parentheses that the printer puts around a text with spaces."""
    if text.startswith("(") and text.endswith(")"):
        inside = text[1:-1]
        if all(depth >= 0 for _, depth, quoted in _scan_loose(inside) if not quoted):
            return inside
    return text


def _scan_loose(text: str) -> list[tuple[str, int, bool]]:
    try:
        return _scan_text(text)
    except ValueError:
        return [("", -1, False)]


def parse_plan(
    text: str, catalog: Any, parameters: dict[str, Any] | None = None, origin: str | None = None
) -> PhysicalPlan:
    """The plan of a file's text."""
    context = LineContext(catalog, parameters, text, origin)
    steps: dict[str, Step] = {}
    depths: dict[str, int] = {}
    query, target, shards, seen_version = "", "local", 1, False
    output: tuple[Step, tuple[str, ...], tuple[str, ...]] | None = None
    for number, line in lines_of(text):
        context.number = number
        if not line:
            continue
        word = line.split(None, 1)[0]
        rest = line[len(word) :].strip()
        if not seen_version:
            if line != f"plan version {VERSION}":
                raise context.error(f"a plan file starts with `plan version {VERSION}`")
            seen_version = True
        elif output is not None:
            raise context.error("nothing may follow the output line")
        elif word == "query" and not rest.startswith("="):
            query = _read_query(rest, context)
        elif word == "target" and not rest.startswith("="):
            target, shards = _read_target(rest, context)
        elif word == "output" and not rest.startswith("="):
            output = _read_output(rest, steps, context)
        else:
            step = _read_step(line, steps, context)
            steps[step.name] = step
            depths[step.name] = 1 + max((depths[i.name] for i in step.inputs), default=0)
            if depths[step.name] > MOST_DEEP:
                raise context.error(f"the plan is more than {MOST_DEEP} steps deep here")
    if output is None:
        context.number = text.count("\n") + 1
        raise context.error("the plan has no output line")
    root, columns, names = output
    used = {id(s) for s in root.walk()}
    for step in steps.values():
        if id(step) not in used:
            context.number = step.line
            raise context.error(f"step {step.name} is not used by the output")
    return PhysicalPlan(root, columns, names, shards, target, query)


def _read_query(rest: str, context: LineContext) -> str:
    try:
        value = json.loads(rest)
    except ValueError:
        value = None
    if not isinstance(value, str):
        raise context.error("query takes a text in double quotes, as JSON has it")
    return value


def _read_target(rest: str, context: LineContext) -> tuple[str, int]:
    match = re.match(r"(\w+)\s+shards=([0-9]{1,4})$", rest)
    if match is None or match.group(1) not in TARGETS or not 1 <= int(match.group(2)) <= MOST_SHARDS:
        raise context.error(f"expected `target local|spark shards=N`, N from 1 to {MOST_SHARDS}")
    return match.group(1), int(match.group(2))


def _read_step(line: str, steps: dict[str, Step], context: LineContext) -> Step:
    match = re.match(r'([A-Za-z_]\w*|"(?:[^"]|"")*")\s*=\s*(\w+)\b(.*)$', line, re.S)
    if match is None:
        raise context.error("expected `name = step ..`")
    name, op = context.name(match.group(1)), match.group(2)
    low, high = _arity(op, context)
    if name in steps:
        raise context.error(f"the name {name} is taken by line {steps[name].line}")
    try:
        words = split(match.group(3), " ")
    except ValueError as error:
        raise context.error(str(error)) from None
    inputs: list[Step] = []
    while words and len(inputs) < high and split_assignment(words[0]) is None:
        input_name = context.name(words.pop(0))
        if input_name not in steps:
            raise context.error(f"there is no step {input_name} above this line")
        inputs.append(steps[input_name])
    return replace(parse_step(op, tuple(inputs), Attributes(words, context), context), name=name, line=context.number)


def _arity(op: str, context: LineContext) -> tuple[int, int]:
    """How many inputs a step has at least and at most."""
    if op not in STEPS:
        known = sorted(set(STEPS) - {Input.op})
        near = difflib.get_close_matches(op, known, 1)
        raise context.error(
            f"unknown step {op}", f"did you mean {near[0]}?" if near else f"steps are {', '.join(known)}"
        )
    return INPUTS.get(op, (1, 1))


def parse_step(op: str, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Step:
    """The step of one line, without its name: what follows the inputs is in `attributes`."""
    low, high = _arity(op, context)
    if not low <= len(inputs) <= high:
        raise context.error(f"{op} needs {low} input{'s' if low > 1 else ''}")
    step = STEPS[op].read(inputs, attributes, context)
    attributes.check_used(op == "scan")
    twice = first_twice(step.schema.names)
    if twice is not None:
        raise context.error(f"two columns of the step would be called {twice}", hint="give one of them another name")
    return step


def _read_output(
    rest: str, steps: dict[str, Step], context: LineContext
) -> tuple[Step, tuple[str, ...], tuple[str, ...]]:
    match = re.match(r'([A-Za-z_]\w*|"(?:[^"]|"")*")\s*\((.*)\)$', rest, re.S)
    if match is None:
        raise context.error("expected `output step (column, column as name, ..)`")
    name = context.name(match.group(1))
    if name not in steps:
        raise context.error(f"there is no step {name} above this line")
    columns, names = [], []
    for item in context.split(match.group(2)):
        parts = re.match(r'([A-Za-z_]\w*|"(?:[^"]|"")*")(?:\s+as\s+([A-Za-z_]\w*|"(?:[^"]|"")*"))?$', item)
        if parts is None:
            raise context.error(f"{item!r} is not a column")
        columns.append(context.name(parts.group(1)))
        if columns[-1] not in steps[name].schema:
            raise context.error(f"the output column {columns[-1]} is not a column of {name}")
        names.append(context.name(parts.group(2)) if parts.group(2) else columns[-1])
    return steps[name], tuple(columns), tuple(names)
