"""The pages of `tailrace serve` say what the tables hold, show it as text, to whom may look, and write nothing."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as trying
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tailrace import DISCARDING, Count, Global, Map, Pipeline, Sessions, minutes
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.owned_tables import contracts
from tailrace.lake.schema.pipeline_tables import answer_contract, ledger_contract
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, moment
from tailrace.serve.guard import Access, OpenToAllError
from tailrace.serve.reading.event_grid import event_grid, extent
from tailrace.serve.reading.lake_reader import Reader, Session, SlowError
from tailrace.serve.reading.shown_text import CUT, value_text
from tailrace.serve.reading.stage_overview import runs_of
from tailrace.serve.reading.stage_rows import StageRows, late_rows
from tailrace.settings import Settings
from tailrace.trace.key_history import history
from tests.support.cases.clicks import VISITS
from tests.support.depth import cases
from tests.support.engines.computation_folds import Folded
from tests.support.engines.computation_folds import visited as visited_epochs
from tests.support.lakes import small_lake
from tests.support.lakes.small_lake import HOURLY, RIDES, append, at, pane
from tests.support.processes.serving import BASE, HERE, Seen, contents, corrected, visited

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")

NINE = "from=2026-01-01T09:00:00Z&to=2026-01-01T10:00:00Z"
FOR_EVER = Pipeline(name="for_ever", log=RIDES, key="city", what={"rides": Count()}, where=Global())
SITTINGS = Pipeline(
    name="sittings", log=RIDES, key="city", what={"rides": Count()}, where=Sessions(minutes(30)), how=DISCARDING
)
CHEAP = Map(name="cheap", log=RIDES)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A small lake with a backfill, half a second."""
    made = small_lake.make(Settings(warehouse=tmp_path_factory.mktemp("serving") / "lake"))
    corrected(made)
    return made


@pytest.fixture(scope="module")
def client(lake: Lake) -> Iterator[TestClient]:
    with visited(lake) as found:
        yield found


def windows(page: str) -> list[str]:
    return [link for link in Seen(page).links if "/window?" in link]


def test_the_overview_says_how_a_stage_stands(lake: Lake) -> None:
    with visited(lake) as client:
        said = Seen(client.get("/").text).text
    assert "watermark 2026-01-01 12:30 1 h 30 min behind the last epoch" in said
    assert "last epoch 2" in said
    assert "open windows 3 ending" in said
    assert "answers 3 1 epoch behind the ledger" in said
    assert "late, not taken in 0 of 1 late in all" in said
    assert "backfill 2 committed" in said


def test_a_late_record_is_said_not_to_be_taken_in_until_a_backfill_has(settings: Settings) -> None:
    lake = small_lake.make(settings)
    with visited(lake) as client:
        assert "late, not taken in 1 of 1 late in all" in Seen(client.get("/").text).text
        assert "late, not taken in in no answer 1" in Seen(client.get(BASE).text).text
        late = Seen(client.get(f"{BASE}/late").text)
        command = f"tailrace backfill {HOURLY.name}.py --from 2026-01-01T09:00:00Z --to 2026-01-01T10:00:00Z"
        assert command in late.text
        corrected(lake)
        assert "late, not taken in 0 of 1 late in all" in Seen(client.get("/").text).text
        assert "late, taken in by a backfill 1" in Seen(client.get(BASE).text).text
        assert "Every late record is in an answer by now" in Seen(client.get(f"{BASE}/late").text).text


def test_a_late_range_leads_to_the_dag_that_takes_it_in_where_airflow_is_known(settings: Settings) -> None:
    lake = small_lake.make(settings)
    with visited(lake, airflow="http://127.0.0.1:8080") as client:
        seen = Seen(client.get(f"{BASE}/late").text)
    form = "http://127.0.0.1:8080/tailrace/backfill/hourly_rides.backfill"
    query = urlencode({"from": "2026-01-01T09:00:00Z", "to": "2026-01-01T10:00:00Z"})
    assert f"{form}?{query}" in seen.links


def test_a_grid_counts_each_answer_in_the_column_of_its_windows_last_instant(lake: Lake) -> None:
    reader = Reader.of(lake)
    rows, runs = StageRows.of(lake, HOURLY), runs_of(lake, HOURLY)
    with (
        reader.session() as session,
        rows.open_rows(session) as named,
        late_rows(session, HOURLY.name, windowed=True) as late,
    ):
        range = extent(session, named, late)
        assert range is not None
        grid = event_grid(session, named, late, range, runs, step=rows.own.step, unbounded=True)
    reader.close()
    answers = lake.table(HOURLY.name).scan().to_arrow().to_pylist()
    expected = Counter(
        next(n for n, one in enumerate(grid.columns) if one.range.first < instant(row["window_end"]) <= one.range.last)
        for row in answers
    )
    (stream,) = [line for line in grid.lines if line.kind == "stream"]
    assert {n: count for n, count in enumerate(stream.counts) if count} == expected
    assert sum(stream.counts) == len(answers)
    assert grid.outside == 0


def test_a_window_is_reached_by_links_from_the_first_page(lake: Lake) -> None:
    """From all of event time to an hour, and to a window in it."""
    with visited(lake) as client:
        page = client.get(BASE).text
        assert windows(page)
        hour = next(link for link in Seen(page).links if "from=2026-01-01T09%3A00" in link and "generation" in link)
        (first, *_) = windows(client.get(hour).text)
        story = Seen(client.get(first).text).text
    assert "city Oslo" in story
    assert "took" not in story


def test_a_windows_page_has_the_panes_that_its_history_has(lake: Lake) -> None:
    with visited(lake) as client:
        (link, *_) = windows(client.get(f"{BASE}?{NINE}").text)
        seen = Seen(client.get(link).text)
    past = history(lake, HOURLY, ("Oslo",), instant(at(9)))
    rows = seen.text[seen.text.index("fired at") : seen.text.index("Too late")]
    signs = re.findall(r" ([−+]) ", rows)
    assert signs == ["−" if one.retraction else "+" for one in past.panes]
    assert [float(one) for one in re.findall(r"[−+] (\d+) ", rows)] == [one.values["rides"] for one in past.panes]
    assert "rides 4 mean price 925 answer correction by the backfill" in seen.text
    assert "two.json , 7" in seen.text


def test_a_windows_picture_has_a_box_for_each_pane_and_its_colours_are_the_pages(lake: Lake) -> None:
    with visited(lake) as client:
        (link, *_) = windows(client.get(f"{BASE}?{NINE}").text)
        light, dark = (client.get(link.replace("/window?", "/window/plot?") + more).json() for more in ("", "&dark=1"))
    boxes = [row for data in light["data"] for row in data.get("values", []) if "low" in row or "left" in row]
    assert len({row["tip"] for row in boxes}) == len(history(lake, HOURLY, ("Oslo",), instant(at(9))).panes)
    assert light["background"] != dark["background"]
    assert "datetime(" not in str(light)


def test_a_runs_page_says_of_each_window_what_was_before_what_is_after_and_why(lake: Lake) -> None:
    run = next(one.run for one in runs_of(lake, HOURLY) if one.kind == "backfill")
    with visited(lake) as client:
        listed = Seen(client.get(f"{BASE}/runs").text)
        assert f"{BASE}/runs/{run}" in listed.links
        seen = Seen(client.get(f"{BASE}/runs/{run}").text)
    assert "2026-01-01 09:00 – 10:00 Oslo 3 4 1,234.5 925 took in 1 late record" in seen.text
    assert "a <b>late</b> ride" in seen.text


def test_a_search_says_of_a_record_which_backfill_took_it_in_and_leads_to_its_window(settings: Settings) -> None:
    lake = small_lake.make(settings)
    place = {"_epoch": 2, "_source": "file:/landing/two.json", "_offset": 7}
    append(lake, "rides", [{"at": at(9, 15), "city": "Oslo", "price": 5, **place}], {"epoch": "2"})
    broken = {"raw": b"{<b>", "error": "not JSON", **place, "_offset": 8}
    append(lake, "rides__rejected", [broken], {"epoch": "2"})
    with visited(lake) as client:
        here = "/search?" + urlencode({"find": "two.json:7"})
        assert (
            "2 h 30 min too late, in epoch 2 (expired). No backfill has taken it in" in Seen(client.get(here).text).text
        )
        run = corrected(lake)
        page = client.get(here).text
        seen = Seen(page)
        assert "price 5" in seen.text
        assert f"Taken in by backfill {run} of generation 2: a <b>late</b> ride" in seen.text
        assert "The answer counts it: rides 4, mean_price 925" in seen.text
        (link,) = windows(page)
        assert "city Oslo" in Seen(client.get(link).text).text
        by_value = client.get("/search?" + urlencode({"find": "price = 5 and city = 'Oslo'", "stage": HOURLY.name}))
        assert windows(by_value.text) == [link]
        refused = client.get("/search?" + urlencode({"find": "two.json:8"})).text
        harmless(refused)
        assert "not JSON {<b>" in Seen(refused).text
        for find, says in (("euros = 3", "a condition on its columns at, city, price"), ("7", "has no record_id"),
                           ("price = 77", "There is no such record")):  # fmt: skip
            assert says in Seen(client.get("/search?" + urlencode({"find": find})).text).text
        assert client.get("/search?stage=nothing").status_code == 404


def test_windows_without_bounds_are_counted_apart_and_have_a_page(settings: Settings) -> None:
    lake = Lake(settings)
    for contract in contracts(FOR_EVER):
        lake.ensure(contract)
    span = {"window_start": BEGINNING, "window_end": END_OF_TIME}
    row = pane("Oslo", 9, 0, 0, (2, 5.5), "early") | {name: moment(micros) for name, micros in span.items()}
    del row["mean_price"]
    append(lake, ledger_contract(FOR_EVER).table, [row], {"epoch": "0", "fingerprint": FOR_EVER.fingerprint})
    append(lake, answer_contract(FOR_EVER).table, [row], {"epoch": "0"})
    with visited(lake, FOR_EVER) as client:
        page = client.get("/stages/for_ever").text
        (link,) = windows(page)
        assert "beginning of time – end of time" in Seen(page).text
        assert "early" in Seen(client.get(link).text).text


def test_a_map_has_a_grid_of_its_rows_that_stand_and_none_before_a_stream(settings: Settings) -> None:
    lake = small_lake.make(settings)
    with visited(lake, CHEAP) as client:
        assert "No stream has run yet" in Seen(client.get("/").text).text
        assert "tailrace stream cheap.py" in Seen(client.get("/stages/cheap").text).text
        lake.ensure(next(one for one in contracts(CHEAP) if one.table == "cheap__ledger"))
        row = {"kind": "production", "at": at(9), "city": "Oslo", "price": 3, "generation": 1, "epoch": 0}
        row |= {
            "retraction": False,
            "writer": "stream",
            "source_epoch": 0,
            "source_partition": "a",
            "event_time": at(9),
        }
        rows = [row | {"source_offset": n, "event_time": at(9, n)} for n in range(3)]
        append(lake, "cheap__ledger", rows, {"epoch": "0", "fingerprint": CHEAP.fingerprint, "watermark": "0"})
        seen = Seen(client.get("/stages/cheap").text)
    assert seen.text.count("Oslo") == 3


def test_a_session_that_grew_has_the_panes_of_those_that_merged_into_it(settings: Settings) -> None:
    """In discarding mode a pane has what was fresh, and the answer has all."""
    lake, first, whole = Lake(settings), (at(9), at(9, 30)), (at(9), at(10))
    for contract in contracts(SITTINGS):
        lake.ensure(contract)

    def fired(span: tuple[datetime, datetime], epoch: int, rides: int, all_of_them: int) -> dict[str, Any]:
        row = pane("Oslo", 9, epoch, 0, (rides, 0.0), "early") | dict(zip(SPAN, span, strict=True))
        return {name: row[name] for name in row if name != "mean_price"} | {"answer": {"rides": all_of_them}}

    rows = [fired(first, 0, 2, 2), fired(first, 1, 2, 2) | {"retraction": True}, fired(whole, 1, 3, 5)]
    said = {"fingerprint": SITTINGS.fingerprint, "watermark": "0"}
    append(lake, ledger_contract(SITTINGS).table, rows, said | {"epoch": "1"})
    answer = {name: value for name, value in rows[2].items() if name != "answer"} | {"rides": 5}
    append(lake, answer_contract(SITTINGS).table, [answer], {"epoch": "1"})
    came = [("Oslo", at(9, 29)), ("Oslo", at(9)), ("Rome", at(9, 10)), ("Oslo", at(10)), ("Oslo", at(8, 59))]
    place = {"_epoch": 1, "_source": "file:/landing/one.json", "price": 1}
    records = [place | {"_offset": n, "_arrival": at(11, n), "city": city, "at": when}
               for n, (city, when) in enumerate(came)]  # fmt: skip
    append(lake, "rides", records, {"epoch": "1"})
    with visited(lake, SITTINGS) as client:
        (link,) = windows(client.get("/stages/sittings").text)
        said_ = Seen(client.get(link).text).text
        assert client.get(link.replace("/window?", "/window/plot?")).status_code == 200
    assert "rides 5 answer early" in said_
    assert "2 records of the log, in the order in which they became known." in said_
    assert re.findall(r"epoch 1, record (\d)", said_) == ["0", "1"]
    assert re.findall(r"09:00 – (\S+) early ([−+]) (\d)", said_) == [
        ("09:30", "+", "2"),
        ("09:30", "−", "2"),
        ("10:00", "+", "3"),
    ]


def test_a_computation_has_a_grid_of_what_it_produced_and_a_definition(settings: Settings) -> None:
    folded = Folded(settings, VISITS)
    for epoch in visited_epochs(3):
        folded.cut(epoch)
    folded.fold.close()
    with visited(folded.lake, VISITS) as client:
        assert f"rows {len(folded.rows('production')):,}" in Seen(client.get("/").text).text
        page = Seen(client.get(f"/stages/{VISITS.name}").text).text
        assert "stream generation 1" in page
        for path in ("window", "late", "runs/abc"):
            assert client.get(f"/stages/{VISITS.name}/{path}").status_code == 404
        assert VISITS.fingerprint in client.get(f"/stages/{VISITS.name}/definition").text


def test_a_page_carries_no_script_or_style_and_forbids_what_is_not_this_servers(lake: Lake) -> None:
    run = next(one.run for one in runs_of(lake, HOURLY) if one.kind == "backfill")
    with visited(lake) as client:
        (link, *_) = windows(client.get(f"{BASE}?{NINE}").text)
        pages = [
            "/",
            "/search",
            "/search?find=price+%3D+3",
            BASE,
            link,
            f"{BASE}/late",
            f"{BASE}/runs",
            f"{BASE}/runs/{run}",
            f"{BASE}/definition",
            "/none",
        ]
        for path in pages:
            answer = client.get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "http" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            harmless(answer.text)
            for tag, attributes in Seen(answer.text).elements:
                if tag in ("script", "link"):
                    named = attributes.get("src") or attributes["href"]
                    assert named is not None
                    kept = client.get(named)
                    assert kept.status_code == 200
                    assert "immutable" in kept.headers["cache-control"]


def harmless(page: str) -> None:
    """A page runs nothing that is in it, and leads nowhere but to this server."""
    for tag, attributes in Seen(page).elements:
        assert tag not in ("style", "iframe", "object", "embed", "base", "b", "img", "svg")
        assert tag != "form" or (attributes.get("action"), attributes.get("method")) == ("/search", "get")
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        assert tag != "script" or (attributes.get("src") or "").startswith("/static/")
        assert not attributes.get("href") or attributes["href"].startswith(("/", "#main"))  # type: ignore[union-attr]
    assert re.search(r"<script[^>]*>\s*[^<\s]", page) is None


HOSTILE = st.text(
    st.sampled_from("<>&\"'`={}%/\\\n\t\0\u202e\u2066\u200b\ufeff\u0301ßאת𝕏") | st.characters(codec="utf-8"),
    max_size=40,
) | st.sampled_from(
    [
        "</td><script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "{{ 7 * 7 }}",
        "javascript:alert(1)",
        "' OR 1=1 --",
        "../../etc/passwd",
        "a" * 1_000_000,
        "\u202e" * 1000,
    ]
)


@trying(max_examples=cases(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(HOSTILE, min_size=1, max_size=8, unique=True))
def test_hostile_keys_are_shown_as_text_and_have_pages_of_their_own(tmp_path: Path, cities: list[str]) -> None:
    lake = Lake(Settings(warehouse=tmp_path / str(time.monotonic_ns()) / "lake"))
    for contract in contracts(HOURLY):
        lake.ensure(contract)
    rows = [pane(city, 9, 0, 0, (number, 5.5), "on_time") for number, city in enumerate(cities)]
    said = {"epoch": "0", "fingerprint": HOURLY.fingerprint, "watermark": str(instant(at(12)))}
    append(lake, ledger_contract(HOURLY).table, rows, said)
    append(lake, answer_contract(HOURLY).table, rows, {"epoch": "0"})
    with visited(lake) as client:
        page = client.get(f"{BASE}?{NINE}").text
        assert len(page) < 100_000
        harmless(page)
        links = windows(page)
        assert len(set(links)) == len(cities)
        told = list[str]()
        for link in set(links):
            story = client.get(link)
            assert story.status_code == 200
            harmless(story.text)
            if len(told) < 2:
                assert client.get(link.replace("/window?", "/window/plot?")).status_code == 200
            number = re.search(r"[−+] (\d+) ", Seen(story.text).text)
            assert number is not None
            city = cities[int(number[1])]
            assert " ".join(value_text(city).split()) in Seen(story.text).text
            told.append(city)
        assert sorted(told) == sorted(cities)


PARTS = st.sampled_from(
    [
        "search",
        "stages",
        HOURLY.name,
        "window",
        "plot",
        "late",
        "runs",
        "definition",
        "static",
        "events",
        "..",
        "%2e%2e",
        "etc",
    ]
) | st.text(max_size=12)
VALUES = st.sampled_from(
    [
        "city = 'Oslo'",
        "two.json:7",
        "price >",
        "2026-01-01T09:00:00Z",
        "2026-01-01",
        "0001-01-01",
        "9999-12-31",
        "-1",
        "1",
        "9" * 40,
        "",
    ]
)


@trying(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(PARTS, max_size=5).filter(lambda parts: parts[:1] != ["events"]),
    st.dictionaries(
        st.sampled_from(["from", "to", "page", "generation", "key", "value", "dark", "token", "find", "stage"]),
        VALUES | st.text(max_size=12),
        max_size=4,
    ),
)
def test_no_address_fails_or_writes(lake: Lake, client: TestClient, parts: list[str], query: dict[str, str]) -> None:
    folder = Path(str(lake.settings.warehouse))
    before = contents(folder)
    answer = client.get(f"{HERE}/{'/'.join(quote(part, safe='.%') for part in parts)}?{urlencode(query)}")
    assert answer.status_code in (200, 307, 400, 404)
    assert "nosniff" in answer.headers["x-content-type-options"]
    if answer.headers.get("content-type", "").startswith("text/html"):
        harmless(answer.text)
    assert contents(folder) == before


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_but_looking_is_allowed(lake: Lake, method: str) -> None:
    with visited(lake) as client:
        answer = client.request(method, "/")
        assert answer.status_code == 405
        assert answer.headers["allow"] == "GET, HEAD"
        assert client.head("/").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost:x", "", "[::2]", "10.0.0.1"])
def test_a_name_that_somebody_made_point_here_is_refused(lake: Lake, host: str) -> None:
    with visited(lake) as client:
        assert client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8321", "[::1]:8321", "LOCALHOST"])
def test_this_machines_own_names_are_not_refused(lake: Lake, host: str) -> None:
    with visited(lake) as client:
        assert client.get("/", headers={"host": host}).status_code == 200


def test_where_others_reach_the_page_a_token_is_needed() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.7", "lake.example"):
        with pytest.raises(OpenToAllError, match="TAILRACE_SERVE_TOKEN"):
            Access.of(host, None)
        assert Access.of(host, "a token of some length").token


def test_one_visit_with_the_token_is_enough_and_leaves_no_trace_of_it(lake: Lake) -> None:
    token = "a token of some length"
    with visited(lake, access=Access.of("127.0.0.1", token)) as client:
        for path in ("/", BASE, "/events", "/static/0/page.css", "/none", "/?token=another+token", "/?token="):
            assert client.get(path).status_code == 401, path
        let_in = client.get(f"{BASE}?page=1&token=a+token+of+some+length")
        assert let_in.status_code == 303
        assert let_in.headers["location"] == f"{BASE}?page=1"
        cookie = let_in.headers["set-cookie"]
        assert token not in cookie
        assert "HttpOnly" in cookie
        assert "samesite=lax" in cookie.lower()
        assert client.get("/").status_code == 200
        client.cookies.clear()
        assert client.get("/", headers={"authorization": f"Bearer {token}"}).status_code == 200
        assert client.get("/", headers={"cookie": f"tailrace={token}"}).status_code == 401


def test_a_visit_with_the_token_leads_nowhere_else(lake: Lake) -> None:
    token = "a token of some length"
    with visited(lake, access=Access.of("127.0.0.1", token)) as client:
        for path in ("//evil.example/", "/\\evil.example/"):
            answer = client.get(f"{HERE}{path}?token=a+token+of+some+length")
            assert not answer.headers.get("location", "/").startswith(("//", "/\\", "http"))


def one_after(session: Session, seconds: float) -> dict[str, Any]:
    """A row that is asked for late, as where files are long to find."""
    time.sleep(seconds)
    return session.one("SELECT 1 AS n")


def test_reading_is_given_up_when_its_time_is_over(lake: Lake) -> None:
    reader = Reader.of(Lake(lake.settings.model_copy(update={"serve_timeout": Settings().serve_timeout / 20})))
    began = time.monotonic()
    with pytest.raises(SlowError, match="TAILRACE_SERVE_TIMEOUT"), reader.session() as session:
        session.one("SELECT count(*) AS n FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3")
    assert time.monotonic() - began < 10
    with pytest.raises(SlowError), reader.session() as session:
        one_after(session, reader.seconds + 0.1)
    with reader.session() as session:
        assert session.one("SELECT 1 AS n") == {"n": 1}
    reader.close()


def test_what_is_long_or_not_seen_is_cut_and_named() -> None:
    assert len(value_text("x" * 1_000_000)) == CUT + 1
    assert value_text("a\u202eb\0") == "a⟨U+202E⟩b⟨U+0000⟩"
    assert value_text(b"\x00\xff") == "00 ff"


def test_no_table_is_made_by_looking(tmp_path: Path) -> None:
    settings = Settings(warehouse=tmp_path / "lake")
    with visited(Lake(settings, looks=True)) as client:
        for path in ("/", BASE, f"{BASE}/late", f"{BASE}/runs", f"{BASE}/definition"):
            assert client.get(path).status_code == 200
    assert not (tmp_path / "lake").exists()
