"""The grammar of statements that change something: ALTER, CREATE MACRO, transactions; and SUMMARIZE.

sqlglot parses the others (INSERT, UPDATE, DELETE, COPY, CREATE TABLE). `tsql/grammar/parser/statements.py` mixes this
in."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import TokenType

from tsql.planner.bind.syntax import ExpressionParser


class TransactionStep(exp.Expression):
    """BEGIN, COMMIT, ROLLBACK, CHECKPOINT; `this` is the word."""

    arg_types = {"this": True}


class SummarizeQuery(exp.Expression):
    """SUMMARIZE query, or SUMMARIZE table."""

    arg_types = {"this": True}


class CreateMacro(exp.Expression):
    """CREATE [OR REPLACE] MACRO name(a, b := 1) AS expression."""

    arg_types = {
        "this": True,
        "parameters": False,
        "defaults": False,
        "expression": True,
        "replace": False,
        "exists": False,
        "temporary": False,
    }


class AlterTable(exp.Expression):
    """ALTER TABLE | VIEW [IF EXISTS] this action; `column` is the column that it is about, `value` what the action
    needs."""

    arg_types = {
        "this": True,
        "kind": True,
        "exists": False,
        "action": True,
        "column": False,
        "value": False,
        "using": False,
        "optional": False,
    }


class ChangeParser(ExpressionParser):
    """Statements that change something."""

    def _parse_transaction_step(self, word: str) -> TransactionStep:
        start = self._prev
        self._match_texts(("TRANSACTION", "WORK"))
        if self._curr:
            self.raise_error("Invalid expression / Unexpected token", self._curr)
        return self.expression(TransactionStep(this=exp.Var(this=word)), start)

    def _parse_summarize_query(self) -> SummarizeQuery:
        if (
            self._curr
            and self._curr.token_type
            in (TokenType.SELECT, TokenType.FROM, TokenType.WITH, TokenType.VALUES, TokenType.L_PAREN)
            or self._sequenced_ahead()
        ):
            return self.expression(SummarizeQuery(this=self._parse_query("SUMMARIZE")))
        self._match(TokenType.TABLE)
        table = self._parse_table(schema=False)
        if table is None:
            self.raise_error("Expected a query or a table after SUMMARIZE")
        return self.expression(SummarizeQuery(this=exp.select("*").from_(table, copy=False)))

    def _macro_ahead(self) -> bool:
        """Whether the tokens after CREATE are those of a macro."""
        words = [token.text.upper() for token in self._tokens[self._index + 1 : self._index + 5]]
        while words and words[0] in ("OR", "REPLACE", "TEMP", "TEMPORARY"):
            words.pop(0)
        return bool(words) and words[0] in ("MACRO", "FUNCTION")

    def _parse_create_macro(self) -> CreateMacro:
        self._advance()
        replaces = self._match_text_seq("OR", "REPLACE")
        temporary = self._match_texts(("TEMP", "TEMPORARY"))
        self._match_texts(("MACRO", "FUNCTION"))
        exists = self._match_text_seq("IF", "NOT", "EXISTS")
        name = self._named("a macro")
        self._match_l_paren()
        parameters, defaults = [], []
        while not self._match(TokenType.R_PAREN):
            parameter = self._named("a parameter")
            parameters.append(parameter)
            if self._match(TokenType.COLON_EQ) or self._match(TokenType.FARROW):
                defaults.append(self._needed("a default"))
            elif defaults:
                self.raise_error("A parameter without a default follows one that has a default", self._prev)
            if not self._match(TokenType.COMMA) and not (self._curr and self._curr.token_type == TokenType.R_PAREN):
                self.raise_error("Expected , or )")
        self._expect("AS")
        if self._match(TokenType.TABLE):
            self.raise_error(
                "Table macros are not supported: a view has no parameters, a scalar macro gives one value", self._prev
            )
        body = self._needed("an expression after AS")
        return self.expression(
            CreateMacro(
                this=name,
                parameters=parameters,
                defaults=defaults,
                expression=body,
                replace=bool(replaces),
                exists=bool(exists),
                temporary=bool(temporary),
            )
        )

    def _named(self, what: str) -> exp.Identifier:
        name = self._parse_id_var(any_token=False)
        if name is None:
            self.raise_error(f"Expected the name of {what}")
        return name

    def _needed(self, what: str) -> exp.Expr:
        """An expression that must be there."""
        found = self._parse_disjunction()
        if found is None:
            self.raise_error(f"Expected {what}")
        return found

    def _parse_alter_table(self) -> AlterTable:
        kind = "view" if self._match(TokenType.VIEW) else "table"
        if kind == "table" and not self._match(TokenType.TABLE):
            self.raise_error("Expected TABLE or VIEW after ALTER")
        exists = bool(self._match_text_seq("IF", "EXISTS"))
        table = self._parse_table_parts()
        found = self._parse_action(kind)
        return self.expression(AlterTable(this=table, kind=exp.Var(this=kind), exists=exists, **found))

    def _parse_action(self, kind: str) -> dict[str, object]:
        if self._match_text_seq("RENAME"):
            if self._match_text_seq("TO"):
                return {"action": exp.Var(this="rename"), "value": self._named("the table")}
            if kind == "table":
                self._match(TokenType.COLUMN)
                column = self._named("a column")
                self._expect("TO")
                return {"action": exp.Var(this="rename column"), "column": column, "value": self._named("the column")}
        if kind == "view":
            self.raise_error("Expected RENAME TO")
        if self._match_text_seq("ADD"):
            return self._parse_add()
        if self._match(TokenType.DROP):
            self._match(TokenType.COLUMN)
            optional = bool(self._match_text_seq("IF", "EXISTS"))
            column = self._named("a column")
            self._match_texts(("CASCADE", "RESTRICT"))
            return {"action": exp.Var(this="drop column"), "column": column, "optional": optional}
        if self._match(TokenType.ALTER):
            return self._parse_alter_column()
        self.raise_error("Expected RENAME, ADD, DROP or ALTER")
        raise AssertionError

    def _parse_add(self) -> dict[str, object]:
        if self._curr and self._curr.text.upper().split(" ")[0] in (
            "PRIMARY",
            "UNIQUE",
            "CHECK",
            "CONSTRAINT",
            "FOREIGN",
        ):
            self.raise_error("Constraints are given when a table is created: ADD takes a column", self._curr)
        self._match(TokenType.COLUMN)
        optional = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
        column = self._parse_field_def()
        if not isinstance(column, exp.ColumnDef):
            self.raise_error("Expected a column and its type")
        return {"action": exp.Var(this="add column"), "value": column, "optional": optional}

    def _parse_alter_column(self) -> dict[str, object]:
        self._match(TokenType.COLUMN)
        column = self._named("a column")
        if self._match_text_seq("SET", "NOT", "NULL"):
            return {"action": exp.Var(this="set not null"), "column": column}
        if self._match_text_seq("DROP", "NOT", "NULL"):
            return {"action": exp.Var(this="drop not null"), "column": column}
        if self._match_text_seq("DROP", "DEFAULT"):
            return {"action": exp.Var(this="drop default"), "column": column}
        if self._match_text_seq("SET", "DEFAULT"):
            return {"action": exp.Var(this="set default"), "column": column, "value": self._needed("a default")}
        if (
            self._match_text_seq("SET", "DATA", "TYPE")
            or self._match_text_seq("SET", "TYPE")
            or self._match_text_seq("TYPE")
        ):
            target = self._parse_types()
            if not isinstance(target, exp.DataType):
                self.raise_error("Expected a type")
            using = self._needed("an expression after USING") if self._match(TokenType.USING) else None
            return {"action": exp.Var(this="type"), "column": column, "value": target, "using": using}
        self.raise_error("Expected TYPE, SET or DROP after the name of a column")
        raise AssertionError
