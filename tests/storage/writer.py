"""Changes a database in a loop and tells of each commit on stdout, until it is killed; `test_crash.py` starts it."""

from __future__ import annotations

import sys

import tsql


def main(path: str, start: int) -> None:
    db = tsql.connect(path)
    db.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, text VARCHAR)")
    db.execute("CREATE TABLE IF NOT EXISTS sums (id INTEGER, total BIGINT)")
    number = start
    while True:
        number += 1
        match number % 7:
            case 3:
                # Enough rows for blocks, so that a file of columns is written.
                db.execute(f"INSERT INTO t SELECT {number} * 1000000 + (id % 1000000), 'many' FROM numbers")
            case 5:
                db.execute("CHECKPOINT")
            case _:
                db.execute(
                    f"BEGIN; INSERT INTO t VALUES ({number}, 'row {number}'); INSERT INTO sums VALUES "
                    f"({number}, {number * 2}); COMMIT"
                )
        print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
