"""`Session.sharded`: plans written in Python are the plan files that one would write, with the same errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tsql
from tests.planner.support import assert_same_rows, oracle, session
from tsql.kernels.expr.errors import CatalogError, PlanError, TsqlError

EDITED = Path(__file__).parents[1] / "plans" / "edited"


@pytest.fixture(scope="module")
def db() -> Any:
    return session(shards=4)


def test_the_plan_file_of_a_dataset(db: Any) -> None:
    data = (
        db.sharded("clicks")
        .rekey("ad_id")
        .redistribute(scope="local")
        .query(lambda q: q.aggregate("ad_id", n="count(*)"))
    )
    assert data.plan() == (
        "plan version 1\n"
        "target local shards=4\n"
        "\n"
        "clicks   = scan clicks columns=(ad_id)\n"
        "keyed    = rekey clicks key=(ad_id)\n"
        "placed   = redistribute keyed scope=local\n"
        "groups   = aggregate placed by=(ad_id) n=count(*)\n"
        "gathered = gather groups\n"
        "output gathered (ad_id, n)\n"
    )
    assert data.columns == ["ad_id", "n"]
    assert str(data.properties) == "4 shards, placed by (ad_id)"
    assert repr(data) == "<sharded (ad_id BIGINT, n BIGINT): 4 shards, placed by (ad_id)>"
    assert_same_rows(
        data.run().arrow(), oracle().sql("SELECT ad_id, count(*) AS n FROM clicks GROUP BY ad_id").to_arrow_table()
    )


def quill(db: Any, which: str) -> Any:
    """The four plans for a grouping of Quill's figure 1, as they stand in tests/plans/edited."""
    calls = {"n": "count(*)", "s": "sum(price)"}
    clicks = db.sharded("clicks")

    def group(phase: str | None = None) -> Any:
        return lambda q: q.aggregate("ad_id", phase=phase, **calls)

    match which:
        case "a":
            return clicks.rekey("ad_id").redistribute(scope="global").query(group())
        case "b":
            return clicks.query(group("partial")).rekey("ad_id").redistribute(scope="global").query(group("final"))
        case "c":
            near = (
                clicks.query(group("partial"))
                .rekey("ad_id")
                .redistribute(scope="local", shards=2)
                .query(group("merge"))
            )
            return near.rekey("ad_id").redistribute(scope="global").query(group("final"))
        case "d":
            near = clicks.rekey("ad_id").redistribute(scope="local", shards=2).query(group("partial"))
            return near.rekey("ad_id").redistribute(scope="global").query(group("final"))


@pytest.mark.parametrize("which", "abcd")
def test_the_four_groupings(db: Any, which: str) -> None:
    expected = oracle().sql("SELECT ad_id, count(*) AS n, sum(price) AS s FROM clicks GROUP BY ad_id").to_arrow_table()
    data = quill(db, which)
    assert_same_rows(data.run().arrow(), expected)
    assert tsql.load_plan_text(data.plan()).run(db).plan() == data.plan()


def test_every_step(db: Any) -> None:
    low = db.sharded("clicks").query(lambda q: q.filter("price < 3").project("price", {"who": "user_id % 2"}))
    high = db.sharded("clicks").query(lambda q: q.filter("price > 20").project("price", who="user_id % 2"))
    both = low.query(lambda a, b: a.union(b), high.reshard(shards=2))
    top = (
        both.query(lambda q: q.sort("price desc nulls last", "who", limit=7, phase="partial"))
        .gather()
        .query(lambda q: q.sort("price desc", "who").limit(5, 2))
    )
    text = top.plan()
    assert [line.split("= ")[1].split(" ")[0] for line in text.splitlines() if " = " in line] == [
        *("scan", "filter", "project"), *("scan", "filter", "project", "reshard"), "union", "sort", "gather", "sort",
        "limit",
    ]  # fmt: skip
    sql = (
        "SELECT price, user_id % 2 AS who FROM clicks WHERE price < 3 OR price > 20 ORDER BY price DESC "
        "NULLS LAST, who LIMIT 5 OFFSET 2"
    )
    assert_same_rows(top.run().arrow(), oracle().sql(sql).to_arrow_table(), ordered=True)


def test_copies_are_gathered_once(db: Any) -> None:
    assert db.sharded("clicks").broadcast(shards=3).run().arrow().num_rows == 300


def test_a_dataset_used_twice_is_one_step(db: Any) -> None:
    data = db.sharded("clicks").query(lambda q: q.filter("price > 5"))
    text = data.query(lambda a, b: a.union(b), data).plan()
    assert text.count("= scan ") == 1 and "= union filtered filtered\n" in text


def test_scans_read_what_is_used(db: Any) -> None:
    assert (
        "columns=(ad_id, price)" in db.sharded("clicks").query(lambda q: q.filter("price > 5").project("ad_id")).plan()
    )
    assert (
        "columns=(ad_id)\n"
        in db.sharded("clicks")
        .query(lambda q: q.aggregate(phase="partial", n="count(*)"))
        .gather()
        .query(lambda q: q.aggregate(phase="final", n="count(*)"))
        .plan()
    )
    assert (
        "columns=(ad_id, user_id, cost)"
        in db.sharded("clicks", ["ad_id", "user_id", "cost"]).query(lambda q: q.project("ad_id")).plan()
    )
    assert "columns=(ad_id, user_id, price, country, code, day, ts, cost)" in db.sharded("clicks").plan()


def test_other_steps_by_their_name(db: Any) -> None:
    data = db.sharded("clicks").query(
        lambda q: q.project("ad_id", "user_id").step("expand", keys="(ad_id, user_id)", sets="((ad_id), (user_id))")
    )
    assert data.run().arrow().num_rows == 600
    with pytest.raises(PlanError, match="unknown step expnd.*\n.*\n.*\nhint: did you mean expand"):
        db.sharded("clicks").step("expnd")
    with pytest.raises(PlanError, match="union needs 2 inputs"):
        db.sharded("clicks").step("union")


def test_names(db: Any) -> None:
    data = db.sharded("clicks").name("raw").query(lambda q: q.filter("price > 5").name("dear ones"))
    assert "raw         = scan clicks " in data.plan() and '"dear ones" = filter raw ' in data.plan()
    with pytest.raises(PlanError, match="the name raw is taken"):
        data.name("raw")


def test_files_relations_and_parameters(db: Any, tmp_path: Path) -> None:
    path = tmp_path / "clicks.parquet"
    db.table("clicks").write(path)
    for source in (path, str(path), db.read_parquet(path)):
        data = db.sharded(source, params={"low": 20}).query(lambda q: q.filter("price >= $low").project("price"))
        assert data.run().arrow().num_rows == db.sql("SELECT price FROM clicks WHERE price >= 20").arrow().num_rows
        assert f"scan '{path}' columns=(price)" in data.plan()


def test_a_plan_that_could_be_wrong_is_refused(db: Any) -> None:
    data = db.sharded("clicks").query(lambda q: q.aggregate("ad_id", n="count(*)"))
    with pytest.raises(PlanError) as caught:
        data.plan()
    assert str(caught.value) == (
        "sharded plan:5:1: step groups: aggregate requires of clicks: rows of one (ad_id) in one shard; it "
        "has 4 shards\n"
        "  groups   = aggregate clicks by=(ad_id) n=count(*)\n  ^\nhint: put rekey key=(ad_id), then "
        "redistribute between clicks and groups"
    )
    with pytest.raises(PlanError, match="redistribute requires of clicks: each row in one shard only, with a key"):
        db.sharded("clicks").redistribute().run()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d.rekey("nope"), "key: clicks has no column nope"),
        (lambda d: d.redistribute(scope="galactic"), "scope=galactic: it is local or global"),
        (lambda d: d.reshard(shards=0), "shards=0: it is a number from 1 to 16384"),
        (lambda d: d.query(lambda q: q.filter("price >")), "price"),
        (lambda d: d.query(lambda q: q.filter("price) where=(true")), "syntax error"),
        (lambda d: d.query(lambda q: q.filter("price + 1")), "where is"),
        (lambda d: d.query(lambda q: q.aggregate("ad_id", phase="half", n="count(*)")), "phase=half: it is one of"),
        (lambda d: d.query(lambda q: q.aggregate("ad_id", phase="final", n="count(*)")),
         "phase=final needs an input that comes from"),
        (lambda d: d.query(lambda q: q.sort("")), "nothing to sort by"),
        (lambda d: d.query(lambda q: q.filter("price > $x")), "x"),
        (lambda d: d.query(lambda q: "rows"), "the function of query returns what it makes of its shard, not str"),
        (lambda d: d.query(lambda a, b: a.union(b), session(shards=2).sharded("clicks")), "one session"),
    ],
)  # fmt: skip
def test_what_cannot_be_built(db: Any, make: Any, message: str) -> None:
    with pytest.raises(TsqlError) as caught:
        make(db.sharded("clicks"))
    assert message in str(caught.value)


def test_where_a_dataset_cannot_start(db: Any) -> None:
    with pytest.raises(CatalogError, match="unknown table clickz\nhint: did you mean clicks"):
        db.sharded("clickz")
    with pytest.raises(PlanError, match="has no column nope"):
        db.sharded("clicks", ["nope"])
    with pytest.raises(PlanError, match="not at a query"):
        db.sharded(db.sql("SELECT ad_id + 1 AS a FROM clicks"))
    with pytest.raises(PlanError, match="1 to 16384 shards"):
        db.sharded("clicks", shards=50000)
    db.sql("CREATE VIEW dear AS SELECT * FROM clicks WHERE price > 10")
    with pytest.raises(PlanError, match="dear is a view"):
        db.sharded("dear")
