"""Turns the text of a `.slt` file into records and back; `slt_runner` runs the records, `--complete` writes them
back."""

from __future__ import annotations

import ast
import datetime
import decimal
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SORT_MODES = ("nosort", "rowsort", "valuesort")
_TYPES = re.compile(r"[BIRTDP?]+")


class FormatError(Exception):
    """A line of a `.slt` file is not in the format of tests/slt/README.md."""


@dataclass
class Record:
    """One record. `kind` is "query", "statement", "load" or "names".

    `head` holds the lines that are written back unchanged (comments, conditions, the first line). For a query, the
    first line is regenerated from `types`, `sort` and `label`.
    """

    kind: str
    line: int
    head: list[str] = field(default_factory=list)
    sql: str = ""
    oracle: str | None = None
    params: Any = None
    skip: set[str] = field(default_factory=set)
    only: set[str] = field(default_factory=set)
    types: str = ""
    sort: str = "nosort"
    label: str = ""
    rows: list[str] | None = None
    error: str | None = None
    argument: str = ""

    def runs_under(self, config: str) -> bool:
        return config not in self.skip and (not self.only or config in self.only)

    def text(self) -> str:
        """The record as it stands in the file."""
        lines = list(self.head)
        if self.kind == "query":
            lines.append(
                " ".join(
                    word
                    for word in ("query", self.types, "" if self.sort == "nosort" else self.sort, self.label)
                    if word
                )
            )
        if self.sql:
            lines.append(self.sql)
        if self.oracle is not None:
            lines += ["oracle", self.oracle]
        if self.rows is not None:
            lines += ["----", *self.rows]
        return "\n".join(lines)


def read(path: Path) -> list[Record]:
    """The records of a file, in order. A comment on its own is a record of kind "comment"."""
    return parse(path.read_text(encoding="utf-8"))


def parse(text: str) -> list[Record]:
    records, block, start = [], [], 1
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line:
            if not block:
                start = number
            block.append(line)
        elif block:
            records.append(_record(block, start))
            block = []
    return records


def write(records: list[Record]) -> str:
    return "\n\n".join(record.text() for record in records) + "\n"


def _record(block: list[str], start: int) -> Record:
    record = Record("comment", start)
    for index, line in enumerate(block):
        word, _, rest = line.partition(" ")
        match word:
            case "skipif":
                record.skip.add(rest.split()[0])
            case "onlyif":
                record.only.add(rest.split()[0])
            case "params":
                record.params = parse_params(rest)
            case "load" | "names":
                record.kind, record.argument, record.line = word, rest.strip(), start + index
                record.head = block
                return record
            case "statement":
                return _statement(record, block, index, start)
            case "query":
                return _query(record, block, index, start)
            case _ if not line.startswith("#"):
                raise FormatError(
                    f"line {start + index}: a record starts with query, statement, load or names, not with {line!r}"
                )
    record.head = block
    return record


def _statement(record: Record, block: list[str], index: int, start: int) -> Record:
    _, _, rest = block[index].partition(" ")
    outcome, _, pattern = rest.strip().partition(" ")
    if outcome not in ("ok", "error"):
        raise FormatError(f"line {start + index}: write `statement ok` or `statement error <regex>`")
    record.kind, record.line, record.head = "statement", start + index, block[: index + 1]
    record.error = (pattern.strip() or ".") if outcome == "error" else None
    _body(record, block[index + 1 :])
    return record


def _query(record: Record, block: list[str], index: int, start: int) -> Record:
    record.kind, record.line, record.head = "query", start + index, block[:index]
    words = block[index].split()[1:]
    if words and _TYPES.fullmatch(words[0]):
        record.types = words.pop(0)
    if words and words[0] in SORT_MODES:
        record.sort = words.pop(0)
    record.label = " ".join(words)
    _body(record, block[index + 1 :])
    return record


def _body(record: Record, lines: list[str]) -> None:
    if "----" in lines:
        cut = lines.index("----")
        record.rows = lines[cut + 1 :]
        lines = lines[:cut]
    if "oracle" in lines:
        cut = lines.index("oracle")
        record.oracle = "\n".join(lines[cut + 1 :])
        lines = lines[:cut]
    record.sql = "\n".join(lines)
    if not record.sql:
        raise FormatError(f"line {record.line}: the record has no SQL")


_MAKERS = {
    "date": datetime.date,
    "time": datetime.time,
    "datetime": datetime.datetime,
    "timedelta": datetime.timedelta,
    "Decimal": decimal.Decimal,
}


def parse_params(text: str) -> Any:
    """Python literals, plus calls of date, time, datetime, timedelta and Decimal with literal arguments."""

    def value(node: ast.expr) -> Any:
        match node:
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [value(item) for item in items]
            case ast.Dict(keys=keys, values=values):
                return {value(k): value(v) for k, v in zip(keys, values, strict=True)}
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _MAKERS:
                return _MAKERS[name](*map(value, args), **{k.arg: value(k.value) for k in keywords})
            case _:
                return ast.literal_eval(node)

    try:
        return value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError) as problem:
        raise FormatError(f"params {text}: {problem}") from problem
