"""An operator's day: backfills by hand in a real Airflow, by its page and its API, and what they did to the lake."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.read.late_report import late_report
from tailrace.model.base.time import hours, moment, text
from tailrace.plan.loader import load
from tailrace.serve.airflow_links import remedy
from tailrace.serve.reading.event_time import TimeRange
from tailrace.settings import Settings
from tests.support.engines.sessions import session
from tests.support.processes.serve_process import serving
from tests.support.services.airflows import CHROMIUM, FLAGS, ROOT, Api, Person, missing

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(missing(browser=True)), reason=missing(browser=True)),
]

PIPELINE = load(str(ROOT / "pipelines" / "flights.py"))
DAG = "hourly_departures.backfill"
REPAIR = "hourly_departures.repair"
FIRST, LAST = date(2013, 3, 6), date(2013, 3, 11)
HEARTBEATS = 15
"""Seconds in which the scheduler has looked around more than once; it does so every five."""

TABLES = ("flights", "hourly_departures", "hourly_departures__ledger", "hourly_departures__runs")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Stream five days of flights, 15 seconds: with what came too late in no answer."""
    from tailrace.generate.flights import landing_cuts, write_files
    from tailrace.generate.flights import load as load_flights
    from tailrace.ingest.sources import Files
    from tailrace.stream.landing_stream import Stream

    folder = tmp_path_factory.mktemp("airflow")
    settings = Settings(warehouse=folder / "lake", driver_memory="2g", shuffle_partitions=2)
    write_files(load_flights(FIRST, LAST), folder / "landing", landing_cuts(FIRST, LAST, every=hours(8)))
    made = Lake(settings)
    source = Files(str(folder / "landing"), "json", per_epoch=1)
    # The answers are brought up so often that there are small files, which maintenance then writes together.
    stream = Stream(session(settings), made, [PIPELINE], source, follow_every=1)
    stream.start(once=True)
    stream.wait()
    stream.close()
    return made


@pytest.fixture(scope="module")
def airflow(lake: Lake) -> Iterator[Any]:
    """Start Airflow's scheduler, DAG processor and pages, 25 seconds."""
    from tailrace.airflow.standalone import Standalone

    more = {"TAILRACE_DRIVER_MEMORY": "2g", "TAILRACE_SHUFFLE_PARTITIONS": "2"}
    warehouse = Path(lake.settings.warehouse)
    started = Standalone(warehouse.parent / "home", ROOT / "dags", warehouse, port=0, settings=more)
    started.start()
    yield started
    started.stop()
    assert not started.processes


@pytest.fixture(scope="module")
def admin(airflow: Any) -> Api:
    return Api(airflow, "admin", DAG)


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser.new_page(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
        browser.close()


def rows(lake: Lake) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = lake.table(PIPELINE.name).scan().to_arrow().to_pylist()
    return {(row["origin"], row["window_end"]): row for row in found}


def snapshots(lake: Lake) -> dict[str, int | None]:
    return {name: lake.head(name).snapshot for name in TABLES if lake.has(name)}


def run_page(run: str) -> str:
    return f"/runs/{urllib.parse.quote(run)}/plugin/tailrace-did"


def test_an_operators_day(lake: Lake, airflow: Any, admin: Api, page: Any) -> None:
    """One test of what are several claims: they share an Airflow, and tests may run in several processes."""
    person = Person(page, airflow, "admin")
    an_operator_tries_a_range_dry_and_backfills_three_days(lake, admin, person)
    event_time_is_a_tab_of_the_dag(lake, person)
    with the_marts_being_built(airflow):
        what_came_too_late_is_proposed_approved_and_taken_in(lake, airflow, person)
    a_late_flight_is_traced_to_the_backfill_that_took_it_in(lake, person)
    maintenance_waits_to_be_wanted_and_leaves_the_answers_as_they_are(lake, airflow)
    a_run_of_a_range_again_and_two_that_overlap_change_nothing_more(lake, admin)
    a_run_that_cannot_be_says_why_in_one_line_and_is_not_tried_again(lake, admin)
    a_link_with_a_range_leads_to_a_form_that_is_filled_in(airflow, admin, person)
    a_viewer_may_look_and_nothing_else(airflow, admin)


def a_link_with_a_range_leads_to_a_form_that_is_filled_in(airflow: Any, admin: Api, person: Person) -> None:
    """The link is the one of `tailrace serve`; the run is started by Airflow's own API, as who is logged in."""
    asked = TimeRange.of("2013-03-07T15:00:00Z", "2013-03-07T16:00:00Z")
    link = remedy("pipelines/flights.py", PIPELINE.name, asked, airflow.url).form
    assert link is not None
    page, before = person.page, {run["dag_run_id"] for run in admin.runs()}
    page.goto(f"{link}&reason={urllib.parse.quote('a <b>late</b> flight')}")
    filled = [page.locator(f"[name={name}]").input_value() for name in ("from", "to", "reason")]
    assert filled == ["2013-03-07T15:00:00Z", "2013-03-07T16:00:00Z", "a <b>late</b> flight"]
    page.locator("[name=dry_run]").check()
    page.get_by_role("button", name="Trigger").click()
    page.wait_for_url("**/dags/*/runs/*")
    person.leave()
    (run,) = [run for run in admin.ended(besides=len(before)) if run["dag_run_id"] not in before]
    assert run["state"] == "success"
    assert run["conf"] == {"from": filled[0], "to": filled[1], "reason": filled[2], "dry_run": True}
    assert admin.did(run["dag_run_id"])["range"] == filled[:2]


def an_operator_tries_a_range_dry_and_backfills_three_days(lake: Lake, admin: Api, person: Person) -> None:
    person.dag = DAG

    before = snapshots(lake)
    form = person.form("Single Run")
    start, end = form.get_by_test_id("datetime-input").all()[1:3]
    person.pick(start, "2013-03-07")
    person.pick(end, "2013-03-10")
    form.locator("input[name=element_reason]").fill("what would the storm's flights change?")
    form.locator("input[name=element_dry_run]").locator("xpath=..").click()
    person.shot("airflow_trigger")
    person.send(form, "Trigger", "/dagRuns")
    admin.until(lambda: bool(admin.runs()))
    person.leave()
    (dry,) = admin.ended()
    assert dry["state"] == "success"
    planned = admin.did(dry["dag_run_id"])
    assert planned["range"] == ["2013-03-07T00:00:00Z", "2013-03-10T00:00:00Z"]
    assert planned["dry_run"] is True
    assert planned["changed"] > 0
    assert snapshots(lake) == before, "a dry run changes nothing"
    person.look(run_page(dry["dag_run_id"]), "airflow_dry_run", "nothing was changed")

    old = rows(lake)
    form = person.form("Backfill")
    start, end = form.get_by_test_id("datetime-input").all()[:2]
    person.pick(start, "2013-03-07")
    person.pick(end, "2013-03-09")
    form.locator("input[name=max_active_runs]").fill("3")
    person.shot("airflow_backfill")
    person.send(form, "Run Backfill", "/backfills")
    admin.until(lambda: len(admin.runs()) > 1)
    person.leave()
    ended = [run for run in admin.ended(besides=3) if run["run_type"] == "backfill"]
    assert [run["state"] for run in ended] == ["success"] * 3, "one run a day, the last day included"
    did = [admin.did(run["dag_run_id"]) for run in ended]
    assert sorted(one["range"][0] for one in did) == [f"2013-03-{day:02}T00:00:00Z" for day in (7, 8, 9)]

    new = rows(lake)
    assert new.keys() == old.keys()
    touched = {key for key in new if new[key] != old[key]}
    assert len(touched) == sum(one["changed"] for one in did) == planned["changed"]
    assert sum(one["untouched"] for one in did) == planned["untouched"]
    generations = {generation for one in did for generation in one["generations"]}
    assert len(generations) == 3, "V2: each run has a generation of its own"
    assert {new[key]["generation"] for key in touched} <= generations
    assert {new[key]["generation"] for key in new.keys() - touched} == {1}
    noted = {run.run: run for run in Runs(lake, PIPELINE).all() if run.kind == "backfill"}
    for one in did:
        (run,) = one["runs"]
        assert noted[run].status == "committed"
        assert [text(noted[run].first), text(noted[run].last)] == one["range"]
        assert [noted[run].changed, noted[run].untouched] == [one["changed"], one["untouched"]]
    most = max(did, key=lambda one: int(one["changed"]))
    (run,) = [run for run, one in zip(ended, did, strict=True) if one is most]
    person.look(run_page(run["dag_run_id"]), "airflow_run", "in generation")
    person.look("", "airflow_dag", "hourly_departures")
    person.leave()

    from tailrace.verify.audit import audit

    found = audit(lake, PIPELINE)
    assert found.ok, found.checks


def event_time_is_a_tab_of_the_dag(lake: Lake, person: Person) -> None:
    person.dag = DAG
    (late,) = late_report(lake, PIPELINE).ready
    person.look("/plugin/tailrace-event-time", "airflow_event_time", "late, not taken in")
    frame = next(one for one in person.page.frames if "/tailrace/event-time/" in one.url)
    mended = [one for one in rows(lake).values() if one["generation"] > 1]
    assert frame.locator("tr.backfill").count() == len({one["generation"] for one in mended}) > 0
    for line, count in (("backfill", len(mended)), ("late", late.records)):
        assert sum(map(int, frame.locator(f"tr.{line} td a").all_inner_texts())) == count
    person.leave()


def what_came_too_late_is_proposed_approved_and_taken_in(lake: Lake, airflow: Any, person: Person) -> None:
    """Of the days before those of the test above."""
    late = late_report(lake, PIPELINE)
    (found,) = late.ready
    old = rows(lake)
    admin, viewer = (Api(airflow, user, REPAIR) for user in ("admin", "viewer"))
    person.dag = REPAIR
    run = admin.trigger()
    place = f"/dags/{REPAIR}/dagRuns/{urllib.parse.quote(run)}/taskInstances"
    admin.until(lambda: states(admin, place).get("approve") == "awaiting_input")
    answer = {"chosen_options": ["Approve"], "params_input": {}}
    assert viewer.refused(f"{place}/approve/-1/hitlDetails", answer, "PATCH") == 403
    assert rows(lake) == old, "nothing happens before somebody has decided"
    person.look(f"/runs/{urllib.parse.quote(run)}/tasks/approve/required_actions", "airflow_approve", text(found.first))
    # Airflow asks again where it is answered before its scheduler has heard, by its heartbeat, that the task waits.
    person.page.wait_for_timeout(HEARTBEATS * 1000)
    person.page.get_by_role("button", name="Approve", exact=True).click()
    (ended,) = admin.ended()
    assert ended["state"] == "success", states(admin, place)

    new = rows(lake)
    touched = {key for key in new if new[key] != old[key]}
    assert {end for _, end in touched} == {moment(found.last)}
    repaired = Runs(lake, PIPELINE).all()[-1]
    assert (repaired.first, repaired.last, repaired.changed) == (found.first, found.last, len(touched))
    assert repaired.reason == "late records, approved by admin"
    assert late_report(lake, PIPELINE).ready == ()

    again = admin.trigger()
    assert {one["dag_run_id"]: one["state"] for one in admin.ended(besides=1)}[again] == "success"
    place = place.replace(urllib.parse.quote(run), urllib.parse.quote(again))
    assert states(admin, place) == dict.fromkeys(("propose", "approve", "repair"), "skipped")


def a_late_flight_is_traced_to_the_backfill_that_took_it_in(lake: Lake, person: Person) -> None:
    """By the search of `tailrace serve`, on the same lake and with the keyboard alone."""
    ledger = lake.table(f"{PIPELINE.name}__ledger")
    late = max(ledger.scan(row_filter="kind = 'late'").to_arrow().to_pylist(), key=lambda row: row["behind"])
    page, place = person.page, f"{late['source_partition'].rsplit('/', 1)[-1]}:{late['source_offset']}"
    with serving(lake.settings, str(ROOT / "pipelines" / "flights.py")) as server:
        page.goto(f"{server.address}search")
        page.keyboard.type(place)
        page.keyboard.press("Enter")
        page.get_by_text("The answer counts it").first.wait_for()
        assert "Taken in by backfill" in page.locator("main").inner_text()
        person.shot("serve_search")
        page.locator("main a[href*='/window?']").first.focus()
        page.keyboard.press("Enter")
        page.locator("h2.key").wait_for()
        assert f"origin {late['origin']}" in page.locator("h2.key").inner_text()
        assert "correction" in page.locator("table.rows").first.inner_text()
        person.leave()


def maintenance_waits_to_be_wanted_and_leaves_the_answers_as_they_are(lake: Lake, airflow: Any) -> None:
    before = rows(lake)
    admin = Api(airflow, "admin", "hourly_departures.maintain")
    place = f"/dags/{admin.dag}"
    assert admin.call(place)["is_paused"] is True
    admin.call(place, {"is_paused": False}, "PATCH")
    run = admin.trigger()
    ended = admin.ended()
    assert run in {one["dag_run_id"] for one in ended}
    assert {one["state"] for one in ended} == {"success"}
    # Once it is wanted, its schedule may have had a run before the one by hand, which then finds little to do.
    did = [admin.did(one["dag_run_id"], "maintain")["tables"] for one in ended]
    for tables in did:
        assert {one["table"] for one in tables} >= {"flights", "hourly_departures", "hourly_departures__ledger"}
    assert any(one["rewritten"] for tables in did for one in tables)
    assert rows(lake) == before


def states(api: Api, place: str) -> dict[str, str]:
    return {task["task_id"]: task["state"] for task in api.call(place)["task_instances"]}


def a_run_of_a_range_again_and_two_that_overlap_change_nothing_more(lake: Lake, admin: Api) -> None:
    earlier, before = admin.runs(), rows(lake)
    same = {"from": "2013-03-07T00:00:00Z", "to": "2013-03-10T00:00:00Z"}
    runs = [admin.trigger(**same, parallelism=2), admin.trigger(**(same | {"from": "2013-03-08T12:00:00Z"}))]
    ended = {run["dag_run_id"]: run["state"] for run in admin.ended(besides=len(earlier) + 1)}
    assert [ended[run] for run in runs] == ["success"] * 2
    whole = admin.did(runs[0])
    assert len(whole["parts"]) == 2
    assert all(admin.did(run)["changed"] == 0 for run in runs)
    assert rows(lake) == before


@contextmanager
def the_marts_being_built(airflow: Any) -> Iterator[None]:
    """The marts of dbt are built once what they read has changed."""
    admin = Api(airflow, "admin", "dbt.build")
    admin.call("/dags/dbt.build", {"is_paused": False}, "PATCH")
    yield
    admin.until(lambda: any(run["run_type"] == "asset_triggered" for run in admin.runs()))
    ended = [run for run in admin.ended() if run["run_type"] == "asset_triggered"]
    assert {run["state"] for run in ended} == {"success"}
    built = [admin.did(run["dag_run_id"], "build")["said"] for run in ended]
    assert all("success" in said and "pass" in said and "error" not in said for said in built), built


def a_run_that_cannot_be_says_why_in_one_line_and_is_not_tried_again(lake: Lake, admin: Api) -> None:
    earlier, before = admin.runs(), snapshots(lake)
    refused = [
        ({"from": "2013-03-09T00:00:00Z", "to": "2013-03-08T00:00:00Z"}, "is empty"),
        ({"to": "2013-03-08T00:00:00Z"}, "fill in From, too"),
        ({"reason": "two\nlines"}, "reason: "),
    ]
    runs = [admin.trigger(**conf) for conf, _ in refused]
    ended = {run["dag_run_id"]: run for run in admin.ended(besides=len(earlier) + len(runs) - 1)}
    for run, (_, said) in zip(runs, refused, strict=True):
        assert ended[run]["state"] == "failed"
        failed = admin.did(run)["failed"]
        assert said in failed
        assert "\n" not in failed
        task = admin.call(f"/dags/{DAG}/dagRuns/{urllib.parse.quote(run)}/taskInstances/backfill")
        assert task["try_number"] == 1
    assert snapshots(lake) == before
    beyond = (
        {"parallelism": 99},
        {"dry_run": "yes"},
        {"reason": "x" * 201},
        {"from": "2013-03-08'; DROP TABLE flights; --"},
    )
    assert {admin.refused(f"/dags/{DAG}/dagRuns", {"logical_date": None, "conf": conf}) for conf in beyond} == {400}


def a_viewer_may_look_and_nothing_else(airflow: Any, admin: Api) -> None:
    viewer = Api(airflow, "viewer", DAG)
    runs = viewer.runs()
    run = runs[0]["dag_run_id"]
    place = f"/dags/{DAG}/dagRuns"
    range_ = {"dag_id": DAG, "from_date": "2013-03-07T00:00:00Z", "to_date": "2013-03-08T00:00:00Z"}
    assert viewer.refused(place, {"logical_date": None}) == 403
    assert viewer.refused("/backfills", range_) == 403
    assert viewer.refused(f"{place}/{urllib.parse.quote(run)}/clear", {"dry_run": False}) == 403
    assert viewer.refused(f"{place}/{urllib.parse.quote(run)}", {"state": "failed"}, "PATCH") == 403
    assert viewer.refused(f"/dags/{DAG}", {"is_paused": True}, "PATCH") == 403
    assert len(viewer.runs()) == len(runs)

    report = f"{airflow.url}/tailrace/did/{DAG}/{urllib.parse.quote(run)}"
    assert opened(report, viewer.token) == 200
    assert opened(report, "") == 401
    assert opened(report + "x", viewer.token) == 404
    for page, status in (("event-time", 200), ("backfill", 403)):
        assert opened(f"{airflow.url}/tailrace/{page}/{DAG}", viewer.token) == status
        assert opened(f"{airflow.url}/tailrace/{page}/{DAG}", "") == 401
    assert opened(f"{airflow.url}/tailrace/event-time/{DAG}?from=x&to=y", viewer.token) == 400


def opened(url: str, token: str) -> int:
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
