"""Small random changes to bytes and to SQL text; every kind of mutation draws from these."""

from __future__ import annotations

import re
from random import Random

TOKEN = re.compile(r"\s+|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\w+|<>|<=|>=|!=|::|\|\||=>|->|.", re.DOTALL)
LIMITS = (
    "0", "-1", "127", "128", "-32769", "2147483647", "2147483648", "-9223372036854775808", "9223372036854775808",
    "170141183460469231731687303715884105727", "-170141183460469231731687303715884105728", "1e308", "1e-320", "1e999",
    "0.1", "99999999999999999999999999999999999999", "NULL", "''", "'NaN'::DOUBLE", "'infinity'::DATE", "TRUE",
    "INTERVAL '9223372036854775807' hours", "DATE '290000-01-01'", "TIMESTAMP '1969-12-31 23:59:59.999999'",
    "'\u00e4\U0001f600'",
)  # fmt: skip
ALIKE = (
    "+ - * / // % || & | ^ << >>", "= <> < <= > >=", "AND OR", "LEFT RIGHT FULL INNER CROSS SEMI ANTI NATURAL ASOF",
    "UNION INTERSECT EXCEPT",
    "count sum min max avg median stddev var_pop bool_and bit_or product quantile_cont", "ASC DESC", "FIRST LAST",
    "ALL DISTINCT ANY SOME",
    "IN LIKE ILIKE GLOB", "WHERE HAVING QUALIFY", "ROLLUP CUBE", "ROWS RANGE GROUPS", "PRECEDING FOLLOWING",
    "NULL TRUE FALSE",
    ("INTEGER BIGINT HUGEINT SMALLINT TINYINT UBIGINT DOUBLE FLOAT VARCHAR DATE TIMESTAMP TIME BOOLEAN DECIMAL(9,2) "
     "DECIMAL(38,0) INTERVAL"),
    "lower upper trim reverse length md5 ltrim", "abs ceil floor round sqrt ln exp sign",
    "year month day hour week quarter dow epoch",
)  # fmt: skip
"""Words that can replace each other: such a change usually gives another valid query."""
_GROUP_OF = {word.lower(): group.split() for group in ALIKE for word in group.split()}
CLAUSES = (
    " DISTINCT ", " ALL ", " NULLS FIRST ", " NULLS LAST ", " FILTER (WHERE TRUE) ", " COLLATE NOCASE ", " ORDER BY 1 ",
    " OFFSET 1 ", " LIMIT 3 ", " NOT ", " IS NULL ", " IS NOT DISTINCT FROM 1 ", " ESCAPE '!' ", " WITH ORDINALITY ",
    " LATERAL ", " EXCLUDE CURRENT ROW ", " IGNORE NULLS ", " RECURSIVE ", " MATERIALIZED ", " USING SAMPLE 50% ",
    " ::VARCHAR ", " AT TIME ZONE 'UTC' ", " HAVING count(*) > 1 ", " BY NAME ", " DESC ",
)  # fmt: skip
NOISE = (
    "\x00",
    "\ufeff",
    "\u00a0",
    "'",
    '"',
    "(",
    ")",
    ";",
    "--",
    "/*",
    "*/",
    "$1",
    "?",
    ",",
    "\\",
    "`",
    "[",
    "]",
    "{",
    "}",
    "@",
    "#",
    "\u0130",
)


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """One to four changes, of those that broken disks, cut transfers and hostile writers make."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        if not changed:
            break
        at = random.randrange(len(changed))
        length = min(random.choice((1, 2, 4, 8, 64, 1024)), len(changed) - at)
        match random.randrange(8):
            case 0:
                changed[at] ^= 1 << random.randrange(8)
            case 1:
                changed[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
            case 2:
                del changed[at:]
            case 3:
                del changed[at : at + length]
            case 4:
                changed[at:at] = changed[at : at + length]
            case 5:
                changed[at : at + length] = random.choice((b"\x00", b"\xff")) * length
            case 6:
                other = random.randrange(len(changed))
                changed[at : at + length] = changed[other : other + length]
            case 7:
                size = random.choice((2, 4, 8))
                number = random.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, len(data), len(data) + 1))
                changed[at : at + size] = (number % 256**size).to_bytes(size, "little")
    return bytes(changed)


def mutate_sql(sql: str, others: list[str], random: Random) -> str:
    """One to three changes of a statement; what is put in comes from another statement, or from the lists above."""
    tokens = TOKEN.findall(sql)
    for _ in range(random.choice((1, 1, 2, 3))):
        if not tokens:
            break
        change = random.choice(CHANGES)
        change(tokens, random.randrange(len(tokens)), others, random)
    return "".join(tokens)


def _delete(tokens: list[str], at: int, others: list[str], random: Random) -> None:
    del tokens[at : at + random.choice((1, 2, 4, 8))]


def _repeat(tokens: list[str], at: int, others: list[str], random: Random) -> None:
    tokens[at:at] = [*tokens[at : at + random.choice((1, 2, 4, 8))], " "]


def _exchange(tokens: list[str], at: int, others: list[str], random: Random) -> None:
    other = random.randrange(len(tokens))
    tokens[at], tokens[other] = tokens[other], tokens[at]


def _splice(tokens: list[str], at: int, others: list[str], random: Random) -> None:
    donor = TOKEN.findall(random.choice(others))
    start = random.randrange(len(donor))
    tokens[at : at + random.choice((0, 1, 4))] = [" ", *donor[start : start + random.choice((1, 2, 3, 6, 12))], " "]


def _parenthesize(tokens: list[str], at: int, others: list[str], random: Random) -> None:
    end = at + random.choice((1, 3, 5, 9))
    tokens[at:end] = ["(", *tokens[at:end], ")"]


def _insert_noise(tokens: list[str], at: int, others: list[str], random: Random) -> None:
    tokens.insert(at, random.choice(NOISE))


def _insert_clause(tokens: list[str], at: int, others: list[str], random: Random) -> None:
    tokens.insert(at, random.choice(CLAUSES))


def _change_literal(tokens: list[str], at: int, others: list[str], random: Random) -> None:
    literals = [i for i, token in enumerate(tokens) if token[0].isdigit() or token[0] == "'"]
    if literals:
        tokens[random.choice(literals)] = random.choice(LIMITS)


def _change_name(tokens: list[str], at: int, others: list[str], random: Random) -> None:
    names = [i for i, token in enumerate(tokens) if token[0].isalpha() and token.islower()]
    if len(names) > 1:
        tokens[random.choice(names)] = tokens[random.choice(names)]


def _change_word(tokens: list[str], at: int, others: list[str], random: Random) -> None:
    known = [i for i, token in enumerate(tokens) if token.lower() in _GROUP_OF]
    if known:
        at = random.choice(known)
        tokens[at] = random.choice(_GROUP_OF[tokens[at].lower()])


CHANGES = (
    _delete, _repeat, _exchange, _splice, _parenthesize, _insert_noise, _insert_clause,
    *[_change_literal, _change_name] * 2, *[_change_word] * 4, *[_insert_clause] * 2,
)  # fmt: skip
