"""A definition that makes no sense is refused as a whole, and every fault says where, what, what instead and how."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tailrace.model.base.conditions import Match
from tailrace.model.base.errors import DefinitionError, Fault, TailraceError
from tailrace.model.base.time import days, hours, minutes
from tailrace.model.combiners.basic import AllTrue, AnyTrue, Count, Max, Mean, Min, Sum
from tailrace.model.combiners.lists import Quantile, TopK
from tailrace.model.combiners.own import OwnCombiner, OwnWindows
from tailrace.model.combiners.variance import Variance
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import Log
from tailrace.model.triggers.combinators import AfterWatermark, AllOf, AnyOf, Repeat, Sequence, Until
from tailrace.model.triggers.punctuation import AfterBytes, AfterMatch
from tailrace.model.triggers.trigger import (
    AfterCount,
    AfterDelay,
    AfterSignal,
    AtPercentile,
    AtWatermark,
    Every,
    Never,
)
from tailrace.model.windows.calendars import Calendar
from tailrace.model.windows.panes import DISCARDING, RETRACTING
from tailrace.model.windows.windows import Fixed, Global, Sessions, Sliding

RIDES = Log(
    name="rides",
    columns={
        "zone": "string",
        "price": "decimal(10,2)",
        "meters": "double",
        "count": "bigint",
        "kind": "string",
        "at": "timestamp",
    },
    event_time="at",
)


def log(**changed: Any) -> Log:
    return replace(RIDES, **changed)


def pipeline(**changed: Any) -> Pipeline:
    usual: dict[str, Any] = {
        "name": "hourly",
        "log": RIDES,
        "key": ("zone",),
        "what": {"rides": Count()},
        "where": Fixed(hours(1)),
    }
    return Pipeline(**(usual | changed))


FORMS = "one of days, seconds, milliseconds, microseconds, nanoseconds, or a format of strptime"
PLACE = "a place in the record: names with dots between them"
COLUMNS = "one of the log's columns (zone, price, meters, count, kind, at)"
DECLARE = "declare it in the log's columns"
AHEAD_EXPECTED = "a duration above zero, of 300 years at most, or None for no bound"
AHEAD_MENDS = "write ahead=days(1), or leave it out"
NAME = "a name of up to 63 lower-case letters, digits and _"
RENAME = "rename it, for example hourly_rides"
OWN = "a name that the tables do not use themselves"
POSITIVE = "a duration of more than zero"
FOREVER = Repeat(AfterCount(1))

FROZEN = "a frozen dataclass, whose options are part of what the definition means"
COLUMN_TYPE = "a column type, or array<...> of one"


@dataclass(frozen=True)
class Merging(OwnWindows):
    merges = True


@dataclass(frozen=True)
class Reaching(OwnWindows):
    """Windows whose reach is an option."""

    reach: int
    merges = True


class Nameless(OwnCombiner):
    column = "zone"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Nameless)

    def __hash__(self) -> int:
        return 0


@dataclass(frozen=True)
class Untyped(OwnCombiner):
    column: str = "zone"
    state = "list"


NONSENSE: dict[str, tuple[dict[str, Any], list[Fault]]] = {
    "the_name_is_not_one": ({"name": "Hourly rides"}, [Fault("name", "Hourly rides", NAME, RENAME)]),
    "the_log_is_not_one": (
        {"log": "rides"},
        [
            Fault(
                "log",
                "rides",
                "a log",
                'write log=Log(name="rides", columns=..., event_time=...), or log=earlier.panes for a later stage',
            )
        ],
    ),
    "an_unknown_key": ({"key": ("zones",)}, [Fault("key[0]", "zones", COLUMNS, DECLARE)]),
    "a_key_that_does_not_compare": (
        {"key": "meters"},
        [Fault("key[0]", "meters", "a column that compares exactly", "declare it as decimal(p,s)")],
    ),
    "a_key_that_the_tables_use": ({"key": ("kind",)}, [Fault("key[0]", "kind", OWN, "rename it, for example my_kind")]),
    "a_key_twice": (
        {"key": ("zone", "zone")},
        [Fault("key", ("zone", "zone"), "each column once", "leave out the repeated one")],
    ),
    "no_results": ({"what": {}}, [Fault("what", {}, "at least one result", 'write what={"records": Count()}')]),
    "a_combiner_that_is_none": (
        {"what": {"rides": "count"}},
        [Fault("what['rides']", "count", "a combiner", 'write for example Sum("price")')],
    ),
    "a_combiner_without_its_brackets": (
        {"what": {"rides": Count}},
        [Fault("what['rides']", Count, "a combiner", 'write for example Sum("price")')],
    ),
    "an_unknown_column_to_add_up": (
        {"what": {"revenue": Sum("prize")}},
        [Fault("what['revenue'].column", "prize", COLUMNS, DECLARE)],
    ),
    "a_sum_and_a_mean_of_texts": (
        {"what": {"far": Sum("zone"), "usual": Mean("zone"), "farthest": Max("zone")}},
        [
            Fault(
                f"what[{name!r}].column",
                "zone: string",
                "a column of integers, decimals, doubles or floats",
                "declare it for example decimal(18,6) in the log",
            )
            for name in ("far", "usual")
        ],
    ),
    "a_result_that_the_tables_use": (
        {"what": {"watermark": Max("at"), "a__b": Min("at")}},
        [
            Fault("what['watermark']", "watermark", OWN, "rename it, for example my_watermark"),
            Fault("what['a__b']", "a__b", OWN, "rename it, for example my_a_b"),
        ],
    ),
    "a_result_with_the_name_of_the_key": (
        {"what": {"zone": Count()}},
        [Fault("what['zone']", "zone", "a name that the key does not have", "rename the result")],
    ),
    "a_windowing_that_is_none": (
        {"where": hours(1)},
        [Fault("where", hours(1), "a windowing", "write for example where=Fixed(hours(1))")],
    ),
    "a_windowing_without_its_brackets": (
        {"where": Global},
        [Fault("where", Global, "a windowing", "write for example where=Fixed(hours(1))")],
    ),
    "windows_of_no_size": (
        {"where": Fixed(hours(0), offset=5)},  # type: ignore[arg-type]
        [
            Fault("where.size", hours(0), POSITIVE, "write for example Fixed(minutes(10))"),
            Fault("where.offset", 5, "a duration", "write for example offset=minutes(5), or leave it out"),
        ],
    ),
    "windows_that_slide_back": (
        {"where": Sliding(60, every=-hours(1))},  # type: ignore[arg-type]
        [
            Fault("where.size", 60, POSITIVE, "write for example Sliding(hours(1), every=minutes(10))"),
            Fault("where.every", -hours(1), POSITIVE, "write for example Sliding(hours(1), every=minutes(10))"),
        ],
    ),
    "a_gap_below_zero": (
        {"where": Sessions(minutes(-5))},
        [Fault("where.gap", minutes(-5), POSITIVE, "write for example Sessions(minutes(30))")],
    ),
    "a_calendar_of_nowhere": (
        {"where": Calendar("decade", zone="Mars/Olympus")},  # type: ignore[arg-type]
        [
            Fault("where.unit", "decade", "one of day, week, month, quarter, year", 'write Calendar("day")'),
            Fault(
                "where.zone",
                "Mars/Olympus",
                "the name of a time zone in the IANA database",
                'write for example zone="Europe/Berlin"',
            ),
        ],
    ),
    "a_phase_by_what_is_no_key": (
        {"where": Fixed(hours(1), phase="ride"), "key": "zone"},
        [
            Fault(
                "where.phase",
                "ride",
                "a column of the key (zone)",
                "write key=('ride',), or leave phase out",
            )
        ],
    ),
    "a_phase_by_what_is_written_in_many_ways": (
        {"where": Fixed(hours(1), phase="at"), "key": ("at",)},
        [
            Fault("key[0]", "at", "a name that the tables do not use themselves", "rename it, for example my_at"),
            Fault(
                "where.phase",
                "at: timestamp",
                "a column of type string, boolean, int, bigint, date",
                "take another column",
            ),
        ],
    ),
    "truth_and_variance_of_other_types": (
        {"what": {"all": AllTrue("zone"), "any": AnyTrue("at"), "spread": Variance("zone")}},
        [
            Fault("what['all'].column", "zone: string", "a boolean column", "declare it as boolean in the log"),
            Fault("what['any'].column", "at: timestamp", "a boolean column", "declare it as boolean in the log"),
            Fault(
                "what['spread'].column",
                "zone: string",
                "a column of numbers",
                "declare it as double or decimal(18,6)",
            ),
        ],
    ),
    "bytes_of_a_column_that_has_none": (
        {"when": Repeat(AfterBytes(0, "zone"))},
        [Fault("when.part.size", 0, "a whole number of at least 1", "write AfterBytes(1_000_000, 'zone')")],
    ),
    "bytes_of_a_column_that_is_no_text": (
        {"when": AfterWatermark(early=AfterBytes(9, "at"))},
        [Fault("when.part.part.column", "at", "a string column of the log (zone, kind)", "name one of those")],
    ),
    "a_match_with_what_cannot_be": (
        {
            "when": Repeat(
                AfterMatch(
                    Match("zone", "==", 7) & Match("meters", ">", 7)
                    | ~Match("zon", "==", "a") & Match("zone", "~", "a")  # type: ignore[arg-type]
                )
            )
        },
        [
            Fault(
                "when.part.condition.one.one.value",
                7,
                "a value of the column's type, string",
                'write a string, for example "end"',
            ),
            Fault(
                "when.part.condition.one.other.column",
                "meters: double",
                "a column of strings, truth values, integers or decimals",
                "compare another column",
            ),
            Fault("when.part.condition.other.one.one.column", "zon", COLUMNS, DECLARE),
            Fault(
                "when.part.condition.other.other.operator",
                "~",
                "one of ==, !=, <, <=, >, >=",
                'write for example "=="',
            ),
        ],
    ),
    "a_match_that_is_none": (
        {"when": Repeat(AfterMatch("zone == 'a'"))},  # type: ignore[arg-type]
        [
            Fault(
                "when.part.condition",
                "zone == 'a'",
                "a condition",
                'write for example Match("kind", "==", "end")',
            )
        ],
    ),
    "own_parts_that_do_not_say_enough": (
        {"where": Merging(), "what": {"own": Nameless(), "typed": Untyped()}},
        [
            Fault("what['own']", Nameless(), FROZEN, "write @dataclass(frozen=True) above the class"),
            Fault("what['typed'].state", "list", COLUMN_TYPE, 'write for example state = "array<bigint>"'),
            Fault(
                "where.reach",
                0,
                "how long after it closes a window can be reached through one that is open, in microseconds",
                "give the longest gap that its windows merge over",
            ),
        ],
    ),
    "values_that_cannot_be_kept": (
        {"what": {"top": TopK("count", 0), "middle": Quantile("meters", 2)}},
        [
            Fault("what['top'].count", 0, "a whole number of at least 1", "write TopK('count', 3)"),
            Fault("what['middle'].share", 2, "a share between 0 and 1", "write Quantile('meters', 0.95)"),
        ],
    ),
    "kept_by_what_is_not_there": (
        {"keep": Match("zon", "==", "a") | Match("price", "==", Decimal("0.001"))},
        [
            Fault("keep.one.column", "zon", COLUMNS, DECLARE),
            Fault(
                "keep.other.value",
                Decimal("0.001"),
                "a value of the column's type, decimal(10,2)",
                "write a number that the column can hold",
            ),
        ],
    ),
    "an_accumulation_in_words": (
        {"how": "discarding"},
        [Fault("how", "discarding", "an accumulation", "use DISCARDING, ACCUMULATING or RETRACTING")],
    ),
    "options_that_are_none": (
        {"on_time": "never", "closing": True, "finishing": "stop"},
        [
            Fault("on_time", "never", '"always" or "if_non_empty"', "leave it out"),
            Fault("closing", True, '"always" or "if_non_empty"', "leave it out"),
            Fault("finishing", "stop", '"refuse" or "close"', "leave it out"),
        ],
    ),
    "a_lateness_below_zero": (
        {"allowed_lateness": hours(-1)},
        [Fault("allowed_lateness", hours(-1), "a duration of zero or more", "write hours(3)")],
    ),
    "a_trigger_that_is_none": (
        {"when": minutes(1)},
        [Fault("when", minutes(1), "a trigger", "write for example AfterCount(1)")],
    ),
    "triggers_with_impossible_numbers": (
        {
            "when": AnyOf(
                Repeat(AfterCount(0)),
                Repeat(AfterDelay(minutes(0))),
                Every(minutes(-1), offset=3),  # type: ignore[arg-type]
            )
        },
        [
            Fault("when[0].part.count", 0, "a whole number of at least 1", "write AfterCount(1)"),
            Fault("when[1].part.delay", minutes(0), POSITIVE, "write for example AfterDelay(minutes(1))"),
            Fault("when[2].period", minutes(-1), POSITIVE, "write for example Every(minutes(15))"),
            Fault("when[2].offset", 3, "a duration", "write for example offset=minutes(5), or leave it out"),
        ],
    ),
    "a_trigger_of_no_parts": (
        {"when": AnyOf()},
        [Fault("when", AnyOf(), "at least one trigger", "write AnyOf(AfterCount(1))")],
    ),
    "a_part_that_is_no_trigger": (
        {"when": AfterWatermark(early=minutes(5), late=AfterCount(1))},  # type: ignore[arg-type]
        [Fault("when[0].part", minutes(5), "a trigger", "write for example AfterCount(1)")],
    ),
    "a_trigger_that_never_gets_its_turn": (
        {"when": Sequence(Every(minutes(1)), AtWatermark())},
        [
            Fault(
                "when[1]",
                AtWatermark(),
                "a trigger that gets its turn",
                f"it can never fire, for {Every(minutes(1))!r} before it never ends: put an Until around that one",
            )
        ],
    ),
    "a_stop_that_never_stops": (
        {"when": Repeat(Until(FOREVER, Every(minutes(1))))},
        [
            Fault(
                "when.part.stop",
                Every(minutes(1)),
                "a trigger that is done at some time",
                "it would fire but never end the other: write what ends it without Repeat, for example AtWatermark()",
            )
        ],
    ),
    "a_trigger_that_fires_for_ever_on_nothing": (
        {"when": Repeat(AnyOf(AtWatermark(), AfterCount(5)))},
        [
            Fault(
                "when",
                Repeat(AnyOf(AtWatermark(), AfterCount(5))),
                "a trigger that waits for records",
                "it would be on time again and again with nothing new: leave out Repeat, or write "
                "Sequence(AtWatermark(), Repeat(AfterCount(1)))",
            )
        ],
    ),
    **{
        f"M3_a_trigger_that_is_on_time_for_ever_beside_{type(other).__name__}": (
            {
                "log": log(disorder=minutes(1), percentiles={50: minutes(1)}),
                "when": Repeat(AllOf(AtWatermark(), other)),
            },
            [
                Fault(
                    "when",
                    Repeat(AllOf(AtWatermark(), other)),
                    "a trigger that waits for records",
                    "it would be on time again and again with nothing new: leave out Repeat, or write "
                    "Sequence(AtWatermark(), Repeat(AfterCount(1)))",
                )
            ],
        )
        for other in (AtPercentile(50), AfterSignal("go"), Until(Every(days(400)), AfterSignal("go")))
    },
    "a_trigger_that_ends_while_records_come": (
        {"when": AllOf(AfterCount(3), AfterCount(5))},
        [
            Fault(
                "when",
                AllOf(AfterCount(3), AfterCount(5)),
                "a trigger that goes on for as long as records may come",
                "records after its last pane would be too late: put it in Repeat(...), or set "
                'finishing="close" if that is meant',
            )
        ],
    ),
    "lateness_and_no_late_part": (
        {"when": AfterWatermark(early=Every(minutes(5))), "allowed_lateness": hours(1)},
        [
            Fault(
                "allowed_lateness",
                "1:00:00",
                "a trigger with a late part, or no lateness",
                "late records would be accepted by the window and lost by its trigger: write "
                'AfterWatermark(late=AfterCount(1)), or set finishing="close" if that is meant',
            )
        ],
    ),
    "everything_at_once": (
        {
            "name": "",
            "key": ("zon",),
            "what": {"Revenue": Sum("zone")},
            "where": Sessions(minutes(0)),
            "when": AfterCount(-1),
            "how": None,
        },
        [
            Fault("name", "", NAME, RENAME),
            Fault("key[0]", "zon", COLUMNS, DECLARE),
            Fault("what['Revenue']", "Revenue", NAME, RENAME),
            Fault(
                "what['Revenue'].column",
                "zone: string",
                "a column of integers, decimals, doubles or floats",
                "declare it for example decimal(18,6) in the log",
            ),
            Fault("where.gap", minutes(0), POSITIVE, "write for example Sessions(minutes(30))"),
            Fault("how", None, "an accumulation", "use DISCARDING, ACCUMULATING or RETRACTING"),
            Fault("when.count", -1, "a whole number of at least 1", "write AfterCount(1)"),
        ],
    ),
}

NO_LOGS: dict[str, tuple[dict[str, Any], list[Fault]]] = {
    "a_name_that_is_none": ({"name": "2024"}, [Fault("log.name", "2024", NAME, RENAME)]),
    "no_columns": (
        {"columns": {}, "event_time": "at"},
        [
            Fault("log.columns", {}, "at least one column", 'write columns={"at": "timestamp"}'),
            Fault("log.event_time", "at", "one of the log's columns ()", DECLARE),
        ],
    ),
    "columns_of_no_type": (
        {"columns": {"at": "timestamp", "Price": "decimal(40,2)", "n": int}},
        [
            Fault("log.columns['Price']", "Price", NAME, RENAME),
            *(
                Fault(
                    f"log.columns[{name!r}]",
                    found,
                    "a column type",
                    "use string, boolean, int, bigint, float, double, decimal(p,s), date, time, timestamp, binary or "
                    "json; or array<T>, map<string,T>, struct<a:T,b:T> of these",
                )
                for name, found in (("Price", "decimal(40,2)"), ("n", int))
            ),
        ],
    ),
    "times_that_are_none": (
        {"event_time": "zone", "arrival_time": "seen"},
        [
            Fault("log.event_time", "zone", "a timestamp column", "declare 'zone' as timestamp"),
            Fault("log.arrival_time", "seen", COLUMNS, DECLARE),
        ],
    ),
    "a_disorder_below_zero": (
        {"disorder": timedelta(seconds=-1)},
        [Fault("log.disorder", timedelta(seconds=-1), "a duration of zero or more", "write minutes(10)")],
    ),
    "a_record_id_that_is_no_column": (
        {"record_id": ("zone", "number"), "remembered": timedelta(0)},
        [
            Fault("log.record_id", "number", COLUMNS, DECLARE),
            Fault("log.remembered", timedelta(0), "a duration above zero", "write remembered=days(1)"),
        ],
    ),
    "a_required_column_that_is_none": (
        {"required": ("zone", "number")},
        [Fault("log.required[1]", "number", COLUMNS, DECLARE)],
    ),
    "a_record_id_that_is_no_name": (
        {"record_id": 7},
        [Fault("log.record_id", 7, "a column or several", 'write record_id="id"')],
    ),
    "bounds_the_wrong_way_round": (
        {"earliest": datetime(2025, 1, 1, tzinfo=UTC), "latest": datetime(2024, 1, 1, tzinfo=UTC)},
        [Fault("log.earliest", "2025-01-01 00:00:00+00:00", "before latest", "swap earliest and latest")],
    ),
    "a_bound_with_no_zone": (
        {"latest": datetime(2024, 1, 1)},
        [
            Fault(
                "log.latest",
                datetime(2024, 1, 1),
                "an instant",
                "write datetime(2020, 1, 1, tzinfo=UTC), or leave it out",
            )
        ],
    ),
    "bounds_ahead_that_are_none": (
        {"ahead": timedelta(0), "latest": 2200},
        [
            Fault("log.latest", 2200, "an instant", "write datetime(2020, 1, 1, tzinfo=UTC), or leave it out"),
            Fault("log.ahead", timedelta(0), AHEAD_EXPECTED, AHEAD_MENDS),
        ],
    ),
    "a_bound_ahead_of_more_than_centuries": (
        {"ahead": timedelta(days=365 * 301)},
        [Fault("log.ahead", timedelta(days=365 * 301), AHEAD_EXPECTED, AHEAD_MENDS)],
    ),
    "a_bound_ahead_that_is_no_duration": (
        {"ahead": 5},
        [Fault("log.ahead", 5, AHEAD_EXPECTED, AHEAD_MENDS)],
    ),
    "messages_of_no_known_format": (
        {"messages": "xml", "instants": "weeks", "aliases": {"kinds": "sort"}},
        [
            Fault("log.messages", "xml", '"json", "avro" or "protobuf"', 'leave it out for "json"'),
            Fault("log.instants", "weeks", FORMS, 'write for example "milliseconds" or "%d.%m.%Y %H:%M:%S"'),
            Fault("log.aliases['kinds']", "kinds", COLUMNS, DECLARE),
        ],
    ),
    "roundings_that_are_none": (
        {"rounding": {"zone": "half_even", "price": "up"}},
        [
            Fault("log.rounding['zone']", "zone", "a decimal column", "declare it as decimal(p,s), or leave it out"),
            Fault("log.rounding['price']", "up", "one of half_even, half_up, down", 'write rounding="half_even"'),
        ],
    ),
    "places_that_are_none": (
        {"fields": {"zone": "user..zone", "nothing": "x", "meters": "a.b", "price": "a"}, "instants": {"zone": "days"}},
        [
            Fault("log.fields['zone']", "user..zone", PLACE, 'write for example "user.country", or "`a name`.country"'),
            Fault("log.fields['nothing']", "nothing", COLUMNS, DECLARE),
            Fault(
                "log.fields['meters']",
                "a.b",
                "a place that 'price' does not have, and that is not inside the place of 'price'",
                "take one of the columns, and derive the other",
            ),
            Fault(
                "log.fields['price']",
                "a",
                "a place that 'meters' does not have, and that is not inside the place of 'meters'",
                "take one of the columns, and derive the other",
            ),
            Fault("log.instants['zone']", "zone", "a column of instants, dates or times", "declare it as timestamp"),
        ],
    ),
    "what_nested_records_do_not_have": (
        {"rest": "price", "zone": "Berlin", "elements": 0, "depth": 501},
        [
            Fault("log.zone", "Berlin", "the name of a time zone", 'write for example zone="Europe/Berlin"'),
            Fault("log.rest", "price", "a column of its own, of type json", 'write rest="extra"'),
            Fault("log.elements", 0, "a number of elements", "leave it out for 100,000"),
            Fault("log.depth", 501, "a number of levels, 500 at most", "leave it out for 500"),
        ],
    ),
    "names_that_messages_of_JSON_do_not_have": (
        {"aliases": {"kind": "sort"}},
        [
            Fault(
                "log.aliases",
                {"kind": "sort"},
                "nothing for messages of JSON",
                'name the place: fields={"cents": "price_cents"}',
            )
        ],
    ),
    "names_that_are_others_or_none": (
        {"messages": "avro", "aliases": {"kind": ("zone", "sort"), "price": "sort", "meters": (), "count": (7,)}},
        [
            Fault("log.aliases['kind']", "zone", "a name that column 'zone' does not have", "leave one of them out"),
            Fault("log.aliases['price']", "sort", "a name that column 'kind' does not have", "leave one of them out"),
            Fault("log.aliases['meters']", (), "a name or several", 'write aliases={"cents": "price_cents"}'),
            Fault("log.aliases['count']", (7,), "a name or several", 'write aliases={"cents": "price_cents"}'),
        ],
    ),
    "an_answer_to_unknown_columns_that_is_none": (
        {"unknown": "drop"},
        [Fault("log.unknown", "drop", '"reject" or "ignore"', 'leave it out for "reject"')],
    ),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_a_pipeline_is_refused_with_every_fault(name: str) -> None:
    changed, faults = NONSENSE[name]
    with pytest.raises(DefinitionError) as refused:
        pipeline(**changed)
    assert list(refused.value.faults) == faults


@pytest.mark.parametrize("name", NO_LOGS)
def test_a_log_is_refused_with_every_fault(name: str) -> None:
    changed, faults = NO_LOGS[name]
    with pytest.raises(DefinitionError) as refused:
        log(**changed)
    assert list(refused.value.faults) == faults


def test_the_message_numbers_the_faults_and_says_what_to_write() -> None:
    with pytest.raises(TailraceError, match="hourly") as refused:
        pipeline(key=("zones",), where=Sessions(minutes(0)))
    assert str(refused.value).splitlines() == [
        "definition 'hourly' has 2 faults:",
        f"  1. key[0] = 'zones': expected {COLUMNS}; {DECLARE}",
        "  2. where.gap = datetime.timedelta(0): expected a duration of more than zero; "
        "write for example Sessions(minutes(30))",
    ]
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize(
    "changed",
    [
        {"key": "zone"},
        {"key": ()},
        {"when": AfterWatermark(early=AfterCount(5))},
        {"when": AfterWatermark(early=Every(minutes(1)), late=AfterCount(1)), "allowed_lateness": hours(1)},
        {"when": AfterWatermark(late=Every(minutes(1))), "allowed_lateness": hours(1)},
        {"when": AnyOf(Every(minutes(1)), AtWatermark())},
        {"when": Repeat(AllOf(AfterCount(5), AfterDelay(minutes(1))))},
        {"when": Repeat(AllOf(AtWatermark(), AfterDelay(minutes(1))))},
        {"when": Repeat(AllOf(AtWatermark(), Every(minutes(1)), AfterSignal("go")))},
        {
            "log": log(disorder=minutes(1), percentiles={50: minutes(1)}),
            "when": Repeat(AllOf(AtPercentile(50), AfterCount(5))),
        },
        {"when": AfterCount(1), "finishing": "close"},
        {"when": AtWatermark(), "allowed_lateness": hours(1), "finishing": "close"},
        {"when": Until(Every(minutes(1)), AtWatermark())},
        {"when": AfterWatermark(late=AfterCount(1))},
        {"when": Never()},
        {"where": Sliding(hours(1), every=hours(2)), "how": RETRACTING},
        {"where": Global(), "when": Every(minutes(1)), "how": DISCARDING},
        {"where": Reaching(5)},
    ],
    ids=repr,
)
def test_what_makes_sense_is_accepted(changed: dict[str, Any]) -> None:
    assert pipeline(**changed).name == "hourly"


def test_a_definition_cannot_be_changed_afterwards() -> None:
    columns = {"at": "timestamp"}
    made = Log(name="made", columns=columns, event_time="at")
    columns["more"] = "string"
    assert dict(made.columns) == {"at": "timestamp"}
    with pytest.raises(TypeError):
        made.columns["more"] = "string"  # type: ignore[index]


def test_M6_a_stop_that_counts_is_in_the_fingerprint_and_one_at_the_watermark_is_not() -> None:
    counting = Until(Repeat(AfterCount(2)), AfterCount(3))
    held = {"finishing": "close"}
    assert pipeline(when=AfterWatermark(early=AfterCount(2))).meaning.get("stops") is None
    assert pipeline(when=AnyOf(counting, Every(minutes(1))), **held).meaning["stops"] == "the whole window"
    assert pipeline(log=log(required=("zone",))).fingerprint != pipeline().fingerprint


def test_the_fingerprint_is_of_the_meaning_alone() -> None:
    one = pipeline()
    assert one.fingerprint == pipeline(name="other").fingerprint
    assert one.fingerprint == pipeline(log=log(name="other")).fingerprint
    assert one.fingerprint == pipeline(when=AtWatermark()).fingerprint
    others: list[dict[str, Any]] = [
        {"key": ()},
        {"what": {"rides": Count("price")}},
        {"what": {"count_of": Count()}},
        {"where": Fixed(minutes(60), offset=minutes(1))},
        {"when": AfterWatermark(early=AfterCount(1))},
        {"how": RETRACTING},
        {"when": FOREVER, "allowed_lateness": hours(1)},
        {"on_time": "if_non_empty"},
        {"closing": "always"},
        {"finishing": "close"},
        {"log": log(disorder=minutes(1))},
        {"keep": Match("zone", "==", "a")},
    ]
    found = {pipeline(**changed).fingerprint for changed in others}
    assert len(found) == len(others)
    assert one.fingerprint not in found
