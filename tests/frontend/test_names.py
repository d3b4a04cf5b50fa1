"""Names of columns without an alias: exactly DuckDB's, which runs beside."""

from __future__ import annotations

import duckdb
import pytest

from tests.frontend.support import oracle
from tsql.analyze.names.columns import display_name
from tsql.grammar.parser.statements import parse

EXPRESSIONS = r"""
t.a
T.A + 1
"A b" + 1
CC+1
SUM(a)
Sum(DISTINCT a)
sum(a) FILTER (WHERE a > 1)
string_agg(s, ',' ORDER BY a DESC)
string_agg(s, ',' ORDER BY a DESC NULLS FIRST, b)
count()
count(*)
count(DISTINCT a)
a IS NULL
a IS NOT NULL
NOT flag
a ISNULL
a NOTNULL
a BETWEEN 1 AND 2
a NOT BETWEEN 1 AND 2
a IN (1,2)
a NOT IN (1,2)
s LIKE 'a%'
s NOT LIKE 'a%'
s ILIKE 'a%'
s LIKE 'a%' ESCAPE '\'
s NOT LIKE 'a' ESCAPE 'x'
s NOT ILIKE 'a'
s SIMILAR TO 'a'
s NOT SIMILAR TO 'a'
s GLOB 'a'
s ^@ 'a'
s ~ 'a'
s !~ 'a'
a = 1 AND x > 2 AND flag
a = 1 OR x > 2 AND flag
(a=1 AND x>1) AND flag
a <> 1
a != 1
a == 1
a IS DISTINCT FROM 1
a IS NOT DISTINCT FROM 1
flag IS TRUE
flag IS NOT TRUE
flag IS FALSE
flag IS UNKNOWN
CASE a WHEN 1 THEN 2 WHEN 3 THEN 4 ELSE 5 END
CASE WHEN a=1 THEN 'x' END
COALESCE(a,1)
IFNULL(a,1)
NULLIF(a,1)
a::VARCHAR
CAST(a AS DECIMAL(10,2))
TRY_CAST(s AS INT)
a::INT8
a::TEXT
a::NUMERIC
a::FLOAT4
a::REAL
a::CHAR(5)
a::VARCHAR(10)
a::double precision
a::int4
a::hugeint
ts::date
a::TIMESTAMP WITH TIME ZONE
EXTRACT(year FROM d)
EXTRACT('year' FROM d)
EXTRACT(months FROM d)
EXTRACT(isodow FROM d)
extract(dow from d)
date_part('YEAR', d)
year(d)
year(d) + month(d)
date_trunc('month', ts)
d + INTERVAL 1 MONTH
d + INTERVAL '1' YEAR
INTERVAL 2 HOURS
INTERVAL 5 SECONDS
INTERVAL 1 MINUTE
INTERVAL 2 WEEKS
INTERVAL 1 QUARTER
INTERVAL 1 DECADE
INTERVAL 1 CENTURY
INTERVAL '1' MILLISECOND
INTERVAL 1 MICROSECOND
INTERVAL '3 days'
interval (a) day
-a
- a + 1
-(a+1)
- -1
-(-1)
-(-a)
+a
~a
a ** 2
a ^ 2
a % 2
mod(a,2)
a // 2
a << 1
a & 1
xor(a,1)
s || 'x'
concat(s,'x')
left(s,1)
substring(s,1,2)
substring(s FROM 1 FOR 2)
substr(s,1,2)
trim(s)
trim(BOTH 'x' FROM s)
trim(LEADING FROM s)
position('a' IN s)
strpos(s,'a')
replace(s,'a','b')
greatest(a,1)
ceil(x)
ceiling(x)
typeof(a)
current_date
(a)
((a+1))
(a+1)*2
a+(1*2)
'it''s'
E'a\nb'
DATE '2020-01-01'
date '2020-01-01' - interval '90' day
TIMESTAMP '2020-01-01 00:00:00'
TRUE
NULL
1.50
1E3
-1.5
.5
10.
1_000
x'AB'
t.a IN (1)
if(a=1,2,3)
epoch(ts)
arg_min(a,b)
first(a)
quantile_cont(a, 0.5)
percentile_cont(0.5) WITHIN GROUP (ORDER BY a)
mode() WITHIN GROUP (ORDER BY a)
regexp_matches(s,'a','i')
NOT a = 1
NOT (a IN (1))
not (a is null)
not a is null
count(distinct a) / count(*)
100.00 * sum(x) / sum(a)
sum(m * (1 - m))
sum(a ORDER BY b ASC)
"a" + 1
"CC" + 1
a = -1
1 + -1
not flag and flag
a is null and b is not null
date_diff('day', d, d)
coalesce(null, a)
a IN (1, NULL)
s[1]
s[2:3]
s[:-2]
s[2:]
upper(s)[a]
@a
@(a - 5) * 2
s GLOB 'a*'
NOT s GLOB 'a*'
s COLLATE nocase = 'A'
s COLLATE nocase.noaccent < 'b'
add(a, 1)
format('{} {}', s, a)
(a < b) = true
"""


@pytest.fixture(scope="module")
def duck():
    return oracle()


@pytest.mark.parametrize("expression", EXPRESSIONS.strip().splitlines())
def test_name(duck, expression):
    text = f"SELECT {expression} FROM t"
    try:
        theirs = duck.sql(text).columns[0]
    except duckdb.BinderException:
        theirs = duck.sql(f"{text} GROUP BY ALL").columns[0]
    (statement,) = parse(text)
    assert display_name(statement.node.expressions[0], text) == theirs


def test_name_of_a_long_chain_does_not_recurse():
    text = "SELECT " + " + ".join(["a"] * 5000)
    name = display_name(parse(text)[0].node.expressions[0], text)
    assert name.count("+") == 4999
