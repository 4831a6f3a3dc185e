"""A newcomer's first quarter of an hour, from the built wheel: an empty home, a folder of data, and nothing of ours."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import Runs
from tailrace.plan.loader import load
from tailrace.settings import Settings
from tests.project.test_package import ROOT, Installation, build
from tests.support.services.airflows import CHROMIUM, FLAGS, SHOTS, Person, missing
from tests.support.waiting import until

DAY = datetime(2026, 3, 1, tzinfo=UTC)
WAITING = 180.0
"""Seconds that a newcomer waits until the first answer, at most, on a machine that does nothing else."""

Answers = dict[tuple[datetime, str], tuple[int, Decimal]]


def order(number: int, at: datetime, draw: random.Random) -> dict[str, Any]:
    """A record as shops have them: nested, with names in camelCase, and its time in milliseconds."""
    items = [{"sku": draw.choice("abcde"), "qty": draw.randrange(1, 4)} for _ in range(draw.randrange(1, 4))]
    return {
        "orderId": f"o-{number:05}",
        "placedAt": int(at.timestamp() * 1000),
        "customer": {"customerId": f"c{draw.randrange(300)}", "shipTo": {"country": draw.choice(["DE", "FR", "NL"])}},
        "totalAmount": round(draw.uniform(3, 200), 2),
        "items": items,
    }


def write_orders(folder: Path) -> list[dict[str, Any]]:
    """Write three days of orders in eight files, half of them gzip, with repeated and with damaged lines."""
    draw = random.Random(7)
    folder.mkdir()
    orders = [order(number, DAY + number * timedelta(days=3) / 3000, draw) for number in range(3000)]
    arrived = sorted(orders, key=lambda one: one["placedAt"] + draw.randrange(20 * 60_000))
    for place in range(8):
        part = [json.dumps(one) for one in arrived[place * 375 : (place + 1) * 375]]
        lines = [*part[:100], part[50][:37], *part[100:], *draw.sample(part, 10), '\x00{"orderId"']
        write_lines(folder / f"orders-{place}.jsonl{'.gz' if place % 2 else ''}", lines, place)
    return orders


def write_lines(file: Path, lines: Sequence[str], age: int) -> None:
    data = ("\n".join(lines) + "\n").encode()
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)
    os.utime(file, (1_772_700_000 + age, 1_772_700_000 + age))


def by_hour(orders: Sequence[Mapping[str, Any]]) -> Answers:
    """The answers, in plain Python."""
    found: Answers = {}
    for one in orders:
        at = datetime.fromtimestamp(one["placedAt"] / 1000, UTC)
        key = at.replace(minute=0, second=0, microsecond=0), one["customer"]["shipTo"]["country"]
        records, amount = found.get(key, (0, Decimal(0)))
        found[key] = records + 1, amount + Decimal(str(one["totalAmount"]))
    return found


def in_lake(lake: Lake) -> Answers:
    rows = lake.table("shop_by_hour").scan().to_arrow().to_pylist()
    return {
        (one["window_start"], one["customer_ship_to_country"]): (one["records"], one["total_amount"]) for one in rows
    }


@dataclass
class Newcomer:
    """Somebody with an empty home, in a folder outside the checkout; `seconds` is what each step took."""

    folder: Path
    bin: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        ours = [place for place in os.environ["PATH"].split(":") if not Path(place).is_relative_to(ROOT)]
        java = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
        return {"HOME": str(home), "PATH": ":".join([str(self.bin), *ours]), "COLUMNS": "200", **java, **self.settings}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - began
        print(f"{self.seconds[name]:6.1f} s  {name}")

    def does(self, *words: str, inside: str = "shop") -> str:
        """Run a command, and return what it says."""
        with self.step(" ".join(words)):
            done = subprocess.run(
                [self.bin / words[0], *words[1:]],
                cwd=self.folder / inside,
                env=self.env,
                capture_output=True,
                text=True,
            )
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    @contextmanager
    def runs(self, *words: str) -> Iterator[Path]:
        """Run a command until the end of the block, and end it by Ctrl-C; the file has what it says."""
        said = self.folder / f"said-by-{words[1]}"
        with said.open("wb") as out:
            process = subprocess.Popen(
                [self.bin / words[0], *words[1:]], cwd=self.folder / "shop", env=self.env, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
            try:
                yield said
                assert process.poll() is None, said.read_text()
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(120)


@contextmanager
def mirror(jars: Path) -> Iterator[str]:
    """The address of a Maven repository on this machine, with the jars that are there already."""

    class Mirror(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(next(jars.rglob(Path(path).name), jars / "none"))

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Mirror, directory=str(jars))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/maven"
        server.shutdown()


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        browser.close()


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(missing(browser=True)), reason=missing(browser=True))
def test_a_newcomer_goes_from_a_wheel_and_a_folder_to_answers_backfills_by_a_click_and_marts(
    tmp_path: Path, page: Any
) -> None:
    page.set_default_timeout(120_000)
    orders = write_orders(tmp_path / "data")
    (tmp_path / "dist").mkdir()
    build(tmp_path / "dist")
    pipelines, airflow = (Installation(tmp_path, name, tmp_path / "dist") for name in ("pipelines", "airflow"))
    java = () if shutil.which("java") or "JAVA_HOME" in os.environ else ("java",)
    with mirror(Settings().jars) as jars:
        newcomer = Newcomer(tmp_path, pipelines.bin, {"TAILRACE_JARS_MIRROR": jars})
        with newcomer.step("pip install tailrace[spark,sqlite,testing,dbt]"):
            pipelines.install("spark", "sqlite", "testing", "dbt", *java)
        newcomer.does("tailrace", "init", "shop", "--from", "data", inside=".")
        assert "2 passed" in newcomer.does("pytest", "-q")
        newcomer.does("tailrace", "setup")
    the_first_answers_are_in_the_browser(newcomer, page, by_hour(orders))
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert sum(newcomer.seconds.values()) < WAITING * busy, newcomer.seconds

    # Orders that nobody waits for any more: they are in no answer, until a backfill takes them in.
    draw = random.Random(8)
    late = [order(9000 + number, DAY + timedelta(minutes=20 * number), draw) for number in range(60)]
    write_lines(tmp_path / "data" / "orders-late.jsonl", [json.dumps(one) for one in late], 100)
    newcomer.does("tailrace", "stream", "pipelines/shop.py", "--from", "../data", "--once", "--per-epoch", "8")
    project = tmp_path / "shop"
    lake = Lake(Settings(warehouse=project / "build" / "lake", contracts=project / "iceberg_schemas"))
    before = in_lake(lake)
    closed = {key: value for key, value in by_hour(orders).items() if key in before}
    assert before == closed
    assert {at.day for at, _ in before} == {1, 2, 3}

    operator = Newcomer(tmp_path, airflow.bin, seconds=newcomer.seconds)
    with operator.step("pip install tailrace[airflow,sqlite]"):
        airflow.install("airflow", "sqlite")
    a_day_is_backfilled_by_a_click(operator, page)
    assert in_lake(lake) == {key: value for key, value in by_hour([*orders, *late]).items() if key in before}
    (run,) = [one for one in Runs(lake, load(str(project / "pipelines" / "shop.py"))).all() if one.kind == "backfill"]
    assert run.status == "committed"
    assert str(run.engine).startswith("duckdb")

    assert "Completed successfully" in newcomer.does("tailrace", "dbt")
    marts = Lake(lake.settings.model_copy(update={"namespace": "marts"}))
    counted = {one["day"].day: one["records"] for one in marts.table("records_by_day").scan().to_arrow().to_pylist()}
    assert counted[1] == 1000 + len(late)
    assert not list((tmp_path / "home").glob("*airflow*"))
    print(f"{sum(newcomer.seconds.values()):6.1f} s  in all")


def the_first_answers_are_in_the_browser(newcomer: Newcomer, page: Any, answers: Answers) -> None:
    with newcomer.runs("tailrace", "dev") as said:
        with newcomer.step("tailrace dev, until the first answers"):
            until(lambda: "the lake is shown at" in said.read_text(), told=said.read_text)
            (address,) = re.findall(r"http://\S+/", said.read_text())
            page.goto(address)
            page.get_by_text("3,000 records, 16 rejected, 80 duplicates").wait_for()
            page.locator("main").get_by_role("link", name="shop_by_hour").click()
            page.locator("table.rows td").first.wait_for()
        rows = [row.locator("th, td").all_inner_texts() for row in page.locator("table.rows tbody tr").all()]
        if SHOTS:
            page.screenshot(path=Path(SHOTS) / "first_answers.png")
        page.goto("about:blank")
    found = {
        (datetime.strptime(window[:16], "%Y-%m-%d %H:%M").replace(tzinfo=UTC), country): (int(records), Decimal(amount))
        for window, country, records, amount, *_ in rows
    }
    assert len(found) == len(rows) == 50
    assert found == {key: answers[key] for key in sorted(answers)[:50]}


def a_day_is_backfilled_by_a_click(operator: Newcomer, page: Any) -> None:
    with operator.runs("tailrace", "airflow") as said:
        with operator.step("tailrace airflow, until it is healthy"):
            until(lambda: "Ctrl-C stops it" in said.read_text(), told=said.read_text)
        (address,) = re.findall(r"Airflow is at (http://\S+),", said.read_text())
        logins = dict(re.findall(r"user (\w+) +password (\S+)", said.read_text()))
        with operator.step("the backfill of a day, from the log-in to its result"):
            person = Person(page, SimpleNamespace(url=address, logins=logins), "admin")
            person.dag = "shop_by_hour.backfill"
            form = person.form("Single Run")
            start, end = form.get_by_test_id("datetime-input").all()[1:3]
            person.pick(start, "2026-03-01")
            person.pick(end, "2026-03-02")
            person.shot("first_trigger")
            person.send(form, "Trigger", "/dagRuns")
            page.wait_for_url("**/runs/*")
            run = page.url.rpartition("/runs/")[2]
            page.get_by_text("Success", exact=True).first.wait_for()
            person.look(f"/runs/{run}/plugin/tailrace-did", "first_run", "in generation")
            person.leave()
