"""SQL types: their names, their Arrow types, their machine representation, and the rules by which they meet.

A `Type` is a small frozen value. Everything here follows DuckDB; `planner/bind/binder.py` asks for `common_type` and
`implicit_cast_cost`, kernels ask for `parts` (how a value is held in registers), sources and results for the Arrow
side."""

from __future__ import annotations

import pyarrow as pa

from tsql.kernels.process.quick_dataclass import dataclass


@dataclass(frozen=True)
class Type:
    """A SQL type. `width` and `scale` are set for DECIMAL only."""

    name: str
    width: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"DECIMAL({self.width},{self.scale})" if self.name == "DECIMAL" else self.name

    @property
    def is_readable(self) -> bool:
        """Whether a value of it can be held. Columns of files may have other types (`unreadable`): these are named,
        never read."""
        return self.name in FIXED_BITS or self.name in ("DECIMAL", "VARCHAR", "BLOB")

    @property
    def is_integer(self) -> bool:
        return self.name in INTEGER_BITS

    @property
    def is_unsigned(self) -> bool:
        return self.name in UNSIGNED

    @property
    def is_decimal(self) -> bool:
        return self.name == "DECIMAL"

    @property
    def is_float(self) -> bool:
        return self.name in ("FLOAT", "DOUBLE")

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.is_decimal or self.is_float

    @property
    def is_string(self) -> bool:
        return self.name in ("VARCHAR", "BLOB")

    @property
    def is_temporal(self) -> bool:
        return self.name in ("DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ")

    @property
    def bits(self) -> int:
        """Bits of the integer that holds a value of a fixed-width type."""
        if self.is_decimal:
            return 64 if self.width <= 18 else 128
        return FIXED_BITS[self.name]

    @property
    def parts(self) -> tuple[str, ...]:
        """KIR types of the registers that hold one value."""
        match self.name:
            case "VARCHAR" | "BLOB":
                return ("ptr", "i64")
            case "INTERVAL":
                return ("i32", "i32", "i64")
            case "BOOLEAN":
                return ("i1",)
            case "FLOAT":
                return ("f32",)
            case "DOUBLE":
                return ("f64",)
            case _:
                return (f"i{self.bits}",)

    @property
    def has_bounds(self) -> bool:
        return self.is_decimal or self.is_integer or self.is_temporal

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest value of an integer, decimal or temporal type, as stored."""
        if self.is_decimal:
            top = 10**self.width - 1
            return -top, top
        if self.is_integer:
            bits = INTEGER_BITS[self.name]
            return (0, 2**bits - 1) if self.is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if self.is_temporal:
            bits = self.bits
            return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        raise TypeError(f"{self} has no bounds")

    def to_arrow(self) -> pa.DataType:
        """The Arrow type of a result column of this type."""
        if self.is_decimal:
            return pa.decimal128(self.width, self.scale)
        return ARROW[self.name]


BOOLEAN = Type("BOOLEAN")
TINYINT = Type("TINYINT")
SMALLINT = Type("SMALLINT")
INTEGER = Type("INTEGER")
BIGINT = Type("BIGINT")
HUGEINT = Type("HUGEINT")
UTINYINT = Type("UTINYINT")
USMALLINT = Type("USMALLINT")
UINTEGER = Type("UINTEGER")
UBIGINT = Type("UBIGINT")
FLOAT = Type("FLOAT")
DOUBLE = Type("DOUBLE")
VARCHAR = Type("VARCHAR")
BLOB = Type("BLOB")
DATE = Type("DATE")
TIME = Type("TIME")
TIMESTAMP = Type("TIMESTAMP")
TIMESTAMPTZ = Type("TIMESTAMPTZ")
INTERVAL = Type("INTERVAL")
INTERVAL_RANGE = (
    "INTERVAL out of range: columns hold its time, beside months and days, in nanoseconds, up to 2562047 hours"
)
NULL = Type("NULL")
"""The type of a bare NULL before it meets another type; a result column of it is INTEGER, as in DuckDB."""


def DECIMAL(width: int, scale: int) -> Type:
    """The fixed-point type of `width` digits, `scale` of them after the point."""
    if not 1 <= width <= 38 or not 0 <= scale <= width:
        raise ValueError(f"DECIMAL({width},{scale}): width is 1 to 38 and scale 0 to width")
    return Type("DECIMAL", width, scale)


def unreadable(text: str) -> Type:
    """The type of a column that cannot be read, such as a list; the text is what DESCRIBE shows."""
    found = Type(text)
    return Type(f"{text} (unreadable)") if found.is_readable else found


INTEGER_BITS = {
    "TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128,
    "UTINYINT": 8, "USMALLINT": 16, "UINTEGER": 32, "UBIGINT": 64,
}  # fmt: skip
UNSIGNED = {"UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
FIXED_BITS = INTEGER_BITS | {
    "BOOLEAN": 8,
    "FLOAT": 32,
    "DOUBLE": 64,
    "DATE": 32,
    "TIME": 64,
    "TIMESTAMP": 64,
    "TIMESTAMPTZ": 64,
    "INTERVAL": 128,
    "NULL": 32,
}
ARROW = {
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "HUGEINT": pa.decimal128(38, 0), "UTINYINT": pa.uint8(), "USMALLINT": pa.uint16(), "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(), "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "VARCHAR": pa.string(), "BLOB": pa.binary(),
    "DATE": pa.date32(), "TIME": pa.time64("us"), "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMPTZ": pa.timestamp("us", tz="UTC"), "INTERVAL": pa.month_day_nano_interval(), "NULL": pa.int32(),
}  # fmt: skip

ALIASES = {
    "BOOL": "BOOLEAN", "LOGICAL": "BOOLEAN", "INT1": "TINYINT", "INT2": "SMALLINT", "SHORT": "SMALLINT",
    "INT4": "INTEGER", "INT": "INTEGER", "SIGNED": "INTEGER", "INT8": "BIGINT", "LONG": "BIGINT", "INT128": "HUGEINT",
    "UINT8": "UTINYINT", "UINT16": "USMALLINT", "UINT32": "UINTEGER", "UINT64": "UBIGINT", "FLOAT4": "FLOAT",
    "REAL": "FLOAT", "FLOAT8": "DOUBLE", "TEXT": "VARCHAR", "STRING": "VARCHAR", "CHAR": "VARCHAR", "BPCHAR": "VARCHAR",
    "BYTEA": "BLOB", "BINARY": "BLOB", "VARBINARY": "BLOB", "DATETIME": "TIMESTAMP",
    "TIMESTAMP WITHOUT TIME ZONE": "TIMESTAMP", "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ", "TIMESTAMP_US": "TIMESTAMP",
    "TIME WITHOUT TIME ZONE": "TIME", "NUMERIC": "DECIMAL", "DEC": "DECIMAL",
}  # fmt: skip
NAMED = {
    t.name: t
    for t in (
        BOOLEAN,
        TINYINT,
        SMALLINT,
        INTEGER,
        BIGINT,
        HUGEINT,
        UTINYINT,
        USMALLINT,
        UINTEGER,
        UBIGINT,
        FLOAT,
        DOUBLE,
        VARCHAR,
        BLOB,
        DATE,
        TIME,
        TIMESTAMP,
        TIMESTAMPTZ,
        INTERVAL,
        NULL,
    )
}


def split_type(text: str) -> tuple[str, tuple[str, ...]]:
    """The name of a type in capitals, and its parameters: `TIMESTAMP(3) WITH TIME ZONE` is TIMESTAMP WITH TIME ZONE and
    3."""
    before, bracket, rest = text.strip().upper().partition("(")
    inside, _, after = rest.rpartition(")")
    parameters = tuple(part.strip() for part in inside.split(",")) if bracket and inside.strip() else ()
    return " ".join(f"{before} {after}".split()), parameters


def parse_type(text: str) -> Type:
    """The type that a SQL type name means; raises ValueError for an unknown one, and for parameters that it does not
    take."""
    written, parameters = split_type(text)
    name = ALIASES.get(written, written)
    if name not in NAMED and name != "DECIMAL":
        raise ValueError(f"unknown type {text.strip()}")
    if not all(part.isdigit() for part in parameters):
        raise ValueError(f"the parameters of a type are whole numbers: {text.strip()}")
    numbers = [int(part) for part in parameters]
    if name == "DECIMAL":
        if len(numbers) > 2:
            raise ValueError(f"DECIMAL takes a width and a scale, not {len(numbers)} parameters")
        return DECIMAL(*((numbers + [0])[:2] if numbers else (18, 3)))
    if written == "FLOAT" and len(numbers) == 1:
        if not 1 <= numbers[0] <= 53:
            raise ValueError(f"FLOAT({numbers[0]}): the precision is 1 to 53 bits")
        return DOUBLE if numbers[0] > 24 else FLOAT
    # As in DuckDB, the length of a VARCHAR bounds nothing.
    if numbers and not (name == "VARCHAR" and len(numbers) == 1):
        raise ValueError(f"type {written} takes no parameters")
    return NAMED[name]


def from_arrow(arrow: pa.DataType) -> Type:
    """The SQL type of an Arrow column; raises ValueError for a type that tsql does not hold."""
    if pa.types.is_dictionary(arrow):
        return from_arrow(arrow.value_type)
    if pa.types.is_decimal(arrow):
        if (arrow.precision, arrow.scale) == (39, 0):
            return HUGEINT
        if arrow.precision > 38 or arrow.scale < 0:
            raise ValueError(f"no SQL type for Arrow {arrow}")
        return HUGEINT if (arrow.precision, arrow.scale) == (38, 0) else DECIMAL(arrow.precision, arrow.scale)
    if pa.types.is_timestamp(arrow):
        return TIMESTAMPTZ if arrow.tz else TIMESTAMP
    if pa.types.is_time(arrow):
        return TIME
    if pa.types.is_date(arrow):
        return DATE
    if pa.types.is_string(arrow) or pa.types.is_large_string(arrow) or arrow == pa.string_view():
        return VARCHAR
    if (
        pa.types.is_binary(arrow)
        or pa.types.is_large_binary(arrow)
        or pa.types.is_fixed_size_binary(arrow)
        or arrow == pa.binary_view()
    ):
        return BLOB
    if pa.types.is_null(arrow):
        return INTEGER
    if pa.types.is_float16(arrow):
        return FLOAT
    for name, known in ARROW.items():
        if known == arrow and name != "NULL":
            return NAMED[name]
    raise ValueError(f"no SQL type for Arrow {arrow}")


def integer_digits(t: Type) -> int:
    """Decimal digits that hold every value of an integer type (DuckDB's widths)."""
    return {
        "TINYINT": 3,
        "SMALLINT": 5,
        "INTEGER": 10,
        "BIGINT": 19,
        "HUGEINT": 38,
        "UTINYINT": 3,
        "USMALLINT": 5,
        "UINTEGER": 10,
        "UBIGINT": 20,
    }[t.name]


def as_decimal(t: Type) -> Type:
    """The decimal type that an integer type becomes when it meets decimals."""
    return t if t.is_decimal else DECIMAL(integer_digits(t), 0)


_WIDENING = {
    "TINYINT": ("SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE"),
    "SMALLINT": ("INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE"),
    "INTEGER": ("BIGINT", "HUGEINT", "FLOAT", "DOUBLE"),
    "BIGINT": ("HUGEINT", "FLOAT", "DOUBLE"),
    "HUGEINT": ("FLOAT", "DOUBLE"),
    "UTINYINT": ("USMALLINT", "SMALLINT", "UINTEGER", "INTEGER", "UBIGINT", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE"),
    "USMALLINT": ("UINTEGER", "INTEGER", "UBIGINT", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE"),
    "UINTEGER": ("UBIGINT", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE"),
    "UBIGINT": ("HUGEINT", "FLOAT", "DOUBLE"),
    "FLOAT": ("DOUBLE",),
    "DECIMAL": ("FLOAT", "DOUBLE"),
    "DATE": ("TIMESTAMP", "TIMESTAMPTZ"),
    "TIMESTAMP": ("TIMESTAMPTZ",),
}


def implicit_cast_cost(source: Type, target: Type) -> int | None:
    """How costly an implicit cast is: 0 for the same type, None where only an explicit cast will do."""
    if source == target:
        return 0
    if source == NULL:
        return 1
    if source.is_decimal and target.is_decimal:
        return 2
    if source.is_integer and target.is_decimal:
        return 20 if integer_digits(source) <= target.width - target.scale else None
    ladder = _WIDENING.get(source.name, ())
    return 3 + ladder.index(target.name) if target.name in ladder else None


def common_type(a: Type, b: Type) -> Type | None:
    """The type to which both sides of a comparison, CASE, COALESCE or UNION are cast; None where there is none."""
    if a == b or b == NULL:
        return a
    if not a.is_readable or not b.is_readable:
        return None
    if a == NULL:
        return b
    if a.is_numeric and b.is_numeric:
        return _common_numeric(a, b)
    if a.is_temporal and b.is_temporal:
        ladder = ("DATE", "TIMESTAMP", "TIMESTAMPTZ")
        if a.name in ladder and b.name in ladder:
            return NAMED[max(a.name, b.name, key=ladder.index)]
        return None
    if VARCHAR in (a, b):
        return VARCHAR
    return None


def _common_numeric(a: Type, b: Type) -> Type:
    if a.is_float or b.is_float:
        floats = [t for t in (a, b) if t.is_float]
        if len(floats) == 2:
            return DOUBLE
        return floats[0]
    if a.is_decimal or b.is_decimal:
        a, b = as_decimal(a), as_decimal(b)
        scale = max(a.scale, b.scale)
        whole = max(a.width - a.scale, b.width - b.scale)
        return DECIMAL(min(38, whole + scale), min(scale, 38))
    low = min(a.bounds[0], b.bounds[0])
    high = max(a.bounds[1], b.bounds[1])
    for name in (
        ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
        if low == 0
        else ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
    ):
        t = NAMED[name]
        if t.bounds[0] <= low and high <= t.bounds[1]:
            return t
    return HUGEINT
