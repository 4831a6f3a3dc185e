"""Run a stream, an audit and a backfill, and print which functions of two walks each thread called, in order.

Arguments: a folder, and the steps of a record's and of a backfill's walk as JSON, each with its file and its function.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.plan.loader import load
from tailrace.runners.jobs import BackfillJob
from tailrace.runners.local import Local
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tests.support.engines.sessions import session

DEFINITION = """
from tailrace import Count, Fixed, Log, Pipeline, hours

views = Log(name="views", columns={"page": "string", "at": "timestamp"}, event_time="at")
hourly = Pipeline(name="hourly", log=views, key="page", what={"views": Count()}, where=Fixed(hours(1)))
"""
FILES = ("2026-01-01T00:10:00Z", "2026-01-01T09:00:00Z", "2026-01-01T00:20:00Z")
"""The event time of each file's record: the last record is late, so the backfill finds a difference."""


class Calls:
    """Records the first call of each function of a walk, by thread."""

    def __init__(self, steps: list[list[str]]) -> None:
        package = Path(sys.modules["tailrace"].__file__ or "").parent
        self._wanted = {(str(package / file), function): [file, function] for file, function in steps}
        self._seen = set[tuple[str, str]]()
        self._threads = dict[int, list[list[str]]]()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        called = (frame.f_code.co_filename, frame.f_code.co_qualname)
        if event == "call" and called in self._wanted and called not in self._seen:
            self._seen.add(called)
            self._threads.setdefault(threading.get_ident(), []).append(self._wanted[called])

    def __enter__(self) -> Calls:
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    @property
    def by_thread(self) -> list[list[list[str]]]:
        return list(self._threads.values())


def main(folder: Path, record: list[list[str]], backfill: list[list[str]]) -> None:
    from tailrace.ingest.sources import Files
    from tailrace.stream.landing_stream import Stream

    landing, file = folder / "landing", folder / "views.py"
    landing.mkdir()
    file.write_text(DEFINITION)
    for number, at in enumerate(FILES):
        one = landing / f"{number}.json"
        one.write_text(json.dumps({"page": "home", "at": at}) + "\n")
        os.utime(one, (1_700_000_000 + number, 1_700_000_000 + number))
    settings = Settings()
    definition, lake = load(str(file)), Lake(settings)
    with Calls(record) as of_record:
        stream = Stream(session(settings), lake, [definition], Files(str(landing), per_epoch=1))
        stream.start(once=True)
        stream.wait()
        stream.close()
        assert audit(lake, definition).ok
    job = BackfillJob.of(definition=str(file), first=BEGINNING, last=END_OF_TIME)
    with Calls(backfill) as of_backfill:
        Local(settings).backfill(job, lambda doing: None)
    print(json.dumps([of_record.by_thread, of_backfill.by_thread]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3]))
