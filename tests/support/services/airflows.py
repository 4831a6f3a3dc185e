"""A real Airflow on a lake of a test's own, and a person at its page."""

from __future__ import annotations

import json
import os
import shutil
import time
import urllib.error
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
SHOTS = os.environ.get("TAILRACE_TEST_SCREENSHOTS")
"""A folder to keep screenshots in: docs/img makes those of the docs anew."""

_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in _NAMES if (found := shutil.which(name))), "")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
PATIENT = 480.0
"""Seconds after which a run that has not ended is taken for stuck."""


def missing(*, browser: bool = False) -> str:
    """Why tests with Airflow cannot run here; empty where they can."""
    if find_spec("airflow") is None:
        return "Airflow is not installed: make setup WITH=airflow"
    if browser and find_spec("playwright") is None:
        return "playwright is not installed"
    if browser and not CHROMIUM:
        return "there is no Chromium: apt-get install chromium"
    return ""


@dataclass
class Api:
    """What a user does by the REST API of a started `Standalone`, with one DAG."""

    airflow: Any
    user: str
    dag: str

    def __post_init__(self) -> None:
        self.token = self.airflow.token(self.user)

    def call(self, path: str, body: object = None, method: str | None = None) -> Any:
        return self.airflow.call(f"/api/v2{path}", body, self.token, method)

    def refused(self, path: str, body: object = None, method: str | None = None) -> int:
        """The status with which a call is refused; 0 for one that is not."""
        try:
            self.call(path, body, method)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        return 0

    def trigger(self, **conf: object) -> str:
        run: str = self.call(f"/dags/{self.dag}/dagRuns", {"logical_date": None, "conf": conf})["dag_run_id"]
        return run

    def runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call(f"/dags/{self.dag}/dagRuns?limit=100")["dag_runs"]
        return found

    def until(self, holds: Callable[[], bool]) -> None:
        until(holds, PATIENT, every=1, told=self.runs)

    def ended(self, *, besides: int = 0) -> list[dict[str, Any]]:
        """The runs, once all of those that there are besides some earlier ones have ended."""
        over = ("success", "failed")
        self.until(lambda: len(runs := self.runs()) > besides and all(run["state"] in over for run in runs))
        return self.runs()

    def did(self, run: str, task: str = "backfill") -> dict[str, Any]:
        place = f"/dags/{self.dag}/dagRuns/{urllib.parse.quote(run)}/taskInstances/{task}/xcomEntries/did"
        value = self.call(place)["value"]
        found: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
        return found


class Person:
    """Somebody who has logged in; `dag` is whose pages they look at."""

    def __init__(self, page: Any, airflow: Any, user: str) -> None:
        self.page, self.airflow, self.dag = page, airflow, ""
        page.set_default_timeout(120_000)
        page.goto(airflow.url)
        page.fill("input[name=username]", user)
        page.fill("input[name=password]", airflow.logins[user])
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("Health").first.wait_for()

    def form(self, kind: str) -> Any:
        """Open the form of *Single Run* or *Backfill*."""
        self.page.goto(f"{self.airflow.url}/dags/{self.dag}")
        self.page.get_by_test_id("trigger-dag-button").click()
        dialog = self.page.locator(".chakra-dialog__content[data-state=open]")
        dialog.get_by_text(kind, exact=True).click()
        return dialog

    def pick(self, field: Any, day: str) -> None:
        """Type a day into a field for an instant."""
        field.click()
        popover = self.page.locator("[data-scope=popover][data-part=content][data-state=open]")
        popover.get_by_placeholder("YYYY/MM/DD").fill(day.replace("-", "/"))
        popover.get_by_placeholder("HH:mm").fill("00:00")
        popover.get_by_placeholder("HH:mm").press("Enter")
        self.page.keyboard.press("Escape")

    def look(self, path: str, name: str, text: str) -> None:
        """Go to a page of the DAG, wait until it says something, and keep a picture of it."""
        self.page.goto(f"{self.airflow.url}/dags/{self.dag}{path}")
        self._wait(text)
        self.shot(name)

    def send(self, form: Any, button: str, where: str) -> None:
        """Press a form's button, and wait for what Airflow answers: to leave the page before would take it all back."""

        def asked(answer: Any) -> bool:
            return bool(answer.request.method == "POST" and answer.url.split("?")[0].rstrip("/").endswith(where))

        with self.page.expect_response(asked) as answered:
            form.get_by_role("button", name=button).click()
        assert answered.value.ok, answered.value.text()

    def leave(self) -> None:
        """Go away from the pages, which ask Airflow for news all the time, while there is nothing to see."""
        self.page.goto("about:blank")

    def _wait(self, text: str) -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if any(frame.get_by_text(text).count() for frame in self.page.frames):
                return
            self.page.wait_for_timeout(300)
        raise AssertionError(f"{self.page.url} does not say {text!r}")

    def shot(self, name: str) -> None:
        if SHOTS:
            self.page.wait_for_timeout(1500)
            self.page.screenshot(path=str(Path(SHOTS) / f"{name}.png"))
