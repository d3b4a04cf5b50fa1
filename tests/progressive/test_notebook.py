"""Snapshots in a notebook: with IPython's own display machinery, as a table and as a widget."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import comm
import pyarrow as pa
import pytest
from comm.base_comm import BaseComm
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import tsql
from tests.patience import PATIENCE_SECONDS
from tests.progressive.scripted import SQL as ANY
from tests.progressive.scripted import Scripted, arrays
from tsql import notebook
from tsql.kernels.expr.errors import ExecutionError
from tsql.snapshot_html import html_of
from tsql.snapshots import Snapshot


class Notebook:
    """A shell as notebooks have it, and what it has published."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        InteractiveShell.clear_instance()
        self._before = sys.displayhook, sys.excepthook
        config = Config({"HistoryManager": {"enabled": False}})
        self.shell = InteractiveShell.instance(config=config, display_pub_class=CapturingDisplayPublisher)
        self.errors = io.StringIO()
        monkeypatch.setattr(self.shell, "_showtraceback", lambda kind, error, lines: self.errors.write(str(error)))
        self.results: list[dict[str, str]] = []
        monkeypatch.setattr(DisplayHook, "write_format_data", lambda _, data, meta=None: self.results.append(data))

    def run(self, cell: str, **names: Any) -> Any:
        self.shell.user_ns.update(names)
        return self.shell.run_cell(cell)

    @property
    def shown(self) -> list[dict[str, Any]]:
        return self.shell.display_pub.outputs

    def close(self) -> None:
        sys.displayhook, sys.excepthook = self._before
        InteractiveShell.clear_instance()


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Notebook]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    found = Notebook(monkeypatch)
    yield found
    found.close()


@pytest.fixture
def every(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each snapshot is drawn, however soon it comes."""
    monkeypatch.setattr(notebook, "EVERY_SECONDS", 0.0)


@pytest.fixture
def without_widget(monkeypatch: pytest.MonkeyPatch) -> None:
    find = notebook.importlib.util.find_spec
    monkeypatch.setattr(
        notebook.importlib.util, "find_spec", lambda name, *rest: None if name == "anywidget" else find(name, *rest)
    )


# The table


@pytest.mark.usefixtures("every", "without_widget")
@pytest.mark.parametrize("cell", ["relation", "relation.snapshots().display()"])
def test_a_table_that_is_replaced(book: Notebook, cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tsql.connect(backend=Scripted()) as db:
        relation = db.sql(ANY)
        monkeypatch.setattr(type(relation), "is_progressive", True)
        assert book.run(cell, relation=relation).success
    places = {one["transient"]["display_id"] for one in book.shown}
    assert len(places) == 1 and [one["update"] for one in book.shown] == [False] + [True] * 5
    html = [one["data"]["text/html"] for one in book.shown]
    for number in range(1, 6):
        assert f"{number * 20}% of the input, {number * 10} rows" in html[number]
        assert ("± " in html[number]) == (number < 5)
        assert f"{number * 20}% of the input" in book.shown[number]["data"]["text/plain"]
    assert "(exact)" in html[-1] and book.results == [] and book.errors.getvalue() == ""


@pytest.mark.usefixtures("without_widget")
def test_snapshots_that_come_fast_are_left_out(book: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last are always drawn."""
    monkeypatch.setattr(notebook, "EVERY_SECONDS", 1e9)
    with tsql.connect(backend=Scripted(count=50)) as db:
        book.run("relation.snapshots().display()", relation=db.sql(ANY))
    assert ["2% of the input" in book.shown[1]["data"]["text/html"], len(book.shown)] == [True, 3]
    assert "(exact)" in book.shown[-1]["data"]["text/html"]


def test_other_relations_are_shown_as_ever(book: Notebook) -> None:
    with tsql.connect() as db:
        book.run("relation", relation=db.sql("SELECT 42 AS answer"))
    assert book.shown == [] and "42" in book.results[0]["text/plain"]


@pytest.mark.usefixtures("every", "without_widget")
@pytest.mark.parametrize("cell", ["relation", "relation.snapshots().display()"])
def test_interrupting_the_cell_ends_the_run(book: Notebook, cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Scripted(held=2)
    backend.waits.set = lambda: signal.raise_signal(signal.SIGINT)  # type: ignore[method-assign]
    with tsql.connect(backend=backend) as db:
        relation = db.sql(ANY)
        monkeypatch.setattr(type(relation), "is_progressive", True)
        result = book.run(cell, relation=relation)
    assert isinstance(result.error_in_exec, KeyboardInterrupt) and backend.ended.is_set()
    assert "40% of the input" in book.shown[-1]["data"]["text/html"]
    assert "(interrupted)" in book.shown[-1]["data"]["text/html"]


@pytest.mark.usefixtures("every", "without_widget")
def test_an_error_is_told_once(book: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython would show the relation in another way, and run the query again."""
    backend = Scripted(held=1, error=ExecutionError("the disk is gone"))
    backend.go_on.set()
    with tsql.connect(backend=backend) as db:
        relation = db.sql(ANY)
        monkeypatch.setattr(type(relation), "is_progressive", True)
        book.run("relation", relation=relation)
    assert book.errors.getvalue() == "the disk is gone" and book.results == [] and backend.given == 1
    assert "(failed)" in book.shown[-1]["data"]["text/html"]


def test_outside_of_a_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    """As the command line shows them."""
    with tsql.connect(backend=Scripted()) as db:
        db.sql(ANY).snapshots().display()
    assert "100% of the input, 50 rows" in capsys.readouterr().out


def test_nothing_is_imported_that_is_not_used() -> None:
    program = f"""
        import sys, tsql
        from tests.progressive.scripted import Scripted

        with tsql.connect(backend=Scripted()) as db:
            relation = db.sql({ANY!r})
            for snap in relation.snapshots():
                snap._repr_html_()
            repr(relation)
        print(sorted(sys.modules.keys() & {{"IPython", "anywidget", "ipywidgets", "traitlets", "rich"}}))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


# HTML


class Page(HTMLParser):
    """The elements of a page, which must be nested as they should."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag != "br":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if self.open[-1:] != ["style"] else ""


def snapshot(sql: str = ANY, count: int = 2, **change: Any) -> Snapshot:
    with tsql.connect(backend=Scripted(count=count, **change)) as db:
        return next(db.sql(sql).snapshots())


def test_text_is_escaped() -> None:
    evil = "<script>alert('x')</script>&\"\x1b[2J"
    notes = {1: "<b>bold</b>"}
    with tsql.connect() as db:
        table = {"name": [evil], '<img src=x onerror="y">': [1]}
        db.register("t", table)
        last = next(db.sql("FROM t").snapshots())
    page = Page(html_of(last, "<i>"))
    assert evil.replace("\x1b", " ") in page.text and '<img src=x onerror="y">' in page.text and "(<i>)" in page.text
    assert "<b>bold</b>" in Page(html_of(snapshot(notes=notes))).text
    assert {tag for tag, _ in page.found} <= {"div", "style", "table", "thead", "tbody", "tr", "th", "td", "span", "br"}


def test_error_bars() -> None:
    """A bar from zero to the value, and a whisker from bound to bound, on one scale for the column."""
    text = html_of(snapshot(bounds={2: (arrays(90.0, 15.0, None), arrays(110.0, 25.0, None))}))
    page = Page(text)
    bars = [attrs for tag, attrs in page.found if tag == "rect"]
    whiskers = [attrs["d"] for tag, attrs in page.found if tag == "path"]
    assert len(bars) == len(whiskers) == 2 and "± 10" in page.text and "± 5.0" in page.text
    # 110 is the right edge, 88 pixels from the left one, and zero is at 2.
    ends = [float(bar["x"] or 0) + float(bar["width"] or 0) for bar in bars]
    assert ends == pytest.approx([2 + 100 / 110 * 86, 2 + 20 / 110 * 86], abs=0.11)
    found = [[float(number) for number in re.findall(r"[MH](\d+\.\d)", path or "")[:2]] for path in whiskers]
    assert [(low, high) for low, high in found] == [
        pytest.approx((2 + low / 110 * 86, 2 + high / 110 * 86), abs=0.06) for low, high in ((90, 110), (15, 25))
    ]


@pytest.mark.parametrize(
    "bounds",
    [
        {},
        {2: (arrays(None, None, None), arrays(None, None, None))},
        {2: (arrays(float("-inf"), float("nan"), 1.0), arrays(float("inf"), 2.0, 1.0))},
        {2: (arrays(0.0, 0.0, 0.0), arrays(0.0, 0.0, 0.0))},
        {2: (arrays(-1e308, -5.0, None), arrays(1e308, -4.0, None))},
    ],
)
def test_bounds_that_are_hard_to_draw(bounds: dict[int, Any]) -> None:
    page = Page(html_of(snapshot(bounds=bounds)))
    numbers = re.findall(r"nan|inf", str([attrs for _, attrs in page.found]))
    assert numbers == [] and "100" in page.text


def test_what_is_said_of_rows_and_columns() -> None:
    status = pa.chunked_array([["certain", "possible", None]])
    page = Page(html_of(snapshot(notes={1: "observed so far"}, status=status)))
    rows = [attrs.get("title") for tag, attrs in page.found if tag == "tr"]
    assert rows == [None, None, "possible", None]
    assert "bigint, observed so far" in page.text and "faint rows may leave" in page.text


def test_large_tables() -> None:
    with tsql.connect(threads=1) as db:
        db.register("t", {"x": list(range(2000)), "long": ["y" * 5000] * 2000})
        columns = ", ".join(f"x + {i} AS c{i}" for i in range(60))
        last = next(db.sql(f"SELECT long, {columns} FROM t").snapshots())
    text = html_of(last)
    assert len(text) < 50_000 and text.count("<tr") == 31
    assert "2,000 rows (30 shown); 61 columns (30 shown)" in Page(text).text


# The widget


class Comm(BaseComm):
    """What the page would be sent."""

    sent: list[tuple[dict[str, Any], list[bytes]]] = []

    def publish_msg(self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **_: Any) -> None:
        Comm.sent.append((data or {}, [bytes(one) for one in buffers or ()]))


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, every: None) -> Iterator[list[Any]]:
    """A page with a widget.js; the messages that it gets."""
    path = tmp_path / "widget.js"
    path.write_text("export default {render() {}};")
    monkeypatch.setattr(notebook, "WIDGET", path)
    monkeypatch.setattr(comm, "create_comm", Comm)
    notebook.widget_class.cache_clear()
    Comm.sent = []
    yield Comm.sent
    notebook.widget_class.cache_clear()


def states(sent: list[Any]) -> list[tuple[dict[str, Any], pa.Table | None]]:
    """What each update says, with its rows."""
    found = []
    for data, buffers in sent:
        state = data.get("state", {})
        if "about" in state and state["about"]:
            paths = data.get("buffer_paths", [])
            rows = pa.ipc.open_stream(buffers[paths.index(["snapshot"])]).read_all() if ["snapshot"] in paths else None
            found.append((state["about"], rows))
    return found


def test_the_widget(book: Notebook, page: list[Any]) -> None:
    status = pa.chunked_array([["certain", "possible", None]])
    with tsql.connect(backend=Scripted(notes={1: "observed so far"}, status=status)) as db:
        assert book.run("relation.snapshots().display()", relation=db.sql(ANY)).success
    assert "application/vnd.jupyter.widget-view+json" in book.shown[0]["data"] and len(book.shown) == 1
    (code,) = (data["state"]["_esm"] for data, _ in page if "_esm" in data.get("state", {}))
    assert code == "export default {render() {}};"
    found = states(page)
    assert [about["progress"] for about, _ in found] == [0.2, 0.4, 0.6, 0.8, 1.0]
    about, rows = found[0]
    json.dumps(about)
    assert about["columns"] == [
        {"name": "name", "type": "VARCHAR"},
        {"name": "n", "type": "BIGINT"},
        {"name": "m", "type": "DOUBLE"},
    ]
    assert (about["rows_read"], about["is_final"], about["rows"], about["bounds"]) == (10, False, 3, [2])
    assert about["notes"] == {"n": "observed so far"} and about["row_status"] == ["certain", "possible", None]
    assert rows is not None and rows.to_pydict() == {
        "0": ["a", "b", "c"],
        "1": [0, 0, 0],
        "2": [100.0, 20.0, None],
        "2 low": [96.0, None, None],
        "2 high": [104.0, None, None],
    }
    assert found[-1][0]["is_final"] and found[-1][0]["state"] == ""


@pytest.mark.parametrize("op", ["stop", "finish"])
def test_buttons_of_the_widget(book: Notebook, page: list[Any], op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that comes while the query computes, as subshells of notebooks hand it out."""
    charts: list[Any] = []
    begin = notebook.Chart.__init__

    def keep(chart: Any, snapshots: Any) -> None:
        begin(chart, snapshots)
        charts.append(chart)

    monkeypatch.setattr(notebook.Chart, "__init__", keep)
    backend = Scripted(held=2)
    told: Callable[[], None] = lambda: charts[0].widget._handle_custom_msg({"type": op}, [])
    backend.waits.set = lambda: (told(), backend.go_on.set())  # type: ignore[method-assign, func-returns-value]
    with tsql.connect(backend=backend) as db:
        assert book.run("relation.snapshots().display()", relation=db.sql(ANY)).success
    last = states(page)[-1][0]
    expected = {"stop": (0.4, "stopped", 3), "finish": (1.0, "", 3)}[op]
    assert (last["progress"], last["state"], len(states(page))) == expected and backend.ended.is_set()


def test_a_page_that_was_not_built(book: Notebook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The table says what is missing."""
    monkeypatch.setattr(notebook, "WIDGET", tmp_path / "widget.js")
    with tsql.connect(backend=Scripted()) as db:
        book.run("relation.snapshots().display()", relation=db.sql(ANY))
    assert "this installation lacks widget.js" in book.shown[-1]["data"]["text/html"]
    assert "(exact)" in book.shown[-1]["data"]["text/html"]


def test_frames() -> None:
    """What JavaScript has no exact number for is text, as the command line shows it; names are places."""
    with tsql.connect() as db:
        sql = (
            "SELECT 170141183460469231731687303715884105727::HUGEINT AS a, 1.50::DECIMAL(9, 2) AS a, "
            "INTERVAL '1 month 2 days' AS c, 9007199254740993 AS d, DATE '2024-02-29' AS e, NULL::DECIMAL(5, 1) AS f, "
            "'a\\xFF'::BLOB AS g"
        )
        last = next(db.sql(sql).snapshots())
    rows = pa.ipc.open_stream(notebook.frame(last)).read_all()
    assert [str(field.type) for field in rows.schema] == [
        "string",
        "string",
        "string",
        "int64",
        "date32[day]",
        "string",
        "string",
    ]
    assert [rows[str(place)][0].as_py() for place in (0, 1, 2, 3, 5, 6)] == [
        "170141183460469231731687303715884105727",
        "1.50",
        "1 month 2 days",
        9007199254740993,
        None,
        r"a\xFF",
    ]


def test_frames_of_many_rows() -> None:
    with tsql.connect(threads=1) as db:
        last = next(db.sql("SELECT range AS x FROM range(5000) ORDER BY x").snapshots())
    assert pa.ipc.open_stream(notebook.frame(last)).read_all().num_rows == 1000
    assert pa.ipc.open_stream(notebook.frame(last, 4990, 100)).read_all()["0"].to_pylist() == list(range(4990, 5000))
    assert notebook.about(last)["rows"] == 5000
