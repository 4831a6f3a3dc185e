"""Made-up logs: the same for the same seed, and what they say makes sense."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.generate.ads import ads
from tailrace.generate.delivery import MINUTE
from tailrace.generate.delivery_files import land
from tailrace.generate.nexmark import FIRST_ID, nexmark
from tailrace.generate.searches import searches

FIRST = 1_767_225_600_000_000


def test_the_same_seed_makes_the_same_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        one = ads(rate=1, length=10 * MINUTE, seed=3, first=FIRST)
        list(land(one, tmp_path / name, every=MINUTE, instants=("at", "known")))
    first, second = ({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("a", "b"))
    assert first == second
    assert b"".join(first.values()).count(b"\n") == len(one)


def test_a_view_costs_no_more_than_its_length() -> None:
    for delivery in ads(rate=5, length=10 * MINUTE, seed=4, first=FIRST):
        record = delivery.record
        assert 0 < record["watched"] <= record["length"]
        assert isinstance(record["rate"], Decimal)
        assert record["known"] >= record["at"] + record["watched"] * 1_000_000
        assert delivery.known >= record["known"]


def test_of_fifty_records_of_an_auction_house_one_is_a_person_and_three_are_auctions() -> None:
    made = nexmark(rate=200, length=MINUTE, seed=4, first=FIRST)
    kinds = Counter(one.record["kind"] for one in made)
    assert kinds.total() == len(made) > 11_000
    assert [round(50 * kinds[kind] / len(made), 1) for kind in ("person", "auction", "bid")] == [1, 3, 46]
    assert all(0 <= one.known - one.record["date_time"] < 4_000_000 for one in made)
    assert [one.known for one in made] == sorted(one.known for one in made)


def test_who_bids_for_what_is_there_and_half_the_bids_are_for_what_is_hot() -> None:
    happened = sorted((d.record for d in nexmark(rate=500, length=MINUTE, seed=4, first=FIRST)), key=by_time)
    there: dict[str, int] = {"person": 0, "auction": 0}
    hot: Counter[str] = Counter()
    for record in happened[1:]:
        if record["kind"] in there:
            assert record["id"] == FIRST_ID + there[record["kind"]] + (record["kind"] == "person")
            there[record["kind"]] += 1
            continue
        assert record["bidder"] <= FIRST_ID + there["person"]
        assert record["auction"] < FIRST_ID + max(1, there["auction"])
        hot["bids"] += 1
        hot["auction"] += record["auction"] == FIRST_ID + (there["auction"] - 1) // 100 * 100
    assert 0.5 < hot["auction"] / hot["bids"] < 0.53


def test_prices_are_as_often_small_as_large() -> None:
    bids = [d.record for d in nexmark(rate=200, length=MINUTE, seed=5, first=FIRST) if d.record["kind"] == "bid"]
    digits = Counter(len(str(bid["price"])) for bid in bids)
    assert set(digits) <= set(range(3, 10))
    assert all(0.14 < digits[length] / len(bids) < 0.19 for length in range(3, 9))


def by_time(record: Mapping[str, Any]) -> int:
    return int(record["date_time"])


def test_the_command_writes_what_it_says(tmp_path: Path) -> None:
    words = ["generate", "ads", "--to", str(tmp_path), "--rate", "1", "--minutes", "5", "--json"]
    done = CliRunner().invoke(app, words)
    told = json.loads(done.stdout)
    lines = [json.loads(line) for file in tmp_path.glob("*.json") for line in file.read_text().splitlines()]
    assert (told["records"], told["files"]) == (len(lines), len(list(tmp_path.glob("*.json"))))
    assert min(line["at"] for line in lines).startswith("2026-01-01T00:00:")
    assert CliRunner().invoke(app, ["generate", "none", "--to", str(tmp_path)]).exit_code == 2
    assert CliRunner().invoke(app, [*words, "--rate", "0"]).exit_code == 2


def test_files_of_a_live_log_wait_for_their_time(tmp_path: Path) -> None:
    waited: list[int] = []
    made = ads(rate=1, length=5 * MINUTE, seed=3, first=FIRST)
    for number, file in enumerate(land(made, tmp_path, every=MINUTE, wait=waited.append)):
        assert len(waited) == number + 1
        assert file.exists()
    assert waited == sorted(waited)
    assert waited[0] == FIRST + MINUTE


def test_clicks_come_before_and_after_their_queries_and_without_any_and_twice() -> None:
    made = searches(rate=5, length=60 * MINUTE, seed=5, first=FIRST)
    assert [one.known for one in made] == sorted(one.known for one in made)
    queries = {one.record["query_id"]: one.record for one in made if one.log == "searches"}
    clicks = {one.record["click_id"]: one.record for one in made if one.log == "clicks"}
    assert 0.9 < len(made) / (5 * 3600) < 1.1
    assert 0.01 < 1 - (len(queries) + len(clicks)) / len(made) < 0.03
    whose = [(one, queries.get(one["query_id"])) for one in clicks.values()]
    assert all(query is None or query["at"] < click["at"] for click, query in whose)
    orphans = sum(query is None for _, query in whose)
    early = sum(query is not None and click["known"] < query["known"] for click, query in whose)
    late = sum(query is not None and click["at"] > query["at"] + 10 * MINUTE for click, query in whose)
    assert min(orphans, early, late) > 0
    assert max(orphans, late) < 0.03 * len(clicks)
    assert {tuple(one) for one in queries.values()} == {("query_id", "term", "at", "known")}
    assert {tuple(one) for one in clicks.values()} == {("click_id", "query_id", "ad", "at", "known")}


def test_two_logs_land_in_a_folder_each_of_which_a_file_holds_the_same_stretch_of_time(tmp_path: Path) -> None:
    words = ["generate", "searches", "--to", str(tmp_path), "--rate", "1", "--minutes", "5", "--json"]
    told = json.loads(CliRunner().invoke(app, words).stdout)
    files = list(tmp_path.rglob("*.json"))
    assert told["files"] == len(files)
    landed = dict.fromkeys(("searches", "clicks"), 0)
    for file in files:
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        landed[file.parent.name] += len(lines)
        assert {("click_id" in line) for line in lines} == {file.parent.name == "clicks"}
        assert all(line["known"][:16].replace("-", "").replace(":", "") <= file.stem[:13] for line in lines)
    assert sum(landed.values()) == told["records"]
    assert min(landed.values()) > 0
    times: dict[str, set[float]] = {}
    for file in files:
        times.setdefault(file.name, set()).add(file.stat().st_mtime)
    assert {len(one) for one in times.values()} == {1}
