"""`python -m tsql.tpch`: makes TPC-H data and prints the queries."""

from __future__ import annotations

import argparse
import sys

from tsql.tpch.data import tables
from tsql.tpch.queries import NUMBERS, query


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0, 1 if the work failed, 2 if the arguments are wrong."""
    parser = argparse.ArgumentParser(prog="python -m tsql.tpch", description="TPC-H data and queries")
    commands = parser.add_subparsers(dest="command", required=True)
    data = commands.add_parser("data", help="make the tables as Parquet files and print their paths")
    data.add_argument("--scale", type=float, default=1.0, help="scale factor; 1 is about 1 GB as text (default: 1)")
    text = commands.add_parser("query", help="print a query")
    text.add_argument("number", type=int, choices=NUMBERS, metavar="1..22")
    text.add_argument("--scale", type=float, default=1.0, help="scale factor of the data (matters to query 11)")
    options = parser.parse_args(arguments)
    if not options.scale > 0:
        parser.error("--scale takes a positive number")
    try:
        if options.command == "query":
            print(query(options.number, options.scale))
        else:
            for path in tables(options.scale).values():
                print(path)
    except (RuntimeError, OSError) as error:
        print(f"tpch: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
