"""The arguments of statements that define or drop something: CREATE, DROP, columns and constraints."""

from __future__ import annotations

from sqlglot import exp

from tsql.grammar.clauses.changes import TARGET
from tsql.planner.bind.clauses import Refusal, Table, reads

_KEYS = {exp.Ordered: "this nulls_first"}
_NAMED = "the name of a constraint is shown nowhere"
_KEY_REFUSED: dict[str, Refusal | str] = {
    "options": Refusal(
        (
            "DEFERRABLE|NOT DEFERRABLE|INITIALLY|NOT ENFORCED|ENFORCED|NORELY|RELY|ON CONFLICT|ON DELETE|ON "
            "UPDATE|USING INDEX"
        ),
        message="a key takes no options: it is checked with each statement",
    ),
}
_EMPTY = "empty unless one of its own arguments is given"

DEFINITIONS: Table = {
    exp.Create: reads(
        "this kind expression exists properties replace",
        refused={
            "unique": "UNIQUE",
            "indexes": "INDEX",
            "no_schema_binding": "WITH NO SCHEMA BINDING",
            "clone": Refusal("CLONE|SHALLOW CLONE|DEEP CLONE|COPY", "CREATE TABLE t AS SELECT * FROM u"),
            "concurrently": "CONCURRENTLY",
        },
        foreign="with_ refresh begin clustered",
        places={"this": TARGET},
    ),
    exp.Schema: reads("this expressions", places={"this": TARGET}),
    exp.Properties: reads("expressions"),
    exp.TemporaryProperty: reads(foreign="this scoped"),
    exp.WithDataProperty: reads(
        "no", refused={"statistics": "AND STATISTICS|AND NO STATISTICS"}, when_false="statistics"
    ),
    exp.ColumnDef: reads(
        "this kind constraints",
        refused={
            "position": Refusal(
                "FIRST|AFTER", "a new column is the last one; CREATE TABLE .. AS SELECT gives columns another order"
            ),
        },
        foreign="exists default output",
    ),
    exp.ColumnConstraint: reads("kind", idle={"this": _NAMED}),
    exp.Constraint: reads("expressions", idle={"this": _NAMED}),
    exp.NotNullColumnConstraint: reads("allow_null"),
    exp.DefaultColumnConstraint: reads("this"),
    exp.CheckColumnConstraint: reads(
        "this", refused={"enforced": Refusal("NOT ENFORCED|ENFORCED", message="a CHECK is always enforced")}
    ),
    exp.PrimaryKeyColumnConstraint: reads(
        idle={"include": _EMPTY},
        refused={**_KEY_REFUSED, "desc": Refusal("DESC|ASC", message="a key has no order")},
        when_false="desc",
    ),
    exp.PrimaryKey: reads(
        "expressions", idle={"include": _EMPTY}, refused=_KEY_REFUSED, foreign="this", places={"expressions": _KEYS}
    ),
    exp.UniqueColumnConstraint: reads(
        "this nulls",
        idle={"include": _EMPTY},
        refused={
            **_KEY_REFUSED,
            "index_type": "USING|CLUSTERED|NONCLUSTERED",
            "on_conflict": Refusal("ON CONFLICT", "INSERT OR IGNORE, INSERT OR REPLACE"),
        },
    ),
    exp.IndexParameters: reads(
        refused={
            "using": "USING",
            "include": "INCLUDE",
            "with_storage": "WITH",
            "partition_by": "PARTITION BY",
            "tablespace": "TABLESPACE",
            "where": "WHERE",
            "on": "ON",
        },
        foreign="columns",
    ),
    exp.GeneratedAsIdentityColumnConstraint: Refusal(
        "GENERATED|IDENTITY",
        "a view can compute the column, row_number() OVER () can number rows",
        "a generated column is not supported",
    ),
    exp.ComputedColumnConstraint: Refusal(
        "GENERATED|AS", "a view can compute the column", "a generated column is not supported"
    ),
    exp.AutoIncrementColumnConstraint: Refusal("AUTO_INCREMENT|AUTOINCREMENT|IDENTITY"),
    exp.SchemaCommentProperty: Refusal("COMMENT"),
    exp.PartitionedByProperty: reads("this"),
    exp.FileFormatProperty: reads("this", refused={"hive_format": "STORED"}, foreign="expressions"),
    exp.LikeProperty: Refusal("LIKE", "CREATE TABLE t AS SELECT * FROM u LIMIT 0"),
    exp.MaterializedProperty: reads(foreign="this"),
    exp.Index: None,
    exp.ForeignKey: None,
    exp.Reference: None,
    exp.Drop: reads(
        "kind tables exists materialized",
        idle={
            "cascade": "nothing depends on a table, a view or a macro",
            "restrict": "nothing depends on a table, a view or a macro",
        },
        refused={
            "expressions": Refusal("(", message="DROP takes a name without arguments"),
            "temporary": Refusal("TEMPORARY|TEMP", "DROP TABLE name"),
            "constraints": "CONSTRAINTS",
            "purge": "PURGE",
            "concurrently": "CONCURRENTLY",
            "sync": "SYNC",
            "iceberg": "ICEBERG",
            "force": "FORCE",
        },
        foreign="cluster",
        places={"tables": TARGET},
    ),
}
