"""Every error that tsql raises on purpose; one class per stage, so that callers can tell a bad query from bad data."""

from __future__ import annotations


class TsqlError(Exception):
    """Base of all errors of tsql.

    `position` is a character offset into `text` (the SQL or the plan file, from `origin`); rendering adds the
    line, the column and a caret under the text.
    """

    def __init__(
        self,
        message: str,
        *,
        position: int | None = None,
        text: str | None = None,
        origin: str | None = None,
        hint: str | None = None,
    ):
        super().__init__(message)
        self.message = message
        self.position = position
        self.text = text
        self.origin = origin
        self.hint = hint

    def locate(self, text: str, origin: str | None = None) -> TsqlError:
        """Attach the text that `position` refers to, unless a deeper stage has already done so."""
        if self.text is None:
            self.text = text
        if self.origin is None:
            self.origin = origin
        return self

    @property
    def line_column(self) -> tuple[int, int] | None:
        """The 1-based line and column of the error, if its position is known."""
        if self.position is None or self.text is None:
            return None
        position = min(self.position, len(self.text))
        before = self.text[:position]
        return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1

    def __str__(self) -> str:
        parts = [self.message]
        where = self.line_column
        if where is not None and self.text is not None:
            line, column = where
            source = self.text.split("\n")[line - 1]
            prefix = f"{self.origin or 'line'}:{line}:{column}" if self.origin else f"line {line}, column {column}"
            start = max(0, column - 1 - 60)
            shown = source[start : start + 120].replace("\t", " ")
            parts = [f"{prefix}: {self.message}", f"  {shown}", f"  {' ' * (column - 1 - start)}^"]
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)


class ParseError(TsqlError):
    """The text is not in the grammar."""


class BindError(TsqlError):
    """A name, a type or an argument in the query does not fit."""


class UnknownTableError(BindError):
    """A query reads a table that does not exist. `table` is its name; None after the error was sent between
    processes."""

    table: str | None = None


class UnreadableError(BindError):
    """A query asks for a column of a type that cannot be read (`Type.is_readable`)."""


class PlanError(TsqlError):
    """A plan cannot run: an unmet requirement, a bad plan file, a hint that cannot hold."""


class ExecutionError(TsqlError):
    """The query failed while running: overflow, a bad cast, a division by zero."""


class ConstraintError(ExecutionError):
    """A row that a statement would store is refused by NOT NULL, CHECK, UNIQUE or PRIMARY KEY."""


class TransactionError(TsqlError):
    """BEGIN, COMMIT or ROLLBACK where it does not fit, or a statement in a transaction that has failed."""


class StorageError(TsqlError):
    """A database on disk cannot be opened or written: damaged, locked, of a newer version, out of space."""


class SourceError(TsqlError):
    """A file or a source cannot be read: missing, damaged, of another type than promised."""


class OutOfMemoryError(ExecutionError):
    """The query needs more than `memory_limit`."""


class CancelledError(ExecutionError):
    """The query was cancelled by its user."""


class CatalogError(TsqlError):
    """A table, view or setting is unknown or already there."""
