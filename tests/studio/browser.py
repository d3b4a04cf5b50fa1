"""The page of the studio in headless Chromium, as tests drive it.

A tab notes every request and every complaint of the browser; `Tab.check` fails on one that goes anywhere but to the
page's own origin, and on any error, so each test of the page holds that the Content-Security-Policy is kept."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.patience import PATIENCE_SECONDS

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def headless() -> Iterator[Browser]:
    """A browser with a profile of its own; the test is skipped where there is none."""
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("Chromium is missing (Debian: apt-get install chromium; .ci/chromium does it)")
    expect.set_options(timeout=PATIENCE_SECONDS * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class Tab:
    """A page of the studio, and what its tests do and look at."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        self.origin = urlsplit(address).netloc
        self.context = browser.new_context(
            **({"viewport": {"width": 1400, "height": 900}, "reduced_motion": "reduce"} | options)
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_SECONDS * 1000)
        self.addresses: list[str] = []
        self.complaints: list[str] = []
        # Of the context and not of the page: whatever opens, it is seen.
        self.context.on("request", lambda request: self.addresses.append(request.url))
        self.page.on("websocket", lambda socket: self.addresses.append(socket.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda said: said.type == "error" and self.complaints.append(said.text))
        self.page.goto(address)
        expect(self.page.locator("body")).to_have_attribute("data-ready", "true")

    def check(self) -> None:
        """Nothing was asked of another origin, and nothing went wrong."""
        assert self.addresses, "the requests are seen"
        assert {urlsplit(address).netloc for address in self.addresses} == {self.origin}
        assert {urlsplit(address).scheme for address in self.addresses} == {"http", "ws"}
        assert not self.complaints, self.complaints

    def type(self, text: str, within: str = ".editor-pane") -> None:
        """Put a text in place of what an editor has, as the clipboard would."""
        self.page.locator(f"{within} .cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.press("Delete")
        self.page.keyboard.insert_text(text)

    def run(self, sql: str, until: str | None = "done") -> None:
        """Type a query and run it by the keyboard."""
        self.type(sql)
        self.page.keyboard.press("Control+Enter")
        if until is not None:
            self.is_in(until)

    def is_in(self, state: str) -> None:
        """Wait until the run is in a state: running, paused, done, stopped, failed."""
        expect(self.page.locator(".toolbar")).to_have_attribute("data-state", state)

    def button(self, name: str) -> Locator:
        return self.page.locator(".toolbar").get_by_role("button", name=name)

    @property
    def progress(self) -> Locator:
        return self.page.locator(".progress-text")

    def row(self, number: int) -> Locator:
        """A row of the result, from 0."""
        return self.page.locator(f'.result-pane .grid-row[data-row="{number}"]')

    def cells(self, number: int) -> list[str]:
        """The values of a row, as shown."""
        return self.row(number).locator(".value").all_text_contents()

    def rows(self, count: int) -> list[tuple[str, ...]]:
        """The first rows of the result."""
        expect(self.row(count - 1)).to_be_visible()
        return [tuple(self.cells(number)) for number in range(count)]

    def view(self, pane: str, name: str) -> None:
        self.page.locator(f".{pane}-pane .tabs [data-view={name}]").click()

    def shot(self, path: Path) -> None:
        self.page.screenshot(path=path)
