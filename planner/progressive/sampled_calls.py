"""What a sample of rows says of an aggregate over all of them.

- a quantile: that of the sample; the share of rows below it has a known error
- a smooth function of sums over rows (a correlation, a skewness): that of the sample, or that times the rows in all for
  one of the sample if it grows with the input; replicates of the sample tell its error
- anything else (distinct values, the first or the longest one, a list): what was observed"""

from __future__ import annotations

from tsql.kernels.aggregates.quantiles import fraction_of
from tsql.kernels.expr.nodes import Aggregate, Call, Cast, Expr, Literal
from tsql.planner.logical.aggregate_states import can_split
from tsql.planner.progressive.measures import AVERAGES, COUNTS, SUMS, VARIANCES, measured
from tsql.planner.progressive.slopes import ROUNDED

POWERS: dict[str, float] = {
    **dict.fromkeys((*COUNTS, *SUMS, "fsum", "kahan_sum", "sumkahan"), 1.0),
    **dict.fromkeys(("regr_count", "regr_sxx", "regr_sxy", "regr_syy"), 1.0),
    "sem": -0.5,
}
"""With which power of the number of rows an aggregate grows; the others do not."""

STEADY = (
    *AVERAGES,
    *VARIANCES,
    *("favg", "corr", "covar_pop", "covar_samp", "skewness", "kurtosis", "kurtosis_pop", "entropy", "mad"),
    *("geomean", "geometric_mean", "regr_avgx", "regr_avgy", "regr_slope", "regr_intercept", "regr_r2"),
)
"""Smooth aggregates that do not grow with the input."""

QUANTILES = ("median", "quantile", "quantile_cont", "quantile_disc", "approx_quantile")


def power(call: Aggregate) -> float:
    """With which power of the number of rows an aggregate grows."""
    return 0.0 if call.distinct else POWERS.get(call.name, 0.0)


def is_smooth(call: Aggregate) -> bool:
    """Whether replicates of a sample tell the error of the aggregate."""
    return not call.distinct and (call.name in POWERS or call.name in STEADY)


def fraction(call: Aggregate) -> float | None:
    """Of a quantile of numbers, the share of rows below it; None for other aggregates."""
    if call.distinct or call.name not in QUANTILES or not call.args[0].type.is_numeric:
        return None
    if len(call.args) == 1:
        return 0.5
    literal = call.args[1]
    if not isinstance(literal, Literal) or literal.value is None:
        return None
    share = float(fraction_of(literal))
    return 1.0 + share if share < 0 else share


def needs_rows(name: str, call: Aggregate) -> bool:
    """Whether more can be said of an aggregate from rows than from its state."""
    return not can_split(call) or (is_smooth(call) and measured(name, call) is None)


def unrounded(expr: Expr) -> Expr:
    """A value before it was rounded or cast to another number, which moves it by less than the last digit shown."""
    match expr:
        case Cast(arg, type) if type.is_numeric and arg.type.is_numeric:
            return unrounded(arg)
        case Call(name, (arg, *_)) if name in ROUNDED and arg.type.is_numeric:
            return unrounded(arg)
    return expr
