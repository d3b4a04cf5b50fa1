"""The arguments of what stands in FROM: tables, joins, UNNEST, PIVOT."""

from __future__ import annotations

from sqlglot import exp

from tsql.grammar.time.nodes import AsofJoin, ClipJoin
from tsql.planner.bind.clauses import Refusal, Table, reads

_JOIN = "this on side kind using method"
_JOIN_REFUSED = {"pivots": Refusal("PIVOT|UNPIVOT", "put the relation into parentheses")}
_JOIN_FOREIGN = "match_condition global_ hint nearest directed expressions"

RELATIONS: Table = {
    exp.Table: reads(
        "this alias db catalog joins pivots version sample ordinality",
        idle={"hints": "each kind of them is refused as a class"},
        refused={
            "only": Refusal("ONLY", "a table has no children: leave ONLY out"),
            "changes": "CHANGES",
            "rows_from": Refusal("ROWS FROM", "join the functions by their numbers: f(..) WITH ORDINALITY"),
            "indexed": Refusal("INDEXED BY|NOT INDEXED", "hints stand behind SELECT: /*+ .. */"),
        },
        foreign="laterals partition system_time when format pattern",
        when_false="indexed",
    ),
    exp.WithTableHint: Refusal(
        "WITH", "hints stand behind SELECT: /*+ .. */", "WITH (..) behind a table is not supported"
    ),
    exp.IndexTableHint: Refusal(
        "FORCE INDEX|USE INDEX|IGNORE INDEX|FORCE KEY|USE KEY|IGNORE KEY|FORCE", "hints stand behind SELECT: /*+ .. */"
    ),
    exp.TableAlias: reads("this columns", places={"columns": {exp.ColumnDef: "this"}}),
    exp.Lateral: reads(
        "this alias ordinality",
        refused={
            "view": "LATERAL VIEW",
            "outer": "LATERAL VIEW OUTER",
            "cross_apply": Refusal(
                "CROSS APPLY|OUTER APPLY", "CROSS JOIN LATERAL (..), LEFT JOIN LATERAL (..) ON true"
            ),
        },
        when_false="cross_apply",
    ),
    exp.Unnest: reads("expressions alias offset", foreign="explode_array"),
    exp.Join: reads(_JOIN, refused=_JOIN_REFUSED, foreign=_JOIN_FOREIGN),
    AsofJoin: reads(f"{_JOIN} tolerance", refused=_JOIN_REFUSED, foreign=_JOIN_FOREIGN),
    ClipJoin: reads(_JOIN, refused=_JOIN_REFUSED, foreign=_JOIN_FOREIGN),
    exp.Pivot: reads(
        "this alias expressions fields unpivot using group into include_nulls default_on_null",
        idle=dict.fromkeys(
            ("columns", "identify_pivot_strings", "prefixed_pivot_columns", "pivot_column_naming"),
            "the names of the columns are made here",
        ),
        foreign="with_ value_columns_first",
        places={"group": {exp.Group: "expressions"}},
    ),
    exp.PivotAlias: reads("this alias"),
    exp.UnpivotColumns: reads("this expressions"),
    exp.PivotAny: None,
}
