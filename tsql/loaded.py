"""Plan files: read, bound to the tables of a session, checked and run. `tsql.load_plan` and EXECUTE PLAN come here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tsql.backends import Run
from tsql.kernels.errors import PlanError, SourceError, TsqlError
from tsql.kernels.types import Type
from tsql.parameters import Parameters, convert_all
from tsql.planner import PhysicalPlan
from tsql.planner.check import check
from tsql.planner.planfile import parse_plan
from tsql.relation import Relation

if TYPE_CHECKING:
    from tsql.session import Session


def explain_plan(session: Session, plan: PhysicalPlan, level: str, run: Run) -> str:
    """The text of one level of `explain` for a physical plan."""
    from tsql.backends.explain import explain

    return explain(plan, level, session.backend, run)


class LoadedPlan:
    """The text of a plan file, ready to run on a session that has its tables."""

    def __init__(self, text: str, origin: str | None = None) -> None:
        self.text = text
        self.origin = origin

    def bind(self, session: Session, kinds: Mapping[str, Type] | None = None) -> PhysicalPlan:
        """The checked physical plan; a PlanError names the line of what does not fit."""
        try:
            plan = parse_plan(self.text, session.catalog, dict(kinds or {}), self.origin)
            check(plan, self.text, self.origin)
        except TsqlError as error:
            raise error.locate(self.text, self.origin) from error.__cause__
        return plan

    def run(self, session: Session, params: Parameters = None) -> Relation:
        """The lazy result of the plan."""
        kinds, values = convert_all(params)
        plan = self.bind(session, kinds)
        settings = replace(session.settings)

        def describe(level: str) -> str:
            return plan.text() if level == "file" else explain_plan(session, plan, level, Run(settings=settings, parameters=values))

        def relocate(error: TsqlError) -> TsqlError:
            return error.locate(self.text, self.origin)

        return Relation(
            plan.names, tuple(plan.root.schema[name].type for name in plan.columns), lambda run: session.backend.run(plan, run),
            lambda: Run(settings=settings, parameters=values), describe_plan=describe, relocate=relocate,
            frame=(lambda run: session.backend.frame(plan, run)) if session.backend.name == "spark" else None,
        )  # fmt: skip


def load_plan(path: str | os.PathLike[str]) -> LoadedPlan:
    """Read a plan file."""
    try:
        return LoadedPlan(Path(path).read_text(encoding="utf-8"), os.fspath(path))
    except UnicodeDecodeError as error:
        raise PlanError(f"{os.fspath(path)} is no plan file: it is not UTF-8 text") from error
    except OSError as error:
        raise SourceError(f"cannot read {os.fspath(path)}: {error.strerror or error}") from error


def load_plan_text(text: str, origin: str | None = None) -> LoadedPlan:
    """A plan from the text of a plan file."""
    return LoadedPlan(text, origin)
