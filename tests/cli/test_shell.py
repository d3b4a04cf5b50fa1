"""The shell: as a script runner, with typed keys, and on a pseudo-terminal."""

import contextlib
import io
import os
import pty
import re
import select
import signal
import sys
import time

import pyarrow as pa
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import tsql
from tsql.cli.command import main
from tsql.cli.completion import SqlCompleter
from tsql.cli.shell import Shell, history_path


@pytest.fixture(autouse=True)
def state_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def script(text, capfd, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    code = main(["shell", *arguments])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def test_a_script_on_stdin(capfd, monkeypatch):
    text = """.mode csv
CREATE TABLE t AS
  SELECT 1 AS x;
.tables
.schema t

SELECT x, ';' AS s -- not the end;
FROM t; SELECT 2 AS y;
SELECT 3 AS z"""
    assert script(text, capfd, monkeypatch) == (0, "t\nCREATE TABLE t (x INTEGER);\nx,s\n1,;\ny\n2\nz\n3\n", "")


def test_a_script_stops_at_the_first_error(capfd, monkeypatch):
    code, out, err = script(".mode csv\nSELECT 1 AS a;\n\nSELECT nope;\nSELECT 2 AS b;\n", capfd, monkeypatch)
    assert (code, out) == (1, "a\n1\n")
    assert err.startswith("error: line 4, column 8: ")


def test_dot_commands(capfd, monkeypatch, tmp_path):
    (tmp_path / "more.sql").write_text("SELECT 5 AS five;\n\nSELECT 6 AS six;\n")
    code, out, err = script(
        f".help\n.mode csv\n.mode\n.timing\n.read {tmp_path / 'more.sql'}\n.quit\nSELECT 7;\n", capfd, monkeypatch
    )
    assert code == 0
    assert all(name in out for name in (".help", ".tables", ".schema", ".timing", ".mode", ".read", ".quit"))
    assert out.endswith("the mode is csv\ntiming is on\nfive\n5\nsix\n6\n")
    assert err.count("total ") == 2


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (".fly", "unknown command .fly"),
        (".mode xml", "unknown mode xml"),
        (".schema nope", "unknown table nope"),
        (".read", "takes the name of a file"),
        (".read missing.sql", "missing.sql"),
        (".timing maybe", "on or off"),
    ],
)
def test_bad_dot_commands(command, message, capfd, monkeypatch):
    code, _, err = script(command + "\n", capfd, monkeypatch)
    assert code == 1 and message in err and "Traceback" not in err


def test_an_error_in_a_file_names_its_line(capfd, monkeypatch, tmp_path):
    path = tmp_path / "bad.sql"
    path.write_text("SELECT 1 AS x;\n\nSELECT\n  nope;\n")
    code, _, err = script(f".read {path}\n", capfd, monkeypatch)
    assert code == 1 and f"error: {path}:4:3: " in err


@pytest.fixture
def typed(capfd):
    """Type keys into the line editor; what the shell printed."""

    def type_keys(keys, session=None):
        with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
            pipe.send_text(keys)
            shell = Shell(session or tsql.connect(threads=1))
            shell.serve(shell.prompt_session())
        captured = capfd.readouterr()
        return captured.out, captured.err

    return type_keys


def test_statements_may_span_lines(typed):
    out, err = typed(".mode csv\rSELECT 1 AS x,\r2 AS y\r;\r.quit\r")
    assert out.splitlines()[1:] == ["x,y", "1,2"] and err == ""


def test_an_error_does_not_end_the_shell(typed):
    out, err = typed(".mode csv\rSELECT nope;\rSELECT 3 AS z;\r\x04")
    assert "error: line 1, column 8" in err and out.endswith("z\n3\n")


def test_ctrl_c_drops_the_line(typed):
    out, err = typed(".mode csv\rSELECT never\x03SELECT 4 AS a;\r\x04")
    assert out.endswith("a\n4\n") and err == ""


def test_statements_without_rows_say_so(typed):
    out, _ = typed("CREATE VIEW v AS SELECT 1 AS x;\r.quit\r")
    assert out.splitlines()[-1] == "ok"


def test_history_is_kept(typed):
    typed(".mode csv\rSELECT 5\rAS b;\r.quit\r")
    assert "+SELECT 5\n+AS b;\n" in history_path().read_text()
    with create_app_session(output=DummyOutput()):
        history = Shell(tsql.connect()).prompt_session().history
    assert list(history.load_history_strings()) == [".quit", "SELECT 5\nAS b;", ".mode csv"]


def test_history_that_cannot_be_kept(typed, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    _, err = typed(".quit\r")
    assert "the history is not kept" in err


def completions(session, text):
    completer = SqlCompleter(session.catalog, Shell(session).commands)
    return [c.text for c in completer.get_completions(Document(text), CompleteEvent())]


def test_completion(tmp_path):
    session = tsql.connect()
    session.register("clicks", pa.table({"ad_id": [1], "odd name": [1]}))
    session.register("orders", pa.table({"order_id": [1]}))
    assert completions(session, "sel") == ["select"]
    assert completions(session, "SEL") == ["SELECT"]
    assert completions(session, "SELECT ad") == ["ad_id"]
    assert completions(session, "FROM clic") == ["clicks"]
    assert '"odd name"' in completions(session, "FROM clicks SELECT od")
    assert "order_id" not in completions(session, "FROM clicks SELECT ord")
    assert "regexp_replace" in completions(session, "SELECT regexp_re")
    assert "count" in completions(session, "SELECT cou")
    assert completions(session, ".ti") == [".timing"]
    (tmp_path / "data.parquet").write_text("")
    assert completions(session, f"FROM '{tmp_path}/da") == ["ta.parquet"]
    assert completions(session, "SELECT 1 +") == []


class Terminal:
    """A child process on a pseudo-terminal of 80 x 24."""

    def __init__(self, *command, env):
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.execve(command[0], list(command), env)
        self.text = ""

    def send(self, text):
        os.write(self.descriptor, text.encode())

    def wait_for(self, pattern, seconds=30.0):
        """Read until the pattern appears after what was found before; its moment."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.text)):
            ready, _, _ = select.select([self.descriptor], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{pattern!r} did not appear in {self.text!r}"
            try:
                self.text += os.read(self.descriptor, 65536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"the process ended before {pattern!r}: {self.text!r}") from None
        self.text = self.text[found.end() :]
        return time.monotonic()

    def exit_code(self, seconds=30.0):
        """Wait for the end of the process, reading what it still prints."""
        end = time.monotonic() + seconds
        with contextlib.suppress(OSError):  # Linux answers with EIO once the child has closed its side
            while select.select([self.descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
                os.read(self.descriptor, 65536)
            raise AssertionError("the process did not end")
        _, status = os.waitpid(self.pid, 0)
        self.pid = None
        return os.waitstatus_to_exitcode(status)

    def close(self):
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.descriptor)


@pytest.fixture
def terminal(tmp_path):
    opened = []

    def start(*command):
        environment = os.environ | {
            "TERM": "xterm-256color",
            "COLUMNS": "80",
            "LINES": "24",
            "XDG_STATE_HOME": str(tmp_path),
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        environment.pop("NO_COLOR", None)
        opened.append(Terminal(*command, env=environment))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_on_a_terminal(terminal):
    child = terminal(sys.executable, "-m", "tsql", "shell")
    child.wait_for("tsql>")
    child.send("SELECT 40 +\r2 AS answer;\r")
    child.wait_for("answer")
    child.wait_for("42")
    child.wait_for("1 row")
    child.send("SELECT nope;\r")
    child.wait_for("error")
    child.wait_for("tsql>")
    child.send("\x04")
    assert child.exit_code() == 0


SLOW_SHELL = """
import tsql.query_runner
from tests.api.slow import SlowBackend
tsql.query_runner.make_backend = lambda name, spark: SlowBackend()
from tsql.cli.command import main
main(["shell"])
"""


def test_ctrl_c_cancels_the_statement_that_runs(terminal):
    child = terminal(sys.executable, "-c", SLOW_SHELL)
    child.wait_for("tsql>")
    child.send("SELECT 1 AS x;\r")
    child.wait_for("running")
    child.send("\x03")
    child.wait_for("cancelled")
    child.wait_for("tsql>")
    child.send(".quit\r")
    assert child.exit_code() == 0


# What people type who come from other shells


@pytest.mark.parametrize("leave", ["exit", "quit", "EXIT;", "quit ;", "\\q", ".exit", ".quit", "\\q;"])
def test_ways_to_leave(typed, capfd, monkeypatch, leave):
    assert script(f".mode csv\nSELECT 1 AS a;\n{leave}\nSELECT 2 AS b;\n", capfd, monkeypatch) == (0, "a\n1\n", "")
    out, err = typed(f".mode csv\r{leave}\rSELECT 2 AS b;\r")
    assert out.count("\n") == 1 and err == "", "the shell has left, and the statement was not run"


def test_words_that_leave_are_columns_inside_a_statement(capfd, monkeypatch):
    text = ".mode csv\nSELECT\nquit\nFROM (SELECT 1 AS quit);\n"
    assert script(text, capfd, monkeypatch) == (0, "quit\n1\n", "")


def test_backslash_commands(capfd, monkeypatch, tmp_path):
    (tmp_path / "more.sql").write_text("SELECT 5 AS five;\n")
    text = (
        ".mode csv\nCREATE TABLE t (a INTEGER PRIMARY KEY, b VARCHAR);\nCREATE VIEW v AS SELECT 1 AS "
        f"x;\n\\d\n\\dt\n\\d t\n\\d v;\n\\i {tmp_path / 'more.sql'}\n"
    )
    code, out, err = script(text, capfd, monkeypatch)
    described = "column_name,column_type,null,key,default,extra\n"
    assert (code, err) == (0, "")
    assert (
        out == "t\nv\n" * 2 + f"{described}a,INTEGER,NO,PRI,,\nb,VARCHAR,YES,,,\n{described}x,INTEGER,YES,,,\nfive\n5\n"
    )


@pytest.mark.parametrize("command", ["\\?", "help", ".help", "help;"])
def test_help(capfd, monkeypatch, command):
    code, out, _ = script(f"{command}\n", capfd, monkeypatch)
    assert code == 0 and all(name in out for name in (".open", ".mode", ".describe", ".quit", "\\d [NAME]", "markdown"))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("\\x", "unknown command \\x"),
        ("\\d nope", "unknown table nope"),
        (".open a b", "one folder"),
        (".open 'a", "No closing quotation"),
        (".open nowhere/a", "there is no folder nowhere"),
    ],
)
def test_bad_commands_of_others(command, message, capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, _, err = script(command + "\n", capfd, monkeypatch)
    assert code == 1 and message in err and "Traceback" not in err and "internal" not in err


def test_timer_is_timing(capfd, monkeypatch):
    code, out, err = script(".mode csv\n.timer on\nSELECT 1 AS a;\n", capfd, monkeypatch)
    assert (code, out) == (0, "a\n1\n") and err.count("total ") == 1


def test_open(capfd, monkeypatch, tmp_path):
    """From memory to a database and back; the tables are those of the one that is open."""
    shop = tmp_path / "my shop"
    text = f"""CREATE TABLE kept_in_memory AS SELECT 1 AS x;
.open '{shop}'
.tables
CREATE TABLE items AS SELECT 2 AS y;
.open '{shop}'
.tables
.open
.tables
.open --readonly '{shop}'
.mode csv
SELECT * FROM items;
INSERT INTO items VALUES (3);
"""
    code, out, err = script(text, capfd, monkeypatch)
    assert (code, out) == (1, "items\ny\n2\n") and "reading only" in err
    tsql.connect(shop).close()  # nothing has kept it open


def test_a_database_that_cannot_be_opened_leaves_the_other_one(typed, tmp_path):
    out, err = typed(
        f".mode csv\rCREATE TABLE t AS SELECT 1 AS x;\r.open {tmp_path / 'a' / 'b'}\rSELECT x FROM t;\r.quit\r"
    )
    assert "there is no folder" in err and out.endswith("x\n1\n")


def test_completion_follows_open(tmp_path):
    with tsql.connect(tmp_path / "db") as db:
        db.execute("CREATE TABLE the_only_one AS SELECT 1 AS x")
    shell = Shell(tsql.connect())
    with create_app_session(output=DummyOutput()):
        shell.prompt_session()
    shell.submit(f".open {tmp_path / 'db'}")
    assert [c.text for c in shell.completer.get_completions(Document("FROM the_o"), CompleteEvent())] == [
        "the_only_one"
    ]
    shell.session.close()


# Modes

ROWS = (
    "SELECT * FROM (VALUES (1, 'a|b', 2.5), (20, NULL, -1.0), (3, 'x <y>' || chr(10) || 'z', NULL)) AS "
    't(id, "a name", price)'
)
MODES = {
    "list": "id|a name|price\n1|a|b|2.5\n20||-1.0\n3|x <y>\nz|\n",
    "tabs": "id\ta name\tprice\n1\ta|b\t2.5\n20\t\t-1.0\n3\tx <y>\nz\t\n",
    "line": (
        "    id = 1\na name = a|b\n price = 2.5\n\n    id = 20\na name = NULL\n price = -1.0\n\n    id = "
        "3\na name = x <y>\\nz\n price = NULL\n"
    ),
    "markdown": (
        "|  id | a name   | price |\n|----:|----------|------:|\n|   1 | a\\|b     |   2.5 |\n|  20 | NULL   "
        "  |  -1.0 |\n|   3 | x <y>\\nz |  NULL |\n"
    ),
    "html": (
        "<tr><th>id</th><th>a name</th><th>price</th></tr>\n<tr><td>1</td><td>a|b</td><td>2.5</td></tr>\n"
        "<tr><td>20</td><td>NULL</td><td>-1.0</td></tr>\n<tr><td>3</td><td>x &lt;y&gt;\\nz</td><td>NULL</td></tr>\n"
    ),
}


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode, capfd, monkeypatch, tmp_path):
    assert script(f".mode {mode.upper()}\n{ROWS};\n", capfd, monkeypatch) == (0, MODES[mode], "")
    assert main(["run", ROWS, "-f", mode]) == 0
    assert capfd.readouterr().out == MODES[mode]
    assert main(["run", ROWS, "-f", mode, "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out").read_text() == MODES[mode]


@pytest.mark.parametrize("mode", ["table", "csv", "json", *MODES])
def test_modes_without_rows(mode, capfd, monkeypatch):
    code, out, err = script(f".mode {mode}\nSELECT 1 AS x WHERE false;\n", capfd, monkeypatch)
    assert (code, err) == (0, "") and ("x" in out) is (mode not in ("json", "line"))


@pytest.mark.parametrize(
    ("alias", "mode"), [("box", "table"), ("duckbox", "table"), ("jsonlines", "json"), ("md", "markdown")]
)
def test_names_of_modes_in_other_shells(alias, mode, capfd, monkeypatch):
    assert script(f".mode {alias}\n.mode\n", capfd, monkeypatch) == (0, f"the mode is {mode}\n", "")


COPY_SHELL = """
import tsql.query_runner
from tests.api.slow import SlowBackend
tsql.query_runner.make_backend = lambda name, spark: SlowBackend()
from tsql.cli.command import main
main(["shell"])
"""


def test_copy_shows_its_progress(terminal, tmp_path):
    child = terminal(sys.executable, "-c", COPY_SHELL)
    child.wait_for("tsql>")
    child.send(f"COPY (SELECT 1 AS x) TO '{tmp_path}/out.csv';\r")
    child.wait_for("running")
    child.wait_for(r"\d%")
    child.send("\x03")
    child.wait_for("cancelled")
    child.wait_for("tsql>")
    child.send("CREATE TABLE t AS SELECT 1 AS x;\r")
    child.wait_for("running")
    child.send("\x03")
    child.wait_for("cancelled")
    child.send("exit\r")
    assert child.exit_code() == 0
