"""`python -m tsql.tpch`: generates TPC-H data; prints, runs and checks the queries; measures them against other
engines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from tsql.kernels.expr.errors import TsqlError
from tsql.tpch.data import tables
from tsql.tpch.queries import NUMBERS, query

MODES = ("memory", "parquet", "cold", "peak", "threads", "joins")
ENGINE_NAMES = ("tsql", "duckdb", "hyper", "polars", "datafusion")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. The exit code is 0, 1 if the work failed or an answer is wrong, 2 if the arguments are
    wrong."""
    return _guarded(_parser().parse_args(arguments))


def main_bench(arguments: list[str]) -> int:
    """The benchmark alone, as `tsql bench tpch`."""
    parser = argparse.ArgumentParser(
        prog="tsql bench tpch", description="TPC-H beside DuckDB, Hyper, Polars and DataFusion"
    )
    _bench_options(parser)
    parser.set_defaults(command="bench")
    return _guarded(parser.parse_args(arguments))


def _guarded(options: argparse.Namespace) -> int:
    """Run the command. A failure is printed as one message."""
    try:
        return _follow(options)
    except ImportError as error:
        print(f"tpch: {error}: pip install 'tsql[bench]'", file=sys.stderr)
        return 1
    except (TsqlError, RuntimeError, OSError) as error:
        print(f"tpch: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _follow(options: argparse.Namespace) -> int:
    match options.command:
        case "data":
            print(*tables(options.scale).values(), sep="\n")
            return 0
        case "query":
            print(query(options.number, options.scale))
            return 0
        case "run":
            from tsql.tpch.check import run

            return run(
                options.scale,
                options.queries,
                threads=options.threads,
                backend=options.backend,
                source=options.source,
                rows=options.rows,
            )
        case "check":
            from tsql.tpch.check import check

            return check(
                options.scales,
                options.queries,
                options.engines,
                threads=options.threads,
                backend=options.backend,
                source=options.source,
            )
        case _:
            from tsql.tpch.bench import bench

            return bench(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tsql.tpch", description="TPC-H: data, queries, answers, times")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    data = commands.add_parser("data", help="make the tables as Parquet files and print their paths")
    _scale(data)
    text = commands.add_parser("query", help="print a query")
    text.add_argument("number", type=int, choices=NUMBERS, metavar="1..22")
    _scale(text)

    run = commands.add_parser("run", help="run the queries and print the first rows and the time of each")
    _scale(run)
    _common(run)
    run.add_argument(
        "--rows", type=_natural, default=10, metavar="N", help="rows of each answer to print (default: 10)"
    )
    _backend(run)

    check = commands.add_parser("check", help="compare the answers with DuckDB's")
    check.add_argument(
        "--scale", dest="scales", type=_scales, default=[0.01], metavar="S,..", help="scale factors (default: 0.01)"
    )
    _common(check)
    _backend(check)
    check.add_argument(
        "--engines",
        type=_names(ENGINE_NAMES),
        default=["tsql"],
        metavar="NAME,..",
        help=f"of {', '.join(ENGINE_NAMES)} (default: tsql)",
    )

    _bench_options(commands.add_parser("bench", help="measure against DuckDB, Hyper, Polars and DataFusion"))
    return parser


def _bench_options(parser: argparse.ArgumentParser) -> None:
    """The options of the benchmark."""
    _scale(parser)
    _common(parser)
    parser.add_argument(
        "--engines",
        type=_names(ENGINE_NAMES),
        default=list(ENGINE_NAMES),
        metavar="NAME,..",
        help=f"default: {','.join(ENGINE_NAMES)}",
    )
    parser.add_argument(
        "--modes",
        type=_names(MODES),
        default=list(MODES),
        metavar="MODE,..",
        help=f"what to measure (default: {','.join(MODES)})",
    )
    parser.add_argument(
        "--runs", type=_positive, default=9, metavar="N", help="timed runs of each query on each engine (default: 9)"
    )
    parser.add_argument(
        "--repeats",
        type=_positive,
        default=3,
        metavar="N",
        help="fresh processes for each cold time and each peak of memory (default: 3)",
    )
    parser.add_argument(
        "--join-rows",
        type=_positive,
        default=1_000_000,
        metavar="N",
        help="rows of the smallest join of the mode joins (default: 1000000)",
    )
    parser.add_argument("--json", type=_writable, metavar="FILE", help="write everything that was measured as JSON")
    parser.add_argument("--markdown", type=_writable, metavar="FILE", help="write the tables as markdown")
    parser.add_argument(
        "--chart", type=_writable, metavar="FILE", help="draw the times as an SVG file, such as docs/tpch.svg"
    )


def _scale(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scale",
        type=_scale_factor,
        default=1.0,
        metavar="S",
        help="scale factor; 1 is about 1 GB as text (default: 1)",
    )


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queries", type=_numbers, default=list(NUMBERS), metavar="1,3,..", help="default: all 22")
    parser.add_argument("--threads", type=_positive, default=2, metavar="N", help="threads of each engine (default: 2)")


def _backend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend", default="local", metavar="NAME", help="local (default), interp, spark or spark=MASTER"
    )
    parser.add_argument(
        "--source",
        choices=("memory", "parquet"),
        default="memory",
        help="tables in memory (default), or read from Parquet by each query",
    )


def _scale_factor(text: str) -> float:
    scale = float(text)
    if not 0 < scale < float("inf"):
        raise argparse.ArgumentTypeError(f"a scale factor is a positive number, not {text}")
    return scale


def _scales(text: str) -> list[float]:
    return [_scale_factor(part) for part in text.split(",")]


def _natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return number


def _positive(text: str) -> int:
    if (number := _natural(text)) == 0:
        raise argparse.ArgumentTypeError("0 is too few")
    return number


def _numbers(text: str) -> list[int]:
    """Query numbers: `1,3,17..19`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("..")
        found += range(int(first), int(last or first) + 1)
    if not found or any(number not in NUMBERS for number in found):
        raise argparse.ArgumentTypeError(f"TPC-H has queries 1 to 22, not {text}")
    return list(dict.fromkeys(found))


def _writable(text: str) -> Path:
    """A file to be written at the end. Its path is checked now: an error should come before an hour of measuring, not
    after."""
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"{text} is {'a folder' if path.is_dir() else 'in a folder that does not exist'}"
        )
    return path


def _names(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = list(dict.fromkeys(part.strip() for part in text.split(",")))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)} (known: {', '.join(known)})")
        return names

    return parse


if __name__ == "__main__":
    sys.exit(main())
