"""The table of PostgreSQL that a job writes: whether it takes the rows of an output, how it is made, and the statements
that move rows into it. Used by `postgres`; the statements are built by psycopg, with every name quoted."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa

from tsql.backends.io.writers import distinct_names
from tsql.backends.live.sinks.sink import Output
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.types import Type

INTEGERS = ("smallint", "integer", "bigint", "numeric")
TAKEN_BY: dict[str, tuple[str, ...]] = {
    "BOOLEAN": ("boolean",),
    "TINYINT": INTEGERS,
    "UTINYINT": INTEGERS,
    "SMALLINT": INTEGERS,
    "USMALLINT": INTEGERS[1:],
    "INTEGER": INTEGERS[1:],
    "NULL": INTEGERS[1:],
    "UINTEGER": INTEGERS[2:],
    "BIGINT": INTEGERS[2:],
    "UBIGINT": INTEGERS[3:],
    "HUGEINT": INTEGERS[3:],
    "DECIMAL": INTEGERS[3:],
    "FLOAT": ("real", "double precision"),
    "DOUBLE": ("double precision",),
    "VARCHAR": ("text", "character varying"),
    "BLOB": ("bytea",),
    "DATE": ("date",),
    "TIME": ("time without time zone",),
    "TIMESTAMP": ("timestamp without time zone",),
    "TIMESTAMPTZ": ("timestamp with time zone",),
    "INTERVAL": ("interval",),
}
"""The types of columns that take every value of a SQL type as it is; a table that is made has the first."""

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, NULL), a.atttypmod, a.attnotnull AND NOT a.atthasdef AND a.attidentity = '',
  a.attgenerated <> '' OR a.attidentity = 'a'
FROM pg_attribute a WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""

_KEYS = """
SELECT array_agg(a.attname::text) FROM pg_index i
CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY k (attnum, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %s::oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
  AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid, i.indisprimary HAVING bool_and(a.attnotnull) OR {nulls_are_equal}"""

DEFINITION_LOCK = 7_246_114_020
"""The key of the advisory lock under which tables are made. `CREATE TABLE IF NOT EXISTS` fails if two do it at once."""


def type_text(type: Type) -> str:
    """The type of a column that is made."""
    name = TAKEN_BY[type.name][0]
    if type.is_decimal:
        return f"numeric({type.width},{type.scale})"
    return {"UBIGINT": "numeric(20,0)", "HUGEINT": "numeric(39,0)"}.get(type.name, name)


class PostgresTable:
    """columns: of the rows that come. written: those that the table has, all but the change where rows are updated."""

    def __init__(self, schema: str, name: str, output: Output):
        self.shown = f"PostgreSQL table {schema}.{name}"
        self._schema, self._name = schema, name
        self.columns: pa.Schema = distinct_names(output.schema)
        self._types = output.types
        self._keys = output.keys
        self._has_changes = output.has_changes
        self._tag = hashlib.sha256(f"{output.job}\0{name}".encode()).hexdigest()[:16]
        self.updates = False
        self.written: list[str] = []

    def identifiers(self) -> dict[str, Any]:
        """Names for statements."""
        from psycopg import sql

        def listed(names: list[str], prefix: str = "") -> Any:
            return sql.SQL(", ").join(sql.SQL(prefix) + sql.Identifier(name) for name in names)

        others = [name for name in self.written if name not in self._keys]
        keys = [sql.Identifier(key) for key in self._keys]
        same = [sql.SQL("t.{0} = d.{0}").format(key) for key in keys]
        same_null = [sql.SQL("t.{0} IS NOT DISTINCT FROM d.{0}").format(key) for key in keys]
        some_null = [sql.SQL("d.{0} IS NULL").format(key) for key in keys]
        put = [sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others]
        return {
            "table": sql.Identifier(self._schema, self._name),
            "staged": sql.Identifier(self._schema, f"tsql_staged_{self._tag}"),
            "staged_index": sql.Identifier(f"tsql_staged_{self._tag}_epoch"),
            "epochs": sql.Identifier(self._schema, "tsql_epochs"),
            "all": listed(self.columns.names),
            "written": listed(self.written),
            "keys": listed(list(self._keys)),
            "change": sql.Identifier(self.columns.names[-1]),
            "same": sql.SQL(" AND ").join(same),
            "same_null": sql.SQL(" AND ").join(same_null),
            "some_null": sql.SQL(" OR ").join(some_null),
            "put": sql.SQL("DO UPDATE SET {}").format(sql.SQL(", ").join(put)) if put else sql.SQL("DO NOTHING"),
        }

    def statement(self, text: str, **values: Any) -> Any:
        """A statement with the names of `identifiers` and with values. It is executed without parameters: their
        placeholders would be looked for in names too, which may have a % in them."""
        from psycopg import sql

        literals = {name: sql.Literal(value) for name, value in values.items()}
        return sql.SQL(text).format(**self.identifiers(), **literals)

    def lock_keys(self) -> tuple[int, int]:
        """The advisory locks of the job's two connections."""
        first = int(self._tag, 16) - (1 << 63)
        return first, first ^ 1

    def check(self, connection: Any) -> None:
        """Refuse a table that does not take the rows as they are. Decides whether changes update it."""
        for field, type in zip(self.columns, self._types, strict=True):
            if type.name not in TAKEN_BY:
                raise SourceError(f"column {field.name} is {type}, which PostgreSQL has not")
            if len(field.name.encode()) > 63:
                raise SourceError(f"the name of column {field.name} is too long for PostgreSQL, which takes 63 bytes")
        place = self.place(connection)
        self.updates = self._has_changes and bool(self._keys) and (place is None or self._has_key(connection, place))
        self.written = list(self.columns.names[:-1] if self.updates else self.columns.names)
        if place is not None:
            self._check_columns(connection.execute(_COLUMNS, (place,)).fetchall())

    def place(self, connection: Any, name: str | None = None) -> int | None:
        """The number of a table in the catalog; None if there is no such table."""
        found = connection.execute(
            "SELECT c.oid, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s",
            (self._schema, name or self._name),
        ).fetchone()
        if found is None:
            return None
        if found[1] not in ("r", "p"):
            raise SourceError(f"cannot write {self.shown}: it is no table")
        return int(found[0])

    def _has_key(self, connection: Any, place: int) -> bool:
        from psycopg import sql

        can_be_equal = connection.info.server_version >= 150_000
        nulls = sql.SQL("bool_and(i.indnullsnotdistinct)" if can_be_equal else "false")
        found = connection.execute(sql.SQL(_KEYS).format(nulls_are_equal=nulls), (place,)).fetchall()
        return any(sorted(names) == sorted(self._keys) for (names,) in found)

    def _check_columns(self, there: list[Any]) -> None:
        known = {name: (kind, modifier, is_made) for name, kind, modifier, _, is_made in there}
        for name in self.written:
            type = self._types[self.columns.names.index(name)]
            if name not in known:
                raise SourceError(
                    f"cannot write {self.shown}: it has no column {name}",
                    hint=f"its columns are {', '.join(known)}, and the query gives {', '.join(self.written)}",
                )
            kind, modifier, is_made = known[name]
            if is_made:
                raise SourceError(f"cannot write {self.shown}: its column {name} is generated")
            if kind not in TAKEN_BY[type.name] or not _takes_all(kind, modifier, type):
                raise SourceError(
                    f"cannot write {self.shown}: its column {name} is {kind}, and the query gives {type}",
                    hint=f"CAST it in the query, or make the column {' or '.join(TAKEN_BY[type.name])}",
                )
        for name, _, _, is_needed, _ in there:
            if is_needed and name not in self.written:
                raise SourceError(
                    f"cannot write {self.shown}: its column {name} is NOT NULL, and the query does not give it"
                )

    def make(self, connection: Any) -> None:
        """Make what is missing: the table, the staging table and tsql_epochs."""
        from psycopg import sql

        names = self.identifiers()
        kinds = [sql.SQL(type_text(type)) for type in self._types]
        columns = [sql.SQL("{} {}").format(sql.Identifier(n), k) for n, k in zip(self.columns.names, kinds)]
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (DEFINITION_LOCK,))
            if self.place(connection) is None:
                parts = columns[: len(self.written)]
                if self.updates:
                    can_be_equal = connection.info.server_version >= 150_000
                    how = "UNIQUE NULLS NOT DISTINCT ({})" if can_be_equal else "PRIMARY KEY ({})"
                    parts.append(sql.SQL(how).format(names["keys"]))
                table = sql.SQL("CREATE TABLE {table} ({columns})")
                connection.execute(table.format(columns=sql.SQL(", ").join(parts), **names))
            text = "CREATE TABLE IF NOT EXISTS {epochs} (job text PRIMARY KEY, epoch bigint NOT NULL)"
            connection.execute(self.statement(text))
            # A commit leaves as many dead rows as it moves: they are not to wait for a fifth of the table.
            staged = sql.SQL(
                "CREATE TABLE IF NOT EXISTS {staged} (tsql_epoch bigint NOT NULL, {columns}) "
                "WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000)"
            )
            connection.execute(staged.format(columns=sql.SQL(", ").join(columns), **names))
            connection.execute(self.statement("CREATE INDEX IF NOT EXISTS {staged_index} ON {staged} (tsql_epoch)"))

    def moves(self, epoch: int) -> list[Any]:
        """The statements that bring the rows of a staged epoch into the table."""
        if not self.updates:
            text = "INSERT INTO {table} ({written}) SELECT {written} FROM {staged} WHERE tsql_epoch = {epoch}"
            return [self.statement(text, epoch=epoch)]
        # Changes of an epoch are summed first: their order does not matter then. `tsql_stays`: its key has a row again.
        changed = (
            "WITH d AS (SELECT *, bool_or(tsql_sum > 0) OVER (PARTITION BY {keys}) AS tsql_stays FROM ("
            "SELECT {written}, sum({change}) AS tsql_sum FROM {staged} WHERE tsql_epoch = {epoch} GROUP BY {written}"
            " HAVING sum({change}) <> 0) s) "
        )
        gone = "DELETE FROM {table} t USING d WHERE NOT d.tsql_stays AND "
        texts = [
            # Two statements: no index finds NULLs by IS NOT DISTINCT FROM, and few keys have one.
            changed + gone + "{same}",
            changed + gone + "({some_null}) AND {same_null}",
            changed + "INSERT INTO {table} ({written}) SELECT {written} FROM d WHERE tsql_sum > 0 "
            "ON CONFLICT ({keys}) {put}",
        ]
        return [self.statement(text, epoch=epoch) for text in texts]


def _takes_all(kind: str, modifier: int, type: Type) -> bool:
    """Whether a column's modifier, such as the 3 of timestamp(3), leaves values as they are. Values that are too long
    or too large are errors of the server."""
    if modifier < 0 or kind == "character varying":
        return True
    if kind == "numeric":
        return ((modifier - 4) & 0x7FF ^ 0x400) - 0x400 >= type.scale
    return False
