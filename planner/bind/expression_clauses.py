"""The arguments of expression nodes: which ones this package reads, and how the others are refused."""

from __future__ import annotations

from sqlglot import exp

from tsql.planner.bind.clauses import Refusal, Table, reads
from tsql.planner.bind.syntax_nodes import Absolute, CallNode, UnaryPlus

_UNARY = reads("this")
_BINARY = reads("this expression")
_PATTERN = reads("this expression negate")
_AS_WRITTEN = "a type is read as it is written (`data_type`)"
_FORMAT = Refusal("FORMAT", "strptime(text, format) reads a time, strftime(time, format) writes one")
_DEFAULT = Refusal("DEFAULT", "TRY_CAST gives NULL where a cast fails: coalesce(TRY_CAST(x AS type), value)")

EXPRESSIONS: Table = {
    **dict.fromkeys(
        (exp.Neg, exp.Not, exp.Paren, exp.BitwiseNot, UnaryPlus, Absolute, exp.Boolean, exp.RawString, exp.Var), _UNARY
    ),
    **dict.fromkeys((exp.Any, exp.All, exp.IgnoreNulls, exp.RespectNulls, exp.Where), _UNARY),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.IntDiv, exp.Mod, exp.Pow, exp.And, exp.Or), _BINARY),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ), _BINARY),
    **dict.fromkeys(
        (exp.Collate, exp.Escape, exp.Glob, exp.SimilarTo, exp.StartsWith, exp.Extract, exp.Filter), _BINARY
    ),
    **dict.fromkeys((exp.Kwarg, exp.PropertyEQ, exp.WithinGroup), _BINARY),
    **dict.fromkeys((exp.Like, exp.ILike, exp.Is), _PATTERN),
    **dict.fromkeys((exp.CurrentDate, exp.CurrentTime, exp.Localtime, exp.Localtimestamp), reads(foreign="this")),
    exp.CurrentTimestamp: reads(foreign="this sysdate"),
    exp.Literal: reads("this is_string"),
    exp.ByteString: reads("this", foreign="is_bytes"),
    exp.HexString: reads("this", foreign="is_integer"),
    exp.Null: reads(),
    exp.Placeholder: reads("this", foreign="kind widget jdbc"),
    exp.Identifier: reads("this quoted", foreign="global_ temporary"),
    exp.Column: reads("this table db catalog", foreign="join_mark shadow"),
    exp.Tuple: reads("expressions"),
    exp.Array: reads(
        "expressions",
        idle={"bracket_notation": "list_value(..) and [..] are the same"},
        foreign="struct_name_inheritance value_constructor",
    ),
    exp.Struct: None,
    exp.Lambda: None,
    exp.Alias: reads("this alias"),
    exp.Bracket: reads("this expressions", foreign="offset safe returns_list_for_maps json_access"),
    exp.Slice: reads("this expression step"),
    exp.BitwiseAnd: reads("this expression", foreign="padside"),
    exp.BitwiseOr: reads("this expression", foreign="padside"),
    exp.BitwiseLeftShift: reads("this expression", foreign="requires_int128"),
    exp.BitwiseRightShift: reads("this expression", foreign="requires_int128"),
    exp.Div: reads("this expression", foreign="typed safe"),
    exp.DPipe: reads("this expression", idle={"safe": "both sides are cast to VARCHAR in any case"}),
    exp.Between: reads("this low high", foreign="symmetric", when_false="symmetric"),
    exp.In: reads(
        "this expressions query field",
        refused={"unnest": Refusal("UNNEST", "x IN (SELECT unnest(..))", "IN takes a list or a query in parentheses")},
        foreign="is_global",
    ),
    exp.Exists: reads("this", foreign="expression"),
    exp.Case: reads("this ifs default"),
    exp.If: reads("this true", foreign="false"),
    exp.Cast: reads("this to", refused={"format": _FORMAT, "default": _DEFAULT}, foreign="safe action"),
    **dict.fromkeys((exp.StrToDate, exp.StrToTime, exp.TimeToStr), _FORMAT),
    exp.TryCast: reads(
        "this to",
        idle={"safe": "the grammar sets it for each TRY_CAST"},
        refused={"default": _DEFAULT},
        foreign="format action requires_string null_on_text_overflow probe_date_format",
    ),
    exp.DataType: reads(
        idle=dict.fromkeys(("this", "expressions", "nested", "values", "kind", "nullable", "collate"), _AS_WRITTEN)
    ),
    exp.DataTypeParam: reads(idle=dict.fromkeys(("this", "expression"), _AS_WRITTEN)),
    exp.Interval: reads("this unit", foreign="fraction_in_string"),
    exp.AtTimeZone: reads("this zone"),
    exp.Star: reads("except_ replace rename", foreign="ilike"),
    CallNode: reads(
        "this expressions",
        idle={"quoted": "quotes around the name of a function change nothing"},
        places={"expressions": {exp.Distinct: "expressions"}},
    ),
    exp.Distinct: reads("expressions on"),
    exp.Order: reads("this expressions", foreign="siblings"),
    exp.Ordered: reads("this desc nulls_first", foreign="with_fill"),
    exp.Window: reads(
        "this partition_by order spec alias",
        idle={"over": "the word OVER"},
        refused={"first": "FIRST|LAST"},
        when_false="first",
    ),
    exp.WindowSpec: reads("kind start start_side end end_side exclude"),
}
