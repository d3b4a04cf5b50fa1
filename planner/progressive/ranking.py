"""Which rows of a snapshot are certain, where HAVING or ORDER BY .. LIMIT chooses rows by values that are estimates.

    HAVING count(*) > 10     certain, if the lower bound of the count is above 10; possible, if the upper one is
    ORDER BY s DESC LIMIT 3  certain, if its lower bound is above the upper bounds of all but two others

For LIMIT, the plan of the snapshot keeps all rows with their bounds (`Ranking`), and the run cuts them."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Call, Expr, Literal, substitute
from tsql.kernels.expr.types import BOOLEAN
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.estimate import row_count
from tsql.planner.physical.movement import Gather, Movement, Rekey
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.limit import Limit
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.sort import Sort
from tsql.planner.physical.step import Step
from tsql.planner.progressive.proofs import Ends, compare
from tsql.planner.progressive.values import Values

PASSES, POSSIBLE, SURE = "#passes", "#possible", "#sure"
RANK_LOW, RANK_HIGH = "#rank low", "#rank high"
MARKS = (PASSES, POSSIBLE, SURE, RANK_LOW, RANK_HIGH)

TRUE, FALSE = Literal(True, BOOLEAN), Literal(False, BOOLEAN)

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Ranking:
    """The first `count` rows by a value: the largest ones if `descending`."""

    count: int
    descending: bool


@dataclass(frozen=True)
class Chosen:
    """conditions: of HAVING, over the groups. ranking: of LIMIT, by `key`, an expression over the groups."""

    conditions: tuple[Expr, ...]
    ranking: Ranking | None
    key: Expr | None


def chosen(above: list[Step], final: Aggregate | Combine, traced: dict[int, dict[str, Expr] | None]) -> Chosen | None:
    """How the steps above the groups choose among them; None if they do not, or do more than that."""
    conditions: list[Expr] = []
    ranking, key = None, None
    for step in above:
        if step is final:
            continue
        columns = traced.get(id(step.inputs[0])) if len(step.inputs) == 1 else None
        if columns is None:
            return None
        match step:
            case Filter():
                conditions.append(_over_groups(step.predicate, columns))
            case Sort(keys=keys, limit=limit) if limit is not None:
                count = row_count(limit)
                if count is None or (ranking is not None and step.phase == "partial"):
                    return None
                ranking = Ranking(int(count), keys[0].descending)
                key = _over_groups(keys[0].expr, columns)
            case Limit(count=limit, offset=offset):
                count = row_count(limit)
                if ranking is None or offset is not None or count is None:
                    return None
                ranking = Ranking(min(int(count), ranking.count), ranking.descending)
            case Project() | Sort() | Gather() | Movement() | Rekey():
                pass
            case _:
                return None
    groups = {name for name, _ in final.calls}
    if key is not None and not groups & set(key.columns()):
        # By its key, a group that has not been met yet may come first.
        return None
    if ranking is None and not any(groups & set(one.columns()) for one in conditions):
        return None
    return Chosen(tuple(conditions), ranking, key)


def _over_groups(expr: Expr, columns: dict[str, Expr]) -> Expr:
    return substitute(expr, columns)


def without_limits(step: Step) -> Step | None:
    """What stands for a step where all rows are kept: None if its input does."""
    match step:
        case Filter() | Limit():
            return None
        case Sort(limit=limit) if limit is not None:
            return None if step.phase == "partial" else Sort(step.inputs, keys=step.keys)
    return step


class Choices:
    """The hidden columns that say how a row was chosen."""

    def __init__(self, values: Values, found: Chosen):
        self.values, self.found = values, found

    def columns(self) -> list[tuple[str, Expr]]:
        """Whether a row surely passes; and to cut all rows, whether it passes as it stands, whether it may, and between
        which bounds its rank is."""
        conditions = self.found.conditions
        sure = _all([_known(self._certain(one)) for one in conditions])
        if self.found.ranking is None or self.found.key is None:
            return [(SURE, sure)]
        ends = self._ends(self.found.key)
        if ends is None:
            return []
        passes = _all([_known(self.values.estimated(one)) for one in conditions])
        possible = _all([_maybe(self._possible(one)) for one in conditions])
        return [(PASSES, passes), (POSSIBLE, possible), (SURE, sure), (RANK_LOW, ends[0]), (RANK_HIGH, ends[1])]

    def _ends(self, expr: Expr) -> Ends | None:
        """The bounds of a number."""
        if not expr.type.is_numeric:
            return None
        if not set(expr.columns()) - self.values.keys:
            plain = self.values.as_double(expr)
            return plain, plain
        value = self.values.value(expr)
        return None if value is None or not value.has_bounds else self.values.whole_bounds(value)

    def _certain(self, condition: Expr) -> Expr:
        return self._judged(condition, 0)

    def _possible(self, condition: Expr) -> Expr:
        return self._judged(condition, 1)

    def _judged(self, condition: Expr, hopeful: int) -> Expr:
        """Whether a condition holds for all values within their bounds, or for some."""
        if not set(condition.columns()) - self.values.keys:
            return self.values.estimated(condition)
        match condition:
            case Call("and" | "or" as op, args):
                return Call(op, tuple(self._judged(arg, hopeful) for arg in args), BOOLEAN)
            case Call("<" | "<=" as op, (left, right)):
                return self._compared(op, left, right, hopeful)
            case Call(">" | ">=" as op, (left, right)):
                return self._compared(MIRRORED[op], right, left, hopeful)
        return TRUE if hopeful else FALSE

    def _compared(self, op: str, left: Expr, right: Expr, hopeful: int) -> Expr:
        a, b = self._ends(left), self._ends(right)
        if a is None or b is None:
            return TRUE if hopeful else FALSE
        return compare(op, a[1 - hopeful], b[hopeful])


def _all(conditions: list[Expr]) -> Expr:
    return conditions[0] if len(conditions) == 1 else Call("and", tuple(conditions), BOOLEAN) if conditions else TRUE


def _known(condition: Expr) -> Expr:
    """False where it cannot be said."""
    return Call("coalesce", (condition, FALSE), BOOLEAN)


def _maybe(condition: Expr) -> Expr:
    """True where it cannot be said."""
    return Call("coalesce", (condition, TRUE), BOOLEAN)
