"""The page of the studio in a real browser, against the real server. Each test ends with `Tab.check`: no request to
another origin, no error, nothing that the Content-Security-Policy refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from playwright.sync_api import Browser, expect

import tsql
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.studio.browser import Tab, headless
from tests.studio.conftest import table
from tests.studio.page import GatedBackend
from tsql.studio import Studio, files, serve

GROUPS = "SELECT g, sum(x) AS total, count(*) AS n FROM t GROUP BY g ORDER BY g"
MANY = 1_000_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Of the module: Playwright's event loop would be in the way of later tests that have their own.
    with headless() as found:
        yield found


@pytest.fixture
def tab(browser: Browser, studio: Studio) -> Iterator[Tab]:
    found = Tab(browser, studio.address)
    yield found
    found.check()
    found.context.close()


@pytest.fixture
def gated_tab(browser: Browser, gated: Studio) -> Iterator[Tab]:
    found = Tab(browser, gated.address)
    yield found
    found.check()
    found.context.close()


def exact(sql: str) -> list[tuple[str, ...]]:
    """What a query gives, as texts of DuckDB."""
    with duckdb.connect() as db:
        db.register("t", table())
        names = [name for name, *_ in db.sql(sql).description]
        texts = ", ".join(f"coalesce(CAST({name} AS VARCHAR), 'NULL')" for name in names)
        return db.sql(f"SELECT {texts} FROM ({sql}) AS q").fetchall()


def test_a_result_settles(gated_tab: Tab, backend: GatedBackend) -> None:
    tab = gated_tab
    tab.run(GROUPS, until="running")
    for _ in range(6):
        backend.gate.release()
    expect(tab.progress).to_contain_text("% of the input")
    expect(tab.progress).not_to_contain_text("100%")
    expect(tab.row(0).locator(".width").nth(1)).to_contain_text("±")
    expect(tab.page.locator(".result-chart .error-bar").first).to_be_attached()
    assert tab.page.locator(".progress-bar").get_attribute("aria-valuenow") not in ("0", "100")

    # The axis stays where it is while the values stay on it.
    frame = tab.page.locator(".result-chart .chart-frame")
    before, progress = frame.get_attribute("data-domain"), tab.progress.text_content() or ""
    for _ in range(5):
        backend.gate.release()
    expect(tab.progress).not_to_have_text(progress)
    assert frame.get_attribute("data-domain") == before

    tab.button("pause").click()
    tab.is_in("paused")
    expect(tab.progress).to_contain_text("paused at")
    for _ in range(100):
        backend.gate.release()
    tab.button("resume").click()
    tab.is_in("done")
    expect(tab.progress).to_contain_text("exact")
    expect(tab.page.locator(".result-chart .error-bar")).to_have_count(0)
    assert tab.rows(4) == exact(GROUPS)
    assert tab.row(0).locator(".width").all_text_contents() == ["", "", ""]


def test_stop(gated_tab: Tab, backend: GatedBackend) -> None:
    gated_tab.run(GROUPS, until="running")
    for _ in range(5):
        backend.gate.release()
    expect(gated_tab.progress).to_contain_text("% of the input")
    gated_tab.button("stop").click()
    gated_tab.is_in("stopped")
    assert backend.released.wait(PATIENCE_SECONDS)
    expect(gated_tab.progress).to_contain_text("stopped at")
    expect(gated_tab.row(0).locator(".value").first).to_have_text("g0")  # what was known stands
    expect(gated_tab.button("stop")).to_be_disabled()


def test_exact(gated_tab: Tab, backend: GatedBackend) -> None:
    gated_tab.run(GROUPS, until="running")
    for _ in range(3):
        backend.gate.release()
    expect(gated_tab.progress).to_contain_text("% of the input")
    gated_tab.button("skip to the exact").click()
    for _ in range(100):
        backend.gate.release()
    gated_tab.is_in("done")
    assert gated_tab.rows(4) == exact(GROUPS)


def test_an_error_at_its_place(tab: Tab) -> None:
    fault = tab.page.locator(".editor-pane .fault")
    mark = tab.page.locator(".editor-pane .cm-fault")
    # As people type, and again when they run it.
    tab.type("SELECT g,\n  sum(xx) AS total\nFROM t GROUP BY g")
    expect(mark).to_have_text("xx")
    expect(fault).to_contain_text("line 2, column 7")
    tab.page.keyboard.press("Control+Enter")
    tab.is_in("failed")
    expect(mark).to_have_text("xx")
    expect(fault).to_contain_text('"xx" does not exist')
    expect(fault).to_have_attribute("role", "alert")
    fault.get_by_role("button").click()
    tab.page.keyboard.press("Delete")  # the cursor is at the place: "xx" becomes "x"
    expect(fault).to_be_hidden()
    expect(mark).to_have_count(0)
    tab.page.keyboard.press("Control+Enter")
    tab.is_in("done")

    # A part that is chosen runs alone; its errors are at their places in the whole text.
    tab.type("SELECT 1 AS one;\nSELECT nothing FROM t")
    tab.page.keyboard.press("Shift+ArrowUp+ArrowUp")
    tab.page.keyboard.press("Control+End")
    tab.page.keyboard.press("Shift+Home")
    tab.page.keyboard.press("Control+Enter")
    tab.is_in("failed")
    expect(fault).to_contain_text("line 2, column 8")
    expect(mark).to_have_text("nothing")


def test_completion_and_catalog(tab: Tab) -> None:
    tab.type("SELECT  FROM t")
    tab.page.keyboard.press("Home")
    for _ in range(7):
        tab.page.keyboard.press("ArrowRight")
    tab.page.keyboard.type("appr")
    popup = tab.page.locator(".editor-pane .cm-tooltip-autocomplete")
    expect(popup).to_contain_text("approx_count_distinct")
    tab.page.keyboard.press("Escape")
    for _ in range(4):
        tab.page.keyboard.press("Backspace")
    tables = tab.page.locator(".tables")
    expect(tables).to_contain_text("bigint")
    tables.get_by_role("button", name="insert k, BIGINT").click()
    expect(tab.page.locator(".editor-pane .cm-content")).to_have_text("SELECT k FROM t")

    tab.run("CREATE TABLE made AS SELECT 1 AS one")
    expect(tables).to_contain_text("made")


def test_history(tab: Tab) -> None:
    tab.run("SELECT 41 AS n")
    tab.run("SELECT 42 AS n")
    entries = tab.page.locator(".history .entry code")
    expect(entries).to_have_text(["SELECT 42 AS n", "SELECT 41 AS n"])
    entries.nth(1).click()
    expect(tab.page.locator(".editor-pane .cm-content")).to_have_text("SELECT 41 AS n")


def test_the_plan_runs_as_edited(tab: Tab) -> None:
    tab.run("SELECT g, count(*) AS n FROM t WHERE k < 10 GROUP BY g ORDER BY g")
    graph = tab.page.locator(".plan-graph")
    expect(graph.locator('[data-op="scan"]')).to_have_attribute("data-rows", "9000")
    assert graph.locator(".movement").count() > 0
    graph.locator('[data-op="filter"]').click()
    expect(tab.page.locator(".plan-line")).to_contain_text("where=(k < 10)")

    tab.view("plan", "file")
    content = tab.page.locator(".plan-pane .cm-content")
    file = "\n".join(content.locator(".cm-line").all_text_contents())
    assert "where=(k < 10)" in file
    tab.type(file.replace("k < 10", "k < 20"), ".plan-pane")
    tab.page.get_by_role("button", name="check this plan").click()
    expect(tab.page.locator(".plan-state")).to_have_text("The plan is sound.")
    tab.page.get_by_role("button", name="run this plan").click()
    want = exact("SELECT g, count(*) AS n FROM t WHERE k < 20 GROUP BY g ORDER BY g")
    expect(tab.row(0).locator(".value")).to_have_text(list(want[0]))
    assert tab.rows(4) == want

    lines = file.split("\n")
    wrong = next(number for number, line in enumerate(lines, 1) if "= filter " in line)
    tab.type(file.replace("= filter ", "= fliter "), ".plan-pane")
    tab.page.keyboard.press("Control+Enter")
    tab.is_in("failed")
    fault = tab.page.locator(".plan-pane .fault")
    expect(fault).to_contain_text(f"line {wrong}")
    expect(fault).to_contain_text("fliter")
    broken = tab.page.locator(".plan-pane .cm-line", has_text="fliter")
    expect(broken.locator(".cm-fault")).to_be_visible()


def test_a_million_rows(tab: Tab) -> None:
    tab.view("result", "table")
    tab.run(f"SELECT i AS n, 'row ' || i AS name FROM range({MANY}) AS r(i)")
    grid = tab.page.get_by_role("grid", name="result")
    expect(grid).to_have_attribute("aria-rowcount", str(MANY + 1))
    grid.focus()
    tab.page.keyboard.press("Control+End")
    last = tab.row(MANY - 1)
    expect(last.locator(".value")).to_have_text([str(MANY - 1), f"row {MANY - 1}"])
    tab.page.keyboard.press("ArrowUp")
    tab.page.keyboard.press("Shift+ArrowLeft")
    assert tab.page.locator(".result-pane .grid-row").count() < 100, "only the rows in sight are in the page"

    # With the scroll bar to somewhere in the middle, where rows must be asked for; then row by row with the wheel.
    grid.evaluate("grid => { grid.scrollTop = grid.scrollHeight / 3; }")
    first = tab.page.locator(".result-pane .grid-row").first
    expect(first).not_to_have_class("waiting")
    expect(first.locator(".value").nth(1)).to_contain_text("row 33")
    number = int(first.get_attribute("data-row") or "")
    assert first.locator(".value").first.text_content() == str(number)
    grid.hover()
    tab.page.mouse.wheel(0, 26)
    expect(first).to_have_attribute("data-row", str(number + 1))

    # Copying: two rows with the names of their columns.
    third = tab.row(number + 3)
    third.locator(".cell").nth(1).click()
    tab.page.keyboard.press("Shift+ArrowRight")
    tab.page.keyboard.press("Shift+ArrowDown")
    tab.page.keyboard.press("Control+c")
    tab.type("")
    tab.page.keyboard.press("Control+v")
    expect(tab.page.locator(".editor-pane .cm-line")).to_have_text(
        ["n\tname", f"{number + 3}\trow {number + 3}", f"{number + 4}\trow {number + 4}"]
    )


VALUES = (
    "9007199254740993", "CAST(18446744073709551615 AS UBIGINT)", "0.1", "CAST(0.1 AS FLOAT)", "CAST(1e16 AS DOUBLE)",
    "CAST(123456.0 AS DOUBLE)", "CAST(1.5e-5 AS DOUBLE)", "CAST('-inf' AS DOUBLE)", "CAST('nan' AS DOUBLE)",
    "CAST(-0.0 AS DOUBLE)", "CAST(1.5 AS DECIMAL(18, 3))", "CAST(170141183460469231731687303715884105727 AS HUGEINT)",
    "DATE '2024-02-29'", "DATE '0044-03-15 (BC)'", "CAST('infinity' AS DATE)", "TIME '12:30:00.5'",
    "TIMESTAMP '1969-12-31 23:59:59.999999'", "TIMESTAMP '9999-12-31 12:00:00'", "CAST('-infinity' AS TIMESTAMP)",
    "CAST('2024-01-01 10:00:00+02' AS TIMESTAMPTZ)", "INTERVAL '3 days 2 hours'", "CAST(NULL AS VARCHAR)", "true",
    "'<b>not bold</b> & \"quoted\"'", "'zwölf 🦆'",
)  # fmt: skip


def test_values(tab: Tab) -> None:
    columns = ", ".join(f"{value} AS c{place}" for place, value in enumerate(VALUES))
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        texts = ", ".join(f"coalesce(CAST(c{place} AS VARCHAR), 'NULL')" for place in range(len(VALUES)))
        want = db.sql(f"SELECT {texts} FROM (SELECT {columns}) AS q").fetchall()
    tab.run(f"SELECT {columns}")
    assert tab.rows(1) == want
    expect(tab.row(0).locator(".null")).to_have_count(1)
    assert tab.page.locator("b", has_text="not bold").count() == 0


def test_a_brush_filters_the_others(tab: Tab) -> None:
    tab.view("result", "both")
    tab.run("SELECT k, count(*) AS n FROM t GROUP BY k ORDER BY k")
    controls = tab.page.locator(".result-pane .chart-controls")
    controls.get_by_label("Chart").select_option("line")
    tab.page.locator("button.pin").click()
    tab.run("SELECT g, count(*) AS n FROM t GROUP BY g ORDER BY g")
    expect(controls.get_by_label("Chart")).to_have_value("bars")
    tab.page.locator("button.pin").click()
    line, bars = (tab.page.locator(f'[data-panel="panel-{number}"]') for number in (1, 2))
    for panel in (line, bars):
        expect(panel).to_have_attribute("data-state", "done")

    def shown() -> list[tuple[str, int]]:
        marks = bars.locator(".mark-bar").all()
        return [(m.get_attribute("data-label") or "", int(m.get_attribute("data-value") or "")) for m in marks]

    def counted(where: str) -> list[tuple[str, int]]:
        return [(g, int(n)) for g, n in exact(f"SELECT g, count(*) AS n FROM t WHERE {where} GROUP BY g ORDER BY g")]

    assert shown() == counted("true")
    box = line.locator(".chart-frame").bounding_box()
    assert box is not None
    tab.page.mouse.move(box["x"] + 100, box["y"] + 40)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + 200, box["y"] + 60, steps=4)
    tab.page.mouse.up()
    expect(bars.locator(".chip")).to_contain_text("k:")
    brushed = json.loads(bars.get_attribute("data-filters") or "")
    low, high = brushed[0]["low"], brushed[0]["high"]
    assert 0 < low < high < 49
    want = counted(f"k BETWEEN {low} AND {high}")
    assert wait_until(lambda: bars.get_attribute("data-final") == "true" and shown() == want)
    assert json.loads(line.get_attribute("data-filters") or "") == [], "a brush leaves its own chart as it is"

    # A bar of the other one filters the line; a double click clears.
    bars.locator(".mark-bar").nth(2).click()
    expect(line).to_have_attribute("data-filters", '[{"column":"g","values":["g2"]}]')
    line.locator(".chart-frame").dblclick(position={"x": 150, "y": 60})
    expect(bars).to_have_attribute("data-filters", "[]")
    assert wait_until(lambda: bars.get_attribute("data-final") == "true" and shown() == counted("true"))


def test_a_month_stands_for_its_days(browser: Browser, db: tsql.Session) -> None:
    days = pa.table({"day": pa.array([f"2026-0{1 + i % 5}-{1 + i % 28:02d}" for i in range(600)]).cast(pa.date32())})
    db.register("days", days)
    with duckdb.connect() as other:
        other.register("days", days)
        want = other.sql("SELECT count(*) FROM days WHERE date_trunc('month', day) = DATE '2026-02-01'").fetchall()
    with serve(db) as studio:
        tab = Tab(browser, studio.address)
        tab.view("result", "both")
        for sql in ("SELECT date_trunc('month', day) AS month, count(*) AS n FROM days GROUP BY month ORDER BY month",
                    "SELECT count(*) AS n FROM days"):  # fmt: skip
            tab.run(sql)
            if "month" in sql:
                tab.page.locator(".result-pane .chart-controls").get_by_label("Chart").select_option("bars")
            tab.page.locator("button.pin").click()
        months, figure = (tab.page.locator(f'[data-panel="panel-{number}"]') for number in (1, 2))
        expect(figure.locator(".figure dd").first).to_have_text("600")
        months.locator(".mark-bar").nth(1).click()
        expect(figure.locator(".chip")).to_have_text("day: 2026-02-01 to 2026-02-28")
        expect(figure.locator(".figure dd").first).to_have_text(str(want[0][0]))
        tab.check()
        tab.context.close()


def test_a_lost_connection_comes_back(browser: Browser, db: tsql.Session) -> None:
    with serve(db) as studio:
        tab = Tab(browser, studio.address)
        tab.run("SELECT 1 AS one")
        port, guards = studio.guards.port, studio.guards
    status = tab.page.locator(".status")
    expect(status).to_have_text("not connected")
    tab.page.keyboard.press("Control+Enter")
    expect(tab.page.locator(".editor-pane .fault")).to_contain_text("The connection to the server is lost.")
    with serve(db, port=port) as again:
        again.guards = guards  # the same token
        expect(status).to_have_text("")
        tab.run("SELECT 2 AS two")
        assert tab.rows(1) == [("2",)]
    tab.context.close()


def test_dark_and_narrow(browser: Browser, studio: Studio) -> None:
    tab = Tab(browser, studio.address, color_scheme="dark", viewport={"width": 900, "height": 700})
    tab.run(GROUPS)
    light = "rgb(255, 255, 255)"
    expect(tab.page.locator(".result-pane")).not_to_have_css("background-color", light)
    plan, result = tab.page.locator(".plan-pane"), tab.page.locator(".result-pane")
    expect(plan).to_be_hidden()
    tab.page.get_by_role("button", name="show or hide the plan").click()
    expect(plan).to_be_visible()
    expect(result).to_be_hidden()
    tab.check()
    tab.context.close()


def ipc(columns: dict[str, pa.Array]) -> bytes:
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


WIDGET = """
import widget from "./widget.js";
const told = {snapshot: new DataView(Uint8Array.from(%s).buffer), about: %s};
const heard = {};
widget.render({el: document.body, model: {
  get: (name) => told[name], on: (name, act) => { heard[name] = act; }, off: () => {},
  send: (content) => {
    document.body.append(JSON.stringify(content));
    told.about = {...told.about, is_final: true, progress: 1};
    heard["change:about"]();
  },
}});
"""


def test_the_widget(browser: Browser) -> None:
    snapshot = ipc({
        "0": pa.array(["a", "b"]).dictionary_encode(), "1": pa.array([10.0, 20.0]),
        "1 low": pa.array([8.0, None]), "1 high": pa.array([12.0, None]),
    })  # fmt: skip
    columns = [{"name": "g", "type": "VARCHAR"}, {"name": "mean", "type": "DOUBLE"}]
    about = {"columns": columns, "progress": 0.25, "rows_read": 50_000, "elapsed": 0.5, "is_final": False}
    served = {
        "/": ("text/html", "<!doctype html><script type=module src=start.js></script><body></body>"),
        "/start.js": ("text/javascript", WIDGET % (json.dumps(list(snapshot)), json.dumps(about))),
        "/widget.js": ("text/javascript", (files.PAGE / "widget.js").read_text(encoding="utf-8")),
    }
    context = browser.new_context()
    complaints: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))

    def serve_file(route) -> None:  # type: ignore[no-untyped-def]
        kind, body = served[route.request.url.removeprefix("http://notebook.test")]
        route.fulfill(content_type=kind, body=body)

    page.route("http://notebook.test/**", serve_file)
    page.goto("http://notebook.test/")
    expect(page.locator(".widget-text")).to_have_text("25% of the input, 50 k rows, 0.50 s")
    expect(page.locator(".grid-row .value")).to_have_text(["a", "10.0", "b", "20.0"])
    expect(page.locator(".grid-row .width")).to_have_text(["", "±2.0", "", "±?"])
    expect(page.locator(".mark-bar")).to_have_count(2)
    expect(page.locator(".error-bar")).to_have_count(1)
    page.get_by_role("button", name="skip to the exact").click()
    expect(page.locator("body")).to_contain_text('{"type":"finish"}')
    expect(page.locator(".widget-text")).to_contain_text("exact")
    expect(page.locator(".error-bar")).to_have_count(0)
    assert complaints == []
    context.close()


def test_the_page_is_small_and_of_its_source() -> None:
    import hashlib
    import re

    shipped = [path for path in files.PAGE.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in shipped) < 700_000
    studio = Path(__file__).resolve().parents[2] / "studio"
    source = [path for path in (studio / "src").rglob("*") if path.is_file()]
    source += [studio / "package-lock.json", studio / "build.mjs"]
    digest = hashlib.sha256()
    for name in sorted(path.relative_to(studio).as_posix() for path in source):
        digest.update(f"{name}\n".encode() + (studio / name).read_bytes())
    said = re.search(r'name="source" content="(\w+)"', (files.PAGE / "index.html").read_text(encoding="utf-8"))
    assert said is not None and said[1] == digest.hexdigest(), "run `make studio`: the page is not that of the source"
    assert '"resolved"' not in (studio / "package-lock.json").read_text(encoding="utf-8")
