"""The 22 queries as Polars lazy queries: its SQL has no correlated subqueries, and this is how its users write them.

`peers.Polars` calls them with the tables by name. Each returns a lazy frame with the columns and the order of the SQL
text. Decimals stay decimals: in Polars a product keeps the larger scale of its factors, so one factor is widened first
if the SQL result is wider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal

import polars as pl
from polars import LazyFrame, col

Tables = Mapping[str, LazyFrame]


def _wide(expression: pl.Expr, scale: int) -> pl.Expr:
    return expression.cast(pl.Decimal(38, scale))


def _revenue() -> pl.Expr:
    return _wide(col("l_extendedprice"), 4) * (1 - col("l_discount"))


def _share(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    return part.cast(pl.Float64) / whole.cast(pl.Float64)


def q01(t: Tables) -> LazyFrame:
    return (
        t["lineitem"]
        .filter(col("l_shipdate") <= date(1998, 9, 2))
        .group_by("l_returnflag", "l_linestatus")
        .agg(
            sum_qty=col("l_quantity").sum(),
            sum_base_price=col("l_extendedprice").sum(),
            sum_disc_price=_revenue().sum(),
            sum_charge=(_wide(_revenue(), 6) * (1 + col("l_tax"))).sum(),
            avg_qty=col("l_quantity").mean(),
            avg_price=col("l_extendedprice").mean(),
            avg_disc=col("l_discount").mean(),
            count_order=pl.len(),
        )
        .sort("l_returnflag", "l_linestatus")
    )


def q02(t: Tables) -> LazyFrame:
    offers = (
        t["part"]
        .filter((col("p_size") == 15) & col("p_type").str.ends_with("BRASS"))
        .join(t["partsupp"], left_on="p_partkey", right_on="ps_partkey")
        .join(t["supplier"], left_on="ps_suppkey", right_on="s_suppkey")
        .join(t["nation"], left_on="s_nationkey", right_on="n_nationkey")
        .join(t["region"].filter(col("r_name") == "EUROPE"), left_on="n_regionkey", right_on="r_regionkey")
    )
    least = offers.group_by("p_partkey").agg(ps_supplycost=col("ps_supplycost").min())
    return (
        offers.join(least, on=["p_partkey", "ps_supplycost"])
        .select("s_acctbal", "s_name", "n_name", "p_partkey", "p_mfgr", "s_address", "s_phone", "s_comment")
        .sort("s_acctbal", "n_name", "s_name", "p_partkey", descending=[True, False, False, False])
        .head(100)
    )


def q03(t: Tables) -> LazyFrame:
    return (
        t["customer"]
        .filter(col("c_mktsegment") == "BUILDING")
        .join(t["orders"].filter(col("o_orderdate") < date(1995, 3, 15)), left_on="c_custkey", right_on="o_custkey")
        .join(t["lineitem"].filter(col("l_shipdate") > date(1995, 3, 15)), left_on="o_orderkey", right_on="l_orderkey")
        .group_by("o_orderkey", "o_orderdate", "o_shippriority")
        .agg(revenue=_revenue().sum())
        .select(col("o_orderkey").alias("l_orderkey"), "revenue", "o_orderdate", "o_shippriority")
        .sort("revenue", "o_orderdate", descending=[True, False])
        .head(10)
    )


def q04(t: Tables) -> LazyFrame:
    return (
        t["orders"]
        .filter(col("o_orderdate").is_between(date(1993, 7, 1), date(1993, 10, 1), closed="left"))
        .join(
            t["lineitem"].filter(col("l_commitdate") < col("l_receiptdate")),
            left_on="o_orderkey",
            right_on="l_orderkey",
            how="semi",
        )
        .group_by("o_orderpriority")
        .agg(order_count=pl.len())
        .sort("o_orderpriority")
    )


def q05(t: Tables) -> LazyFrame:
    return (
        t["region"]
        .filter(col("r_name") == "ASIA")
        .join(t["nation"], left_on="r_regionkey", right_on="n_regionkey")
        .join(t["customer"], left_on="n_nationkey", right_on="c_nationkey")
        .join(
            t["orders"].filter(col("o_orderdate").is_between(date(1994, 1, 1), date(1995, 1, 1), closed="left")),
            left_on="c_custkey",
            right_on="o_custkey",
        )
        .join(t["lineitem"], left_on="o_orderkey", right_on="l_orderkey")
        .join(t["supplier"], left_on=["l_suppkey", "n_nationkey"], right_on=["s_suppkey", "s_nationkey"])
        .group_by("n_name")
        .agg(revenue=_revenue().sum())
        .sort("revenue", descending=True)
    )


def q06(t: Tables) -> LazyFrame:
    return (
        t["lineitem"]
        .filter(
            col("l_shipdate").is_between(date(1994, 1, 1), date(1995, 1, 1), closed="left")
            & col("l_discount").is_between(Decimal("0.05"), Decimal("0.07"))
            & (col("l_quantity") < 24)
        )
        .select(revenue=(_wide(col("l_extendedprice"), 4) * col("l_discount")).sum())
    )


def q07(t: Tables) -> LazyFrame:
    pair = ["FRANCE", "GERMANY"]
    nations = t["nation"].filter(col("n_name").is_in(pair))
    sellers = (
        t["supplier"]
        .join(nations, left_on="s_nationkey", right_on="n_nationkey")
        .select("s_suppkey", supp_nation="n_name")
    )
    buyers = (
        t["customer"]
        .join(nations, left_on="c_nationkey", right_on="n_nationkey")
        .select("c_custkey", cust_nation="n_name")
    )
    return (
        t["lineitem"]
        .filter(col("l_shipdate").is_between(date(1995, 1, 1), date(1996, 12, 31)))
        .join(sellers, left_on="l_suppkey", right_on="s_suppkey")
        .join(
            t["orders"].join(buyers, left_on="o_custkey", right_on="c_custkey"),
            left_on="l_orderkey",
            right_on="o_orderkey",
        )
        .filter(col("supp_nation") != col("cust_nation"))
        .group_by("supp_nation", "cust_nation", col("l_shipdate").dt.year().alias("l_year"))
        .agg(revenue=_revenue().sum())
        .sort("supp_nation", "cust_nation", "l_year")
    )


def q08(t: Tables) -> LazyFrame:
    american = t["nation"].join(
        t["region"].filter(col("r_name") == "AMERICA"), left_on="n_regionkey", right_on="r_regionkey"
    )
    buyers = t["customer"].join(american, left_on="c_nationkey", right_on="n_nationkey", how="semi")
    sellers = (
        t["supplier"]
        .join(t["nation"], left_on="s_nationkey", right_on="n_nationkey")
        .select("s_suppkey", nation="n_name")
    )
    volume, brazil = col("volume"), col("nation") == "BRAZIL"
    return (
        t["part"]
        .filter(col("p_type") == "ECONOMY ANODIZED STEEL")
        .join(t["lineitem"], left_on="p_partkey", right_on="l_partkey")
        .join(
            t["orders"].filter(col("o_orderdate").is_between(date(1995, 1, 1), date(1996, 12, 31))),
            left_on="l_orderkey",
            right_on="o_orderkey",
        )
        .join(buyers, left_on="o_custkey", right_on="c_custkey", how="semi")
        .join(sellers, left_on="l_suppkey", right_on="s_suppkey")
        .select("nation", o_year=col("o_orderdate").dt.year(), volume=_revenue())
        .group_by("o_year")
        .agg(mkt_share=_share(volume.filter(brazil).sum(), volume.sum()))
        .sort("o_year")
    )


def q09(t: Tables) -> LazyFrame:
    return (
        t["part"]
        .filter(col("p_name").str.contains("green", literal=True))
        .join(t["partsupp"], left_on="p_partkey", right_on="ps_partkey")
        .join(t["lineitem"], left_on=["p_partkey", "ps_suppkey"], right_on=["l_partkey", "l_suppkey"])
        .join(t["supplier"], left_on="ps_suppkey", right_on="s_suppkey")
        .join(t["orders"], left_on="l_orderkey", right_on="o_orderkey")
        .join(t["nation"], left_on="s_nationkey", right_on="n_nationkey")
        .select(
            nation="n_name",
            o_year=col("o_orderdate").dt.year(),
            amount=_revenue() - _wide(col("ps_supplycost"), 4) * col("l_quantity"),
        )
        .group_by("nation", "o_year")
        .agg(sum_profit=col("amount").sum())
        .sort("nation", "o_year", descending=[False, True])
    )


def q10(t: Tables) -> LazyFrame:
    return (
        t["orders"]
        .filter(col("o_orderdate").is_between(date(1993, 10, 1), date(1994, 1, 1), closed="left"))
        .join(t["lineitem"].filter(col("l_returnflag") == "R"), left_on="o_orderkey", right_on="l_orderkey")
        .join(t["customer"], left_on="o_custkey", right_on="c_custkey")
        .join(t["nation"], left_on="c_nationkey", right_on="n_nationkey")
        .group_by(
            col("o_custkey").alias("c_custkey"), "c_name", "c_acctbal", "c_phone", "n_name", "c_address", "c_comment"
        )
        .agg(revenue=_revenue().sum())
        .select("c_custkey", "c_name", "revenue", "c_acctbal", "n_name", "c_address", "c_phone", "c_comment")
        .sort("revenue", descending=True)
        .head(20)
    )


def q11(t: Tables, fraction: float) -> LazyFrame:
    stock = (
        t["nation"]
        .filter(col("n_name") == "GERMANY")
        .join(t["supplier"], left_on="n_nationkey", right_on="s_nationkey")
        .join(t["partsupp"], left_on="s_suppkey", right_on="ps_suppkey")
        .select("ps_partkey", value=col("ps_supplycost") * col("ps_availqty"))
    )
    least = stock.select(least=col("value").sum().cast(pl.Float64) * fraction)
    return (
        stock.group_by("ps_partkey")
        .agg(value=col("value").sum())
        .join(least, how="cross")
        .filter(col("value").cast(pl.Float64) > col("least"))
        .select("ps_partkey", "value")
        .sort("value", descending=True)
    )


def q12(t: Tables) -> LazyFrame:
    high = col("o_orderpriority").is_in(["1-URGENT", "2-HIGH"])
    return (
        t["lineitem"]
        .filter(
            col("l_shipmode").is_in(["MAIL", "SHIP"])
            & (col("l_commitdate") < col("l_receiptdate"))
            & (col("l_shipdate") < col("l_commitdate"))
            & col("l_receiptdate").is_between(date(1994, 1, 1), date(1995, 1, 1), closed="left")
        )
        .join(t["orders"], left_on="l_orderkey", right_on="o_orderkey")
        .group_by("l_shipmode")
        .agg(high_line_count=high.sum(), low_line_count=(~high).sum())
        .sort("l_shipmode")
    )


def q13(t: Tables) -> LazyFrame:
    return (
        t["customer"]
        .join(
            t["orders"].filter(~col("o_comment").str.contains("special.*requests")),
            left_on="c_custkey",
            right_on="o_custkey",
            how="left",
        )
        .group_by("c_custkey")
        .agg(c_count=col("o_orderkey").count())
        .group_by("c_count")
        .agg(custdist=pl.len())
        .sort("custdist", "c_count", descending=True)
    )


def q14(t: Tables) -> LazyFrame:
    promo = col("p_type").str.starts_with("PROMO")
    return (
        t["lineitem"]
        .filter(col("l_shipdate").is_between(date(1995, 9, 1), date(1995, 10, 1), closed="left"))
        .join(t["part"], left_on="l_partkey", right_on="p_partkey")
        .select("p_type", revenue=_revenue())
        .select(promo_revenue=100 * _share(col("revenue").filter(promo).sum(), col("revenue").sum()))
    )


def q15(t: Tables) -> LazyFrame:
    revenue = (
        t["lineitem"]
        .filter(col("l_shipdate").is_between(date(1996, 1, 1), date(1996, 4, 1), closed="left"))
        .group_by("l_suppkey")
        .agg(total_revenue=_revenue().sum())
        .filter(col("total_revenue") == col("total_revenue").max())
    )
    return (
        t["supplier"]
        .join(revenue, left_on="s_suppkey", right_on="l_suppkey")
        .select("s_suppkey", "s_name", "s_address", "s_phone", "total_revenue")
        .sort("s_suppkey")
    )


def q16(t: Tables) -> LazyFrame:
    complaints = t["supplier"].filter(col("s_comment").str.contains("Customer.*Complaints"))
    return (
        t["part"]
        .filter(
            (col("p_brand") != "Brand#45")
            & ~col("p_type").str.starts_with("MEDIUM POLISHED")
            & col("p_size").is_in([49, 14, 23, 45, 19, 3, 36, 9])
        )
        .join(t["partsupp"], left_on="p_partkey", right_on="ps_partkey")
        .join(complaints, left_on="ps_suppkey", right_on="s_suppkey", how="anti")
        .group_by("p_brand", "p_type", "p_size")
        .agg(supplier_cnt=col("ps_suppkey").n_unique())
        .sort("supplier_cnt", "p_brand", "p_type", "p_size", descending=[True, False, False, False])
    )


def q17(t: Tables) -> LazyFrame:
    lines = (
        t["part"]
        .filter((col("p_brand") == "Brand#23") & (col("p_container") == "MED BOX"))
        .join(t["lineitem"], left_on="p_partkey", right_on="l_partkey")
        .select("p_partkey", "l_quantity", "l_extendedprice")
    )
    few = lines.group_by("p_partkey").agg(few=0.2 * col("l_quantity").mean())
    taken = lines.join(few, on="p_partkey").filter(col("l_quantity").cast(pl.Float64) < col("few"))
    # The sum of no rows is NULL in SQL and 0 in Polars.
    return taken.select(avg_yearly=pl.when(pl.len() > 0).then(col("l_extendedprice").sum().cast(pl.Float64) / 7.0))


def q18(t: Tables) -> LazyFrame:
    large = t["lineitem"].group_by("l_orderkey").agg(quantity=col("l_quantity").sum()).filter(col("quantity") > 300)
    return (
        t["orders"]
        .join(large, left_on="o_orderkey", right_on="l_orderkey", how="semi")
        .join(t["lineitem"], left_on="o_orderkey", right_on="l_orderkey")
        .join(t["customer"], left_on="o_custkey", right_on="c_custkey")
        .group_by("c_name", col("o_custkey").alias("c_custkey"), "o_orderkey", "o_orderdate", "o_totalprice")
        .agg(sum_qty=col("l_quantity").sum())
        .sort("o_totalprice", "o_orderdate", descending=[True, False])
        .head(100)
    )


def q19(t: Tables) -> LazyFrame:
    def kind(brand: str, containers: list[str], least: int, size: int) -> pl.Expr:
        quantity = col("l_quantity").is_between(least, least + 10)
        return (
            (col("p_brand") == brand)
            & col("p_container").is_in(containers)
            & quantity
            & col("p_size").is_between(1, size)
        )

    return (
        t["lineitem"]
        .filter(col("l_shipmode").is_in(["AIR", "AIR REG"]) & (col("l_shipinstruct") == "DELIVER IN PERSON"))
        .join(t["part"], left_on="l_partkey", right_on="p_partkey")
        .filter(
            kind("Brand#12", ["SM CASE", "SM BOX", "SM PACK", "SM PKG"], 1, 5)
            | kind("Brand#23", ["MED BAG", "MED BOX", "MED PKG", "MED PACK"], 10, 10)
            | kind("Brand#34", ["LG CASE", "LG BOX", "LG PACK", "LG PKG"], 20, 15)
        )
        .select(revenue=_revenue().sum())
    )


def q20(t: Tables) -> LazyFrame:
    shipped = (
        t["lineitem"]
        .filter(col("l_shipdate").is_between(date(1994, 1, 1), date(1995, 1, 1), closed="left"))
        .group_by("l_partkey", "l_suppkey")
        .agg(shipped=col("l_quantity").sum())
    )
    surplus = (
        t["partsupp"]
        .join(
            t["part"].filter(col("p_name").str.starts_with("forest")),
            left_on="ps_partkey",
            right_on="p_partkey",
            how="semi",
        )
        .join(shipped, left_on=["ps_partkey", "ps_suppkey"], right_on=["l_partkey", "l_suppkey"])
        .filter(2 * col("ps_availqty") > col("shipped"))
    )
    return (
        t["supplier"]
        .join(t["nation"].filter(col("n_name") == "CANADA"), left_on="s_nationkey", right_on="n_nationkey", how="semi")
        .join(surplus, left_on="s_suppkey", right_on="ps_suppkey", how="semi")
        .select("s_name", "s_address")
        .sort("s_name")
    )


def q21(t: Tables) -> LazyFrame:
    lines = t["lineitem"].select("l_orderkey", "l_suppkey", late=col("l_receiptdate") > col("l_commitdate"))
    # A late line in an order where another supplier has a line and no other supplier is late: several suppliers,
    # exactly one of them late.
    late = lines.filter("late")
    several = lines.group_by("l_orderkey").agg(suppliers=col("l_suppkey").n_unique()).filter(col("suppliers") > 1)
    alone = (
        late.group_by("l_orderkey").agg(late_suppliers=col("l_suppkey").n_unique()).filter(col("late_suppliers") == 1)
    )
    arabian = t["supplier"].join(
        t["nation"].filter(col("n_name") == "SAUDI ARABIA"), left_on="s_nationkey", right_on="n_nationkey"
    )
    return (
        late.join(arabian, left_on="l_suppkey", right_on="s_suppkey")
        .join(t["orders"].filter(col("o_orderstatus") == "F"), left_on="l_orderkey", right_on="o_orderkey", how="semi")
        .join(several, on="l_orderkey", how="semi")
        .join(alone, on="l_orderkey", how="semi")
        .group_by("s_name")
        .agg(numwait=pl.len())
        .sort("numwait", "s_name", descending=[True, False])
        .head(100)
    )


def q22(t: Tables) -> LazyFrame:
    customers = (
        t["customer"]
        .select("c_custkey", "c_acctbal", cntrycode=col("c_phone").str.slice(0, 2))
        .filter(col("cntrycode").is_in(["13", "31", "23", "29", "30", "18", "17"]))
    )
    average = customers.filter(col("c_acctbal") > 0).select(average=col("c_acctbal").mean())
    return (
        customers.join(t["orders"], left_on="c_custkey", right_on="o_custkey", how="anti")
        .join(average, how="cross")
        .filter(col("c_acctbal").cast(pl.Float64) > col("average"))
        .group_by("cntrycode")
        .agg(numcust=pl.len(), totacctbal=col("c_acctbal").sum())
        .sort("cntrycode")
    )


QUERIES: dict[int, Callable[[Tables], LazyFrame]] = {
    1: q01, 2: q02, 3: q03, 4: q04, 5: q05, 6: q06, 7: q07, 8: q08, 9: q09, 10: q10, 12: q12,
    13: q13, 14: q14, 15: q15, 16: q16, 17: q17, 18: q18, 19: q19, 20: q20, 21: q21, 22: q22,
}  # fmt: skip
"""All except query 11, whose fraction depends on the scale factor."""


def lazy_query(number: int, tables: Tables, scale: float) -> LazyFrame:
    """Query `number` over tables of this scale factor."""
    return q11(tables, 0.0001 / scale) if number == 11 else QUERIES[number](tables)
