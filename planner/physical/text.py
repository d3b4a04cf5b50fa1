"""The syntax of plan files: how names, expressions and lists are written, and how a text is split at its top level.
Steps print their attributes with it, and the parser reads with it."""

from __future__ import annotations

import json
import re
from typing import Any

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.windows.call import WindowCall

VERSION = 1
"""The version of the format; a plan file starts with it."""

SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")
_ASSIGNMENT = re.compile(r'([A-Za-z_]\w*|"(?:[^"]|"")*")=')


def identifier(name: str) -> str:
    """A column name as the file prints it; quoted unless it is plain."""
    return name if SIMPLE.match(name) else quoted(name)


def quoted(name: str) -> str:
    """A name as SQL takes it whatever it is."""
    return '"' + name.replace('"', '""') + '"'


def dotted(parts: tuple[str, ...]) -> str:
    """A qualified name: each part quoted unless it is plain."""
    return ".".join(map(identifier, parts))


def identifiers(names: tuple[str, ...]) -> str:
    return f"({', '.join(map(identifier, names))})"


def assignment(name: str, value: Expr | AggregateCall | WindowCall, words: tuple[str, ...] = ()) -> tuple[str, str]:
    """(name, text) of a computed column; a text with spaces is put in parentheses. words: the attributes of the step; a
    column of such a name is quoted."""
    text = value.sql()
    return quoted(name) if name in words else identifier(name), f"({text})" if _has_space(text) else text


def assignments(columns: tuple[tuple[str, Expr], ...]) -> str:
    """A list of columns: `a` alone if the column keeps its name, else `b=expression`."""
    parts = [identifier(n) if isinstance(e, Column) and e.name == n else "=".join(assignment(n, e)) for n, e in columns]
    return f"({', '.join(parts)})"


def split_assignment(word: str) -> tuple[str, str] | None:
    """name=value at the first top-level =, if what is before it is a name."""
    match = _ASSIGNMENT.match(word)
    return (match.group(1), word[match.end() :]) if match else None


def table_text(table: str, source: Any) -> str:
    """How a scan names its source: a table or a stream by name, a file by its quoted path, or by its description as
    quoted JSON if there are several paths or options."""
    if getattr(source, "qualified_name", None) == table:
        return table
    about = source.describe() if hasattr(source, "describe") else None
    if about is None or getattr(source, "catalog_name", None) == table.lower():
        return identifier(table)
    plain = len(about["paths"]) == 1 and not about.get("options") and not about["paths"][0].startswith("{")
    plain = plain and getattr(source, "path_says_kind", True)
    text = about["paths"][0] if plain else json.dumps(about, ensure_ascii=False, sort_keys=True)
    return "'" + text.replace("'", "''") + "'"


def _has_space(text: str) -> bool:
    return any(c.isspace() and depth == 0 for c, depth, quoted in scan_text(text) if not quoted)


def scan_text(text: str) -> list[tuple[str, int, bool]]:
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
    parts: list[str] = []
    current: list[str] = []
    for c, depth, quoted in scan_text(text):
        at = not quoted and depth == 0 and (c.isspace() if separator == " " else c == separator)
        if at:
            parts.append("".join(current))
            current = []
        else:
            current.append(c)
    parts.append("".join(current))
    stripped = [p.strip() for p in parts]
    return [p for p in stripped if p] if separator == " " or stripped == [""] else stripped
