"""The meaning of definitions, in pure Python: fold epochs of records with chosen clocks, and look at each pane.

This module needs only the standard library. The pages on the model use it; `tailrace.testing` is the kit for tests.

>>> from tailrace import Count, Fixed, Log, Pipeline, hours
>>> rides = Log(name="rides", columns={"at": "timestamp"}, event_time="at")
>>> hourly = Pipeline(name="hourly", log=rides, what={"rides": Count()}, where=Fixed(hours(1)))
>>> [pane.values["rides"] for pane in at_once(hourly, [{"at": EPOCH}, {"at": EPOCH}]).panes]
[2]
"""

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import EPOCH, instant
from tailrace.model.logs.json_records import JsonRecords
from tailrace.model.step.chain_fold import ChainRun, fold_chain
from tailrace.model.step.progress import Progress, Seen
from tailrace.model.step.reference import ReferenceRun, at_once, fold
from tailrace.model.windows.windows import merge

__all__ = [
    "EPOCH",
    "ChainRun",
    "Clock",
    "JsonRecords",
    "Progress",
    "ReferenceRun",
    "Seen",
    "at_once",
    "fold",
    "fold_chain",
    "instant",
    "merge",
]
