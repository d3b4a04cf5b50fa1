"""Plan files: read, bound to the tables of a session, checked and run. Used by `tsql.load_plan` and EXECUTE PLAN."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tsql.analyze import kinds as statements
from tsql.arguments import checked_path, checked_text, optional_text
from tsql.backends import Run
from tsql.backends.io.descriptors import descriptor_of
from tsql.backends.io.whole_files import write_text
from tsql.compare import difference
from tsql.kernels.expr.errors import PlanError, SourceError, TsqlError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import Type
from tsql.parameters import Parameters, convert_all
from tsql.planner import PhysicalPlan, make_plan
from tsql.planner.logical import nodes as logical
from tsql.planner.physical.check import check
from tsql.planner.physical.estimator import with_groups
from tsql.planner.physical.planfile import parse_plan, starts_plan
from tsql.relation import Relation

if TYPE_CHECKING:
    from tsql.session import Session


HEAD = 1 << 16
"""This many characters of a file are read to decide whether it is a plan file."""


class LoadedPlan:
    """The text of a plan file, ready to run on a session that has its tables."""

    def __init__(self, text: str, origin: str | None = None) -> None:
        self.text = text.removeprefix("\ufeff")
        self.origin = origin

    def bind(self, session: Session, kinds: Mapping[str, Type] | None = None) -> PhysicalPlan:
        """The checked physical plan; a PlanError names the line of what does not fit."""
        try:
            plan = parse_plan(self.text, session.catalog, dict(kinds or {}), self.origin)
            with plan.deep():
                check(plan, self.text, self.origin)
                plan = replace(plan, root=with_groups(plan.root, plan.shards))
        except TsqlError as error:
            raise error.locate(self.text, self.origin) from error.__cause__
        return plan

    def run(self, session: Session, params: Parameters = None) -> Relation:
        """The lazy result of the plan."""
        kinds, values = convert_all(params)
        return self._relation(session, self.bind(session, kinds), values)

    def of(self, plan: PhysicalPlan, session: Session) -> Relation:
        """The lazy result of what `bind` has given."""
        return self._relation(session, plan, {})

    def check(self, session: Session, params: Parameters = None) -> int | None:
        """Run the plan and its query, and compare: the number of rows that both give, or None if the plan has no query
        line. A PlanError tells the first differences in names, types, rows or order."""
        kinds, values = convert_all(params)
        plan = self.bind(session, kinds)
        if not plan.query:
            return None
        query = self._query(session, plan.query, kinds)
        there, expected = (
            _described(plan.names, plan.root.schema, plan.columns),
            _described(query.plan.names, query.plan.input.schema, query.plan.columns),
        )
        if there != expected:
            line = self.text.rfind("\noutput") + 1
            raise PlanError(
                f"the plan gives {there}, its query {expected}", position=line, text=self.text, origin=self.origin
            )

        def answer(output: logical.Output) -> pa.Table:
            made = make_plan(output, session.settings, target=plan.target, shards=plan.shards)
            return self._relation(session, made, values).arrow()

        actual = self._relation(session, plan, values).arrow()
        found = difference(query.plan, actual, answer)
        if found is not None:
            lines = found.replace("\n", "\n  ")
            raise PlanError(f"{self.origin or 'the plan'}: its answer is not that of its query\n  {lines}")
        return actual.num_rows

    def _query(self, session: Session, text: str, kinds: Mapping[str, Type]) -> statements.Query:
        """What the query line says; anything but one query is refused, and never carried out."""
        from tsql.analyze.statements import analyze

        origin = f"{self.origin or 'plan'} (query)"
        found = analyze(text, session.catalog, dict(kinds), origin)
        if len(found) != 1 or not isinstance(found[0], statements.Query):
            raise PlanError("the query line of a plan holds one query", position=0, text=text, origin=origin)
        return found[0]

    def _relation(self, session: Session, plan: PhysicalPlan, values: dict[str, Any]) -> Relation:
        queries, backend, settings = session._queries, session.backend, replace(session.settings)

        def describe(level: str) -> str:
            if level.startswith("candidates"):
                raise PlanError("a plan file is one plan, and runs as it is; candidates are of a query")
            if level == "time":
                from tsql.live_explain import time_text

                run = Run(settings=settings, parameters=values)
                return time_text(session._live_streams().in_plan(plan), run)
            with plan.deep():
                return (
                    plan.text()
                    if level == "file"
                    else queries.explain_plan(plan, level, Run(settings=settings, parameters=values))
                )

        def relocate(error: TsqlError) -> TsqlError:
            return error.locate(self.text, self.origin)

        def start_job(*given: Any, **more: Any) -> Any:
            from tsql.jobs import Query

            query = Query(lambda streams: streams.in_plan(plan), False, values, relocate)
            return session._start_job(query, *given, **more)

        return Relation(
            plan.names,
            tuple(plan.root.schema[name].type for name in plan.columns),
            lambda run: backend.run(plan, run),
            lambda: Run(settings=settings, parameters=values),
            describe_plan=describe,
            relocate=relocate,
            frame=lambda run: backend.frame(plan, run),
            running=queries.running,
            snapshots=lambda run: backend.snapshots(plan, run),
            is_progressive=lambda: plan.is_progressive,
            start_job=start_job,
        )


def _described(names: tuple[str, ...], schema: Schema, columns: tuple[str, ...]) -> str:
    return f"({', '.join(f'{name} {schema[column].type}' for name, column in zip(names, columns, strict=True))})"


def load_plan(path: str | os.PathLike[str]) -> LoadedPlan:
    """Read a plan file. If the file is not one, the error shows none of its content."""
    checked_path(path, "a plan file")
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(HEAD)
            if not starts_plan(text):
                raise PlanError(f"{os.fspath(path)} is no plan file: it does not start with `plan version`")
            return LoadedPlan(text + file.read(), os.fspath(path))
    except UnicodeDecodeError as error:
        raise PlanError(f"{os.fspath(path)} is no plan file: it is not UTF-8 text") from error
    except OSError as error:
        raise SourceError(f"cannot read {os.fspath(path)}: {error.strerror or error}") from error


def save_plan(text: str, path: str | os.PathLike[str]) -> None:
    """Write a plan file. An existing plan file is replaced; any other file is refused and left as it is."""
    try:
        if os.path.isfile(path) and descriptor_of(path) is None:
            with open(path, encoding="utf-8-sig", errors="replace") as file:
                head = file.read(HEAD)
            if head.strip() and not starts_plan(head):
                raise PlanError(
                    f"{os.fspath(path)} is there, and is no plan file",
                    hint="name another file, or delete this one first",
                )
        write_text(path, text)
    except OSError as error:
        raise PlanError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error


def load_plan_text(text: str, origin: str | None = None) -> LoadedPlan:
    """A plan from the text of a plan file."""
    return LoadedPlan(checked_text(text, "a plan"), optional_text(origin, "the origin of a plan"))
