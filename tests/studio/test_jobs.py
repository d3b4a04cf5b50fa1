"""Live queries beside the editor: the page shows those that run, and no section where none does."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import tsql
from tests.patience import wait_until
from tests.studio.browser import Tab, headless
from tsql.studio import Studio, jobs


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def clicks(offset: int) -> Iterator[Any]:
    start = dt.datetime(2026, 3, 1, 12)
    while True:
        yield [{"id": offset, "ts": start + dt.timedelta(seconds=offset % 600)}]
        offset += 1


def test_live_queries_are_shown(db: tsql.Session, studio: Studio) -> None:
    db.stream("clicks", clicks, time="ts", columns={"id": "BIGINT", "ts": "TIMESTAMP"})
    counted = db.sql("SELECT window_start, count(*) AS n FROM TUMBLE(clicks, ts, INTERVAL '1 minute') GROUP BY ALL")
    with headless() as browser:
        tab = Tab(browser, studio.address)
        section = tab.page.get_by_label("live queries")
        expect(section).to_be_hidden()
        with counted.start(name="per-minute"):
            assert wait_until(lambda: any(job["rows_in"] > 0 for job in jobs.entries()))
            expect(section).to_contain_text("per-minute")
            expect(section).to_contain_text("clicks 2026-03-01 12:")
        expect(section).to_be_hidden()
        tab.check()
        tab.context.close()
