"""Makes the pictures of the studio in the documents: `python -m tests.studio.pictures` writes docs/figures/studio*.png.

Queries stop in the middle of settling by the gate of `GatedBackend`; the data are drawn with a fixed seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from playwright.sync_api import Browser, expect

from tests.studio.browser import Tab, headless
from tests.studio.page import GatedBackend
from tsql.backends import Settings
from tsql.session import Session
from tsql.studio import serve

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures"
ROWS = 2_000_000
COUNTRIES = ["Austria", "Brazil", "Canada", "Denmark", "Egypt", "France", "Germany", "India", "Japan", "Kenya"]

BY_COUNTRY = """SELECT h.country, avg(h.latency) AS latency, count(*) AS hits
FROM hits AS h JOIN visitors AS v ON h.visitor = v.visitor
WHERE v.tariff <> 'free'
GROUP BY h.country
ORDER BY h.country"""
BY_WEEK = """SELECT date_trunc('week', day) AS week, device, avg(latency) AS latency
FROM hits
GROUP BY week, device
ORDER BY week"""
BY_DEVICE = "SELECT device, sum(bytes) / 1e9 AS gigabytes FROM hits GROUP BY device ORDER BY device"
COUNTRY_HITS = "SELECT country, count(*) AS hits FROM hits GROUP BY country ORDER BY hits DESC"


def data() -> dict[str, pa.Table]:
    rng = np.random.default_rng(7)
    day = np.sort(rng.integers(0, 182, ROWS))
    country = rng.choice(len(COUNTRIES), ROWS, p=np.array([4, 12, 9, 5, 4, 12, 15, 21, 12, 6]) / 100)
    device = rng.integers(0, 3, ROWS)
    level = 3 + 0.2 * np.sin(country * 1.7) + 0.15 * np.sin(day / 22) + 0.1 * device
    visitors = 50_000
    return {
        "hits": pa.table({
            "day": pa.array(np.datetime64("2026-01-01") + day.astype("timedelta64[D]")),
            "country": pa.array(COUNTRIES).take(pa.array(country)),
            "device": pa.array(["desktop", "phone", "tablet"]).take(pa.array(device)),
            "latency": rng.lognormal(level, 1.2),
            "bytes": rng.integers(1_000, 90_000, ROWS),
            "visitor": rng.integers(0, visitors, ROWS),
        }),
        "visitors": pa.table({
            "visitor": np.arange(visitors),
            "tariff": pa.array(["free", "pro", "team"]).take(pa.array(rng.integers(0, 3, visitors))),
        }),
    }  # fmt: skip


def settling(tab: Tab, backend: GatedBackend, sql: str, snapshots: int) -> None:
    """Run a query up to some snapshot."""
    tab.run(sql, until="running")
    for _ in range(snapshots):
        backend.gate.release()
    expect(tab.progress).to_contain_text(f"{2 * snapshots - 1}%")
    tab.page.mouse.move(5, 5)
    tab.page.wait_for_timeout(400)


def finish(tab: Tab, backend: GatedBackend) -> None:
    for _ in range(60):
        backend.gate.release()
    tab.is_in("done")
    while backend.gate.acquire(blocking=False):
        pass


def main_picture(browser: Browser, address: str, backend: GatedBackend) -> None:
    tab = Tab(browser, address, viewport={"width": 1360, "height": 850}, device_scale_factor=1.5)
    tab.run(BY_WEEK, until="running")
    finish(tab, backend)
    settling(tab, backend, BY_COUNTRY, 4)
    tab.shot(FIGURES / "studio.png")
    finish(tab, backend)
    tab.context.close()


def dashboard_picture(browser: Browser, address: str, backend: GatedBackend) -> None:
    tab = Tab(browser, address, viewport={"width": 1360, "height": 850}, device_scale_factor=1.5, color_scheme="dark")
    for _ in range(1_000):
        backend.gate.release()
    for sql in (BY_DEVICE, COUNTRY_HITS, BY_WEEK):
        tab.run(sql)
        tab.page.locator("button.pin").click()
    for number in (1, 2, 3):
        expect(tab.page.locator(f'[data-panel="panel-{number}"]')).to_have_attribute("data-final", "true")
    while backend.gate.acquire(blocking=False):
        pass
    frame = tab.page.locator('[data-panel="panel-3"] .chart-frame')
    box = frame.bounding_box()
    assert box is not None
    tab.page.mouse.move(box["x"] + box["width"] * 0.45, box["y"] + 40)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 60, steps=4)
    tab.page.mouse.up()
    panels = [tab.page.locator(f'[data-panel="panel-{number}"]') for number in (1, 2)]
    while not all(panel.locator(".error-bar").count() for panel in panels):
        backend.gate.release()
        tab.page.wait_for_timeout(100)
    tab.page.mouse.move(5, 5)
    tab.page.wait_for_timeout(400)
    tab.shot(FIGURES / "studio-dashboard.png")
    tab.context.close()


def main() -> None:
    backend = GatedBackend()
    with headless() as browser, Session(backend, Settings(threads=2)) as session:
        for name, table in data().items():
            session.register(name, table)
        with serve(session) as studio:
            main_picture(browser, studio.address, backend)
            dashboard_picture(browser, studio.address, backend)


if __name__ == "__main__":
    main()
