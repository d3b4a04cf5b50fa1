"""Mutated files of a database on disk: it opens with the rows that were committed, or is refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

from tests.robustness.mutations.edits import mutate_bytes
from tests.robustness.mutations.kind import Finding, expect_project_errors

STATEMENTS = (
    "CREATE TABLE numbers (i BIGINT PRIMARY KEY, s VARCHAR, d DECIMAL(12, 2))",
    "INSERT INTO numbers SELECT i, 'text ' || (i % 7), i / 4 FROM range(70000) t(i)",
    "INSERT INTO numbers VALUES (-1, 'one', 1.25), (-2, NULL, NULL)",
    "CREATE VIEW large AS SELECT * FROM numbers WHERE i > 69000",
    "UPDATE numbers SET s = 'changed' WHERE i = 5",
    "DELETE FROM numbers WHERE i = 7",
    "CREATE MACRO twice(x) AS x * 2",
)
QUESTIONS = (
    "SELECT count(*), sum(i), min(s), max(s), sum(d) FROM numbers",
    "SELECT s, count(*), sum(twice(i)) FROM numbers GROUP BY s ORDER BY s",
    "SELECT count(*), sum(d) FROM large",
)


class Databases:
    """One database, of which a copy is damaged in one file."""

    name = "databases"

    def __init__(self, folder: Path):
        import tsql

        self.whole, self.copy = folder / "whole", folder / "copy"
        self.states = []
        with tsql.connect(self.whole) as db:
            for statement in ("SELECT 1", *STATEMENTS):
                db.execute(statement)
                self.states.append(_state(db))
        self.files = sorted(path.name for path in self.whole.iterdir() if path.stat().st_size)

    def case(self, random: Random) -> tuple[str, bytes]:
        name = random.choice(self.files)
        return name, mutate_bytes((self.whole / name).read_bytes(), random)

    def show(self, case: tuple[str, bytes]) -> str:
        return f"{case[0]} of a database, {len(case[1])} bytes"

    def run(self, case: tuple[str, bytes]) -> str:
        import tsql
        from tsql.kernels.expr.errors import TsqlError

        name, data = case
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.whole, self.copy)
        (self.copy / name).write_bytes(data)
        unchanged = data == (self.whole / name).read_bytes()
        try:
            with expect_project_errors(), tsql.connect(self.copy) as db:
                found = _state(db)
        except TsqlError as error:
            if unchanged:
                raise Finding(f"a database that was not changed is refused: {error}") from error
            if "damaged" not in str(error) and name not in str(error):
                raise Finding(f"the error does not say that {name} is damaged: {error}") from error
            return "refused"
        # A journal that was cut after a commit looks like one that was never longer.
        if found not in (self.states if name.startswith("journal-") else self.states[-1:]):
            raise Finding(f"other rows than were committed: {found}")
        return "rows" if found == self.states[-1] else "earlier rows"

    def close(self) -> None:
        shutil.rmtree(self.copy, ignore_errors=True)


def _state(db: Any) -> list[Any]:
    """The answers to the questions; for a question about something missing, that it is missing."""
    from tsql.kernels.expr.errors import BindError

    answers: list[Any] = []
    for question in QUESTIONS:
        try:
            answers.append(db.sql(question).fetchall())
        except BindError as error:
            answers.append(error.message)
    return answers
