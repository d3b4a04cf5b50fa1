"""Our canonical text of temporal SQL; it reads back to an equal tree. `tsql/grammar/generator.py` mixes `TimeGenerator`
in.

The table and the time of a function come first, every other argument is named. Flink's spelling is printed as ours, FOR
SYSTEM_TIME as FOR VALID_TIME."""

from __future__ import annotations

from sqlglot import exp

from tsql.grammar.time.match_nodes import MatchSemantics, RowMatch, SkipTo, Subset
from tsql.grammar.time.nodes import (
    FUNCTIONS,
    AsOf,
    AsofJoin,
    ClipJoin,
    CreateSink,
    CreateStream,
    Emit,
    Period,
    Progressive,
    Sequenced,
    ShowStreams,
    StreamOption,
    StreamOptions,
    TimeFunction,
    Watermark,
)
from tsql.grammar.time.parameters import PARAMETERS
from tsql.grammar.time.pattern import pattern_text, variable_text
from tsql.planner.bind.syntax import ExpressionGenerator


class TimeGenerator(ExpressionGenerator):
    """Text of what concerns time."""

    PROPERTIES_LOCATION = {
        **ExpressionGenerator.PROPERTIES_LOCATION,
        StreamOptions: exp.Properties.Location.POST_SCHEMA,
        exp.MaterializedProperty: exp.Properties.Location.POST_CREATE,
    }
    TRANSFORMS = {
        **ExpressionGenerator.TRANSFORMS,
        **{kind: lambda self, node: self.timefunction_sql(node) for kind in FUNCTIONS.values()},
        AsofJoin: lambda self, node: self.asofjoin_sql(node),
        ClipJoin: lambda self, node: self.join_sql(node),
        AsOf: lambda self, node: f"FOR VALID_TIME AS OF {self.sql(node, 'this')}",
        Sequenced: lambda self, node: self.sequenced_sql(node),
        Emit: lambda self, node: self.emit_sql(node),
        Progressive: lambda self, node: self.progressive_sql(node),
        CreateSink: lambda self, node: self.createsink_sql(node),
        CreateStream: lambda self, node: self.createstream_sql(node),
        Watermark: lambda self, node: self.watermark_sql(node),
        Period: lambda self, node: (
            f"PERIOD FOR {self.sql(node, 'this')} ({self.sql(node, 'start')}, {self.sql(node, 'end')})"
        ),
        StreamOptions: lambda self, node: f"WITH ({self.expressions(node, flat=True)})",
        StreamOption: lambda self, node: self.streamoption_sql(node),
        ShowStreams: lambda self, node: "SHOW SINKS" if node.args.get("sinks") else "SHOW STREAMS",
        RowMatch: lambda self, node: self.rowmatch_sql(node),
        SkipTo: lambda self, node: self.skipto_sql(node),
        Subset: lambda self, node: (
            f"{variable_text(node.this)} = ({', '.join(variable_text(name) for name in node.expressions)})"
        ),
        MatchSemantics: lambda self, node: f"{node.args['kind'].name} {self.sql(node, 'this')}",
    }

    def timefunction_sql(self, node: TimeFunction) -> str:
        source = self.sql(node, "this")
        keys = node.args.get("partition_by") or []
        if keys:
            listed = ", ".join(self.sql(key) for key in keys)
            source += f" PARTITION BY ({listed})" if len(keys) > 1 else f" PARTITION BY {listed}"
        arguments = [source]
        for parameter in PARAMETERS[type(node)]:
            if node.args.get(parameter.name) is not None:
                value = self.sql(node, parameter.name)
                arguments.append(value if parameter.name == "time" else f"{parameter.name} => {value}")
        return f"{node.sql_name}({', '.join(arguments)})"

    def asofjoin_sql(self, node: AsofJoin) -> str:
        tolerance = node.args.get("tolerance")
        return self.join_sql(node) + ("" if tolerance is None else f" TOLERANCE {self.sql(tolerance)}")

    def sequenced_sql(self, node: Sequenced) -> str:
        return self.prepend_ctes(node, self.output_clauses(node, f"SEQUENCED VALIDTIME {self.sql(node, 'this')}"))

    def output_clauses(self, node: exp.Expr, text: str) -> str:
        """A query's text with EMIT or PROGRESSIVE behind it."""
        clauses = [self.sql(node, key) for key in ("emit", "progressive") if node.args.get(key) is not None]
        return " ".join([text, *clauses])

    def query_modifiers(self, expression: exp.Expr, *sqls: str) -> str:
        return self.output_clauses(expression, super().query_modifiers(expression, *sqls))

    def emit_sql(self, node: Emit) -> str:
        text = f"EMIT {node.name}"
        if node.args.get("every") is not None:
            text += f" {self.sql(node, 'every')}"
        text += " BEFORE WATERMARK" if node.args.get("before_watermark") else ""
        text += ", CHANGES AFTER WATERMARK" if node.args.get("changes_after_watermark") else ""
        return text + (f" WITHIN {self.sql(node, 'within')}" if node.args.get("within") is not None else "")

    def progressive_sql(self, node: Progressive) -> str:
        words = (
            ("until_error", "UNTIL ERROR <="),
            ("within", "WITHIN"),
            ("confidence", "CONFIDENCE"),
            ("seed", "SEED"),
        )
        options = [f"{word} {self.sql(node, key)}" for key, word in words if node.args.get(key) is not None]
        if node.args.get("every") is not None:
            unit = f" {self.sql(node, 'unit')}" if node.args.get("unit") is not None else ""
            options.insert(0, f"EVERY {self.sql(node, 'every')}{unit}")
        return " ".join(["PROGRESSIVE", *options])

    def createstream_sql(self, node: CreateStream) -> str:
        replaces = "OR REPLACE " if node.args.get("replace") else ""
        exists = "IF NOT EXISTS " if node.args.get("exists") else ""
        columns = f" ({self.expressions(node, flat=True)})" if node.expressions else ""
        options = f" {self.sql(node, 'options')}" if node.args.get("options") is not None else ""
        return f"CREATE {replaces}STREAM {exists}{self.sql(node, 'this')}{columns}{options}"

    def createsink_sql(self, node: CreateSink) -> str:
        replaces = "OR REPLACE " if node.args.get("replace") else ""
        exists = "IF NOT EXISTS " if node.args.get("exists") else ""
        return f"CREATE {replaces}SINK {exists}{self.sql(node, 'this')} {self.sql(node, 'options')}"

    def watermark_sql(self, node: Watermark) -> str:
        text = f"WATERMARK FOR {self.sql(node, 'this')} AS {self.sql(node, 'expression')}"
        for key, word in (
            ("idle_timeout", "IDLE TIMEOUT"),
            ("allowed_lateness", "ALLOWED LATENESS"),
            ("on_late", "ON LATE"),
        ):
            if node.args.get(key) is not None:
                text += f" {word} {self.sql(node, key)}"
        return text + (f" {self.sql(node, 'into')}" if node.args.get("into") is not None else "")

    def streamoption_sql(self, node: StreamOption) -> str:
        name = node.name if node.name.isidentifier() else self.sql(exp.Literal.string(node.name))
        return f"{name} = {self.sql(node, 'value')}"

    def rowmatch_sql(self, node: RowMatch) -> str:
        args = node.args
        clauses = []
        if args.get("partition_by"):
            clauses.append(f"PARTITION BY {', '.join(self.sql(key) for key in args['partition_by'])}")
        if args.get("order") is not None:
            clauses.append(self.sql(node, "order").strip())
        if args.get("measures"):
            clauses.append(f"MEASURES {', '.join(self.sql(measure) for measure in args['measures'])}")
        clauses += [self.sql(node, key) for key in ("rows", "after") if args.get(key) is not None]
        clauses.append(f"PATTERN ({pattern_text(args['pattern'])})")
        if args.get("within") is not None:
            clauses.append(f"WITHIN {self.sql(node, 'within')}")
        if args.get("subset"):
            clauses.append(f"SUBSET {', '.join(self.sql(subset) for subset in args['subset'])}")
        definitions = [variable_text(one.args["alias"]) + " AS " + self.sql(one, "this") for one in args["define"]]
        clauses.append(f"DEFINE {', '.join(definitions)}")
        return f"{self.sql(node, 'this')} MATCH_RECOGNIZE ({' '.join(clauses)})"

    def skipto_sql(self, node: SkipTo) -> str:
        variable = node.args.get("variable")
        return f"AFTER MATCH SKIP {node.name}" + ("" if variable is None else f" {variable_text(variable)}")
