"""Sources of very many Parquet files, read in tasks: the driver opens a sample, and tasks find the row groups in parts
of files. The limits are lowered, so that a few files are very many."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.duck import empty_duckdb
from tests.spark.cluster import InProcess
from tsql.backends import Run
from tsql.backends.io.open import open_source
from tsql.backends.io.parquet import sampled, table
from tsql.backends.io.parquet import source as parquet
from tsql.backends.io.parquet.footer import read_footer
from tsql.backends.io.parquet.source import KEPT_FOOTERS, ParquetSource
from tsql.backends.io.parquet.table import TableSource, table_options
from tsql.backends.local.run import positions
from tsql.backends.local.run.dataset import SourceData
from tsql.backends.local.run.host import Shared
from tsql.backends.spark.backend import SparkBackend
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.nodes import Call, Column, Literal
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DOUBLE

FILES = 12


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ALL_FOOTERS", 3)
    monkeypatch.setattr(sampled, "SAMPLED_FILES", 3)
    monkeypatch.setattr(sampled, "PART_BYTES", 3000)
    monkeypatch.setattr("tsql.backends.io.open.MANY_FILES", 3)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose footers were read, by the driver and by tasks."""
    found: list[str] = []

    def counted(path: str) -> Any:
        found.append(path)
        return read_footer(path)

    monkeypatch.setattr(parquet, "read_footer", counted)
    monkeypatch.setattr(table, "read_footer", counted)
    return found


def write(path: Path, columns: dict[str, Any], group: int = 100) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=group)


def folder(at: Path, files: int = FILES, rows: int = 500) -> str:
    """Files in two levels of partitions, one of them of NULL too, with texts, NULLs in one file only, and sizes that
    differ."""
    for number in range(files):
        count = rows * (1 + number % 3)
        first = 1000 * number
        columns = {
            "id": pa.array(range(first, first + count), pa.int64()),
            "grp": pa.array([(first + i) % 7 for i in range(count)], pa.int32()),
            "amount": pa.array([i % 101 / 4 for i in range(count)], pa.float64()),
            "name": pa.array([f"n{i % 13}" if number != 7 or i % 5 else None for i in range(count)]),
            "odd": pa.array([None if number == 7 and i % 2 else 10 + i % 4 for i in range(count)], pa.int64()),
        }
        day = "__HIVE_DEFAULT_PARTITION__" if number == 5 else f"2024-01-{1 + number // 2:02}"
        write(at / f"day={day}" / f"k={number % 2}" / f"f{number:02}.parquet", columns)
    return str(at)


QUERIES = [
    "SELECT count(*), count(name), count(odd), sum(id), min(id), max(id) FROM t",
    "SELECT grp, count(*), sum(amount), min(name), max(day) FROM t GROUP BY grp ORDER BY grp",
    "SELECT odd, count(*) FROM t GROUP BY odd ORDER BY odd NULLS FIRST",
    "SELECT id, name FROM t WHERE id BETWEEN 7100 AND 7120 ORDER BY id",
    "SELECT count(*), sum(id) FROM t WHERE day = DATE '2024-01-04' AND k = 1 AND grp < 3",
    "SELECT count(*) FROM t WHERE day IS NULL",
    "SELECT count(*) FROM t WHERE id > 1000000",
    "SELECT day, k, sum(amount) FROM t WHERE name = 'n3' GROUP BY day, k ORDER BY day NULLS LAST, k",
    "SELECT id FROM t ORDER BY amount DESC, id LIMIT 5",
    "SELECT first(id), last(id) FROM t",
    "SELECT a.grp, count(*), sum(b.amount) FROM t a JOIN t b ON a.id = b.id WHERE b.odd = 11 GROUP BY a.grp ORDER BY 1",
]


@pytest.mark.parametrize("query", QUERIES)
def test_the_rows_are_the_same(tmp_path: Path, query: str) -> None:
    place = folder(tmp_path)
    with empty_duckdb() as duck, tsql.Session(SparkBackend(InProcess(3))) as db:
        duck.execute(f"CREATE VIEW t AS FROM read_parquet('{place}/**/*.parquet', hive_partitioning = true)")
        expected = duck.execute(query).fetchall()
        db.sql(f"CREATE VIEW t AS SELECT * FROM '{place}'")
        assert db.sql(query).fetchall() == expected


def test_the_driver_opens_a_sample(tmp_path: Path, opened: list[str]) -> None:
    place = folder(tmp_path)
    source: Any = open_source(place)
    source.read_in_tasks()
    known, splits = source.statistics(), source.splits(("id", "grp"), None)
    assert known.columns["id"].distinct is not None or known.columns["grp"].distinct is not None
    assert len(set(opened)) == 3 and {source.paths[0], source.paths[-1]} <= set(opened)
    again: Any = open_source(place)
    again.read_in_tasks()
    assert again.sample == source.sample, "always the same for the same files"
    rows = sum(500 * (1 + number % 3) for number in range(FILES))
    assert abs(known.rows - rows) < rows / 5, "the bytes tell the rows"
    assert abs(sum(split.expected for split in splits) - known.rows) < len(splits)


def test_what_comes_from_a_sample_is_not_exact(tmp_path: Path) -> None:
    source: Any = open_source(folder(tmp_path))
    source.read_in_tasks()
    columns = source.statistics().columns
    assert all(not columns[name].exact for name in ("id", "grp", "odd"))
    data = SourceData(source, ("id",), None, 1, 0, Shared(Run()))
    assert data.rows is None and data.expected is not None, "kernels take the rows for a bound"
    assert columns["odd"].nulls is None, "a file outside of the sample has NULLs"
    assert columns["day"].exact and columns["k"].nulls == 0, "all folders are known"


def test_without_a_backend_of_tasks_all_footers_are_read(tmp_path: Path, opened: list[str]) -> None:
    with tsql.Session("local") as db:
        db.sql(f"SELECT count(*) FROM '{folder(tmp_path)}' WHERE id < 0").fetchall()
    assert len(set(opened)) == FILES


def test_each_row_group_is_in_one_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size of parts is, all row groups are read once, in order."""
    choose = random.Random(5)
    for number in range(4):
        write(tmp_path / f"{number}.parquet", {"a": range(number * 1000, number * 1000 + choose.randint(1, 900))}, 37)
    write(tmp_path / "empty.parquet", {"a": pa.array([], pa.int64())})
    expected = [v for n in range(4) for v in pq.read_table(tmp_path / f"{n}.parquet")["a"].to_pylist()]
    for size in (1, 50, 333, 1000, 4096, 1 << 20):
        monkeypatch.setattr(sampled, "PART_BYTES", size)
        source = ParquetSource([str(tmp_path)])
        source.read_in_tasks()
        splits = source.splits(("a",), None)
        assert [split.order for split in splits] == list(range(len(splits)))
        groups = [group for split in splits for group in source.opened(split, ("a",), None)]
        assert len({(group.path, group.detail) for group in groups}) == len(groups)
        rows = [v for split in splits for batch in source.read(split, ("a",)) for v in batch.column(0).to_pylist()]
        assert rows == expected
        places = [positions.first_position(group) for group in groups]
        ends = [place + (group.rows or 0) for place, group in zip(places, groups, strict=True)]
        assert all(end <= place for end, place in zip(ends, places[1:], strict=False)), "positions are in order"


def test_a_task_skips_row_groups(tmp_path: Path) -> None:
    source = ParquetSource([folder(tmp_path)])
    source.read_in_tasks()
    wanted = Call("<", (Column("id", BIGINT), Literal(2050, BIGINT)), BOOLEAN)
    groups = [group for split in source.splits(("id",), wanted) for group in source.opened(split, ("id",), wanted)]
    kept = [(group.path, group.detail) for group in groups]
    expected = [path for path in source.paths if int(path[-10:-8]) < 3]
    assert {path for path, _ in kept} == set(expected)
    assert sum(path.endswith("f02.parquet") for path, _ in kept) == 1, "of 15 row groups"


def test_a_filter_travels_to_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    take = ParquetSource.opened

    def opened(self: Any, split: Any, columns: Any, filter: Any) -> Any:
        groups = take(self, split, columns, filter)
        found.append(len(groups))
        return groups

    monkeypatch.setattr(ParquetSource, "opened", opened)
    place = folder(tmp_path)
    with tsql.Session(SparkBackend(InProcess(3))) as db:
        assert db.sql(f"SELECT count(*) FROM '{place}' WHERE id = 7003").fetchall() == [(1,)]
        assert sum(found) == 1
        found.clear()
        assert db.sql(f"SELECT count(*) FROM '{place}' WHERE id = $i", {"i": 7003}).fetchall() == [(1,)]
        assert sum(found) >= 1


def test_footers_are_forgotten(tmp_path: Path) -> None:
    """A task may read thousands of files, and a footer is large."""
    for number in range(30):
        write(tmp_path / f"{number:02}.parquet", {"a": [number]})
    whole = ParquetSource([str(tmp_path)])
    whole.read_in_tasks()
    task = ParquetSource([str(tmp_path)])
    filter = Call(">=", (Column("a", BIGINT), Literal(0, BIGINT)), BOOLEAN)
    for split in whole.splits(("a",), filter):
        (group,) = task.opened(split, ("a",), filter)
        assert [batch.num_rows for batch in task.read(group, ("a",))] == [1]
    assert len(task._files) <= KEPT_FOOTERS + 1 and len(task._bounds) <= KEPT_FOOTERS


def test_a_limit_reads_little(tmp_path: Path, opened: list[str]) -> None:
    place = folder(tmp_path, 60, 100)
    with tsql.Session(SparkBackend(InProcess(2))) as db:
        assert len(db.sql(f"SELECT id FROM '{place}' LIMIT 5").fetchall()) == 5
    assert len(set(opened)) < 45


def test_a_sample_of_rows_is_repeatable(tmp_path: Path) -> None:
    place = folder(tmp_path)
    query = f"SELECT id FROM '{place}' TABLESAMPLE bernoulli(20%) REPEATABLE (3)"
    with tsql.Session(SparkBackend(InProcess(3))) as db, tsql.Session(SparkBackend(InProcess(5))) as other:
        found = db.sql(query).fetchall()
        assert 0 < len(found) < 6000 and sorted(other.sql(query).fetchall()) == sorted(found)


def test_a_union_by_name(tmp_path: Path) -> None:
    for number in range(FILES):
        columns: dict[str, Any] = {"a": [number, None]} if number % 2 else {"a": [number + 0.5], "b": ["x"]}
        write(tmp_path / f"{number:02}.parquet", columns)
    source: Any = open_source(f"{tmp_path}/*.parquet", None, {"union_by_name": True})
    source.read_in_tasks()
    assert source.schema.names == ("a", "b") and source.statistics().rows > 0 and len(source._files) <= 3
    query = f"SELECT a, b FROM read_parquet('{tmp_path}/*.parquet', union_by_name => true) ORDER BY a NULLS FIRST, b"
    with empty_duckdb() as duck, tsql.Session(SparkBackend(InProcess(3))) as db:
        assert db.sql(query).fetchall() == duck.execute(query).fetchall()


def test_declared_columns(tmp_path: Path) -> None:
    place = folder(tmp_path)
    declared = f"read_parquet('{place}/**/*.parquet', schema => {{'NAME': 'VARCHAR', 'id': 'DOUBLE', 'k': 'BIGINT'}})"
    with tsql.Session(SparkBackend(InProcess(3))) as db:
        found = db.sql(
            f"SELECT sum(id), count(name), sum(k) FROM {declared} WHERE id < 7010 AND name <> 'n1'"
        ).fetchall()
        plain = f"SELECT sum(id)::DOUBLE, count(name), sum(k) FROM '{place}' WHERE id < 7010 AND name <> 'n1'"
        assert found == tsql.Session("local").sql(plain).fetchall()


def test_files_of_a_table(tmp_path: Path) -> None:
    """A catalog says the columns, the values of partitions, and that Spark has written the files."""
    for number in range(FILES):
        write(tmp_path / f"{number:02}.parquet", {"a": pa.array([number, number + 1], pa.int32())})
    paths = sorted(map(str, tmp_path.glob("*.parquet")))
    values = [[number % 3 or None] for number in range(FILES)]
    options = table_options([("x", BIGINT, "A"), ("p", BIGINT, "p"), ("new", DOUBLE, "n")], ["p"], values)
    source = TableSource(paths, {**options, "as_spark": True})
    source.read_in_tasks()
    assert source.checked() == []
    with tsql.Session(SparkBackend(InProcess(3))) as db:
        db.catalog.add("t", source)
        found = db.sql("SELECT p, sum(x), count(*), count(new) FROM t GROUP BY p ORDER BY p NULLS FIRST").fetchall()
        expected = [(p, sum(2 * n + 1 for n in range(FILES) if (n % 3 or None) == p), 8, 0) for p in (None, 1, 2)]
        assert found == expected
        assert db.sql("SELECT x FROM t WHERE p = 2 AND x = 5").fetchall() == [(5,)]
        write(Path(paths[9]), {"a": ["no number"]})
        source = TableSource(paths, {**options, "as_spark": True})
        source.read_in_tasks()
        assert source.checked() == [], "no file of the sample"
        db.catalog.add("u", source)
        with pytest.raises(SourceError, match=r"09\.parquet: Spark alone reads this table: column x is BIGINT"):
            db.sql("SELECT count(*) FROM u WHERE x > 100").fetchall()


def damage(path: Path) -> None:
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[:start] + b"\xff" * 20 + data[start + 20 :])


def other_columns(path: Path) -> None:
    write(path, {"other": [1] * 50})


def other_type(path: Path) -> None:
    write(path, {"id": ["x"], "grp": pa.array([1], pa.int32())})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (damage, "f07.parquet: .*(damaged|cannot be read)"),
        (lambda path: path.write_bytes(b"no parquet file"), "f07.parquet: this is not a Parquet file"),
        (other_columns, "f07.parquet: column (id|grp), which is in .*, is missing here"),
        (other_type, "f07.parquet: column id is VARCHAR here and BIGINT in .*f00.parquet|could not|not every value"),
    ],
)
def test_a_bad_file_outside_of_the_sample(tmp_path: Path, change: Callable[[Path], None], message: str) -> None:
    place = folder(tmp_path)
    (path,) = tmp_path.rglob("f07.parquet")
    change(path)
    source: Any = open_source(place)
    source.read_in_tasks()
    assert source.sample is not None and str(path) not in source.sample.paths
    with tsql.Session(SparkBackend(InProcess(3))) as db, pytest.raises(SourceError, match=message):
        db.sql(f"SELECT sum(id), sum(grp) FROM '{place}'").fetchall()


@pytest.mark.parametrize(
    "change", [Path.unlink, lambda path: write(path, {"id": [1], "grp": pa.array([1], pa.int32())})]
)
def test_a_file_that_changes_after_it_was_listed(tmp_path: Path, change: Callable[[Path], None]) -> None:
    place = folder(tmp_path)
    source: Any = open_source(place)
    source.read_in_tasks()
    with tsql.Session(SparkBackend(InProcess(3))) as db:
        db.catalog.add("t", source)
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(12000,)]
        (path,) = tmp_path.rglob("f07.parquet")
        change(path)
        with pytest.raises(SourceError, match=r"f07.parquet: (no such file|the file has changed since)"):
            db.sql("SELECT count(*) FROM t").fetchall()


def test_positions_have_limits() -> None:
    """A source with more splits, or a split with more rows, than there are positions is refused."""
    from tsql.backends.io import Split

    last = Split(positions.MOST_SPLITS - 1, "f", None)
    assert positions.first_position(last) + (1 << positions.ROW_BITS) == 1 << 63
    positions.check_count(positions.MOST_SPLITS, ParquetSource)
    with pytest.raises(SourceError, match="134,217,729 parts of files are more than 134,217,728"):
        positions.check_count(positions.MOST_SPLITS + 1, ParquetSource)
    positions.check_rows(last, 1 << 63)
    with pytest.raises(SourceError, match="f: one part holds more than 68,719,476,736 rows"):
        positions.check_rows(Split(0, "f", None), (1 << positions.ROW_BITS) + 1)


def test_first_and_last_beyond_the_old_number_of_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """8.4 million splits were the most that a position of 64 bits could tell apart."""
    write(tmp_path / "a.parquet", {"a": [1, 2]})
    write(tmp_path / "b.parquet", {"a": [3, 4]})
    splits = ParquetSource.splits

    def shifted(self: Any, columns: Any, filter: Any) -> Any:
        found = splits(self, columns, filter)
        return [type(split)(split.order + 100_000_000, *list(split.__dict__.values())[1:]) for split in found]

    monkeypatch.setattr(ParquetSource, "splits", shifted)
    for backend in ("local", SparkBackend(InProcess(2))):
        with tsql.Session(backend) as db:
            assert db.sql(f"SELECT first(a), last(a) FROM '{tmp_path}'").fetchall() == [(1, 4)]
