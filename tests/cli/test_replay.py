"""`replay` as its users see it; what an engine would do is played."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import tailrace.verify.as_of as looking
import tailrace.verify.replay as replaying
from tailrace.cli.commands.run import replay
from tailrace.cli.main import app
from tailrace.engines.choose import Engine, EngineChoice
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import instant
from tailrace.verify.as_of import AsOf
from tailrace.verify.recorded_epochs import ReplayError
from tailrace.verify.row_diff import Replayed, RowCount, RowDifference
from tests.support.lakes import small_lake


@pytest.fixture
def definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(tmp_path / "lake"))
    path = tmp_path / "rides.py"
    path.write_text(small_lake.DEFINITION)
    return str(path)


def run(*args: str) -> Result:
    return CliRunner().invoke(app, ["replay", *args])


def played(monkeypatch: pytest.MonkeyPatch, found: Replayed | Exception) -> dict[str, Any]:
    asked: dict[str, Any] = {}

    def play(lake: Any, pipeline: Any, first: Any, last: Any, **options: Any) -> Replayed:
        asked.update(first=first, last=last, keep=options["keep"])
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(replaying, "replay", play)
    return asked


COUNTS = {"late": RowCount(1, 1, 1), "pane": RowCount(1200, 1200, 1200), "partial": RowCount(7, 7, 7)}
HERE = EngineChoice(Engine.DUCKDB, "it fits")
WINDOW = (small_lake.at(9), small_lake.at(10))


def test_a_replay_says_that_the_ledger_comes_out_again(definition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = played(monkeypatch, Replayed(0, 17, 17, COUNTS, (), 2.34, HERE))
    result = run(definition)
    assert (result.exit_code, asked) == (0, {"first": None, "last": None, "keep": None})
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "hourly_rides",
        "epochs  0..17, all there are",
        "engine  duckdb: it fits",
        "took    2.34 s",
        "",
        "   rows          in the ledger  replayed  the same",
        "✓  panes                 1,200     1,200     1,200",
        "✓  late records              1         1         1",
        "✓  partials                  7         7         7",
        "",
        "the ledger comes out again, row for row",
    ]
    assert json.loads(run(definition, "--json").stdout) == {
        "pipeline": "hourly_rides",
        "ok": True,
        "epochs": [0, 17],
        "last_epoch": 17,
        "rows": {name: {"ledger": n.ledger, "replay": n.replay, "same": n.same} for name, n in COUNTS.items()},
        "differences": [],
        "table": None,
        "seconds": 2.34,
        "engine": "duckdb",
        "engine_because": "it fits",
    }


def test_a_replay_shows_what_differs_and_has_status_1(definition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"pane": RowCount(10, 10, 9), "retraction": RowCount(3, 2, 2), "timer": RowCount(1, 1, 1)}
    differences = (
        RowDifference("pane", 3, {"city": "Oslo"}, WINDOW, {"rides": 3}, {"rides": 2}, (1, 1)),
        RowDifference("retraction", 4, {"city": "Oslo"}, WINDOW, {"rides": 2, "watermark": WINDOW[1]}, None, (2, 1)),
        RowDifference("rejected", 4, {"city": None}, (None, None), None, {"reason": "no city"}, (0, 1)),
    )
    played(monkeypatch, Replayed(3, 5, 17, counts, differences, 1.0, HERE, "folded"))
    result = run(definition, "--epochs", "3..5", "--keep", "folded")
    assert result.exit_code == 1
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[1:5] == ["epochs   3..5, of 0..17", "engine   duckdb: it fits", "took     1 s", "kept in  folded"]
    assert lines[6].startswith("   rows         in the ledger")
    assert [line[0] for line in lines[7:10]] == ["✗", "✗", "✓"]
    text = " ".join(result.stdout.split())
    assert "3 pane Oslo [2026-01-01T09:00Z, 10:00Z) rides 3 rides 2" in text
    assert "4 rejected – – nothing reason no city" in text
    assert "2 times: rides 2" in text
    assert " 1 time " in text
    assert lines[-1] == "2 rows of the ledger did not come out again, 1 other did"
    said = json.loads(run(definition, "--json").stdout)["differences"][1]
    assert said == {
        "kind": "retraction",
        "epoch": 4,
        "key": {"city": "Oslo"},
        "window": ["2026-01-01T09:00:00Z", "2026-01-01T10:00:00Z"],
        "ledger": {"rides": 2, "watermark": "2026-01-01T10:00:00Z"},
        "replay": None,
        "times": {"ledger": 2, "replay": 1},
    }


@pytest.mark.parametrize(
    ("given", "first", "last"), [("3..7", 3, 7), ("3..", 3, None), ("..7", None, 7), ("3", 3, 3), (" 0..0 ", 0, 0)]
)
def test_epochs_are_a_range_with_either_end_left_open(
    definition: str, monkeypatch: pytest.MonkeyPatch, given: str, first: int | None, last: int | None
) -> None:
    asked = played(monkeypatch, Replayed(0, 17, 17, COUNTS, (), 2.34, HERE))
    assert run(definition, "--epochs", given).exit_code == 0
    assert (asked["first"], asked["last"]) == (first, last)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--epochs", "all"), "--epochs 'all': expected a range of epochs, for example 3..7, 3.., ..7 or 3"),
        (("--epochs", ".."), "--epochs '..': expected a range of epochs"),
        (("--epochs", "7..3"), "--epochs 7..3: there is none from 7 to 3; the first one comes first"),
        (("--epochs", "3", "--as-of", "3"), "--as-of and --epochs ask for two things: pass one of them"),
        (("--rows", "3"), "--rows goes with --as-of: pass that too, or leave it out"),
        (("--key", "Oslo"), "--key goes with --as-of: pass that too, or leave it out"),
        (("--as-of", "3", "--key", "a", "--key", "b"), "the key of hourly_rides is (city): expected --key city=VALUE"),
    ],
)
def test_what_makes_no_sense_together_is_refused(definition: str, args: tuple[str, ...], said: str) -> None:
    result = run(definition, *args)
    assert result.exit_code == 2
    assert f"error: {said}" in result.stderr


def test_epochs_that_cannot_be_folded_again_are_a_wrong_argument(
    definition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(monkeypatch, ReplayError("epoch 0 cannot be folded again"))
    result = run(definition)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, "error: epoch 0 cannot be folded again")


def test_as_of_an_epoch_it_shows_clock_windows_and_answers(definition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"city": "Oslo", "window_start": WINDOW[0], "window_end": WINDOW[1]}
    window = {**place, "generation": 1, "panes": 2, "fresh": 3, "waiting_since": None, "fired_rides__n": 4}
    answer = {**place, "rides": 1234, "mean_price": None, "timing": "on_time", "generation": 1, "epoch": 2}
    found = AsOf(Clock(2, instant(small_lake.at(10)), 0, ("close",)), 9, 40, 1, (window,), (answer,), HERE, ("then",))
    asked: dict[str, Any] = {}

    def play(lake: Any, pipeline: Any, epoch: int, **options: Any) -> AsOf:
        asked.update(options, epoch=epoch)
        return found

    monkeypatch.setattr(looking, "as_of", play)
    result = run(definition, "--as-of", "2", "--key", "Oslo", "--rows", "1", "--keep", "then")
    assert result.exit_code == 0, result.output
    assert asked == {"epoch": 2, "rows": 1, "key": ("Oslo",), "keep": "then"}
    assert [" ".join(line.split()) for line in result.stdout.splitlines()] == [
        "hourly_rides as of epoch 2 of 0..9",
        "watermark 2026-01-01T10:00Z",
        "processing time 1970-01-01T00:00Z",
        "open windows 40",
        "answers 1",
        "signals close",
        "kept in then",
        "engine duckdb: it fits",
        "",
        "open windows, by their end",
        "city window gen panes fresh waiting since",
        "Oslo [2026-01-01T09:00Z, 10:00Z) 1 2 3 –",
        "1 of 40: --rows shows more, --keep keeps all",
        "",
        "latest answers",
        "city window rides mean_price timing epoch",
        "Oslo [2026-01-01T09:00Z, 10:00Z) 1,234 – on time 2",
    ]
    said = json.loads(run(definition, "--as-of", "2", "--json").stdout)
    assert asked["rows"] == replay.ROWS
    assert asked["key"] is None
    assert said["watermark"] == "2026-01-01T10:00:00Z"
    assert said["open_windows"]["count"] == 40
    assert said["open_windows"]["rows"][0]["window_end"] == "2026-01-01T10:00:00Z"
    assert said["answers"]["rows"] == [
        {**answer, "window_start": "2026-01-01T09:00:00Z", "window_end": "2026-01-01T10:00:00Z"}
    ]
