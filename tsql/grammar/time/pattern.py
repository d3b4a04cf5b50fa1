"""PATTERN (..) of MATCH_RECOGNIZE: text → tree, and tree → text.

It has a lexer of its own, since SQL's would read `A$` as a name, `??` as an operator and `?` as a parameter.

    choice   := sequence ('|' sequence)*
    sequence := repeat*
    repeat   := primary quantifier?
    primary  := variable | '(' choice ')' | '^' | '$'
    quantifier := ('*' | '+' | '?' | '{' n '}' | '{' n ',' '}' | '{' n ',' m '}' | '{' ',' m '}') '?'?
"""

from __future__ import annotations

import re
from typing import NoReturn

from sqlglot import exp

from tsql.grammar.time.match_nodes import (
    Pattern,
    PatternAnchor,
    PatternChoice,
    PatternRepeat,
    PatternSequence,
    PatternVariable,
)
from tsql.kernels.expr.errors import ParseError
from tsql.kernels.process.quick_dataclass import dataclass

MAX_REPEAT = 10_000
"""The largest bound of a quantifier: an automaton has a state for each."""
_TOKEN = re.compile(
    r"""
      (?P<blank>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<name>[^\W\d]\w*)
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<number>\d+)
    | (?P<open_exclusion>\{-)
    | (?P<symbol>[(){}|*+?,^$])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Lexeme:
    kind: str
    text: str
    position: int


def read_pattern(text: str, start: int) -> tuple[Pattern, int]:
    """The pattern that starts at an offset, behind its opening parenthesis, and the offset of the closing one."""
    reader = _Reader(text, start)
    node = reader.choice()
    if reader.next.text != ")":
        reader.unexpected("a variable, |, a quantifier or )")
    return node, reader.next.position


class _Reader:
    """Reads one pattern; `next` is the lexeme at hand."""

    def __init__(self, text: str, start: int):
        self.text = text
        self.end = start
        self.next = Lexeme("end", "", start)
        self.advance()

    def advance(self) -> Lexeme:
        """Pass a lexeme, and give it."""
        passed, kind = self.next, "blank"
        while kind == "blank":
            found = _TOKEN.match(self.text, self.end)
            if found is None:
                kind, self.next = "end", Lexeme("end", self.text[self.end : self.end + 1], self.end)
                break
            kind = found.lastgroup or "blank"
            self.next = Lexeme(kind, found.group(), found.start())
            self.end = found.end()
        return passed

    def fail(self, message: str, at: Lexeme | None = None, hint: str | None = None) -> NoReturn:
        raise ParseError(message, position=(at or self.next).position, text=self.text, hint=hint)

    def unexpected(self, wanted: str) -> NoReturn:
        where = f'"{self.next.text}"' if self.next.text else "the end of the text"
        self.fail(f"syntax error at {where} in PATTERN: expected {wanted}")

    def choice(self) -> Pattern:
        alternatives = [self.sequence()]
        while self.next.text == "|":
            self.advance()
            alternatives.append(self.sequence())
        if len(alternatives) == 1:
            return alternatives[0]
        return PatternChoice(
            expressions=[
                part for one in alternatives for part in (one.expressions if isinstance(one, PatternChoice) else [one])
            ]
        )

    def sequence(self) -> Pattern:
        first = self.next
        parts: list[Pattern] = []
        while self.next.text not in (")", "|") or self.next.kind == "quoted":
            part = self.repeat()
            parts += part.expressions if isinstance(part, PatternSequence) and part.expressions else [part]
        if not parts:
            self.fail("PATTERN is empty here", first, "what matches no rows is written (), as in PATTERN (A | ())")
        return parts[0] if len(parts) == 1 else _at(PatternSequence(expressions=parts), first)

    def repeat(self) -> Pattern:
        first = self.next
        node = self.primary()
        if self.next.kind == "symbol" and self.next.text in "*+?{":
            if isinstance(node, PatternAnchor):
                self.fail("an anchor cannot be repeated")
            low, high = self.quantifier()
            reluctant = self.next.text == "?"
            if reluctant:
                self.advance()
            node = _at(PatternRepeat(this=node, low=low, high=high, reluctant=reluctant or None), first)
            if self.next.kind == "symbol" and self.next.text in "*+?{":
                self.fail("two quantifiers in a row", hint="put the first one in parentheses: (A+)*")
        return node

    def primary(self) -> Pattern:
        token = self.next
        match token.kind, token.text:
            case "open_exclusion", _:
                self.fail(
                    "exclusion {- -} in PATTERN is not supported", hint="MEASURES can leave out the rows of a variable"
                )
            case "name", word:
                self.advance()
                if word.upper() in ("DEFINE", "SUBSET"):
                    self.fail(f"PATTERN has no ) before {word.upper()}", token)
                if word.upper() == "PERMUTE" and self.next.text == "(":
                    self.fail("PERMUTE in PATTERN is not supported", token, "list the orders: (A B | B A)")
                return _at(PatternVariable(this=exp.Identifier(this=word, quoted=False)), token)
            case "quoted", word:
                self.advance()
                return _at(PatternVariable(this=exp.Identifier(this=word[1:-1].replace('""', '"'), quoted=True)), token)
            case "symbol", ("^" | "$") as symbol:
                self.advance()
                return _at(PatternAnchor(this=exp.Var(this="START" if symbol == "^" else "END")), token)
            case "symbol", "(":
                return self.group()
        self.unexpected("a variable or (")

    def group(self) -> Pattern:
        first = self.advance()
        if self.next.text == ")" and self.next.kind == "symbol":
            self.advance()
            return _at(PatternSequence(), first)
        node = self.choice()
        if self.next.text != ")":
            self.unexpected(")")
        self.advance()
        return node

    def quantifier(self) -> tuple[int, int | None]:
        first = self.advance()
        if first.text != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[first.text]
        low = self.bound()
        high = low
        if self.next.text == ",":
            self.advance()
            high = self.bound()
            if low is None and high is None:
                self.fail("a quantifier in braces needs a bound", first, "{2}, {2,}, {2,5} or {,5}")
        elif low is None:
            self.unexpected("a number or ,")
        if self.next.text != "}":
            self.unexpected("}")
        self.advance()
        if high == 0:
            self.fail("the upper bound of a quantifier must be at least 1", first)
        if low is not None and high is not None and low > high:
            self.fail(
                f"the bounds of the quantifier are reversed: {low} is more than {high}", first, f"{{{high},{low}}}"
            )
        return low or 0, high

    def bound(self) -> int | None:
        if self.next.kind != "number":
            return None
        token = self.advance()
        if len(token.text) > 9 or int(token.text) > MAX_REPEAT:
            self.fail(f"the bound of a quantifier is at most {MAX_REPEAT}", token)
        return int(token.text)


def _at(node: Pattern, token: Lexeme) -> Pattern:
    node.meta["at"] = token.position
    return node


def pattern_text(node: Pattern) -> str:
    """The text of a pattern, which reads back to an equal tree."""
    match node:
        case PatternVariable():
            return variable_text(node.this)
        case PatternAnchor():
            return "^" if node.name == "START" else "$"
        case PatternRepeat():
            inner = pattern_text(node.this)
            grouped = isinstance(node.this, (PatternRepeat, PatternChoice)) or (
                isinstance(node.this, PatternSequence) and node.this.expressions
            )
            return f"{f'({inner})' if grouped else inner}{_quantifier_text(node)}"
        case PatternSequence():
            if not node.expressions:
                return "()"
            return " ".join(
                f"({pattern_text(part)})" if isinstance(part, PatternChoice) else pattern_text(part)
                for part in node.expressions
            )
        case PatternChoice():
            return " | ".join(pattern_text(part) for part in node.expressions)
    raise AssertionError(f"no pattern: {type(node).__name__}")


def variable_text(name: exp.Identifier) -> str:
    """The name of a pattern variable, in quotes if it was."""
    return '"{}"'.format(name.name.replace('"', '""')) if name.args.get("quoted") else name.name


def _quantifier_text(node: PatternRepeat) -> str:
    low, high = node.args["low"], node.args.get("high")
    simple = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
    bounds = f"{low}" if low == high else f"{low}," if high is None else f"{low},{high}"
    return (simple or f"{{{bounds}}}") + ("?" if node.args.get("reluctant") else "")
