"""Plan files: the text of a physical plan, parsed back exactly; `PhysicalPlan.text` prints it.

One named step per line, inputs by name, expressions in SQL; `#` starts a comment. The plan runs exactly as written:
parsing never adds, drops or reorders a step. Every error is a PlanError with the line. `text.py` defines the syntax,
`line.py` and `attributes.py` read the parts of a line, and each step reads its own attributes.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tsql.planner.logical.emission import CHANGES, FINAL, Emission
from tsql.planner.physical.attributes import Attributes, first_twice
from tsql.planner.physical.line import LineContext
from tsql.planner.physical.operators import all_steps
from tsql.planner.physical.properties import MAX_SHARDS
from tsql.planner.physical.step import MOST_DEEP, PhysicalPlan, Step
from tsql.planner.physical.text import VERSION, split, split_assignment

STEPS = all_steps()
TARGETS = ("local", "spark")

_QUERY = re.compile(r'\s*query\s+"(?:[^"\\]|\\.)*"')


def _without_comment(line: str, quote: str) -> tuple[str, str]:
    """The line up to a # outside quotes, and the quote that is open at its end. `quote` is the one open at its
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
    quote, first = "", 1
    parts: list[str] = []
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


def parse_plan(
    text: str, catalog: Any, parameters: dict[str, Any] | None = None, origin: str | None = None
) -> PhysicalPlan:
    """The plan of a file's text."""
    context = LineContext(catalog, parameters, text, origin)
    steps: dict[str, Step] = {}
    depths: dict[str, int] = {}
    query, target, shards, seen_version = "", "local", 1, False
    output: tuple[Step, tuple[str, ...], tuple[str, ...]] | None = None
    emission: Emission | None = None
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
        elif word == "emit" and not rest.startswith("="):
            emission = _read_emission(rest, context)
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
            context.number = step.line or context.number
            raise context.error(f"step {step.name} is not used by the output")
    return PhysicalPlan(root, columns, names, shards, target, query, emission=emission)


def _read_query(rest: str, context: LineContext) -> str:
    try:
        value = json.loads(rest)
    except ValueError:
        value = None
    if not isinstance(value, str):
        raise context.error("query takes a text in double quotes, as JSON has it")
    return value


def _read_target(rest: str, context: LineContext) -> tuple[str, int]:
    match = re.match(r"(\w+)\s+shards=([0-9]{1,5})$", rest)
    if match is None or match.group(1) not in TARGETS or not 1 <= int(match.group(2)) <= MAX_SHARDS:
        raise context.error(f"expected `target local|spark shards=N`, N from 1 to {MAX_SHARDS}")
    return match.group(1), int(match.group(2))


def _read_emission(rest: str, context: LineContext) -> Emission:
    """`emit final every_us=n ..`: when the rows of a live run leave."""
    words = rest.split()
    if not words or words[0] not in (FINAL, CHANGES):
        raise context.error(f"emit takes {FINAL} or {CHANGES}")
    given = Attributes(words[1:], context)
    found = Emission(
        words[0],
        given.integer("every_us", 1),
        given.flag("before_watermark"),
        given.flag("changes_after_watermark"),
        given.integer("within_us", 1),
    )
    given.check_used(False)
    if found.before_watermark and found.every_us is None:
        raise context.error("before_watermark=yes goes with every_us")
    return found


def _read_step(line: str, steps: dict[str, Step], context: LineContext) -> Step:
    match = re.match(r'([A-Za-z_]\w*|"(?:[^"]|"")*")\s*=\s*(\w+)\b(.*)$', line, re.S)
    if match is None:
        raise context.error("expected `name = step ..`")
    name, op = context.name(match.group(1)), match.group(2)
    _, high = _known(op, context).arity
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


def _known(op: str, context: LineContext) -> type[Step]:
    """The step of a name."""
    if op not in STEPS:
        known = sorted(name for name, step in STEPS.items() if step.is_planned)
        near = difflib.get_close_matches(op, known, 1)
        raise context.error(
            f"unknown step {op}", f"did you mean {near[0]}?" if near else f"steps are {', '.join(known)}"
        )
    return STEPS[op]


def parse_step(op: str, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Step:
    """The step of one line, without its name: what follows the inputs is in `attributes`."""
    kind = _known(op, context)
    low, high = kind.arity
    if not low <= len(inputs) <= high:
        raise context.error(f"{op} needs {low} input{'s' if low > 1 else ''}")
    step = kind.read(inputs, attributes, context)
    attributes.check_used(kind.names_table)
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
