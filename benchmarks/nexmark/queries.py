"""The Nexmark queries that the model can say, each with the file of its definition and the columns that it answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from tailrace.model.windows.panes import Answers
from tailrace.model.logs.derived_logs import Panes, Productions
from tailrace.model.logs.log import Log
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.base.time import moment
from tailrace.plan.loader import load_ranged

HERE = Path(__file__).parent
TIMES = "n"
"""The result that says how often a row is there, of pipelines that give rows and not totals."""

Row = tuple[Any, ...]
Asked: TypeAlias = Pipeline | Map | Join
R = TypeVar("R", bound=Asked)

_RANKS = [f"{rank}_{what}" for what in ("bids", "bidders", "auctions") for rank in ("total", "rank1", "rank2", "rank3")]
_BID = ("auction", "bidder", "price", "date_time")
_WHOLE = ("auction", "bidder", "price", "channel", "url", "date_time", "extra")
_AUCTION = (
    *("id", "item_name", "description", "initial_bid", "reserve"),
    *("date_time=opened_at", "expires", "seller", "category"),
)
_ITEM = ("auction_id=item", "auction_item_name=item_name")
_DAY = "day=window_start"

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "q0": _BID,
    "q1": ("auction", "bidder", "price=euros", "date_time"),
    "q2": ("auction", "price"),
    "q3": ("name", "city", "state", "id=item"),
    "q4": ("category", "avg"),
    "q5": ("auction", "num"),
    "q6": ("seller", "avg"),
    "q7": ("auction", "price", "bidder", "date_time"),
    "q8": ("id=who", "name", "starttime=window_start"),
    "q9": (*_AUCTION, "auction=id", "bidder", "price", "bid_date_time=bid_at"),
    "q10": (*_BID, "date=day", "time=minute"),
    "q11": ("bidder", "bids", "starttime=window_start", "endtime=window_end"),
    "q14": ("auction", "bidder", "price=euros", "bidtimetype=time_of_day", "date_time", "c_counts"),
    "q15": (_DAY, *_RANKS),
    "q16": ("channel", _DAY, "minute", *_RANKS),
    "q17": ("auction", _DAY, *_RANKS[:4], "min_price", "max_price", "avg_price", "sum_price"),
    "q18": _WHOLE,
    "q19": (*_WHOLE, "rank_number"),
    "q20": (
        *("auction", "bidder", "price", "channel", "url", "bid_date_time", "bid_extra"),
        *("item_name", "description", "initial_bid", "reserve", "auction_date_time", "expires"),
        *("seller", "category", "auction_extra"),
    ),
    "q21": ("auction", "bidder", "price", "channel", "channel_id"),
    "q22": ("auction", "bidder", "price", "channel", "dir1", "dir2", "dir3"),
    "q101": (*_ITEM, "current_highest_bid=highest"),
    "q102": (*_ITEM, "bid_count=bids"),
    "q103": _ITEM,
    "q104": _ITEM,
    "q105": (*_ITEM, "bid_count=bids"),
    "q106": ("min_final",),
}
"""What each query answers, by the names that the benchmark has for its columns; `theirs=ours` where ours differs."""


@dataclass(frozen=True)
class Query:
    """A query: its definition, and its answer's columns as (the benchmark's name, ours)."""

    name: str
    definition: Asked
    columns: tuple[tuple[str, str], ...]

    def rows(self, answers: Answers) -> Iterator[Row]:
        """The rows of its answer, in no order, of the answers of its keys and windows."""
        for (key, window), values in answers.items():
            row = dict(zip(self._key, key, strict=True)) | dict(values)
            row |= {"window_start": moment(window.start), "window_end": moment(window.end)}
            yield from self.flattened([row])

    @property
    def pipeline(self) -> Pipeline:
        """Its definition, where that has windows."""
        assert isinstance(self.definition, Pipeline)
        return self.definition

    @property
    def times(self) -> bool:
        """Whether a row of its answer says how often it is there."""
        return TIMES in self.definition.results

    def read(self, mark: str, *more: str) -> str:
        """The query of its answer's table, of a definition whose name ends in `mark`; with more columns."""
        times = [TIMES] if self.times else []
        items = ", ".join(dict.fromkeys([*(ours for _, ours in self.columns), *times, *more]))
        if not self.definition.windowed:
            return f"SELECT {items} FROM {self.name}{mark}__ledger WHERE kind = 'production' AND NOT retraction"
        return f"SELECT {items} FROM {self.definition.name}{mark}"

    @property
    def _key(self) -> tuple[str, ...]:
        return self.definition.key if isinstance(self.definition, Pipeline) else ()

    def flattened(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
        """Return the flattened answers from the rows of the query's table, or from the rows of a map or a join."""
        for row in rows:
            found = tuple(_plain(theirs, row[ours]) for theirs, ours in self.columns)
            yield from [found] * row.get(TIMES, 1)


@cache
def query(name: str) -> Query:
    """A query by its name, for example "q5"."""
    columns = [column.partition("=") for column in COLUMNS[name]]
    named = tuple((theirs, ours or theirs) for theirs, _, ours in columns)
    definition = load_ranged(str(HERE / f"{name}.py"))
    assert isinstance(definition, Asked)
    return Query(name, definition, named)


def beside(definition: R, mark: str, *, log: bool = False) -> R:
    """Rename a definition and its inputs: each name ends in `mark`, and with `log` the log's name does, too."""
    name = definition.name + mark
    if isinstance(definition, Join):
        left, right = (_beside(one, mark, log=log) for one in (definition.left, definition.right))
        return replace(definition, name=name, left=left, right=right)
    return replace(definition, name=name, log=_beside(definition.log, mark, log=log))


def _beside(read: Log, mark: str, *, log: bool) -> Log:
    if isinstance(read, Panes | Productions):
        other = beside(read.of, mark, log=log)
        made: Log = other.panes if isinstance(read, Panes) else other.produced
        return made
    return replace(read, name=read.name + mark) if log else read


def _plain(name: str, value: Any) -> Any:
    """A day is what its first instant is called."""
    return f"{value.astimezone(UTC):%Y-%m-%d}" if name == "day" and isinstance(value, datetime) else value
