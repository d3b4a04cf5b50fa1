"""check: the last pass. Refuses a plan with an unmet requirement; the error says which one, on which line, and how to
fix it."""

from __future__ import annotations

from tsql.kernels.expr.errors import PlanError
from tsql.planner.physical.operators.recursive import loose_tables, wrong_rounds
from tsql.planner.physical.step import MOST_DEEP, PhysicalPlan


def check(plan: PhysicalPlan, text: str | None = None, origin: str | None = None) -> None:
    """Raise PlanError unless every step's requirements are met and the result exists."""
    if plan.depth > MOST_DEEP:
        raise _located(
            PlanError(f"the plan is {plan.depth} steps deep, and it may be {MOST_DEEP}"),
            _output_line(text),
            text,
            origin,
        )
    properties = plan.properties()
    for step in plan.root.walk():
        refusal = step.refusal(plan.target)
        if refusal is not None:
            message, hint = refusal
            raise _located(PlanError(f"step {step.name}: {message}", hint=hint), step.line, text, origin)
        requirements = step.requires_of(tuple(properties[id(i)] for i in step.inputs))
        for requirement, child in zip(requirements, step.inputs, strict=True):
            given = properties[id(child)]
            if not requirement.met_by(given):
                message = f"step {step.name}: {step.op} requires of {child.name}: {requirement}; it has {given}"
                raise _located(
                    PlanError(message, hint=f"put {requirement.fix(given)} between {child.name} and {step.name}"),
                    step.line,
                    text,
                    origin,
                )
    rounds = wrong_rounds(plan.root)
    if rounds is not None:
        step, message, hint = rounds
        raise _located(PlanError(message, hint=hint), step.line, text, origin)
    loose = loose_tables(plan.root)[id(plan.root)]
    if loose:
        raise _located(
            PlanError(f"the working table {min(loose)} belongs to no recursive step"), _output_line(text), text, origin
        )
    root = properties[id(plan.root)]
    if root.shards != 1:
        raise _located(
            PlanError(f"the output {plan.root.name} has {root.shards} shards", hint="put gather before the output"),
            _output_line(text),
            text,
            origin,
        )
    for column in plan.columns:
        if column not in plan.root.schema:
            raise _located(
                PlanError(f"the output column {column} is not a column of {plan.root.name} {plan.root.schema}"),
                _output_line(text),
                text,
                origin,
            )


def _output_line(text: str | None) -> int | None:
    """The last line of a plan file that begins with `output`."""
    lines = (text or "").split("\n")
    return next(
        (number for number in range(len(lines), 0, -1) if lines[number - 1].lstrip().startswith("output")), None
    )


def _located(error: PlanError, line: int | None, text: str | None, origin: str | None) -> PlanError:
    if text is not None and line is not None:
        lines = text.split("\n")
        error.position = sum(len(t) + 1 for t in lines[: line - 1])
        error.locate(text, origin)
    return error
