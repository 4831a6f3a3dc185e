"""Hypothesis strategies for random definitions, and random epochs to fold them over.

A strategy is made once: to make and to check one takes longer than to draw from it.

`runs()` draws a pipeline with epochs for it; `pipelines()` and `epochs(definition)` draw them apart. All records are
of one log, `LOG`, and hold plain values: a test of another execution can send the same ones through it. Their `id` is
unique within a run. Event times and watermarks lie on a small grid of seconds, one microsecond aside now and then, so
that windows fill, sessions overlap and just touch, and a good part of the records is late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from tailrace.model.base.clock import Clock
from tailrace.model.base.conditions import Both, Condition, Either, Match, Missing, Not
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, moment, seconds
from tailrace.model.combiners.basic import AllTrue, AnyTrue, AnyValue, Combiner, Count, Max, Mean, Min, Sum
from tailrace.model.combiners.first_last import First, Last
from tailrace.model.combiners.lists import Collect, Distinct, Quantile, TopK
from tailrace.model.combiners.own import OwnWindows
from tailrace.model.combiners.variance import Variance
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import Log
from tailrace.model.step.progress import ALL, Progress, Seen
from tailrace.model.triggers.combinators import AfterWatermark, AllOf, AnyOf, Repeat, Sequence, Until
from tailrace.model.triggers.punctuation import AfterBytes, AfterMatch, AfterPattern
from tailrace.model.triggers.trigger import (
    AfterCount,
    AfterDelay,
    AfterSignal,
    AtPercentile,
    AtWatermark,
    Every,
    Never,
    Trigger,
)
from tailrace.model.windows.calendars import Calendar
from tailrace.model.windows.panes import Accumulation
from tailrace.model.windows.windows import NOTHING, Fixed, Global, Sessions, Sliding, Window, Windowing
from tests.support.depth import cases

BASE = datetime(2024, 1, 1, tzinfo=UTC)
"""Around when all events of `epochs` happen and arrive."""

LOG = Log(
    name="trips",
    columns={
        "id": "bigint",
        "place": "string",
        "lane": "int",
        "value": "bigint",
        "price": "decimal(10,2)",
        "weight": "double",
        "label": "string",
        "good": "boolean",
        "at": "timestamp",
    },
    event_time="at",
    earliest=datetime(2023, 1, 1, tzinfo=UTC),
    latest=datetime(2025, 1, 1, tzinfo=UTC),
    percentiles={50: seconds(0)},
)
"""The log of all the records. Every column but `id` and `at` may be null."""


def examples(count: int, *, deeper: int | None = None) -> settings:
    """So many examples of the loaded profile (`depth.cases`)."""
    return settings(max_examples=cases(count, deeper))


def each_time_the_same(count: int) -> settings:
    """So many examples, which are not made smaller where one fails: for laws with a seed, of whole engines."""
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


Record = dict[str, Any]
Epochs = list[tuple[list[Record], Clock]]

EVERYTHING: dict[str, Combiner] = {
    "records": Count(),
    "priced": Count("price"),
    "total": Sum("value"),
    "lanes": Sum("lane"),
    "paid": Sum("price"),
    "weighed": Sum("weight"),
    "mean_value": Mean("value"),
    "mean_weight": Mean("weight"),
    "mean_price": Mean("price"),
    "least_price": Min("price"),
    "most_value": Max("value"),
    "first_label": Min("label"),
    "last_label": Max("label"),
    "last_at": Max("at"),
    "spread_value": Variance("value"),
    "spread_price": Variance("price"),
    "spread_lanes": Variance("lane", population=True),
    "all_good": AllTrue("good"),
    "any_good": AnyTrue("good"),
    "some_label": AnyValue("label"),
    "earliest_label": First("label"),
    "latest_price": Last("price"),
    "prices": Collect("price"),
    "labels": Collect("label"),
    "top_values": TopK("value", 2),
    "top_labels": TopK("label", 3),
    "kinds": Distinct("label"),
    "ways": Distinct("price"),
    "middle_price": Quantile("price", 0.5),
    "high_value": Quantile("value", 0.9),
}
"""The results that a random definition picks from."""


@dataclass(frozen=True)
class Told(OwnWindows):
    """The windows of another kind, as custom code tells them: nobody can compile it."""

    of: Windowing

    @property
    def columns(self) -> tuple[str, ...] | None:
        return self.of.columns

    @property
    def longest(self) -> int | None:
        return self.of.longest

    def assign(self, at: int, record: Mapping[str, Any] = NOTHING) -> list[Window]:
        return self.of.assign(at, record)


@st.composite
def perhaps_told(draw: st.DrawFn, pipeline: Pipeline) -> Pipeline:
    """The definition, now and then with its windows told by code, where they do not merge."""
    if pipeline.where.merges or draw(st.integers(0, 3)):
        return pipeline
    return replace(pipeline, where=Told(pipeline.where))


# ---------------------------------------------------------------------------------------------------- definitions


@cache
def windowings() -> st.SearchStrategy[Windowing]:
    """Every built-in windowing, in sizes of a few seconds; sliding with overlaps, with gaps, and end to end."""
    few = st.integers(1, 6).map(seconds)
    offset = st.sampled_from([0, 0, 1, 7, -2]).map(seconds)
    return st.one_of(
        st.builds(Fixed, few, offset),
        st.builds(Sessions, few),
        st.builds(Sliding, few, few, offset),
        st.sampled_from([Calendar("day", "Asia/Tokyo"), Calendar("month")]),
        st.just(Global()),
    )


@cache
def conditions() -> st.SearchStrategy[Condition]:
    """Conditions on the columns of `LOG`, one or two."""
    operators = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    one = st.one_of(
        st.builds(Match, st.just("value"), operators, st.integers(-3, 9)),
        st.builds(Match, st.just("price"), operators, st.sampled_from([Decimal("1.50"), 2])),
        st.builds(Match, st.just("label"), operators, st.sampled_from(["x", "Z", "é", "it's \\"])),
        st.builds(Match, st.just("good"), st.sampled_from(["==", "!="]), st.booleans()),
        st.builds(Missing, st.just("lane")),
    )
    return st.one_of(one, st.builds(Both, one, one), st.builds(Either, one, one), st.builds(Not, one))


_KEEPS = st.none() | st.none() | st.none() | conditions()
_PROCESSING_TIMES = st.sampled_from([1, 20, 60]).map(seconds)


@cache
def _leaves() -> st.SearchStrategy[Trigger]:
    return st.one_of(
        st.builds(AfterCount, st.integers(1, 3)),
        st.builds(AtWatermark),
        st.builds(AfterDelay, _PROCESSING_TIMES),
        st.builds(Every, _PROCESSING_TIMES, st.sampled_from([0, 0, 7]).map(seconds)),
        st.builds(AfterBytes, st.integers(1, 4), st.just("label")),
        st.builds(AfterMatch, conditions()),
        st.builds(AfterPattern, conditions(), conditions()),
        st.just(AfterSignal("go")),
        st.just(AtPercentile(50)),
        st.just(Never()),
    )


def _ended(trigger: Trigger, by: Trigger) -> Trigger:
    """The trigger, ended by another where it would not end by itself."""
    return trigger if trigger.finishes else Until(trigger, by if by.finishes else AtWatermark())


def _sequence(parts: list[Trigger], by: Trigger) -> Trigger:
    return Sequence(*(_ended(part, by) for part in parts[:-1]), parts[-1])


def _repeats(trigger: Trigger) -> bool:
    """Whether validation lets it be repeated."""
    return not list(Repeat(trigger).own_faults("when"))


def _repeated(trigger: Trigger) -> Trigger:
    return Repeat(trigger) if _repeats(trigger) else trigger


@cache
def _composed(parts: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
    some = st.lists(parts, min_size=1, max_size=3)
    return st.one_of(
        some.map(lambda own: AnyOf(*own)),
        some.map(lambda own: AllOf(*own)),
        st.builds(_sequence, some, _leaves()),
        st.builds(lambda part, stop: Until(part, _ended(stop, AtWatermark())), parts, parts),
        parts.map(_repeated),
    )


@cache
def triggers(depth: int = 2) -> st.SearchStrategy[Trigger]:
    """Triggers nested up to `depth` that validation has nothing against, whatever they are done by."""
    return _leaves() if depth == 0 else st.one_of(_leaves(), *[_composed(triggers(depth - 1))] * 3)


def _endless(trigger: Trigger) -> Trigger:
    """A trigger that goes on for as long as records may come."""
    if not trigger.finishes:
        return trigger
    again = _repeated(trigger)
    return again if not again.finishes else Sequence(trigger, Repeat(AfterCount(1)))


@cache
def _questions(late: bool) -> st.SearchStrategy[Trigger]:
    """Triggers as users write them: early, on time and late; and random ones that never end."""
    inner = triggers(1)
    after = inner.filter(_repeats)
    shorthand = st.builds(AfterWatermark, st.none() | after, after.map(_endless) if late else st.none())
    return st.one_of(shorthand, triggers().map(_endless), st.builds(AtWatermark) if not late else shorthand)


@st.composite
def pipelines(draw: st.DrawFn, *, where: Windowing | None = None, how: Accumulation | None = None) -> Pipeline:
    """Random definitions over `LOG`; `where` and `how` fix those answers.

    About one in five has a trigger that can be done while records may still come (`finishing="close"`).
    """
    lateness = seconds(draw(st.sampled_from([0, 0, 1, 3, 8])))
    closes = draw(st.integers(0, 4)) == 4
    late = lateness > seconds(0)
    when = draw(triggers() if closes else _questions(late))
    if not late and isinstance(when, Sequence) and any(part.finishes_only_on_time for part in when.parts[:-1]):
        lateness = seconds(2)  # so that the parts after the watermark get their turn
    names = draw(st.lists(st.sampled_from(sorted(EVERYTHING)), min_size=1, max_size=4, unique=True))
    key = draw(st.sampled_from([("place",), ("place",), (), ("place", "lane")]))
    within = where if where is not None else draw(windowings())
    if type(within) is Fixed and key and draw(st.integers(0, 3)) == 0:
        within = replace(within, phase=key[-1])
    return Pipeline(
        name="random",
        log=replace(LOG, disorder=seconds(draw(st.sampled_from([0, 2, 5])))),
        key=key,
        what={name: EVERYTHING[name] for name in names},
        where=within,
        keep=draw(_KEEPS),
        when=when,
        how=how if how is not None else draw(st.sampled_from(Accumulation)),
        allowed_lateness=lateness,
        on_time=draw(st.sampled_from(["always", "if_non_empty"])),
        closing=draw(st.sampled_from(["if_non_empty", "always"])),
        finishing="close" if closes else "refuse",
    )


# --------------------------------------------------------------------------------------------------------- epochs

_VALUES = {
    "place": st.sampled_from(["a", "a", "a", "b", None]),
    "lane": st.sampled_from([1, 1, 2, None]),
    "value": st.integers(-3, 9) | st.none(),
    "price": st.integers(-300, 900).map(lambda cents: Decimal(cents).scaleb(-2)) | st.none(),
    "weight": st.sampled_from([0.1, 0.2, 0.3, -0.3, 2.5, 1e-9, 1e16, 1e16, -1e16, 0.7, 1e40, None]),
    "label": st.sampled_from(["x", "y", "Z", "é", "", None]),
    "good": st.sampled_from([True, True, False, None]),
}


@cache
def bundles(max_size: int = 6) -> st.SearchStrategy[list[Record]]:
    """Records of `LOG` whose `id` means nothing, for tests that do not fold them."""
    at = st.integers(0, 30).map(lambda away: BASE + seconds(away))
    return st.lists(st.fixed_dictionaries({"id": st.just(0), "at": at, **_VALUES}), max_size=max_size)


_ARRIVALS = st.tuples(
    st.integers(-6, 9),  # seconds from the watermark
    st.sampled_from([0, 0, 0, 0, -1, 1]),  # and microseconds
    st.fixed_dictionaries(_VALUES),
)


@cache
def _spans(max_epochs: int, max_bundle: int) -> st.SearchStrategy[list[Any]]:
    """What comes in each epoch, and how far time goes on with it."""
    return st.lists(
        st.tuples(
            st.lists(_ARRIVALS, max_size=max_bundle),
            st.integers(0, 8),  # seconds that the watermark goes forward
            st.sampled_from([0, 1, 13, 60]),  # and processing time
            st.sampled_from([1, 1, 1, 4]),  # and the epoch's number
            st.sampled_from([(), (), ("go",), ("go", "stop")]),
        ),
        min_size=min(3, max_epochs),
        max_size=max_epochs,
    )


@st.composite
def epochs(
    draw: st.DrawFn,
    definition: Definition,
    *,
    ends: bool | None = None,
    max_epochs: int = 8,
    max_bundle: int = 6,
) -> Epochs:
    """Random epochs for a definition, as `fold` takes them: bundles of records, each with its clock.

    The watermark is made up (it may stand still, or run past records), or follows the records by the log's bound on
    disorder. `ends` says whether the last epoch brings the watermark to the end of time; either, if left out.
    """
    spans = draw(_spans(max_epochs, max_bundle))
    follows = draw(st.booleans())
    unknown = draw(st.sampled_from([0, 0, 1, 3])) if not follows else 0
    progress = Progress()
    front, watermark, now, number = instant(BASE), BEGINNING, instant(BASE), -1
    made: Epochs = []
    count = 0
    for place, (arrivals, forward, later, further, signals) in enumerate(spans):
        bundle: list[Record] = []
        for away, aside, values in arrivals:
            bundle.append({"id": count, "at": moment(front + away * 1_000_000 + aside)} | values)
            count += 1
        front += forward * 1_000_000
        if follows:
            seen = {ALL: Seen(max(instant(r["at"]) for r in bundle))} if bundle else {}
            progress = progress.after(definition.log.strategy, seen, now)
            watermark = progress.watermark
        elif place >= unknown:
            watermark = front
        now += later * 1_000_000
        number += further
        made.append((bundle, Clock(number, watermark, now, signals)))
    if draw(st.booleans()) if ends is None else ends:
        made.append(([], Clock(number + 1, END_OF_TIME, now + 1_000_000)))
    return made


@st.composite
def runs(
    draw: st.DrawFn,
    *,
    ends: bool | None = None,
    where: Windowing | None = None,
    how: Accumulation | None = None,
) -> tuple[Pipeline, Epochs]:
    """A random definition with random epochs for it."""
    pipeline = draw(pipelines(where=where, how=how))
    return pipeline, draw(epochs(pipeline, ends=ends))


def everything(made: Iterable[tuple[Iterable[Record], Clock]]) -> list[Record]:
    """All the records of the epochs, in the order in which they came."""
    return [record for bundle, _ in made for record in bundle]
