"""Ensures that no clause is ignored. Tables list the known arguments of each syntax node; all others are refused.

sqlglot parses clauses of many dialects into arguments of its nodes. An argument that nobody reads would be a clause
without effect. So a table lists each argument: it is read, it has no meaning here (with the reason), or it is refused
by name. The table of expressions is in `expression_clauses.py`, those of statements are in `tsql/grammar/clauses/`.
`check_clauses` runs only on trees that a parser made: rewritten trees have been checked before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from tsql.kernels.expr.errors import ParseError
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.bind.query_text import position_of

_QUOTED = (TokenType.STRING, TokenType.IDENTIFIER)


@dataclass(frozen=True)
class Refusal:
    """How a clause is refused.

    words: the clause as written, with | between several spellings. The error shows and points to the first one that the
    text contains. message: replaces "words is not supported". elsewhere: the clause is valid in other places."""

    words: str
    hint: str | None = None
    message: str | None = None
    elsewhere: bool = False


Places = Mapping[str, Mapping[type[exp.Expr], frozenset[str]]]


@dataclass(frozen=True)
class Clauses:
    """The arguments of one node class.

    read: the arguments that the analysis reads. extra: those of them that the grammar adds to the class. idle:
    arguments that may stay unread, each with the reason. refused: arguments with their own refusal. when_false: those
    of them for which False is a clause too. foreign: arguments that only other dialects set; the refusal shows the
    argument's name. places: for the children in an argument, by class, the arguments that are read there, where these
    are fewer than elsewhere."""

    read: frozenset[str] = frozenset()
    idle: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    foreign: frozenset[str] = frozenset()
    when_false: frozenset[str] = frozenset()
    places: Places = field(default_factory=dict)
    extra: frozenset[str] = frozenset()
    fine: frozenset[str] = field(init=False, default=frozenset())

    def __post_init__(self) -> None:
        object.__setattr__(self, "fine", self.read | frozenset(self.idle))

    @property
    def arguments(self) -> frozenset[str]:
        """All arguments that are known."""
        return self.fine | frozenset(self.refused) | self.foreign

    def refusal(self, argument: str) -> Refusal:
        return self.refused.get(argument) or misplaced(argument)


WORDS = {
    "where": "WHERE",
    "group": "GROUP BY",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "order": "ORDER BY",
    "limit": "LIMIT|FETCH",
    "offset": "OFFSET",
    "sample": "TABLESAMPLE|USING SAMPLE",
    "joins": "JOIN|,",
    "pivots": "PIVOT|UNPIVOT",
    "version": "FOR",
    "with_": "WITH",
    "ordinality": "WITH ORDINALITY",
    "all": "ALL",
    "on": "ON",
    "desc": "DESC",
    "kind": "TYPE",
}
"""The spelling of a clause, where it differs from the argument's name."""


def misplaced(argument: str) -> Refusal:
    """The refusal of a clause that means something elsewhere, or in another dialect."""
    return Refusal(WORDS.get(argument) or argument.strip("_").replace("_", " ").upper(), elsewhere=True)


Table = Mapping[type[exp.Expr], Clauses | Refusal | None]
"""The clauses of each class; a Refusal for one that is refused as a whole; None for one that the analysis refuses
itself."""


def reads(
    read: str = "",
    *,
    idle: Mapping[str, str] | None = None,
    refused: Mapping[str, Refusal | str] | None = None,
    foreign: str = "",
    when_false: str = "",
    places: Mapping[str, Mapping[type[exp.Expr], str]] | None = None,
    extra: str = "",
) -> Clauses:
    """`Clauses`, with names of arguments as words of a text."""
    named = {key: value if isinstance(value, Refusal) else Refusal(value) for key, value in (refused or {}).items()}
    narrowed = {
        key: {kind: frozenset(words.split()) for kind, words in kinds.items()} for key, kinds in (places or {}).items()
    }
    added = frozenset(extra.split())
    return Clauses(
        frozenset(read.split()) | added,
        idle or {},
        named,
        frozenset(foreign.split()),
        frozenset(when_false.split()),
        narrowed,
        added,
    )


def class_words(kind: type[exp.Expr]) -> str:
    """The name of a class as words: GENERATED AS IDENTITY for GeneratedAsIdentityColumnConstraint."""
    name = kind.__name__.removesuffix("ColumnConstraint").removesuffix("Property") or kind.__name__
    starts = [
        i
        for i, c in enumerate(name)
        if c.isupper() and (i == 0 or not name[i - 1].isupper() or name[i + 1 : i + 2].islower())
    ]
    return " ".join(name[a:b] for a, b in zip([0, *starts[1:]], [*starts[1:], len(name)], strict=True)).upper()


def check_clauses(root: exp.Expr, tokens: Sequence[Token], text: str, table: Table, whole: bool = True) -> None:
    """Refuse the first clause of a tree that the table does not know; `tokens` are those of the tree. Without `whole`,
    a class that the table does not have is left to the caller."""
    wrong: list[tuple[exp.Expr, object, Refusal]] = []
    stack: list[exp.Expr] = [root]
    is_node, known = exp.Expr, table.get
    while stack:
        node = stack.pop()
        clauses = known(node.__class__, _UNKNOWN)
        if clauses.__class__ is not Clauses:
            if clauses is _UNKNOWN:
                clauses = Refusal(class_words(type(node))) if whole else None
            if clauses is not None:
                wrong.append((node, None, clauses))
            continue
        fine = clauses.fine
        for key, value in node.args.items():
            if value is False:
                if key in clauses.when_false:
                    wrong.append((node, value, clauses.refusal(key)))
            elif key not in fine:
                if value:
                    wrong.append((node, value, clauses.refusal(key)))
            elif value.__class__ is list:
                stack += [child for child in value if isinstance(child, is_node)]
            elif isinstance(value, is_node):
                stack.append(value)
        if clauses.places:
            wrong += _narrowed(node, clauses.places, table)
    if wrong:
        raise min((_error(*found, tokens, text) for found in wrong), key=lambda error: error.position)


_UNKNOWN = Refusal("")


def _narrowed(node: exp.Expr, places: Places, table: Table) -> Iterable[tuple[exp.Expr, object, Refusal]]:
    for key, kinds in places.items():
        value = node.args.get(key)
        for child in value if isinstance(value, list) else [value]:
            allowed = kinds.get(type(child))
            for name, part in child.args.items() if allowed is not None else ():
                if part and name not in allowed and name in table[type(child)].fine:
                    yield child, part, misplaced(name)


def _error(node: exp.Expr, value: object, refusal: Refusal, tokens: Sequence[Token], text: str) -> ParseError:
    around: exp.Expr | None = node
    start = position_of(node)
    while start is None and around is not None:
        around = around.parent
        start = position_of(around)
    first = value[0] if isinstance(value, list) and value else value
    inside = position_of(first) if isinstance(first, exp.Expr) else None
    spellings = refusal.words.split("|")
    for begin in (tokens[0].start if start is None else start, tokens[0].start):
        for words in spellings:
            at = _find(words.split(), tokens, begin)
            if at is not None:
                return _refused(refusal, words, at, text)
    at = next(place for place in (inside, start, tokens[0].start) if place is not None)
    return _refused(refusal, spellings[0], at, text)


def _refused(refusal: Refusal, words: str, at: int, text: str) -> ParseError:
    """The error with the spelling that was found."""
    shown = words if words[0].isalpha() else f'"{words}"'
    message = refusal.message or f"{shown} is not supported{' here' if refusal.elsewhere else ''}"
    return ParseError(message, position=at, text=text, hint=refusal.hint)


def _find(words: list[str], tokens: Sequence[Token], begin: int) -> int | None:
    """Where these words stand in the text, from a place on. A token may be several words (ORDER BY)."""
    for index, token in enumerate(tokens):
        if token.start < begin:
            continue
        found: list[str] = []
        for following in tokens[index : index + len(words)]:
            if following.token_type in _QUOTED or len(found) >= len(words):
                break
            found += following.text.upper().split()
        if found[: len(words)] == words:
            return token.start
    return None
