"""Tables of Parquet files that Spark wrote, read by our own scan: types, NULLs, partitions, schema changes, time zones.
Spark's own answer is the oracle. What only Spark reads goes through a DataFrame, and `explain` says why."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.spark.same_rows import rows, same
from tsql.backends.io.parquet.sampled import sample_of

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]

OURS = " of Spark, read by tsql"
TYPES = {
    "bo": "BOOLEAN", "i8": "TINYINT", "i16": "SMALLINT", "i32": "INT", "i64": "BIGINT", "f32": "FLOAT",
    "f64": "DOUBLE", "d4": "DECIMAL(4,1)", "d18": "DECIMAL(18,6)", "d38": "DECIMAL(38,10)", "s": "STRING",
    "vc": "VARCHAR(9)", "bi": "BINARY", "d": "DATE", "ltz": "TIMESTAMP", "ntz": "TIMESTAMP_NTZ",
}  # fmt: skip


def value(kind: str, random: random.Random) -> str:
    """A constant of a type as Spark's SQL writes it; one in six is NULL."""
    if random.random() < 1 / 6:
        return f"CAST(NULL AS {kind})"
    year, day = random.choice((1, 1582, 1899, 1969, 1970, 2024, 9999)), random.randint(1, 28)
    time = f"{year:04}-0{random.randint(1, 9)}-{day:02} {random.randint(0, 23):02}:05:06.{random.randint(0, 999999):06}"
    match kind.partition("(")[0]:
        case "BOOLEAN":
            text = random.choice(("true", "false"))
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            bits = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}[kind]
            text = f"'{random.choice((-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 0, random.randint(-99, 99)))}'"
        case "FLOAT" | "DOUBLE":
            text = f"'{random.choice(('NaN', 'Infinity', '-Infinity', '-0.0', '1e-30', repr(random.random())))}'"
        case "DECIMAL":
            width, scale = map(int, kind[8:-1].split(","))
            text = f"'{random.choice(('', '-'))}{random.randint(0, 10 ** (width - scale) - 1)}.{'1' * scale}'"
        case "STRING" | "VARCHAR":
            text = f"'{random.choice(('', ' ', 'a', 'ß %', 'NULL', 'x' * 9, '日本'))}'"
        case "BINARY":
            text = f"X'{random.randbytes(random.randint(0, 5)).hex()}'"
        case "DATE":
            text = f"'{time[:10]}'"
        case _:
            text = f"'{time}'"
    return f"CAST({text} AS {kind})"


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("lake")
    spark.sql(f"CREATE DATABASE lake LOCATION '{folder}'")
    yield folder
    spark.sql("DROP DATABASE lake CASCADE")


@pytest.fixture
def db(spark: Any, lake: Path) -> Iterator[Any]:
    with tsql.connect(spark=spark) as session:
        yield session


def insert(spark: Any, table: str, types: dict[str, str], count: int, random: random.Random) -> None:
    lines = [f"({', '.join(value(kind, random) for kind in types.values())})" for _ in range(count)]
    spark.sql(f"INSERT INTO {table} VALUES {', '.join(lines)}")


@pytest.fixture
def settings(spark: Any) -> Iterator[Any]:
    """Changes settings of the session for one test."""
    before: dict[str, Any] = {}

    def change(**values: str) -> None:
        for short, text in values.items():
            name = "spark.sql." + short.replace("__", ".")
            before.setdefault(name, spark.conf.get(name))
            spark.conf.set(name, text)

    yield change
    for name, text in before.items():
        spark.conf.set(name, text)


@pytest.mark.parametrize(
    ("number", "changes"),
    [
        (0, {}),
        (1, {"parquet__outputTimestampType": "TIMESTAMP_MICROS", "session__timeZone": "America/New_York"}),
        (2, {"parquet__writeLegacyFormat": "true", "session__timeZone": "Asia/Kolkata"}),
        (3, {"parquet__outputTimestampType": "TIMESTAMP_MILLIS", "parquet__compression__codec": "zstd"}),
    ],
)
def test_types(db: Any, spark: Any, settings: Any, number: int, changes: dict[str, str]) -> None:
    """Every type that both have, in the forms in which Spark writes it. The zone of the session changes no instant."""
    settings(**changes)
    name = f"lake.types{number}"
    spark.sql(f"CREATE TABLE {name} ({', '.join(f'{n} {t}' for n, t in TYPES.items())}) USING parquet")
    chance = random.Random(number)
    for count in (1, 20, 7):
        insert(spark, name, TYPES, count, chance)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert OURS in same(db, spark, name).explain("physical")


TEXTS = (
    "plain",
    "a/b",
    "a=b",
    "50%",
    "x y",
    "ü",
    "it's",
    '"q"',
    "#?&",
    "..",
    "__HIVE",
    "a\\b",
    "1",
    "%41",
    "[x]*",
    "{",
)


def test_partitions(db: Any, spark: Any) -> None:
    """Values with special characters, NULLs and empty texts; numbers and dates as the catalog types them."""
    spark.sql(
        "CREATE TABLE lake.parts (n INT, t STRING, i INT, d DATE, b BOOLEAN) USING parquet PARTITIONED BY (t, i, d, b)"
    )
    quoted = [text.replace("\\", "\\\\").replace("'", "\\'") for text in TEXTS]
    lines = [f"({n}, '{text}', {n - 3}, DATE'2024-02-2{n % 10}', {n % 2 == 0})" for n, text in enumerate(quoted)]
    spark.sql(
        f"INSERT INTO lake.parts VALUES {', '.join(lines)}, (90, NULL, NULL, NULL, NULL), (91, '', 7, NULL, true)"
    )
    relation = same(db, spark, "lake.parts")
    assert OURS in relation.explain("physical")
    for text in TEXTS:
        literal = text.replace("'", "''")
        found = db.sql(f"SELECT n FROM lake.parts WHERE t = '{literal}'")
        assert found.fetchall() == [(TEXTS.index(text),)], text
    assert db.sql("SELECT count(*) FROM lake.parts WHERE t IS NULL").fetchall() == [(2,)]
    assert db.sql("SELECT n FROM lake.parts WHERE i < -1 AND d >= DATE '2024-02-21'").fetchall() == [(1,)]
    assert db.sql("SELECT count(*), min(i), max(d) FROM lake.parts").fetchall() == rows_of(
        spark.sql("SELECT count(*), min(i), max(d) FROM lake.parts")
    )


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def test_partitions_are_pruned(db: Any, spark: Any, lake: Path) -> None:
    """A file of a partition that the query leaves out is not read: it may be gone."""
    spark.sql("CREATE TABLE lake.pruned (n INT, k INT) USING parquet PARTITIONED BY (k)")
    spark.sql("INSERT INTO lake.pruned SELECT id, id % 3 FROM range(30)")
    from tsql.backends.spark.names import SparkNames

    source: Any = SparkNames(spark).find(("lake", "pruned")).source
    from tsql.planner.bind.binder import parse_expression

    splits = source.splits(("n",), parse_expression("k = 2", source.schema))
    assert splits and all("/k=2/" in split.path for split in splits)
    assert len(source.splits(("n",), None)) > len(splits)


def test_partitions_elsewhere(db: Any, spark: Any, lake: Path, tmp_path: Path) -> None:
    """The catalog says which value a folder has, whatever its name is."""
    spark.sql("CREATE TABLE lake.far (n INT, k STRING) USING parquet PARTITIONED BY (k)")
    spark.sql("INSERT INTO lake.far VALUES (1, 'near')")
    folder = tmp_path / "k=wrong"
    spark.sql("SELECT 2 AS n").write.parquet(str(folder))
    spark.sql(f"ALTER TABLE lake.far ADD PARTITION (k = 'right') LOCATION '{folder}'")
    assert OURS in same(db, spark, "lake.far").explain("physical")


def test_paths_and_inferred_partitions(db: Any, spark: Any, tmp_path: Path) -> None:
    """A view of files: Spark infers the types of the partitions, which differ from those that we would infer."""
    frame = spark.sql(
        "SELECT id AS n, CAST(id % 2 AS STRING) AS a, concat('0', id % 3) AS b, DATE'2024-01-01' AS c FROM range(12)"
    )
    frame.write.partitionBy("a", "b", "c").parquet(str(tmp_path / "files"))
    spark.read.parquet(str(tmp_path / "files")).createOrReplaceTempView("inferred")
    relation = same(db, spark, "inferred")
    assert OURS in relation.explain("physical")
    assert [str(t) for t in relation.sql_types] == ["BIGINT", "INTEGER", "INTEGER", "DATE"]
    db.register("frame", spark.read.parquet(str(tmp_path / "files")))
    assert rows(db.sql("FROM frame")) == rows(relation)


def test_added_columns(db: Any, spark: Any) -> None:
    spark.sql("CREATE TABLE lake.grown (a INT) USING parquet")
    spark.sql("INSERT INTO lake.grown VALUES (1), (NULL)")
    spark.sql("ALTER TABLE lake.grown ADD COLUMNS (b STRING, c TIMESTAMP)")
    assert OURS in same(db, spark, "lake.grown").explain("physical")
    spark.sql("INSERT INTO lake.grown VALUES (2, 'x', TIMESTAMP'2024-01-01 00:00:00Z')")
    assert OURS in same(db, spark, "lake.grown").explain("physical")
    assert db.sql("SELECT a FROM lake.grown WHERE b IS NULL ORDER BY a").fetchall() == [(1,), (None,)]


def test_tables_without_rows(db: Any, spark: Any) -> None:
    spark.sql("CREATE TABLE lake.empty (a INT, l ARRAY<INT>, k STRING) USING parquet PARTITIONED BY (k)")
    assert db.sql("SELECT a, k FROM lake.empty").fetchall() == []
    assert db.sql("SELECT count(*) FROM lake.empty").fetchall() == [(0,)]


def test_nested_columns_stay_out(db: Any, spark: Any) -> None:
    spark.sql("CREATE TABLE lake.nested USING parquet AS SELECT id AS a, array(id) AS l, struct(id) AS s FROM range(3)")
    relation = db.sql("SELECT a FROM lake.nested ORDER BY a")
    assert OURS in relation.explain("physical") and relation.fetchall() == [(0,), (1,), (2,)]
    with pytest.raises(tsql.TsqlError, match="l .BIGINT"):
        db.sql("SELECT * FROM lake.nested")


def test_other_ways(db: Any, spark: Any, settings: Any, lake: Path, tmp_path: Path) -> None:
    """Each table that Spark reads in a way of its own goes through a DataFrame, with the reason."""
    statements = {
        "padded": ("CREATE TABLE lake.padded (c CHAR(5)) USING parquet", "INSERT INTO lake.padded VALUES ('x')"),
        "lines": ("CREATE TABLE lake.lines USING json AS SELECT 1 AS a",),
        "defaults": (
            "CREATE TABLE lake.defaults USING parquet AS SELECT 1 AS a",
            "ALTER TABLE lake.defaults ADD COLUMN b INT DEFAULT 7",
        ),
        "cached": ("CREATE TABLE lake.cached USING parquet AS SELECT 1 AS a", "CACHE TABLE lake.cached"),
        "zones": (
            "CREATE TABLE lake.zones (a INT, t TIMESTAMP) USING parquet PARTITIONED BY (t)",
            "INSERT INTO lake.zones VALUES (1, TIMESTAMP'2024-01-01 10:00:00')",
        ),
    }
    reasons = {
        "padded": "it computes c",
        "lines": "its files are of the format JSON",
        "defaults": "column b has a default",
        "cached": "its plan is InMemoryRelation",
        "zones": "a partition value is '2024-01-01 10:00:00'",
    }
    for name, texts in statements.items():
        for text in texts:
            spark.sql(text)
        told = same(db, spark, f"lake.{name}").explain("physical")
        assert f"# lake.{name}: a DataFrame of Spark: {reasons[name]}" in told
    spark.sql("UNCACHE TABLE lake.cached")
    pq.write_table(pa.table({"a": pa.array([1], pa.int64())}), tmp_path / "narrow.parquet")
    spark.sql(f"CREATE TABLE lake.narrow (a DECIMAL(30,2)) USING parquet LOCATION '{tmp_path}'")
    assert "column a is DECIMAL(30,2), and BIGINT in a file" in db.sql("FROM lake.narrow").explain("physical")
    spark.sql("CREATE TABLE lake.old USING parquet AS SELECT DATE'1000-01-01' AS d")
    settings(parquet__datetimeRebaseModeInWrite="LEGACY")
    spark.sql("INSERT INTO lake.old VALUES (DATE'1000-01-01')")
    assert "the calendar of Spark 2" in same(db, spark, "lake.old").explain("physical")


def test_wider_types(db: Any, spark: Any, tmp_path: Path) -> None:
    """Files may have narrower types than the table."""
    table = pa.table(
        {"a": pa.array([1, -5], pa.int32()), "b": pa.array([1, 255], pa.uint8()), "c": pa.array([1.5, 2], pa.float32())}
    )
    pq.write_table(table, tmp_path / "n.parquet")
    spark.sql(f"CREATE TABLE lake.wide (a BIGINT, b SMALLINT, c DOUBLE) USING parquet LOCATION '{tmp_path}'")
    assert OURS in same(db, spark, "lake.wide").explain("physical")


def test_files_that_are_gone(db: Any, spark: Any, lake: Path) -> None:
    """Spark still lists the file; the message names it."""
    spark.sql("CREATE TABLE lake.gone USING parquet AS SELECT 1 AS a")
    assert db.sql("SELECT a FROM lake.gone").fetchall() == [(1,)]
    for path in (lake / "gone").glob("*.parquet"):
        path.unlink()
    with pytest.raises(tsql.TsqlError, match="parquet: no such file") as caught:
        db.sql("SELECT a FROM lake.gone").fetchall()
    assert "java" not in str(caught.value)


def test_joins_and_groups(db: Any, spark: Any) -> None:
    """Own scans and DataFrames meet in one query."""
    spark.sql("CREATE TABLE lake.facts USING parquet AS SELECT id, id % 10 AS k FROM range(5000)")
    spark.range(10).selectExpr("id AS k", "concat('name', id) AS name").createOrReplaceTempView("dims")
    sql = "SELECT name, count(*), max(id) FROM lake.facts JOIN dims USING (k) WHERE id > 17 GROUP BY name"
    expected = spark.sql(sql.replace("max(id)", "max(facts.id)"))
    assert rows(db.sql(sql)) == sorted(rows_of(expected), key=str)


def test_registered_frames(db: Any, spark: Any) -> None:
    """A DataFrame that is nothing but files is read by our own scan, on any backend, and sees what Spark would see."""
    spark.sql("CREATE TABLE lake.base USING parquet AS SELECT 1 AS a")
    frame = spark.table("lake.base")
    with tsql.connect() as local:
        for session in (db, local):
            session.register("base", frame)
            relation = session.sql("SELECT a FROM base")
            assert "# base: 1 Parquet file of Spark, read by tsql" in relation.explain("physical")
            assert "scan base columns=(a)" in relation.plan()
            assert relation.fetchall() == [(1,)]
        spark.sql("INSERT INTO lake.base VALUES (2)")
        for session in (db, local):
            assert rows(session.sql("SELECT a FROM base")) == sorted(rows_of(frame))
        spark.sql("INSERT OVERWRITE lake.base VALUES (3)")
        for session in (db, local):
            with pytest.raises(tsql.TsqlError, match="no such file"):  # a DataFrame keeps its list of files
                session.sql("SELECT a FROM base").fetchall()
    with pytest.raises(Exception, match="FILE_NOT_EXIST"):
        frame.collect()


def test_very_many_files(db: Any, spark: Any, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver opens a sample of the files. What Spark alone reads is found by the task that opens it."""
    monkeypatch.setattr("tsql.backends.io.parquet.source.ALL_FOOTERS", 2)
    monkeypatch.setattr("tsql.backends.io.parquet.sampled.SAMPLED_FILES", 2)
    monkeypatch.setattr("tsql.backends.io.open.MANY_FILES", 2)
    spark.sql("CREATE TABLE lake.many (id BIGINT, s STRING, k INT) USING parquet PARTITIONED BY (k)")
    for number in range(3):
        spark.sql(
            f"INSERT INTO lake.many SELECT id, if(id % 3 = 0, NULL, 'x'), id % 3 FROM range({number * 10}, 31, 1, 2)"
        )
    assert OURS in same(db, spark, "lake.many").explain("physical")
    for sql in (
        "SELECT k, count(*), sum(id), count(s) FROM {} GROUP BY k",
        "SELECT id FROM {} WHERE k = 1 AND id > 25",
    ):
        sql = sql.format("lake.many")
        assert rows(db.sql(sql)) == sorted(rows_of(spark.sql(sql)), key=str)
    paths = sorted(lake.joinpath("many").rglob("*.parquet"))
    old = paths[len(paths) // 2]

    def without_old(paths: Any, sizes: Any) -> Any:
        """Spark lists files in any order, so any of them may be in the sample. The driver would find this one."""
        return sample_of([path for path in paths if Path(path).name != old.name], sizes)

    monkeypatch.setattr("tsql.backends.io.parquet.source.sample_of", without_old)
    plain = pq.read_table(old, partitioning=None)
    marked = {**(plain.schema.metadata or {}), b"org.apache.spark.version": b"2.4.0"}
    pq.write_table(plain.replace_schema_metadata(marked), old)
    old.with_name(f".{old.name}.crc").unlink(missing_ok=True)
    spark.sql("REFRESH TABLE lake.many")
    with pytest.raises(tsql.TsqlError, match=rf"{old.name}: Spark alone reads this table: .* calendar") as caught:
        db.sql("SELECT count(*) FROM lake.many WHERE id < 0").fetchall()
    assert "session.read.option('ignoreCorruptFiles', 'false').table(name)" in str(caught.value)
    db.register("by_spark", spark.read.option("ignoreCorruptFiles", "false").table("lake.many"))
    relation = db.sql("SELECT count(*), sum(id) FROM by_spark")
    assert "it has the option ignore" in relation.explain("physical")
    assert rows(relation) == rows_of(spark.sql("SELECT count(*), sum(id) FROM lake.many"))
