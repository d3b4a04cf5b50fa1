"""Words that SQL text must quote when they are names: DuckDB's keywords (its `duckdb_keywords()`), and the further
words that our tokenizer knows. The printers of expressions and of column names use them."""

from __future__ import annotations

import re

RESERVED = frozenset(
    """
    all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create default
    deferrable desc describe distinct do else end except false fetch for foreign from group having in initially
    intersect into lambda lateral leading limit not null offset on only or order pivot pivot_longer pivot_wider placing
    primary qualify references returning select show some summarize symmetric table then to trailing true union unique
    unpivot using variadic when where window with
    """.split()
)
"""Words that DuckDB takes as a name only in quotes."""

KEYWORDS = frozenset(
    """
    abort absolute access action add admin after aggregate all also alter always analyse analyze and anti any approx
    array as asc asof assertion assignment asymmetric at attach attribute authorization backward before begin between
    bigint binary bit boolean both by cache call called cascade cascaded case cast catalog centuries century chain char
    character characteristics check checkpoint class close cluster coalesce collate collation column columns comment
    comments commit committed compression concurrently configuration conflict connect connection constraint constraints
    content continue conversion copy cost create cross csv cube current cursor cycle data database day days deallocate
    dec decade decades decimal declare default defaults deferrable deferred definer delete delimiter delimiters depends
    desc describe destroy detach dictionary disable discard disconnect distance distinct do document domain double drop
    each else enable encoding encrypted end enum error escape event exact except exclude excluding exclusive execute
    exists explain export export_state extension extensions external extract false family fetch filter first float
    following for force foreign forward freeze from full function functions generated glob global grant granted group
    grouping grouping_id groups handler having header hold hour hours identity if ignore ilike immediate immutable
    implicit import in include including increment index indexes inherit inherits initially inline inner inout input
    insensitive insert install instead int integer intersect interval into invoker is isnull isolation join json key
    label lambda language large last lateral leading leakproof left level like limit listen load local location lock
    locked logged macro map mapping match matched materialized maxvalue merge method microsecond microseconds millennia
    millennium millisecond milliseconds minute minutes minvalue mode month months move name names national natural nchar
    nearest new next no none not nothing notify notnull nowait null nullif nulls numeric object of off offset oids old
    on only operator option options or order ordinality others out outer over overlaps overlay overriding owned owner
    parallel parser partial partition partitioned passing password percent persistent pivot pivot_longer pivot_wider
    placing plans policy position positional pragma preceding precision prepare prepared preserve primary prior
    privileges procedural procedure program publication qualify quarter quarters quote range read real reassign recheck
    recursive ref references referencing refresh register reindex relative release rename repeatable replace replica
    reset resource resources respect restart restrict returning returns revoke right role rollback rollup row rows rule
    sample savepoint schema schemas scope scroll search second seconds secret secure security select semi sequence
    sequences serializable server session set setof sets share show similar similarity simple skip smallint snapshot
    some sorted source sql stable standalone start statement statistics stdin stdout storage stored strict strip struct
    subscription substring summarize symmetric sysid system table tables tablesample tablespace target temp template
    temporary text then ties time timestamp to trailing transaction transform treat trigger trim true truncate trusted
    try_cast tuple type types unbounded uncommitted unencrypted union unique unknown unlisten unlogged unpack unpivot
    until update use user using vacuum valid validate validator value values varchar variable variadic varying verbose
    version view views virtual volatile week weeks when where whitespace window with within without work wrapper write
    xml xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize
    xmltable year years yes zone
    """.split()
)
"""All words of DuckDB's grammar."""

TOKENS = frozenset(
    """
    apply auto_increment autoincrement bigdecimal bignum bignumeric bitstring blob bool bpchar byte bytea clob
    current_catalog current_date current_schema current_time current_timestamp current_user date datemultirange
    daterange datetime decfloat decimal128 decimal256 decimal32 decimal64 div file fixed float4 float8 format geography
    geometry hugeint inet int1 int128 int16 int2 int256 int32 int4 int4multirange int4range int64 int8 int8multirange
    int8range jsonb keep kill list localtime localtimestamp logical long longblob longtext longvarchar mediumblob
    mediumint mediumtext namespace nullable number nummultirange numrange nvarchar nvarchar2 optimize overwrite
    partitioned_by regexp rlike session_user settings short signed str straight_join string time_ns timestamp_ltz
    timestamp_ms timestamp_ns timestamp_ntz timestamp_s timestamp_us timestampltz timestampntz timestamptz timetz
    tinyblob tinyint tinytext tsmultirange tsrange tstzmultirange tstzrange ubigint uhugeint uint uint128 uint256
    uinteger uncache unnest usmallint utinyint uuid varbinary varchar2 variant vector xor
    """.split()
)
"""Words of our tokenizer that are none of DuckDB's keywords."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def quote(name: str) -> str:
    """`name` as an identifier that reads back to the same name."""
    if _PLAIN.fullmatch(name) and name.lower() not in KEYWORDS and name.lower() not in TOKENS:
        return name
    return '"' + name.replace('"', '""') + '"'
