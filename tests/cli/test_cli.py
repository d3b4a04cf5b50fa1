"""The command line: formats, files, exit codes, and errors as one message."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import tsql
from tests.api.slow import SlowBackend
from tests.patience import PATIENCE_SECONDS, wait_until
from tsql.__main__ import script
from tsql.cli.command import main

QUERY = "SELECT * FROM (VALUES (1, 'a'), (2, NULL), (3, 'c')) AS v(x, y)"


def run(*arguments, stdin="", env=None):
    """Run the command in a process of its own; (exit code, stdout, stderr)."""
    done = subprocess.run(
        [sys.executable, "-m", "tsql", *arguments],
        input=stdin.encode(),
        capture_output=True,
        env=os.environ | (env or {}),
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.fixture
def call(capfd, monkeypatch):
    """Run the command in this process; (exit code, stdout, stderr)."""

    def invoke(*arguments, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = main(arguments)
        sys.stdout.flush()
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return invoke


def test_a_table_by_default(call):
    code, out, err = call("run", QUERY)
    assert (code, err) == (0, "")
    assert out == (
        "┌─────────┬─────────┐\n│    x    │    y    │\n│ integer │ varchar │\n├─────────┼─────────┤\n│     "
        "  1 │ a       │\n│       2 │ NULL    │\n│       3 │ c       │\n└─────────┴─────────┘\n 3 rows\n"
    )


def test_formats_on_stdout(call):
    code, out, _ = call("run", QUERY, "-f", "csv")
    assert code == 0 and out.split() == ["x,y", "1,a", "2,", "3,c"]
    code, out, _ = call("run", QUERY, "-f", "json")
    assert code == 0 and [json.loads(line) for line in out.splitlines()] == [
        {"x": 1, "y": "a"},
        {"x": 2, "y": None},
        {"x": 3, "y": "c"},
    ]


def test_binary_formats_on_the_stdout_of_a_process():
    code, out, _ = run("run", QUERY, "-f", "parquet")
    assert code == 0 and pq.read_table(io.BytesIO(out))["x"].to_pylist() == [1, 2, 3]
    code, out, _ = run("run", QUERY, "-f", "arrow")
    opened = pa.ipc.open_file(out) if out.startswith(b"ARROW1") else pa.ipc.open_stream(out)
    assert code == 0 and opened.read_all()["y"].to_pylist() == ["a", None, "c"]


@pytest.mark.parametrize("options", [("-f", "csv"), ()], ids=["csv", "table"])
def test_pandas_is_not_imported(options):
    """It takes a third of a second, and pyarrow imports it with its first array if it is installed."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tsql", "run", QUERY, *options],
        capture_output=True,
        timeout=120,
        check=True,
    )
    imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.decode().splitlines() if "|" in line}
    assert "pyarrow.lib" in imported and "pandas.core" not in imported


@pytest.mark.parametrize("name", ["r.csv", "r.json", "r.parquet", "r.arrow"])
def test_output_files_go_by_their_names(call, tmp_path, name):
    path = str(tmp_path / name)
    assert call("run", QUERY, "-o", path) == (0, "", "")
    code, out, _ = call("run", f"SELECT sum(x) AS s FROM '{path}'", "-f", "csv")
    assert (code, out.split()) == (0, ["s", "6"])


def test_a_table_in_a_file(call, tmp_path):
    assert call("run", "SELECT 1 AS x", "-o", str(tmp_path / "r.txt")) == (0, "", "")
    assert "│       1 │" in (tmp_path / "r.txt").read_text()


def test_sql_files_and_stdin(call, tmp_path):
    (tmp_path / "q.sql").write_text("CREATE TABLE t AS SELECT 41 AS x;\n-- and then\nSELECT x + 1 AS y FROM t;\n")
    assert call("run", str(tmp_path / "q.sql"), "-f", "csv")[:2] == (0, "y\n42\n")
    assert call("run", "-", "-f", "csv", stdin="SELECT 7 AS z")[:2] == (0, "z\n7\n")


def test_each_result_of_a_script_is_shown(call):
    code, out, _ = call("run", "SELECT 1 AS a; SELECT 2 AS b", "-f", "csv")
    assert (code, out.split()) == (0, ["a", "1", "b", "2"])


def test_one_result_where_the_output_holds_one(call, tmp_path):
    code, _, err = call("run", "SELECT 1 AS a; SELECT 2 AS b", "-o", str(tmp_path / "r.csv"))
    assert code == 2 and err == "tsql: the script has several results, and this output holds one\n"
    assert not (tmp_path / "r.csv").exists()


def test_parameters_settings_and_tables(call, tmp_path):
    pq.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / "f.parquet")
    arguments = (
        "-t",
        f"f={tmp_path / 'f.parquet'}",
        "-p",
        "low=2",
        "-p",
        "d=DATE '2024-01-02'",
        "--set",
        "threads=1",
        "--memory-limit",
        "1GB",
        "--threads",
        "1",
    )
    assert call("run", "SELECT count(*) AS n, $d AS d FROM f WHERE x >= $low", "-f", "csv", *arguments)[:2] == (
        0,
        "n,d\n2,2024-01-02\n",
    )


def test_timing_goes_to_stderr(call):
    code, out, err = call("run", "SELECT 1 AS x", "--timing", "-f", "csv")
    assert (code, out) == (0, "x\n1\n")
    assert "parse " in err and "total " in err


def test_a_query_error_is_one_message(call, tmp_path):
    path = tmp_path / "q.sql"
    path.write_text("SELECT 1 AS x;\nSELECT y FROM (SELECT 1 AS x)\n")
    code, _, err = call("run", str(path))
    first, text, caret, *_ = err.splitlines()
    assert code == 1 and first.startswith(f"error: {path}:2:8: ")
    assert text == "  SELECT y FROM (SELECT 1 AS x)" and caret == "         ^"
    assert "Traceback" not in err


def test_debug_shows_the_traceback(call):
    code, _, err = call("run", "SELECT nope", "--debug")
    assert code == 1 and "Traceback" in err and "error: " in err


@pytest.mark.parametrize(
    "arguments",
    [
        (), ("fly",), ("run",), ("run", "SELECT 1", "--format", "xml"), ("run", "missing.sql"), ("run", "missing.plan"),
        ("run", " "), ("check", "missing.plan"), ("run", "SELECT 1", "--backend", "cloud"),
        ("run", "SELECT 1", "-p", "x"), ("run", "SELECT 1", "--set", "speed=1"), ("run", "SELECT 1", "--threads", "-1"),
        ("run", "SELECT 1", "--memory-limit", "much"), ("diff", "a.plan"), ("diff", "missing.plan", "missing.plan"),
        ("explain", "SELECT 1", "--level", "deep"),
    ],
)  # fmt: skip
def test_a_wrong_command_line(call, arguments):
    code, out, err = call(*arguments)
    assert (code, out) == (2, "") and err and "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("run", "SELECT 1", "--max-rows", "abc"),
            "argument --max-rows: expected a whole number of at least 0, not 'abc'",
        ),
        (
            ("run", "SELECT 1", "--threads", "1.5"),
            "argument --threads: expected a whole number of at least 0, not '1.5'",
        ),
        (
            ("plan", "SELECT 1", "--candidates", "x"),
            "argument --candidates: expected a whole number of at least 1, not 'x'",
        ),
        (("plan", "SELECT 1", "--candidates", "0"), "argument --candidates: 0 is less than 1"),
    ],
)
def test_a_number_that_is_none_says_what_is_expected(call, arguments, said):
    code, out, err = call(*arguments)
    assert (code, out) == (2, "") and err.endswith(f"error: {said}\n")


def without(descriptor, *arguments):
    """Run the command in a process whose stdout (1) or stderr (2) is closed; (exit code, what the other one got)."""
    command = [sys.executable, "-m", "tsql", *arguments]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {descriptor}>&-', "sh", *command], capture_output=True, timeout=120, check=False
    )
    return done.returncode, (done.stderr if descriptor == 1 else done.stdout).decode()


@pytest.mark.parametrize(
    "arguments",
    [("run", "SELECT 1", "-f", "csv"), ("run", "SELECT 1"), ("run", "SELECT 1", "-f", "parquet"), ("plan", "SELECT 1")],
    ids=["csv", "table", "parquet", "plan"],
)
def test_a_closed_stdout_is_one_message(arguments):
    assert without(1, *arguments) == (1, "error: stdout: it is closed\n")


def test_a_closed_stdout_matters_only_to_what_writes_there(tmp_path):
    path = tmp_path / "r.csv"
    assert without(1, "run", "SELECT 1 AS x", "-o", str(path)) == (0, "")
    assert path.read_text().split() == ["x", "1"]


def test_messages_for_a_closed_stderr_do_not_go_to_stdout():
    assert without(2, "run", "SELECT nope", "-f", "csv") == (1, "")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT",
        "SELECT nope",
        "SELECT 1 FROM 'missing.parquet'",
        "DROP TABLE nope",
        "SELECT CAST('x' AS INTEGER)",
        "",
        "SELECT '",
    ],
)
def test_a_failing_query(call, query):
    code, out, err = call("run", "-", stdin=query)
    assert (code, out) == (1, "") and err.startswith("error: ") and "Traceback" not in err


def test_files_that_are_no_text(call, tmp_path):
    (tmp_path / "q.sql").write_bytes(b"SELECT '\xff'")
    code, _, err = call("run", str(tmp_path / "q.sql"))
    assert code == 1 and "byte 8 is not UTF-8" in err


def test_plan_check_run_diff(call, tmp_path):
    pq.write_table(pa.table({"k": [1, 1, 2], "v": [10, 20, 30]}), tmp_path / "f.parquet")
    query = f"SELECT k, sum(v) AS s FROM '{tmp_path / 'f.parquet'}' GROUP BY k ORDER BY k"
    first, second = str(tmp_path / "a.plan"), str(tmp_path / "b.plan")
    code, printed, _ = call("plan", query)
    assert code == 0 and printed.startswith("plan version 1\n")
    assert call("plan", query, "-o", first)[:2] == (0, "")
    assert call("run", first, "-f", "csv")[:2] == (0, "k,s\n1,30\n2,30\n")
    code, out, _ = call("check", first)
    assert code == 0 and out.startswith(f"{first}: ok, (k BIGINT, s ")
    call("plan", query.replace("ORDER BY k", "ORDER BY s, k"), "-o", second)
    assert call("diff", first, first)[:2] == (0, "")
    code, out, _ = call("diff", first, second)
    assert code == 0 and out.startswith(f"--- {first}\n+++ {second}\n@@ ") and "\n-query " in out and "\n+query " in out


def test_diff_of_a_file_that_is_no_plan(call, tmp_path):
    plan, other, empty = tmp_path / "a.plan", tmp_path / "mk.sql", tmp_path / "empty.plan"
    plan.write_text("# by hand\n\nplan version 1\n")
    other.write_text("\nCREATE TABLE t (a INTEGER);\nSELECT 1\n")
    empty.write_text("")
    for files in ((plan, other), (other, plan)):
        code, out, err = call("diff", *map(str, files))
        assert (code, out) == (1, "")
        assert err == (
            f"error: {other}:2:1: this is no plan file: it would start with `plan version`\n  CREATE TABLE "
            "t (a INTEGER);\n  ^\n"
        )
    code, out, err = call("diff", str(plan), str(empty))
    assert (code, out) == (1, "") and err.startswith(f"error: {empty}:1:1: this is no plan file")
    assert call("diff", str(plan), str(plan)) == (0, "", "")


def test_a_damaged_plan_file(call, tmp_path):
    path = tmp_path / "bad.plan"
    path.write_text("plan version 1\nnonsense here\n")
    for command in ("check", "run"):
        code, _, err = call(command, str(path))
        assert code == 1 and err.startswith(f"error: {path}") and "Traceback" not in err


@pytest.mark.parametrize("level", ["logical", "physical", "pipelines", "kir", "llvm", "asm", "analyze"])
def test_explain(call, level):
    code, out, err = call(
        "explain", "SELECT x, count(*) AS n FROM (VALUES (1), (2)) AS v(x) GROUP BY x", "--level", level
    )
    assert (code, err) == (0, "") and out.strip()


def test_an_explain_statement_prints_text(call):
    code, out, _ = call("run", "EXPLAIN LOGICAL SELECT 1 AS x")
    assert code == 0 and out.startswith("output (") and "│" not in out


def test_version(call):
    assert call("--version")[1] == f"tsql {tsql.__version__}\n"


def test_bench_tpch(call):
    code, out, _ = call("bench")
    assert code == 0 and any(line.startswith("tpch ") for line in out.splitlines())
    code, out, _ = call("bench", "tpch", "--help")
    assert code == 0 and out.startswith("usage: tsql bench tpch ") and "--modes" in out
    assert call("bench", "tpch", "--engines", "oracle")[0] == 2
    assert call("bench", "nothing")[0] == 2


def test_a_reader_that_leaves_early(tmp_path):
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"x": range(300_000)}), path)
    child = subprocess.Popen(
        [sys.executable, "-m", "tsql", "run", f"SELECT x FROM '{path}'", "-f", "csv"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout.readline().strip(b'"\n') == b"x"
    child.stdout.close()
    assert child.wait(60) == 0
    assert child.stderr.read() == b""
    child.stderr.close()


def test_ctrl_c(call, monkeypatch):
    backend = SlowBackend()
    monkeypatch.setattr("tsql.query_runner.make_backend", lambda name, spark: backend)
    threading.Thread(target=lambda: (backend.started.wait(), os.kill(os.getpid(), signal.SIGINT))).start()
    code, out, err = call("run", "SELECT 1 AS x")
    assert (code, out, err) == (130, "", "interrupted\n")


def test_check_compares_with_the_query(call, tmp_path):
    pq.write_table(pa.table({"k": [1, 1, 2], "v": [10, 20, 30]}), tmp_path / "f.parquet")
    path = tmp_path / "a.plan"
    assert call("plan", f"SELECT k, v FROM '{tmp_path / 'f.parquet'}' WHERE v > 10", "-o", str(path))[0] == 0
    code, out, _ = call("check", str(path))
    assert (code, out) == (0, f"{path}: ok, (k BIGINT, v BIGINT); its answer is that of its query, 2 rows\n")
    head, query, *steps = path.read_text().splitlines()
    path.write_text("\n".join([head, query, *(step.replace("> 10", "> 20") for step in steps)]) + "\n")
    code, out, err = call("check", str(path))
    assert (code, out) == (1, "") and "1 row, expected 2: 1 missing, 0 too many\n  missing   (k 1, v 20)\n" in err
    code, out, _ = call("check", "--no-run", str(path))
    assert (code, out) == (0, f"{path}: ok, (k BIGINT, v BIGINT)\n")
    path.write_text("\n".join([head, *steps]) + "\n")
    assert call("check", str(path))[1] == f"{path}: ok, (k BIGINT, v BIGINT); it has no query line to compare with\n"


def test_candidates(call, tmp_path):
    pq.write_table(pa.table({"x": [1, 1, 2]}), tmp_path / "f.parquet")
    query = f"SELECT x, count(*) AS n FROM '{tmp_path / 'f.parquet'}' GROUP BY x"
    code, out, _ = call("plan", query, "--candidates", "2", "--threads", "2")
    assert code == 0 and out.startswith("# candidate 1 of ") and out.count("plan version 1\n") == 2
    assert call("plan", query, "--candidates", "2", "-o", str(tmp_path / "x.plan"))[0] == 2
    assert call("plan", query, "--candidates", "0")[0] == 2


def test_bench_lists_and_runs(call, capfd, monkeypatch, tmp_path):
    code, out, _ = call("bench")
    assert code == 0 and "\nmicro.bandwidth  " in out and "\nsingle_table     Queries over one table" in out
    code, out, _ = call("bench", "micro.bandwidth", "1")
    assert code == 0 and "GB/s" in out
    code, _, err = call("bench", "nothing")
    there = "there is no benchmark nothing: there are tpch, ads, bigdata, cancel, coverage, live, micro.bandwidth, "
    assert code == 2 and there in err
    monkeypatch.setattr("tsql.__file__", str(tmp_path / "tsql" / "__init__.py"))
    assert call("bench")[:2] == (
        0,
        "tpch  TPC-H beside DuckDB, Hyper, Polars and DataFusion\n"
        "all benchmarks but tpch are in the repository only, in its folder bench/\n",
    )
    code, out, err = call("bench", "single_table")
    assert (code, out) == (1, "") and "hint: clone" in err
    assert err.startswith("error: all benchmarks but tpch are in the repository only, in its folder bench/")


def test_the_process_ends_at_once_after_ctrl_c(tmp_path):
    """Neither the interpreter's exit nor a kernel in progress keeps an interrupted process; the query has hours to
    go."""
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"s": [f"text {i}" for i in range(300_000)]}), path)
    query = f"SELECT max(md5(a.s || b.s)) FROM '{path}' a, '{path}' b WHERE md5(a.s || b.s) < '1'"
    child = subprocess.Popen(
        [sys.executable, "-m", "tsql", "run", query, "-f", "csv"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    # The compiler is loaded when the query starts.
    assert wait_until(lambda: "libllvmlite" in Path(f"/proc/{child.pid}/maps").read_text())
    child.send_signal(signal.SIGINT)
    code = child.wait(PATIENCE_SECONDS)
    err = child.stderr.read()
    child.stderr.close()
    assert (code, err) == (130, b"interrupted\n")


def test_ctrl_c_before_the_command_runs(monkeypatch, capfd):
    def interrupted():
        raise KeyboardInterrupt

    def leave(code):
        raise SystemExit(code)

    monkeypatch.setattr("tsql.cli.command.main", interrupted)
    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(SystemExit) as ended:
        script()
    assert ended.value.code == 130 and capfd.readouterr().err == "interrupted\n"
