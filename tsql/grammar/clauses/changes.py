"""The arguments of statements that change rows: INSERT, UPDATE, DELETE, TRUNCATE, COPY."""

from __future__ import annotations

from sqlglot import exp

from tsql.planner.bind.clauses import Refusal, Table, reads

TARGET = {exp.Table: "this alias db catalog"}
"""A table that is changed is a name, perhaps with an alias."""
_KEYS = {exp.Ordered: "this nulls_first"}
"""The columns of a key have no order. (`nulls_first` is set for every one.)"""
_HINT = Refusal("/*+", "a hint stands behind SELECT: /*+ .. */", "a hint here has no effect")

CHANGES: Table = {
    exp.Insert: reads(
        "this expression with_ conflict returning alternative by_name default overwrite partition",
        refused={
            "exists": "IF EXISTS",
            "settings": "SETTINGS",
            "stored": "STORED",
            "where": Refusal("REPLACE WHERE", "DELETE FROM t WHERE .., then INSERT INTO t"),
            "using": Refusal("REPLACE USING", "DELETE FROM t WHERE .., then INSERT INTO t"),
            "is_function": "FUNCTION",
        },
        foreign="hint ignore source",
        places={"this": TARGET},
    ),
    exp.Partition: reads("expressions", foreign="subpartition"),
    exp.OnConflict: reads(
        "expressions action conflict_keys where",
        refused={
            "duplicate": Refusal("ON DUPLICATE KEY", "ON CONFLICT (key) DO UPDATE SET .."),
            "index_predicate": Refusal(
                "WHERE",
                "a key holds for all rows: leave the condition out",
                "WHERE in a conflict target is not supported",
            ),
            "constraint": Refusal("ON CONSTRAINT", "name its columns: ON CONFLICT (a, b)"),
        },
        places={"conflict_keys": _KEYS},
    ),
    exp.Returning: reads("expressions", refused={"into": "INTO"}),
    exp.Update: reads(
        "with_ this expressions from_ where returning",
        refused={
            "order": Refusal("ORDER BY", "choose the rows with WHERE", "UPDATE takes no ORDER BY"),
            "limit": Refusal(
                "LIMIT", "choose the rows with WHERE: WHERE k IN (SELECT k FROM t LIMIT n)", "UPDATE takes no LIMIT"
            ),
            "hint": _HINT,
        },
        foreign="options",
        places={"this": TARGET},
    ),
    exp.Delete: reads(
        "with_ this using where returning",
        refused={
            "order": Refusal("ORDER BY", "choose the rows with WHERE", "DELETE takes no ORDER BY"),
            "limit": Refusal(
                "LIMIT", "choose the rows with WHERE: WHERE k IN (SELECT k FROM t LIMIT n)", "DELETE takes no LIMIT"
            ),
            "tables": Refusal("DELETE", "DELETE FROM t USING u WHERE ..", "DELETE takes one table, behind FROM"),
            "hint": _HINT,
        },
        foreign="cluster",
        places={"this": TARGET},
    ),
    exp.TruncateTable: reads(
        "expressions",
        refused={
            "exists": "IF EXISTS",
            "identity": "RESTART IDENTITY|CONTINUE IDENTITY",
            "option": Refusal(
                "CASCADE|RESTRICT", message="TRUNCATE takes no CASCADE or RESTRICT: no table depends on another"
            ),
            "partition": "PARTITION",
            "is_database": "DATABASE",
        },
        foreign="only cluster",
        places={"expressions": TARGET},
    ),
    exp.Copy: reads(
        "this kind files params",
        idle={"credentials": "empty unless one of its own arguments is given"},
        foreign="format",
        places={"this": TARGET},
    ),
    exp.CopyParameter: reads(
        "this expression", refused={"expressions": Refusal("FILE_FORMAT", "COPY t TO 'file' (FORMAT csv)")}
    ),
    exp.Credentials: reads(
        foreign="encryption",
        refused={
            "credentials": "CREDENTIALS",
            "storage": "STORAGE_INTEGRATION",
            "iam_role": "IAM_ROLE",
            "region": "REGION",
        },
    ),
}
