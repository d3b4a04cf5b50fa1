"""Selects and names the columns of a star: `* LIKE 'pattern'`, and the alias of COLUMNS('regex'). Called by
`select.py`."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from tsql.kernels.process.arrow_compute import pc
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.bind.syntax_nodes import CallNode

Error = Callable[[str, exp.Expr], Exception]


@dataclass(frozen=True)
class StarPattern:
    """A star and the pattern that the names of its columns are compared with: `kind` is like, ilike, glob, similar or
    regex."""

    star: exp.Expr
    kind: str
    value: exp.Expr
    escape: exp.Expr | None = None
    negated: bool = False

    def matching(self, names: list[str], error: Error) -> list[bool]:
        """Which of these names are chosen."""
        pattern = self._constant(self.value, error)
        if pattern is None:
            return [False] * len(names)
        escape = "" if self.escape is None else self._constant(self.escape, error)
        if escape is None:
            return [False] * len(names)
        if len(escape) > 1:
            raise error("ESCAPE takes a string of at most one character", self.escape)
        if self.kind == "ilike":
            pattern, names = pattern.lower(), [name.lower() for name in names]
        try:
            found = pc.match_substring_regex(pa.array(names, pa.string()), self._regex(pattern, escape)).to_pylist()
        except pa.ArrowInvalid as wrong:
            raise error(f"bad pattern behind *: {wrong}", self.value) from None
        return [match != self.negated for match in found]

    def _regex(self, pattern: str, escape: str) -> str:
        match self.kind:
            case "regex":
                return pattern
            case "similar":
                # As in DuckDB, `* SIMILAR TO` is COLUMNS('regex') and matches a part of the name, `* NOT SIMILAR TO`
                # the whole of it.
                return f"^(?:{pattern})$" if self.negated else pattern
            case "glob":
                return _glob(pattern)
        return _like(pattern, escape)

    def _constant(self, node: exp.Expr, error: Error) -> str | None:
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Null):
            return None
        if not (isinstance(node, exp.Literal) and node.is_string):
            raise error("the pattern behind * must be a constant string", node)
        return node.this


def star_pattern(node: exp.Expr) -> StarPattern | None:
    """`* LIKE 'x'`, `t.* NOT SIMILAR TO 'x'`, ..: the star and its pattern; None for anything else."""
    negated = False
    while isinstance(node, (exp.Paren, exp.Not)):
        negated ^= isinstance(node, exp.Not)
        node = node.this
    escape = None
    if isinstance(node, exp.Escape):
        node, escape = node.this, node.expression
    if (
        isinstance(node, CallNode)
        and node.name == "regexp_matches"
        and len(node.expressions) == 2
        and _is_star(node.expressions[0])
    ):
        return StarPattern(node.expressions[0], "regex", node.expressions[1], None, negated)
    kind = {exp.Like: "like", exp.ILike: "ilike", exp.Glob: "glob", exp.SimilarTo: "similar"}.get(type(node))
    if kind is None or not _is_star(node.this):
        return None
    return StarPattern(node.this, kind, node.expression, escape, negated != bool(node.args.get("negate")))


def _is_star(node: exp.Expr) -> bool:
    return isinstance(node, exp.Star) or isinstance(node, exp.Column) and isinstance(node.this, exp.Star)


def _like(pattern: str, escape: str) -> str:
    """A pattern of LIKE as a regular expression."""
    parts, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(re.escape(next(characters, "")))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    return f"(?s)^{''.join(parts)}$"


def _glob(pattern: str) -> str:
    """A pattern of GLOB as a regular expression."""
    parts, at = [], 0
    while at < len(pattern):
        character = pattern[at]
        end = pattern.find("]", at + 2) if character == "[" else -1
        if character == "\\" and at + 1 < len(pattern):
            at += 1
            parts.append(re.escape(pattern[at]))
        elif end > 0:
            inside = pattern[at + 1 : end]
            negated = inside.startswith("!")
            members = inside[negated:].replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]").replace("^", r"\^")
            parts.append(f"[{'^' if negated else ''}{members}]")
            at = end
        else:
            parts.append({"*": ".*", "?": "."}.get(character) or re.escape(character))
        at += 1
    return f"(?s)^{''.join(parts)}$"


def column_alias(alias: str, name: str, regex: str | None, error: Callable[[str], Exception]) -> str | None:
    """The alias of COLUMNS(..) for one column: `\\0` is its name, `\\1` what the first group of the regular expression
    matched, two backslashes are kept as they are. An empty one is none."""
    parts, at = [], 0
    found = re.search(regex, name) if regex is not None else None
    while at < len(alias):
        if alias[at] != "\\":
            parts.append(alias[at])
            at += 1
            continue
        code = alias[at + 1 : at + 2]
        if not code:
            raise error(f'the alias "{alias}" ends with a backslash: a number follows it, or a second one')
        if code != "\\" and not code.isdigit():
            raise error(f'the alias "{alias}" has a backslash before "{code}": a number follows it, or a second one')
        if code == "\\":
            parts.append("\\\\")
        elif code == "0":
            parts.append(name)
        elif found is None:
            raise error("only \\0 can stand in an alias of COLUMNS without a regular expression")
        elif int(code) <= (found.re.groups or 0):
            parts.append(found.group(int(code)) or "")
        at += 2
    return "".join(parts) or None
