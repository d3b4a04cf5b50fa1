"""The command `tsql`: reads arguments, runs queries and plan files, and tells the outcome by its exit code.

0: fine; 1: the query failed; 2: the command line is wrong; 130: interrupted with Ctrl-C.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tsql
from tsql.cli.output import FORMATS, TEXT_FORMATS, emit, read_text, replace_closed, report, timing, tolerate_encoding
from tsql.cli.progress_bar import ProgressBar
from tsql.kernels.expr.errors import CatalogError, PlanError, TsqlError
from tsql.parameters import parse_value
from tsql.relation import FORMATS as EXTENSIONS
from tsql.relation import Relation
from tsql.session import Session

if TYPE_CHECKING:
    from tsql.loaded import LoadedPlan

LEVELS = ("logical", "physical", "pipelines", "kir", "llvm", "asm", "analyze", "time")


class UsageError(Exception):
    """The command line cannot be followed."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    replace_closed()
    tolerate_encoding(sys.stdout, sys.stderr)
    parser = _parser()
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 2
    if arguments.command is None:
        parser.print_usage(sys.stderr)
        return 2
    try:
        code = arguments.command(arguments)
        sys.stdout.flush()
        return code
    except UsageError as error:
        print(f"tsql: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has closed the pipe. Python would complain again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error.__cause__, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 0
        report(error, debug=arguments.debug)
        return 1


class _Version(argparse.Action):
    """As argparse's own, but the version is looked up when it is asked for, which takes as long as a query."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"tsql {tsql.__version__}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tsql", description="Temporal SQL, compiled.", allow_abbrev=False)
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    parser.set_defaults(command=None, debug=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def command(
        name: str, function: Callable[[Any], int], help: str, *, session: bool = True
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        sub.set_defaults(command=function)
        sub.add_argument("--debug", action="store_true", help="show the traceback of an error")
        if session:
            _session_arguments(sub)
        return sub

    run = command("run", _run, "run a query, an SQL file or a plan file")
    run.add_argument("query", metavar="QUERY|FILE.sql|FILE.plan|-")
    run.add_argument(
        "-f",
        "--format",
        choices=FORMATS,
        help="how the result is written (default: table, or what the name of -o says)",
    )
    run.add_argument("-o", "--output", metavar="FILE", help="write the result to FILE instead of stdout")
    run.add_argument("--timing", action="store_true", help="print the time of each stage to stderr")
    run.add_argument("--checkpoint", metavar="DIR", help="a live query: the folder in which it survives, and goes on")
    run.add_argument("--interval", type=_seconds, metavar="SECONDS", help="a live query: between checkpoints (1)")
    run.add_argument(
        "--replay",
        type=_speed,
        metavar="Nx",
        help="feed files by the times of their rows, N times as fast (0x: at full speed)",
    )
    run.add_argument("--as-of", metavar="TIME", help="leave out rows of streams at this time or later")
    run.add_argument("--max-rows", type=_whole, metavar="N", help="show at most N rows of a table (0: all)")

    plan = command("plan", _plan, "print the physical plan of a query, as a plan file")
    plan.add_argument("query", metavar="QUERY|FILE.sql|FILE.plan|-")
    plan.add_argument("-o", "--output", metavar="FILE", help="write the plan to FILE instead of stdout")
    plan.add_argument(
        "--candidates", type=_positive, metavar="N", help="print the N best plans with their costs, the cheapest first"
    )

    explain = command("explain", _explain, "show what becomes of a query, from its logical plan to machine code")
    explain.add_argument("query", metavar="QUERY|FILE.sql|FILE.plan|-")
    explain.add_argument(
        "--level", choices=LEVELS, default="physical", help="default: physical; analyze runs the query"
    )

    explain.add_argument(
        "--time", action="store_true", help="what each step of a live query holds, and until when (--level time)"
    )

    check = command(
        "check", _check, "check that a plan file can run and gives the answer of its query, or a query a checkpoint"
    )
    check.add_argument("plan", metavar="FILE.plan|-|QUERY|FILE.sql")
    check.add_argument(
        "--checkpoint", metavar="DIR", help="a live query: what it would keep of this checkpoint, or why it is refused"
    )
    check.add_argument("--no-run", action="store_true", help="read and check the plan only; do not compare answers")

    diff = command("diff", _diff, "show the lines in which two plan files differ", session=False)
    diff.add_argument("old", metavar="A.plan")
    diff.add_argument("new", metavar="B.plan")

    jobs = command("jobs", _jobs, "list the live queries of this user that run", session=False)
    jobs.add_argument("name", nargs="?", metavar="NAME", help="one of them, with its streams and steps")
    jobs.add_argument("--metrics", action="store_true", help="as Prometheus reads it")

    command("shell", _shell, "an interactive shell; reads a script where stdin is no terminal")

    studio = command("studio", _studio, "serve a page with an editor, results that settle, charts and plans")
    studio.add_argument("paths", nargs="*", metavar="DB|FILE", help="a database, or files that become views")
    studio.add_argument("--port", type=_whole, default=0, metavar="N", help="the port (default: one that is free)")
    studio.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: this machine only)")
    studio.add_argument("--no-browser", action="store_true", help="print the address, and open no browser")

    calibrate = command(
        "calibrate", _calibrate, "measure what work costs on this machine or a cluster, for the planner", session=False
    )
    calibrate.add_argument(
        "--backend", default="local", metavar="NAME", help="local (default), or spark[=MASTER] for a cluster"
    )
    calibrate.add_argument(
        "--rows",
        type=_positive,
        metavar="N",
        help="rows of the tables that are timed (default: 2,000,000, on Spark 4,000,000; at least 100,000)",
    )
    calibrate.add_argument("--dry-run", action="store_true", help="print what was measured, and keep nothing")

    bench = command("bench", _bench, "list the benchmarks of the checkout, or run one", session=False)
    bench.add_argument("name", nargs="?", metavar="NAME", help="the benchmark to run; none lists them")
    bench.add_argument("arguments", nargs=argparse.REMAINDER, metavar="..", help="arguments of the benchmark")
    return parser


def _session_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--backend", default="local", metavar="NAME", help="local (default), interp, spark or spark=MASTER"
    )
    sub.add_argument(
        "-d", "--database", metavar="FOLDER", help="keep tables in a database on disk (made if it is not there)"
    )
    sub.add_argument("--read-only", action="store_true", help="open the database for reading only")
    sub.add_argument("--threads", type=_whole, metavar="N", help="worker threads (default: all cores)")
    sub.add_argument("--memory-limit", metavar="SIZE", help="such as 2GB or 512MiB")
    sub.add_argument(
        "-p",
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a value for $NAME; a number, true, false, null, DATE '..', or text",
    )
    sub.add_argument(
        "-t", "--table", action="append", default=[], metavar="NAME=FILE", help="make a file readable as a table"
    )
    sub.add_argument(
        "--set", action="append", default=[], dest="settings", metavar="NAME=VALUE", help="change a setting"
    )


def _whole(text: str, least: int = 0) -> int:
    try:
        number = int(text)
    except ValueError:
        # argparse would name this function instead.
        raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, not {text!r}") from None
    if number < least:
        raise argparse.ArgumentTypeError(f"{text} is less than {least}")
    return number


def _positive(text: str) -> int:
    return _whole(text, 1)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e9:
        raise argparse.ArgumentTypeError(f"expected a number of seconds above zero, not {text!r}")
    return found


def _speed(text: str) -> float:
    try:
        found = float(text.lower().removesuffix("x"))
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e12:
        raise argparse.ArgumentTypeError(f"expected a speed such as 10x, not {text!r}")
    return found


def _pairs(items: list[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} takes NAME=VALUE, not {item!r}")
        found[name.strip()] = value
    return found


def _session(arguments: Any) -> Session:
    settings: dict[str, Any] = _pairs(arguments.settings, "--set")
    settings |= {
        name: value
        for name, value in (("threads", arguments.threads), ("memory_limit", arguments.memory_limit))
        if value is not None
    }
    try:
        session = tsql.connect(arguments.database, backend=arguments.backend, read_only=arguments.read_only, **settings)
    except TsqlError as error:
        raise UsageError(str(error)) from error
    session.watch = ProgressBar
    for name, path in _pairs(arguments.table, "--table").items():
        session.register(name, session.catalog.open_file(path))
    return session


def _parameters(arguments: Any) -> dict[str, Any] | None:
    return {name: parse_value(value) for name, value in _pairs(arguments.param, "--param").items()} or None


def _read(argument: str) -> tuple[str, str | None, bool]:
    """The text that an argument stands for, where it comes from, and whether it is a plan file."""
    if argument == "-":
        text, origin = read_text("-", "query")
        return text, origin, text.lstrip().startswith("plan version")
    is_plan = argument.lower().endswith(".plan")
    named_as_file = is_plan or argument.lower().endswith(".sql")
    if named_as_file and not any(c in argument for c in "\n;"):
        if not os.path.isfile(argument):
            raise UsageError(f"there is no file {argument}")
        text, origin = read_text(argument, "plan file" if is_plan else "SQL file")
        return text, origin, is_plan
    if not argument.strip():
        raise UsageError("the query is empty")
    return argument, None, False


def _one(session: Session, arguments: Any) -> Relation:
    """The relation of the argument's last statement, or of its plan."""
    text, origin, is_plan = _read(arguments.query)
    parameters = _parameters(arguments)
    if is_plan:
        return _loaded(text, origin).run(session, parameters)
    return session.sql(text, parameters, origin=origin)


def _loaded(text: str, origin: str | None) -> LoadedPlan:
    from tsql.loaded import LoadedPlan

    return LoadedPlan(text, origin)


def _run(arguments: Any) -> int:
    kind = arguments.format or (
        EXTENSIONS.get(os.path.splitext(arguments.output)[1].lower(), "table") if arguments.output else "table"
    )
    if arguments.output is None and kind not in TEXT_FORMATS and sys.stdout.isatty():
        raise UsageError(f"{kind} is no text: name a file with -o, or pipe the output")
    begun = time.perf_counter()
    text, origin, is_plan = _read(arguments.query)
    parameters = _parameters(arguments)
    with _session(arguments) as session:
        results = (
            iter([_loaded(text, origin).run(session, parameters)])
            if is_plan
            else session.statements(text, parameters, origin=origin)
        )
        single = arguments.output is not None or kind not in TEXT_FORMATS
        pending: Relation | None = None
        for relation in results:
            if relation.message is not None:
                _print_notes(relation)
                continue
            if not single:
                _finish(relation, kind, arguments, begun)
                begun = time.perf_counter()
            elif pending is not None:
                raise UsageError("the script has several results, and this output holds one")
            else:
                pending = relation
        if pending is not None:
            _finish(pending, kind, arguments, begun)
    return 0


def _live_options(arguments: Any) -> dict[str, Any]:
    """What the command line says of a job."""
    given = {
        "checkpoint": arguments.checkpoint,
        "interval": arguments.interval,
        "replay": arguments.replay,
        "until": arguments.as_of,
    }
    return {name: value for name, value in given.items() if value is not None}


def _finish(relation: Relation, kind: str, arguments: Any, begun: float) -> None:
    options = _live_options(arguments)
    if relation.is_endless or (options and relation.reads_streams):
        from tsql.cli.live import LiveOptions, run_live

        run_live(relation, kind, LiveOptions(arguments.output, options))
        return
    if options:
        raise UsageError(f"--{next(iter(options)).replace('until', 'as-of')} is for a query over streams")
    rows = emit(relation, kind, arguments.output, max_rows=arguments.max_rows)
    _print_notes(relation)
    if arguments.timing:
        print(timing(relation, begun, rows), file=sys.stderr)


def _print_notes(relation: Relation) -> None:
    for note in relation.notes:
        print(f"note: {note}", file=sys.stderr)


def _jobs(arguments: Any) -> int:
    from tsql.cli.jobs import metrics, one, table
    from tsql.job_status import running

    found = running()
    if arguments.name is not None:
        found = [job for job in found if job["name"] == arguments.name]
        if not found:
            raise UsageError(f"no job {arguments.name} runs")
    if arguments.metrics:
        print(metrics(found), end="")
    elif arguments.name is not None:
        one(found[0], sys.stdout)
    else:
        table(found, sys.stdout)
    return 0


def _plan(arguments: Any) -> int:
    if arguments.candidates and arguments.output:
        raise UsageError("a plan file holds one plan: use -o without --candidates")
    with _session(arguments) as session:
        relation = _one(session, arguments)
        text = relation.candidates(arguments.candidates) if arguments.candidates else relation.plan()
    if arguments.output is None:
        print(text.rstrip("\n"))
    else:
        from tsql.loaded import save_plan

        save_plan(text.rstrip("\n") + "\n", arguments.output)
    return 0


def _explain(arguments: Any) -> int:
    with _session(arguments) as session:
        level = "time" if arguments.time else arguments.level
        print(_one(session, arguments).explain(level).rstrip("\n"))
    return 0


def _check_checkpoint(arguments: Any) -> int:
    """What a live query would keep of a checkpoint; 1 if it cannot go on from it."""
    arguments.query = arguments.plan
    with _session(arguments) as session:
        found = _one(session, arguments).compare_checkpoint(arguments.checkpoint)
    for line in found.lines():
        print(line)
    return 1 if found.refused else 0


def _check(arguments: Any) -> int:
    if arguments.checkpoint is not None:
        return _check_checkpoint(arguments)
    if arguments.plan != "-" and not os.path.isfile(arguments.plan):
        raise UsageError(f"there is no file {arguments.plan}")
    text, origin = read_text(arguments.plan, "plan file")
    plan, parameters = _loaded(text, origin), _parameters(arguments)
    with _session(arguments) as session:
        relation = plan.run(session, parameters)
        said = (
            f"{origin}: ok, "
            f"({', '.join(f'{name} {t}' for name, t in zip(relation.columns, relation.types, strict=True))})"
        )
        if not arguments.no_run:
            rows = plan.check(session, parameters)
            said += (
                "; it has no query line to compare with"
                if rows is None
                else f"; its answer is that of its query, {rows:,} row{'s' * (rows != 1)}"
            )
    print(said)
    return 0


def _diff(arguments: Any) -> int:
    import difflib

    from tsql.cli.display import print_lines

    texts = []
    for path in (arguments.old, arguments.new):
        if not os.path.isfile(path):
            raise UsageError(f"there is no file {path}")
        texts.append(_plan_text(path).splitlines())
    found = difflib.unified_diff(*texts, arguments.old, arguments.new, lineterm="")
    colours = {"+": "green", "-": "red", "@": "cyan"}
    print_lines(
        sys.stdout,
        [[(line, "bold" if line[:3] in ("+++", "---") else colours.get(line[:1], ""))] for line in found],
    )
    return 0


def _plan_text(path: str) -> str:
    """The text of a plan file. Its steps are not read, which takes its tables, but its first line tells it from other
    files."""
    from tsql.planner.physical.planfile import lines_of

    text, origin = read_text(path, "plan file")
    number, line = next(((number, line) for number, line in lines_of(text) if line), (1, ""))
    if not line.startswith("plan version "):
        position = sum(len(before) + 1 for before in text.split("\n")[: number - 1])
        raise PlanError(
            "this is no plan file: it would start with `plan version`", position=position, text=text, origin=origin
        )
    return text


def _shell(arguments: Any) -> int:
    from tsql.cli.shell import Shell

    def connect(path: str | None, read_only: bool) -> Session:
        try:
            return _session(argparse.Namespace(**{**vars(arguments), "database": path, "read_only": read_only}))
        except UsageError as error:
            raise CatalogError(str(error)) from error

    shell = Shell(_session(arguments), _parameters(arguments), debug=arguments.debug, connect=connect)
    try:
        return shell.run()
    finally:
        shell.session.close()


def _studio(arguments: Any) -> int:
    from tsql.cli import studio

    database, files = studio.sorted_paths(arguments.paths)
    if database is not None and arguments.database is not None:
        raise UsageError("a studio opens one database")
    opened = argparse.Namespace(**vars(arguments))
    opened.database = database or arguments.database
    # Without a database there is nothing that could be opened for reading only: the studio itself refuses to write.
    opened.read_only = arguments.read_only and opened.database is not None
    with _session(opened) as session:
        studio.add_views(session, files)
        studio.run(session, arguments.port, arguments.host, arguments.read_only, not arguments.no_browser)
    return 0


def _calibrate(arguments: Any) -> int:
    from tsql.cli import calibrate, calibrate_spark
    from tsql.costs import cost_file, save, saved
    from tsql.planner.cost.constants import DEFAULT

    kind = arguments.backend.partition("=")[0]
    if kind not in ("local", "spark"):
        raise UsageError(f"costs are measured on local or spark[=MASTER], not on {arguments.backend}")
    if arguments.rows is not None and arguments.rows < 100_000:
        raise UsageError("fewer than 100,000 rows are no measure")

    measured: dict[str, float] = {}

    def report(name: str, value: float) -> None:
        measured[name] = value
        print(f"{name:<17} {value:>10.2f}   (default {getattr(DEFAULT, name):.2f})", flush=True)

    if kind == "local":
        calibrate.measure(arguments.rows or calibrate.ROWS, report=report)
    else:
        with Session(arguments.backend) as session:
            calibrate_spark.measure(session, arguments.rows or calibrate_spark.ROWS, report=report)
    if not arguments.dry_run:
        path = cost_file()
        # What was not measured now keeps its values.
        save(
            replace(saved(path), **measured),
            path,
            f"Measured by tsql {tsql.__version__} calibrate, {time.strftime('%Y-%m-%d %H:%M')}.",
        )
        print(f"written to {path}")
    return 0


def _bench(arguments: Any) -> int:
    from tsql.cli.benchmarks import MISSING, TPCH, benchmarks, folder, run

    if arguments.name == "tpch":
        from tsql.tpch.__main__ import main_bench

        # At the end of the process Python must find all objects, or DuckDB complains about leaks.
        atexit.register(gc.unfreeze)

        try:
            return main_bench(arguments.arguments)
        except SystemExit as leave:
            return leave.code if isinstance(leave.code, int) else 2
    known = {"tpch": TPCH} | benchmarks()
    if arguments.name is None:
        width = max(map(len, known), default=0)
        for name, about in known.items():
            print(f"{name:<{width}}  {about}")
        if folder() is None:
            print(MISSING)
        return 0
    if arguments.name not in known and folder() is not None:
        raise UsageError(f"there is no benchmark {arguments.name}: there are {', '.join(known)}")
    sys.stdout.flush()
    return run(arguments.name, arguments.arguments)


if __name__ == "__main__":
    from tsql.__main__ import script

    script()
