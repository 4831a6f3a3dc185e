"""A transcript compares with what a definition gives, epoch by epoch, and its faults are named all at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tailrace import AfterCount, AfterWatermark, hours
from tailrace.testing import RowsError, TranscriptError, check_transcript
from tests.testing.rides import HOURLY, RIDES

EARLY = replace(HOURLY, when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)), allowed_lateness=hours(1))

TOLD = """\
about: A ride that comes after its hour is added to the hour.
epochs:
  - records:
      - {at: 2026-03-01T09:10, city: NO, cents: 3}
    gives: |
      city  rides  timing
      NO    1      early
  - records: [{at: 2026-03-01T10:20:00Z, city: NO, cents: 4}]
    now: 2026-03-01T10:21
    gives: |
      city  window                  rides  timing
      NO    2026-03-01T09:00/10:00  1      on_time
      NO    2026-03-01T10:00/11:00  1      early
  - {}
  - records:
      - {at: "2026-03-01T09:50:00Z", city: NO, cents: 5}
      - {at: 2026-03-01T09:55:00Z, city: "no", cents: five}
    gives: |
      city  cents  timing
      NO    8      late
  - end: true
    gives: |
      city  cents  window                  timing
      NO    4      2026-03-01T10:00/11:00  on_time
answers: |
  city  cents
  NO    8
  NO    4
rejected: |
  epoch | reason
  3     | "cents = \\"five\\" is not a bigint"
duplicates: 0
"""


def told(tmp_path: Path, text: str) -> Path:
    (tmp_path / "late.yaml").write_text(text)
    return tmp_path / "late.yaml"


def test_a_transcript_is_what_each_epoch_gives(tmp_path: Path) -> None:
    output = check_transcript(EARLY, told(tmp_path, TOLD))
    assert len(output) == 5


@pytest.mark.parametrize(
    ("changed", "to", "said"),
    [
        ("8      late", "9      late", ["epoch 3: 1 differing", "-  NO    9      late", "late    differs in cents"]),
        ("  - {}\n", "  - gives: rides\n", []),
        ("  - {}\n", "  - gives: |\n      rides\n      7\n", ["epoch 2: 1 missing"]),
        ("    gives: |\n      city  cents  timing\n      NO    8      late\n", "", ["epoch 3: 1 extra", "late"]),
        ("  NO    4\nrej", "rej", ["answers: 1 equal, 1 extra"]),
        ("duplicates: 0", "duplicates: 2", ["duplicates: 2 in the transcript, 0 given"]),
        (TOLD[TOLD.index("rejected") : TOLD.index("dupl")], "", ["rejected: 1 extra", "is not a bigint"]),
    ],
)
def test_what_differs_is_shown_by_epoch(tmp_path: Path, changed: str, to: str, said: list[str]) -> None:
    assert changed in TOLD
    file = told(tmp_path, TOLD.replace(changed, to, 1))
    if not said:
        check_transcript(EARLY, file)
        return
    with pytest.raises(RowsError) as caught:
        check_transcript(EARLY, file)
    text = str(caught.value)
    assert text.startswith(f"{file}: what hourly_rides gives != the transcript\n{said[0]}")
    assert all(one in text for one in said)


def test_a_transcript_without_tables_of_epochs_compares_the_answers_alone(tmp_path: Path) -> None:
    text = "epochs:\n- records: [{at: 2026-03-01T09:10, city: Paris, cents: 3}]\n- end: true\nanswers: cents\n"
    with pytest.raises(RowsError, match=r"answers: 1 extra"):
        check_transcript(EARLY, told(tmp_path, text))
    check_transcript(EARLY, told(tmp_path, text.replace("answers: cents", "answers: |\n  cents\n  3")))


def test_a_number_keeps_its_digits(tmp_path: Path) -> None:
    priced = replace(RIDES, columns={**RIDES.columns, "cents": "decimal(30,10)"})
    precise = "12345678901234567890.0123456789"
    text = f"epochs:\n- records: [{{at: 2026-03-01T09:10, city: a, cents: {precise}}}]\n- end: true\n"
    check_transcript(replace(EARLY, log=priced), told(tmp_path, f"{text}answers: |\n  cents\n  {precise}\n"))


def test_an_instant_has_the_form_of_its_column_and_other_words_are_texts(tmp_path: Path) -> None:
    log = replace(RIDES, columns={**RIDES.columns, "note": "string"}, instants="milliseconds")
    noted = replace(EARLY, log=log, key="note")
    rows = ["NO", "on", "9:05", "2026-03-01", "1_000", "0x1f", "1.5.0", '"2026-03-01T09:00"', '"7"']
    records = "".join(f"  - {{at: 2026-03-01T09:1{n}, note: {one}}}\n" for n, one in enumerate(rows))
    file = told(tmp_path, f"epochs:\n- records:\n{records}- end: true\nanswers: |\n  note\n  " + "\n  ".join(rows))
    check_transcript(noted, file)


def test_all_faults_of_a_transcript_are_named(tmp_path: Path) -> None:
    text = "epoch: 1\nepochs:\n- {records: [], give: x}\n- {end: true, now: 2026-03-01}\n- gives: [1]\n- 7\nlate: 3\n"
    with pytest.raises(TranscriptError) as caught:
        check_transcript(EARLY, told(tmp_path, text))
    places = ["epoch", "late", "epochs[0].give", "epochs[1].end", "epochs[1].end", "epochs[2].gives", "epochs[3]"]
    assert [one.path for one in caught.value.faults] == places
    for text in ("- 1", "epochs: {}", "epochs: [", "a: 1"):
        with pytest.raises(TranscriptError, match="is not a transcript"):
            check_transcript(EARLY, told(tmp_path, text))
