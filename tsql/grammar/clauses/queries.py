"""The arguments of queries: SELECT, set operations, WITH, and the clauses behind them."""

from __future__ import annotations

from sqlglot import exp

from tsql.planner.bind.clauses import Refusal, Table, reads

_MODIFIERS: dict[str, Refusal | str] = {
    "connect": Refusal("CONNECT BY|START WITH", "WITH RECURSIVE follows a hierarchy"),
    "laterals": "LATERAL VIEW",
    "distribute": "DISTRIBUTE BY",
    "cluster": "CLUSTER BY",
    "locks": Refusal(
        "FOR UPDATE|FOR SHARE|FOR NO KEY UPDATE|FOR KEY SHARE",
        "a query sees one version of its tables: it needs no locks",
    ),
}
_FOREIGN = "match prewhere sort settings format options for_"
_BEHIND_SELECT = {
    "where": Refusal(
        "WHERE",
        "put the query into FROM: SELECT * FROM (..) WHERE ..",
        "WHERE stands behind FROM, not behind a whole query",
    ),
    "group": Refusal(
        "GROUP BY",
        "put the query into FROM: SELECT .. FROM (..) GROUP BY ..",
        "GROUP BY stands behind FROM, not behind a whole query",
    ),
    "having": Refusal("HAVING", "put the query into FROM", "HAVING stands behind FROM, not behind a whole query"),
    "qualify": Refusal("QUALIFY", "put the query into FROM", "QUALIFY stands behind FROM, not behind a whole query"),
    "windows": Refusal("WINDOW", "put the query into FROM", "WINDOW stands behind FROM, not behind a whole query"),
}
_EMITTED = "emit progressive"
"""The arguments that `tsql/grammar/time/output.py` adds to the query of a statement."""

_SET = reads(
    "this expression distinct by_name with_ order limit offset",
    extra=_EMITTED,
    refused={
        **_MODIFIERS,
        **_BEHIND_SELECT,
        "sample": Refusal(
            "USING SAMPLE|TABLESAMPLE",
            "put the query into FROM: SELECT * FROM (..) USING SAMPLE ..",
            "a sample is taken from what FROM gives",
        ),
        "joins": Refusal("JOIN", "put the query into FROM", "JOIN stands behind FROM, not behind a whole query"),
        "side": Refusal("LEFT|RIGHT|FULL", "UNION BY NAME fills the columns that a side lacks with NULL"),
        "kind": Refusal("CORRESPONDING|INNER|OUTER", "UNION BY NAME"),
        "on": Refusal("ON|BY (", "name the columns in both queries", "BY NAME takes no list of columns"),
    },
    foreign=f"{_FOREIGN} pivots",
)

QUERIES: Table = {
    exp.Select: reads(
        "with_ expressions distinct from_ joins where group having qualify windows order limit offset sample",
        extra=_EMITTED,
        idle={"hint": "hints are read from the tokens"},
        refused={
            **_MODIFIERS,
            "kind": "SELECT AS",
            "into": Refusal("INTO", "CREATE TABLE name AS SELECT .."),
        },
        foreign=f"{_FOREIGN} pivots operation_modifiers exclude",
    ),
    exp.Subquery: reads(
        "this alias with_ joins pivots order limit offset sample",
        extra=_EMITTED,
        refused={**_MODIFIERS, **_BEHIND_SELECT},
        foreign=_FOREIGN,
    ),
    exp.Values: reads("expressions alias order limit offset pivots", extra=f"with_ joins sample {_EMITTED}"),
    **dict.fromkeys((exp.Union, exp.Intersect, exp.Except), _SET),
    exp.With: reads(
        "expressions recursive",
        refused={
            "search": Refusal(
                "SEARCH|CYCLE",
                (
                    "a column of the query can keep the path; UNION in place of UNION ALL ends at rows that "
                    "are there already"
                ),
            ),
        },
        foreign="cycle udfs",
    ),
    exp.CTE: reads(
        "this alias key_expressions",
        idle={"materialized": "whether a query is kept or run again does not change its rows"},
        foreign="scalar",
    ),
    exp.From: reads("this"),
    exp.Having: reads("this"),
    exp.Qualify: reads("this"),
    exp.Group: reads(
        "expressions all",
        refused={
            "rollup": Refusal("WITH ROLLUP", "GROUP BY ROLLUP (a, b)"),
            "cube": Refusal("WITH CUBE", "GROUP BY CUBE (a, b)"),
            "totals": Refusal("WITH TOTALS", "GROUP BY ROLLUP (a, b)"),
            "grouping_sets": Refusal(
                "GROUPING SETS", "GROUP BY GROUPING SETS ((a), (b))", "GROUPING SETS is not supported behind keys"
            ),
            "all": Refusal(
                "DISTINCT", "GROUP BY a, b: each combination is one group", "GROUP BY DISTINCT is not supported"
            ),
        },
        when_false="all",
    ),
    exp.Rollup: reads("expressions"),
    exp.Cube: reads("expressions"),
    exp.GroupingSets: reads("expressions"),
    exp.Limit: reads(
        "expression limit_options",
        refused={"this": Refusal("LIMIT", message="an aggregate takes no LIMIT")},
        foreign="offset expressions",
    ),
    exp.Offset: reads("expression", foreign="this expressions"),
    exp.LimitOptions: reads(
        "percent",
        idle={"rows": "the word ROWS"},
        refused={
            "with_ties": Refusal(
                "WITH TIES", "QUALIFY rank() OVER (ORDER BY x) <= n keeps the rows that tie with the last one"
            )
        },
    ),
    exp.Fetch: reads("count limit_options", idle={"direction": "FIRST and NEXT are the same"}),
    exp.Hint: reads(idle={"expressions": "hints are read from the tokens"}),
    exp.TableSample: reads(
        "method percent size seed",
        refused={
            "bucket_numerator": Refusal("BUCKET", "TABLESAMPLE 10 PERCENT"),
            "bucket_denominator": Refusal("BUCKET", "TABLESAMPLE 10 PERCENT"),
            "bucket_field": Refusal("BUCKET", "TABLESAMPLE 10 PERCENT"),
        },
        foreign="expressions rows",
    ),
}
