"""A person at the pages of `tailrace serve`, by keyboard alone, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import pytest

from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings
from tests.support.lakes import small_lake
from tests.support.lakes.small_lake import HOURLY, append, at, pane
from tests.support.processes.serve_process import serving
from tests.support.processes.serving import corrected
from tests.support.services.airflows import CHROMIUM, FLAGS

LACKS = "" if find_spec("playwright") and CHROMIUM else "there is no playwright, or no Chromium"

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.skipif(bool(LACKS), reason=LACKS),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*"),
]

HOSTILE = '<img src=x onerror="document.title=1">'


@dataclass
class Looker:
    """Somebody who looks at pages, and all that the browser said and asked for meanwhile."""

    page: Any
    address: str
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(30_000)
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def tab_to(self, name: str) -> None:
        """Press Tab until the link with this accessible name has the focus."""
        for _ in range(80):
            self.page.keyboard.press("Tab")
            if self.page.evaluate(NAME) == name:
                return
        raise AssertionError(f"no Tab reaches {name!r} on {self.page.url}")

    def enter(self) -> None:
        with self.page.expect_navigation():
            self.page.keyboard.press("Enter")


NAME = "document.activeElement.ariaLabel || document.activeElement.innerText"
DRAWN = """() => {
    const boxes = document.querySelectorAll(".plot svg .mark-rect path");
    const texts = [...document.querySelectorAll(".plot svg text")].map((one) => one.textContent);
    return boxes.length > 0 && texts.some((one) => /^\\d\\d:\\d\\d$/.test(one));
}"""
"""Whether the picture is there: boxes of panes, and hours at its axes."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A small lake with a backfill, a late record that a backfill can take in, and a key that would be markup."""
    made = small_lake.make(Settings(warehouse=tmp_path_factory.mktemp("page") / "lake"))
    corrected(made)
    said = made.head(f"{HOURLY.name}__ledger").properties
    row = pane(HOSTILE, 9, 2, 0, (7, 1.5), "on_time")
    late = {
        "kind": "late", "city": "Rome", "window_start": at(7), "window_end": at(8), "epoch": 3, "event_time": at(7),
        "behind": 3_600_000_000, "reason": "expired", "source_epoch": 2, "source_partition": "one", "source_offset": 1,
    }  # fmt: skip
    append(made, f"{HOURLY.name}__ledger", [row, late], said)
    append(made, HOURLY.name, [row], {"epoch": "1"})
    return made


@pytest.fixture(scope="module")
def address(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    definition = tmp_path_factory.mktemp("definition") / "rides.py"
    definition.write_text(small_lake.DEFINITION)
    with serving(lake.settings, str(definition)) as server:
        yield server.address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture
def looker(request: pytest.FixtureRequest, browser: Any, address: str) -> Iterator[Looker]:
    scheme = getattr(request, "param", "light")
    page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme=scheme)
    found = Looker(page, address)
    yield found
    page.close()
    assert found.said == []
    assert [url for url in found.asked if not url.startswith(address)] == []


@pytest.mark.parametrize("looker", ["light", "dark"], indirect=True)
def test_a_window_is_reached_by_keyboard_and_its_panes_are_seen(looker: Looker, lake: Lake) -> None:
    page = looker.page
    page.goto(looker.address)
    looker.tab_to(HOURLY.name)
    looker.enter()
    page.locator(".live", has_text="live").wait_for()
    looker.tab_to("3, stream, 1 January 2026, 09:00")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(NAME) == "1, stream, 1 January 2026, 10:00"
    page.keyboard.press("ArrowLeft")
    looker.enter()
    looker.tab_to("2026-01-01 09:00 – 10:00")
    page.keyboard.press("Tab")
    looker.enter()
    assert page.locator("h2.key").inner_text() == "city Oslo"
    assert page.locator("table.rows").first.locator("tbody tr").count() == 5
    page.wait_for_function(DRAWN)
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == (
        "rgb(13, 17, 23)"
        if page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        else "rgb(246, 248, 250)"
    )


def test_a_key_that_would_be_markup_is_text(looker: Looker) -> None:
    page = looker.page
    page.goto(f"{looker.address}stages/{HOURLY.name}?from=2026-01-01T09:00:00Z&to=2026-01-01T10:00:00Z")
    cell = page.locator("bdi", has_text="onerror")
    assert cell.inner_text() == HOSTILE
    page.locator("tr", has=cell).locator("a").click()
    assert HOSTILE in page.locator("h2.key").inner_text()
    page.wait_for_function(DRAWN)
    assert page.locator("img").count() == 0


def test_an_open_page_is_refreshed_as_an_epoch_comes_and_keeps_the_focus(looker: Looker, lake: Lake) -> None:
    page = looker.page
    page.goto(looker.address)
    page.locator(".live", has_text="live").wait_for()
    page.get_by_role("main").get_by_role("link", name=HOURLY.name).focus()
    ledger = f"{HOURLY.name}__ledger"
    epoch = lake.head(ledger).number("epoch") + 1
    said = {**lake.head(ledger).properties, "epoch": str(epoch)}
    append(lake, ledger, [pane("Rome", 11, epoch, epoch, (1, 1.0), "early")], said)
    page.locator("dd", has_text=str(epoch)).first.wait_for()
    assert page.evaluate(NAME) == HOURLY.name


@pytest.mark.parametrize("width", [1280, 800])
def test_the_backfill_of_late_records_is_shown_whole_beside_its_button(looker: Looker, width: int) -> None:
    page = looker.page
    page.set_viewport_size({"width": width, "height": 700})
    page.goto(f"{looker.address}stages/{HOURLY.name}/late")
    sides = page.evaluate(
        """() => [...document.querySelectorAll(".remedy code, .remedy button")].map(
            (one) => [one.getBoundingClientRect().right, one.closest("main").getBoundingClientRect().right]
        )"""
    )
    assert sides, "there are late records, and commands to take them in"
    assert all(right <= edge for right, edge in sides), sides
