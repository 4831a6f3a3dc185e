"""The answers follow in the process: by version, whatever was made of the ledger's files, and few files at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from tailrace.engines.duckdb import follower
from tailrace.engines.duckdb.follower import ProcessFollower
from tailrace.engines.duckdb.side import execution_of
from tailrace.engines.protocol import EpochState
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.stored_meaning import MEANING
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.change.generations import GENERATION
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.pipeline_tables import answer_contract, ledger_contract
from tailrace.model.base.time import instant
from tailrace.model.definition.fingerprint import encode_meaning
from tailrace.model.samples import examples
from tailrace.model.step.reference import fold
from tailrace.model.windows.panes import answers
from tailrace.settings import Settings
from tests.support.engines.engine_runs import CONNECTION
from tests.support.engines.spark_runs import arrow_bundle

PIPELINE = examples.figure(14)
EPOCHS = examples.element_at_a_time()


class Ledger:
    """A ledger that epochs are appended to, and the answers beside it."""

    def __init__(self, settings: Settings) -> None:
        self.lake, self.one = Lake(settings), execution_of(CONNECTION.cursor(), PIPELINE)
        self.state: EpochState = self.one.nothing()
        said = {"epoch": "-1", "generation": "0", "fingerprint": PIPELINE.fingerprint}
        for contract in (ledger_contract(PIPELINE), answer_contract(PIPELINE)):
            told = {**contract.properties, MEANING: encode_meaning(PIPELINE.meaning), GENERATION: "0"}
            self.lake.ensure(type(contract)(**{**vars(contract), "properties": told}), said)
        self.table = ledger_contract(PIPELINE).table
        self.branch = Branch(self.lake, self.table, "stream_1")
        self.follower = ProcessFollower(CONNECTION.cursor(), self.lake, PIPELINE, "test")
        self.branch.start()

    def fold(self, epoch: int) -> None:
        records, clock = EPOCHS[epoch]
        moved = self.one.step(
            self.state, self.one.consume(arrow_bundle(PIPELINE.log, records, clock.epoch), self.state), clock
        )
        self.state = moved.state
        self._publish(FileChange(tuple(self.lake.write_files(self.table, moved.rows))), {"epoch": str(clock.epoch)})

    def compact(self) -> None:
        """Put all the files together, as maintenance does."""
        scan = self.lake.table(self.table).scan()
        old = tuple(task.file for task in scan.plan_files())
        self._publish(FileChange(tuple(self.lake.write_files(self.table, scan.to_arrow())), old), {})

    def _publish(self, change: FileChange, said: Mapping[str, str]) -> None:
        self.branch.hold(change, {"fingerprint": PIPELINE.fingerprint, "generation": "0", **said})
        self.branch.publish()

    def held(self) -> dict[Any, Any]:
        rows = self.lake.table(PIPELINE.name).scan().to_arrow().to_pylist()
        where = [
            (tuple(r[k] for k in PIPELINE.key), instant(r["window_start"]), instant(r["window_end"])) for r in rows
        ]
        assert len(set(where)) == len(where)
        return dict(zip(where, ([row[name] for name in PIPELINE.what] for row in rows), strict=True))


@pytest.fixture
def ledger(settings: Settings) -> Iterator[Ledger]:
    one = Ledger(settings)
    yield one
    one.one.close()


def expected(epochs: int) -> dict[Any, Any]:
    said = answers(fold(PIPELINE, EPOCHS[:epochs]).panes)
    return {(key, *window): list(values.values()) for (key, window), values in said.items()}


def test_L2_p_is_what_the_panes_say_after_each_epoch(ledger: Ledger) -> None:
    for epoch in range(len(EPOCHS)):
        ledger.fold(epoch)
        ledger.follower.follow()
        assert ledger.held() == expected(epoch + 1), epoch


@pytest.mark.parametrize("share", [1, follower.PANES_A_SHARE])
def test_X3_panes_that_were_compacted_before_p_followed_are_in_it_in_shares_or_at_once(
    ledger: Ledger, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "PANES_A_SHARE", share)
    half = len(EPOCHS) // 2
    for epoch in range(half):
        ledger.fold(epoch)
    ledger.follower.follow()
    for epoch in range(half, len(EPOCHS)):
        ledger.fold(epoch)
    ledger.compact()
    ledger.follower.follow()
    assert ledger.held() == expected(len(EPOCHS)) != expected(half)
    files = list(ledger.lake.table(PIPELINE.name).scan().plan_files())
    assert (len(files) > 1) == (share == 1), "each share has files of its own"


def test_files_of_windows_that_did_not_change_stay_as_they_are(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "ROWS_A_FILE", 1)
    files = set[str]()
    kept_files = 0
    for epoch in range(len(EPOCHS)):
        ledger.fold(epoch)
        ledger.follower.follow()
        now = {task.file.file_path for task in ledger.lake.table(PIPELINE.name).scan().plan_files()}
        kept_files += len(files & now)
        files = now
    assert kept_files > 0
    assert ledger.held() == expected(len(EPOCHS))


def test_answers_are_cut_into_files_where_windows_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "ROWS_A_FILE", 10)
    monkeypatch.setattr(follower, "MOST_ALIKE", 35)
    chance = random.Random(4)
    for most in (1, 3, 30, 400):
        ends = sorted(chance.choices(range(most), k=120)) if most < 400 else [0] * 120
        batches = pa.table({"window_end": ends}).to_batches(chance.randrange(1, 25))
        found = [part["window_end"].to_pylist() for part in follower.cut_into_files(batches)]
        assert [end for part in found for end in part] == ends
        assert max(map(len, found)) <= 35 + 24, "what is held is bounded"
        for one, other in pairwise(found):
            assert one[-1] != other[0] or len(one) >= 35, "windows that end alike are together as far as that goes"
