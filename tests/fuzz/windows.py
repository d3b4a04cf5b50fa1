"""Random window functions over the table `mixed`: any function, partition, order and frame that DuckDB binds.

If the order has ties, functions that depend on the order of rows are left out: their result is undefined."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

PLAIN = (
    "count(*)", "count(b)", "count(s)", "sum(a)", "sum(b)", "sum(c)", "sum(n)", "sum(x)", "avg(b)", "avg(n)", "avg(x)",
    "avg(ts)", "avg(d)", "min(a)", "max(b)", "min(c)", "max(x)", "min(n)", "max(s)", "min(s)", "min(d)", "max(ts)",
    "min(p)", "bool_and(p)", "bool_or(p)", "bit_and(b)", "bit_or(c)", "bit_xor(b)", "count_if(p)", "stddev(x)",
    "var_pop(b)", "var_samp(n)", "sem(x)", "covar_pop(x, b)", "corr(b, c)", "regr_count(x, b)", "median(b)",
    "median(x)", "median(n)", "median(d)", "median(ts)", "median(s)", "quantile_cont(x, 0.3)", "quantile_disc(b, 0.75)",
    "quantile_disc(s, 0.5)", "quantile_cont(n, -0.25)", "mad(x)", "entropy(g)", "count(DISTINCT g)",
    "count(DISTINCT s)", "sum(DISTINCT b)", "avg(DISTINCT a)", "sum(DISTINCT x)", "min(DISTINCT b)",
    "median(DISTINCT a)", "sum(u)", "sum(p::INT)", "product(x)",
)  # fmt: skip
ORDERED = (
    "mode(g)", "mode(s)", "arg_min(s, b)", "arg_max(id, x)", "arg_max(b, s)", "any_value(s)", "first(b)", "last(s)",
    "string_agg(s, '|')", "string_agg(s, '|' ORDER BY id DESC)",
    "string_agg(DISTINCT g::VARCHAR, ',' ORDER BY g::VARCHAR)", "first_value(b)", "first_value(s IGNORE NULLS)",
    "last_value(x)", "last_value(b IGNORE NULLS)", "nth_value(s, 2)", "nth_value(b, 3 IGNORE NULLS)", "nth_value(b, g)",
    "first_value(s ORDER BY b, id)", "last_value(id ORDER BY x, id DESC)", "arg_min(id, a ORDER BY id DESC)",
)  # fmt: skip
UNFRAMED = (
    "row_number()", "ntile(3)", "ntile(7)", "ntile(u + 1)", "lag(b)", "lag(s, 2)", "lag(b, 1, -1)", "lead(x, 1, b)",
    "lead(s, g)", "lag(b IGNORE NULLS)", "lead(s, 2, 'none' IGNORE NULLS)", "lag(id, -2)", "lead(ts)", "lag(b, a % 3)",
)  # fmt: skip
PEERS = ("rank()", "dense_rank()", "percent_rank()", "cume_dist()")
FILTERS = ("", "", "", " FILTER (WHERE b > 0)", " FILTER (WHERE p)", " FILTER (WHERE id % 3 <> 1)")
PARTITIONS = (
    "",
    "",
    "PARTITION BY g ",
    "PARTITION BY p ",
    "PARTITION BY g, p ",
    "PARTITION BY b % 3 ",
    "PARTITION BY s ",
)
KEYS = ("a", "b", "x", "n", "s", "d", "ts", "p", "g", "b % 5", "-x")
DIRECTIONS = ("", " DESC", " NULLS FIRST", " DESC NULLS FIRST")
STEPS = {"a": ("1", "10"), "b": ("0", "5", "40"), "c": ("100", "3000"), "x": ("0.5", "1", "2"),
         "n": ("0.25", "5", "1.125"), "d": ("30", "INTERVAL 1 MONTH", "INTERVAL 40 DAYS"),
    "ts": ("INTERVAL 1 DAY", "INTERVAL '36 hours'"), "g": ("1",)}  # fmt: skip
EXCLUDES = ("", "", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES", " EXCLUDE NO OTHERS")


@dataclass(frozen=True)
class Window:
    """`text` is a call with OVER; `ordered` is false where its rows may tie."""

    text: str


@st.composite
def ends(draw: st.DrawFn, offsets: tuple[str, ...]) -> str:
    """The two ends of a frame, the first not behind the second by its kind."""
    kinds = ["UNBOUNDED PRECEDING", "{} PRECEDING", "CURRENT ROW", "{} FOLLOWING", "UNBOUNDED FOLLOWING"]
    first = draw(st.integers(0, 3))
    last = draw(st.integers(max(first, 1), 4))
    start, end = (kinds[i].format(draw(st.sampled_from(offsets))) for i in (first, last))
    return f"BETWEEN {start} AND {end}"


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """One call of a window function."""
    partition = draw(st.sampled_from(PARTITIONS))
    kind = draw(st.sampled_from(("unframed", "peers", "rows", "rows", "rows", "groups", "range", "default")))
    direction = draw(st.sampled_from(DIRECTIONS))
    key = draw(st.sampled_from(KEYS))
    total = f"ORDER BY {key}{direction}, id"
    if kind == "unframed":
        return Window(f"{draw(st.sampled_from(UNFRAMED))} OVER ({partition}{total})")
    if kind == "peers":
        return Window(f"{draw(st.sampled_from(PEERS))} OVER ({partition}ORDER BY {key}{direction})")
    exclude = draw(st.sampled_from(EXCLUDES))
    condition = draw(st.sampled_from(FILTERS))
    plain = draw(st.sampled_from(PLAIN)) + condition
    if kind == "default":
        order = draw(st.sampled_from(("", f"ORDER BY {key}{direction}")))
        return Window(f"{plain} OVER ({partition}{order})")
    if kind == "range":
        name = draw(st.sampled_from(tuple(STEPS)))
        return Window(f"{plain} OVER ({partition}ORDER BY {name}{direction} RANGE {draw(ends(STEPS[name]))}{exclude})")
    offsets = ("0", "1", "2", "5", "50", "u % 4", "9223372036854775807")
    if kind == "groups":
        return Window(f"{plain} OVER ({partition}ORDER BY {key}{direction} GROUPS {draw(ends(offsets))}{exclude})")
    ordered = draw(st.sampled_from(ORDERED))
    plain = draw(
        st.sampled_from((plain, ordered + (condition if not ordered.startswith(("first", "last", "nth")) else "")))
    )
    return Window(f"{plain} OVER ({partition}{total} ROWS {draw(ends(offsets))}{exclude})")
