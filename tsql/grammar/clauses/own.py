"""The arguments of this dialect's own nodes: all of them are read."""

from __future__ import annotations

from tsql.grammar.clauses.changes import TARGET
from tsql.grammar.parser.changes import AlterTable, CreateMacro, SummarizeQuery, TransactionStep
from tsql.grammar.parser.statements import (
    CompilePlan,
    DeallocateStatement,
    DescribeQuery,
    ExecutePlan,
    ExecuteStatement,
    Explain,
    PrepareStatement,
    SetOption,
    ShowTables,
)
from tsql.grammar.time import match_nodes as match
from tsql.grammar.time import nodes
from tsql.planner.bind.clauses import Table, reads

_INPUT = "this partition_by"
_ALONE = "partition_by"
"""The parser refuses it: these functions process each row independently."""

STATEMENTS: Table = {
    Explain: reads("this level"),
    CompilePlan: reads("this path"),
    ExecutePlan: reads("path"),
    PrepareStatement: reads("this statement first"),
    ExecuteStatement: reads("this expressions"),
    DeallocateStatement: reads("this"),
    SetOption: reads("this value"),
    ShowTables: reads("all"),
    DescribeQuery: reads("this"),
    SummarizeQuery: reads("this"),
    TransactionStep: reads("this"),
    CreateMacro: reads("this parameters defaults expression replace exists temporary"),
    AlterTable: reads("this kind exists action column value using optional", places={"this": TARGET}),
    nodes.CreateStream: reads("this expressions options replace exists", places={"this": TARGET}),
    nodes.Watermark: reads("this expression idle_timeout allowed_lateness on_late into", places={"into": TARGET}),
    nodes.Period: reads("this start end"),
    nodes.StreamOptions: reads("expressions"),
    nodes.StreamOption: reads("this value"),
    nodes.CreateSink: reads("this options replace exists", places={"this": TARGET}),
    nodes.ShowStreams: reads("sinks"),
}

TIME: Table = {
    nodes.Tumble: reads(f"{_INPUT} time size offset rows timezone"),
    nodes.Hop: reads(f"{_INPUT} time size offset rows timezone slide slide_rows"),
    nodes.Cumulate: reads(f"{_INPUT} time step size offset timezone"),
    nodes.Session: reads(f"{_INPUT} time gap max_size"),
    nodes.Lifetime: reads("this start duration end", foreign=_ALONE),
    nodes.Slide: reads("this time size", foreign=_ALONE),
    nodes.Shift: reads("this by", foreign=_ALONE),
    nodes.Extend: reads("this by", foreign=_ALONE),
    nodes.Clip: reads("this duration", foreign=_ALONE),
    nodes.Chop: reads("this size offset", foreign=_ALONE),
    nodes.Stitch: reads("this", foreign=_ALONE),
    nodes.Quantize: reads("this slide size step offset", foreign=_ALONE),
    nodes.PointAtEnd: reads("this", foreign=_ALONE),
    nodes.AsOf: reads("this"),
    nodes.Sequenced: reads("this with_ emit progressive"),
    nodes.Emit: reads("this every before_watermark changes_after_watermark within"),
    nodes.Progressive: reads("every unit until_error within confidence seed"),
}

MATCH: Table = {
    match.RowMatch: reads("this partition_by order measures rows after pattern within subset define", foreign="alias"),
    match.SkipTo: reads("this variable"),
    match.Subset: reads("this expressions"),
    match.MatchSemantics: reads("this kind"),
    match.PatternVariable: reads("this"),
    match.PatternSequence: reads("expressions"),
    match.PatternChoice: reads("expressions"),
    match.PatternRepeat: reads("this low high reluctant"),
    match.PatternAnchor: reads("this"),
}

OWN: Table = {**STATEMENTS, **TIME, **MATCH}
