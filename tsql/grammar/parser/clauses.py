"""The grammar of clauses, where sqlglot accepts what DuckDB refuses or refuses what DuckDB accepts: their order, LIMIT
and OFFSET, names after AS and OVER, UPDATE, DELETE and INSERT. `tsql/grammar/parser/statements.py` mixes this in."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.tokens import TokenType

from tsql.grammar.time.base import TimeParser
from tsql.kernels.expr.keywords import RESERVED
from tsql.planner.bind.syntax import ExpressionParser

_CLAUSE_ORDER = {"where": 0, "group": 1, "having": 2, "qualify": 3, "order": 4, "limit": 5, "offset": 5}
"""The position of each clause in a query."""
_OPERANDS = (TokenType.NUMBER, TokenType.L_PAREN, TokenType.PLACEHOLDER, TokenType.PARAMETER)
_NO_NAMES = RESERVED - {"as"} | {
    "anti", "asof", "at", "authorization", "by", "collation", "concurrently", "cross", "freeze", "full", "glob",
    "ilike", "inner", "is", "join", "left", "like", "natural", "outer", "overlaps", "positional", "right", "semi",
    "similar", "tablesample", "verbose",
}  # fmt: skip
"""Words that cannot be names without AS or quotes. All but those of RESERVED can be function names (DuckDB's
`duckdb_keywords()`)."""
_QUOTED = (TokenType.STRING, TokenType.IDENTIFIER)


def _marked(parse: Callable) -> Callable:
    """A parser of a clause that also remembers where the clause begins."""

    def parse_clause(parser: ClauseParser) -> tuple[str, exp.Expr | None]:
        start = parser._curr.start
        key, node = parse(parser)
        if isinstance(node, exp.Expr):
            node.meta["clause_at"] = start
        return key, node

    return parse_clause


class ClauseParser(TimeParser):
    """Clauses of queries and of changes."""

    QUERY_MODIFIER_PARSERS = {kind: _marked(parse) for kind, parse in ExpressionParser.QUERY_MODIFIER_PARSERS.items()}

    def _parse_query_modifiers(self, this):  # type: ignore[no-untyped-def]
        """As sqlglot's, which takes clauses in any order."""
        node = super()._parse_query_modifiers(this)
        parts = node.args if node is not None else {}
        placed = [
            (parts[key].meta["clause_at"], key)
            for key in _CLAUSE_ORDER
            if parts.get(key) and "clause_at" in parts[key].meta
        ]
        latest = ""
        for at, key in sorted(placed):
            if latest and _CLAUSE_ORDER[key] < _CLAUSE_ORDER[latest]:
                self._refuse(f"syntax error: {_word_of(key)} stands before {_word_of(latest)}", at)
            latest = key
        return node

    def _parse_limit(
        self, this: exp.Expr | None = None, top: bool = False, skip_limit_token: bool = False
    ) -> exp.Expr | None:
        """`LIMIT expression [%] [WITH TIES]`, or FETCH, which is one row if it does not say how many."""
        if top or not (skip_limit_token or self._match(TokenType.LIMIT)):
            node = super()._parse_limit(this, top, skip_limit_token)
            if isinstance(node, exp.Fetch) and node.args.get("count") is None:
                node.set("count", exp.Literal.number(1).update_positions(self._prev))
            return node
        value = exp.var("ALL") if self._match(TokenType.ALL) else self._parse_row_count()
        if value is None:
            self.raise_error("Expected a number of rows after LIMIT")
        percent, ties = self._match_set((TokenType.PERCENT, TokenType.MOD)), self._take("WITH", "TIES")
        options = self.expression(exp.LimitOptions(percent=percent, with_ties=ties)) if percent or ties else None
        if (
            self._curr
            and self._curr.token_type == TokenType.COMMA
            and self._next
            and self._next.token_type == TokenType.NUMBER
        ):
            self._refuse('syntax error at ",": LIMIT takes one number', self._curr, "LIMIT 10 OFFSET 20")
        return self.expression(exp.Limit(this=this, expression=value, limit_options=options))

    def _parse_row_count(self) -> exp.Expr | None:
        """Any expression; a % at its end is no operator."""
        start = self._index
        value = self._parse_term(parse_mod=False)
        is_percent = bool(self._curr) and self._curr.token_type in (TokenType.PERCENT, TokenType.MOD)
        if value is None or (is_percent and not (self._next and self._next.token_type in _OPERANDS)):
            return value
        self._retreat(start)
        return self._parse_disjunction()

    def _parse_offset(self, this: exp.Expr | None = None) -> exp.Expr | None:
        if not self._match(TokenType.OFFSET):
            return this
        value = self._parse_disjunction()
        if value is None:
            self.raise_error("Expected a number of rows after OFFSET")
        self._match_texts(("ROW", "ROWS"))
        return self.expression(exp.Offset(this=this, expression=value))

    def _parse_alias(self, this, explicit=False):  # type: ignore[no-untyped-def]
        if self._at_keyword():
            return this
        says_as = self._curr.token_type == TokenType.ALIAS
        node = super()._parse_alias(this, explicit)
        if says_as and self._prev.token_type == TokenType.ALIAS:
            self.raise_error("Expected a name after AS")
        return node

    def _parse_group(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        node = super()._parse_group(*args, **kwargs)
        if node is not None and not any(node.args.values()) and node.args.get("all") is None:
            self.raise_error("Expected an expression after GROUP BY")
        return node

    def _parse_create(self):  # type: ignore[no-untyped-def]
        """As sqlglot's, which does not ask for AS before the query of a view or a table."""
        first = self._index
        node = super()._parse_create()
        if isinstance(node, exp.Create) and isinstance(node.expression, (exp.Query, exp.Values)):
            words = self._words_outside(first)
            says_as = next((index for index, word in words if word == "AS"), None)
            query = next((index for index, word in words if word in ("SELECT", "FROM", "VALUES")), None)
            if says_as is None or query is not None and query < says_as:
                self._refuse(
                    "syntax error: expected AS before the query", None if query is None else self._tokens[query]
                )
        return node

    def _parse_partition_by(self) -> list[exp.Expr]:
        keys = super()._parse_partition_by()
        if not keys and self._prev.token_type == TokenType.PARTITION_BY:
            self.raise_error("Expected an expression after PARTITION BY")
        return keys

    def _parse_named_window(self):  # type: ignore[no-untyped-def]
        if self._word(1) != "AS":
            self._advance()
            self.raise_error("Expected AS")
        return super()._parse_named_window()

    def _at_keyword(self) -> bool:
        """Whether the next word cannot be an alias."""
        word = "" if self._curr.token_type in _QUOTED else self._curr.text.lower()
        if word in ("group", "order"):  # the tokenizer takes them together with BY
            self._advance()
            self.raise_error("Expected BY")
        return word in _NO_NAMES

    def _parse_table_alias(self, alias_tokens=None):  # type: ignore[no-untyped-def]
        if self._at_keyword():
            return None
        if (
            self._curr.token_type == TokenType.ALIAS
            and self._next.token_type not in _QUOTED
            and self._next.text.lower() in RESERVED
        ):
            self._advance()
            self.raise_error("Expected a name after AS")
        node = super()._parse_table_alias(alias_tokens)
        if node is None and self._prev and self._prev.token_type == TokenType.ALIAS:
            self.raise_error("Expected a name after AS")
        if node is not None and node.this is None:
            self.raise_error("Expected a name before the names of columns")
        return node

    def _parse_window(self, this, alias=False):  # type: ignore[no-untyped-def]
        node = super()._parse_window(this, alias)
        if isinstance(node, exp.Window) and self._prev.token_type == TokenType.OVER:
            self.raise_error("Expected a window after OVER")
        return node

    def _parse_join(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        start = self._curr
        node = super()._parse_join(*args, **kwargs)
        if isinstance(node, exp.Join) and node.args.get("kind") == "OUTER" and not node.args.get("side"):
            self._refuse('syntax error at "OUTER": expected LEFT, RIGHT or FULL before it', start)
        return node

    def _parse_cte(self) -> exp.CTE | None:
        """`name [(columns)] AS (query)`: sqlglot does not ask for AS."""
        behind = 1
        if self._word(1) == "(":
            behind, depth = 2, 1
            while depth and self._index + behind < len(self._tokens):
                depth += {"(": 1, ")": -1}.get(self._word(behind), 0)
                behind += 1
        if self._word(behind) not in ("AS", "USING"):
            self._advance(behind)
            self.raise_error("Expected AS")
        return super()._parse_cte()

    def _parse_var(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        """A word, such as an option of COPY, with its place."""
        node = super()._parse_var(*args, **kwargs)
        return node.update_positions(self._prev) if isinstance(node, exp.Var) else node

    def _parse_update(self) -> exp.Update:
        first = self._index
        node = super()._parse_update()
        words = self._words_outside(first)
        if not node.args.get("expressions"):
            self.raise_error("Expected SET and what is set")
        for word in ("SET", "FROM", "WHERE", "RETURNING"):
            # The FROM of IS DISTINCT FROM is no clause.
            places = [
                index for index, found in words if found == word and self._tokens[index - 1].text.upper() != "DISTINCT"
            ]
            if len(places) > 1:
                self._refuse(f'syntax error at "{word}": it is there twice', self._tokens[places[1]])
        return node

    def _parse_delete(self) -> exp.Delete:
        node = super()._parse_delete()
        for join in (node.this.args.get("joins") or ()) if isinstance(node.this, exp.Expr) else ():
            self._refuse("syntax error: DELETE FROM takes one table", join.this, "DELETE FROM t USING u WHERE ..")
        return node

    def _parse_table_parts(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        """As sqlglot's, which passes over a `*` behind the name of a table."""
        node = super()._parse_table_parts(*args, **kwargs)
        if node is not None and self._curr.token_type == TokenType.STAR:
            self.raise_error("Invalid expression / Unexpected token", self._curr)
        return node

    def _parse_unnest(self, with_alias: bool = True) -> exp.Unnest | None:
        first = self._index
        node = super()._parse_unnest(with_alias)
        if node is not None:
            for index, word in self._words_outside(first):
                if word == "OFFSET":
                    self._refuse(
                        "WITH OFFSET is not supported", self._tokens[index - 1], "WITH ORDINALITY counts from 1"
                    )
        return node

    def _check_conflict(self, node: exp.OnConflict, first: int) -> None:
        """Refuse ON CONFLICT without an action, and DO UPDATE without SET: sqlglot asks for neither."""
        words = [word for _, word in self._words_outside(first)]
        words = words[words.index("CONFLICT") :] if "CONFLICT" in words else []
        if node.args.get("duplicate"):
            return
        if node.args.get("action") is None or "DO" not in words:
            self.raise_error("Expected DO NOTHING or DO UPDATE SET")
        if "UPDATE" in words and (words[words.index("UPDATE") + 1 :] or [""])[0] != "SET":
            self.raise_error("Expected SET and what is set")

    def _parse_unique(self) -> exp.UniqueColumnConstraint:
        """UNIQUE; NULLS DISTINCT is the default."""
        self._take("NULLS", "DISTINCT")
        return super()._parse_unique()

    def _parse_insert(self) -> exp.Expr:
        ahead = 2 if self._word() == "OR" else 0
        if self._word(ahead) != "INTO" and self._word() != "OVERWRITE":
            self._advance(ahead)
            self.raise_error("Expected INTO")
        if self._word() == "OVERWRITE" and self._word(1) == "INTO":
            self._advance()
            self.raise_error("Expected a table")
        if self._word() == "OVERWRITE" and self._word(1) in ("DIRECTORY", "LOCAL"):
            hint = "COPY (query) TO 'folder/' (FORMAT parquet, OVERWRITE)"
            self._refuse("INSERT OVERWRITE DIRECTORY is not supported", self._tokens[self._index + 1], hint)
        first = self._index
        self._insert_partition = None
        node = super()._parse_insert()
        node.set("partition", self._insert_partition)
        if isinstance(node, exp.Insert) and node.args.get("conflict") is not None:
            self._check_conflict(node.args["conflict"], first)
        if isinstance(node.this, exp.Schema) and not node.this.expressions:
            self._refuse("syntax error: expected the names of columns between ( and )", node.this)
        if isinstance(node, exp.Insert) and node.expression is None and not node.args.get("default"):
            self.raise_error("Expected VALUES, DEFAULT VALUES or a query")
        return node

    def _parse_insert_table(self) -> exp.Expr | None:
        """The table; its PARTITION (k = 1, d) belongs to the statement."""
        target = super()._parse_insert_table()
        table = target.this if isinstance(target, exp.Schema) else target
        self._insert_partition = table.args.pop("partition", None) if table is not None else None
        return target

    def _words_outside(self, first: int) -> list[tuple[int, str]]:
        """The words between the token `first` and the present one that are in no parentheses, with their places."""
        depth, words = 0, []
        for index in range(first, self._index):
            token = self._tokens[index]
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            if depth == 0 and token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER):
                words.append((index, token.text.upper()))
        return words


def _word_of(key: str) -> str:
    return {"group": "GROUP BY", "order": "ORDER BY"}.get(key, key.upper())
