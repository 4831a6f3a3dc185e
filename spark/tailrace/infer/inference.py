"""Infer a definition from a sample: the log, and a pipeline that counts its records by hour."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tailrace.infer import roles
from tailrace.infer.columns import Column, Given, columns_of, epoch_unit, place_text
from tailrace.infer.observations import Observed
from tailrace.infer.roles import Lateness, Leaf
from tailrace.infer.sample import Sample, SampleError
from tailrace.infer.words import MONEY, snake, words
from tailrace.model.logs.csv_options import RFC_4180
from tailrace.model.logs.log import ELEMENTS, Log
from tailrace.model.logs.shapes import Path

REST = "extra"
"""The name of the column with the fields that the sample does not have."""


@dataclass
class Inferred:
    """A log that was inferred from a sample, and the parts of a pipeline over it.

    `again` is the number of records that are in the sample once more. `across` is how far records are behind records of
    earlier files, if the files are read one after another by name.
    """

    name: str
    sample: Sample
    columns: list[Column]
    event: Leaf
    events: list[Leaf]
    lateness: Lateness
    lags: Lateness | None = None
    arrival: Leaf | None = None
    ids: Leaf | None = None
    unique: list[Leaf] = field(default_factory=list)
    key: Leaf | None = None
    amount: Leaf | None = None
    rest: str | None = None
    ignores: bool = False
    elements: int = ELEMENTS
    rejected: dict[str, int] = field(default_factory=dict)
    again: int = 0
    across: timedelta = timedelta(0)

    @property
    def required(self) -> list[str]:
        """The columns that the record id and the pipeline need, and that each record of the sample has."""
        used = {one.path for one in (self.ids, self.key) if one is not None}
        return [one.name for one in self.always if one.name in used]

    @property
    def always(self) -> list[Column]:
        """The columns that each record of the sample has."""
        return [one for one in self.columns if one.seen.values == len(self.sample.records)]

    def log(self) -> Log:
        """Build the log. Raises `DefinitionError` if it is not valid."""
        options: dict[str, Any] = {}
        if self.arrival is not None:
            options["arrival_time"] = self.arrival.path
        if self.ids is not None:
            options["record_id"] = self.ids.path
        if self.sample.csv != RFC_4180:
            options["csv"] = self.sample.csv
        if self.folders:
            options["folders"] = tuple(self.folders)
        if self.ignores:
            options["unknown"] = "ignore"
        if self.messages is not None:
            options["messages"] = self.messages
        return Log(
            name=self.name,
            columns={one.name: one.type for one in self.columns},
            fields=self.fields,
            instants=self.instants or None,
            rounding=self.rounding or None,
            zone="UTC" if self.sample.local else None,
            event_time=self.event.path,
            required=tuple(self.required),
            rest=self.rest,
            elements=self.elements,
            **options,
        )

    @property
    def messages(self) -> str | None:
        """The kind of a topic's messages with registered schemas (`Log.messages`), or None."""
        return self.sample.format if self.sample.format in ("avro", "protobuf") and not self.sample.files else None

    @property
    def folders(self) -> list[str]:
        """The columns whose values are in the names of folders (`Log.folders`)."""
        return [one.name for one in self.columns if len(one.place) == 1 and one.place[0] in self.sample.folders]

    @property
    def fields(self) -> dict[str, str]:
        """The places of columns and of fields in structs whose names differ (`Log.fields`)."""
        made = {}
        for one in self.columns:
            if one.place != (one.name,):
                made[one.name] = place_text(one.place)
            made |= one.places
        return made

    @property
    def instants(self) -> dict[str, str]:
        """The forms of instants (`Log.instants`)."""
        return {path: form for one in self.columns for path, form in one.forms.items()}

    @property
    def rounding(self) -> dict[str, str]:
        """The ways to round decimals (`Log.rounding`)."""
        return {path: "half_even" for one in self.columns for path in one.rounded}


def infer(sample: Sample, name: str | None = None) -> Inferred:
    """Infer a log from a sample. Raises `SampleError` if no column of the sample can be the event time."""
    root = Observed()
    for record in sample.records:
        root.add(record)
    log = log_name(name or sample.name)
    unsure = "json" if sample.format == "json" else "string"
    given = {place: one for place, one in sample.types.items() if _is_certain(_seen(root, place), place, one)}
    while True:
        made = _inferred(sample, log, root, given, unsure)
        misfits = _misfits(made)
        if not misfits:
            return made
        for column in misfits:
            given[column.place] = Given(unsure, note="has values that no other type takes")


def _is_certain(seen: Observed, place: Path, given: Given) -> bool:
    """Return True if the type in the file is used; values of other types may be instants or amounts of money."""
    if given.type == "double" and seen.values:
        return not MONEY & words(place[-1]) or epoch_unit(seen.numbers) is not None
    return given.type not in ("int", "bigint", "string") or not seen.values


def _inferred(sample: Sample, log: str, root: Observed, given: dict[Path, Given], unsure: str) -> Inferred:
    records = sample.records
    first = roles.leaves_of(columns_of(root, (), given, unsure))
    events = roles.event_times(first, records)
    certain = max((one.there for one in events), default=0)
    if certain < len(records) and (found := roles.likely_event_time(root, records, certain)) is not None:
        place, form = found
        given[place] = Given("timestamp", form)
        first = roles.leaves_of(columns_of(root, {place[:depth] for depth in range(1, len(place))}, given, unsure))
        events = [one for one in first if one.place == place]
    if not events:
        raise SampleError(
            f"{sample.source}: no field has instants, which the event time of a log needs: expected a field such as "
            '"at": "2026-01-31T12:00:00Z", or a number of seconds or milliseconds since 1970 with a name such as "time"'
        )
    arrival = roles.arrival_time(events[0], first, records)
    # Event time and arrival time must be columns, so objects around them are not kept whole.
    wanted = [one.place for one in (events[0], arrival) if one is not None]
    opened = {place[:depth] for place in wanted for depth in range(1, len(place))}
    columns = columns_of(root, opened, given, unsure)
    leaves = {one.place: one for one in roles.leaves_of(columns)}
    event = leaves[events[0].place]
    next(one for one in columns if one.name == event.path).type = "timestamp"
    times = roles.times_of(event, records)
    unique = roles.unique_leaves(list(leaves.values()), records)
    again = roles.repeated(records)
    ids = roles.record_id(unique, log, len(records), again)
    taken = {one.place for one in (event, arrival, ids, *unique) if one is not None}
    free = [one for one in leaves.values() if one.place not in taken]
    key = roles.key_of(free, records)
    amount = roles.amount_of([one for one in free if one != key])
    made = Inferred(
        log, sample, columns, event, [leaves[one.place] for one in events[1:]], roles.lateness(_parts(sample, times)),
        None, None if arrival is None else leaves[arrival.place], ids, unique, key, amount,
    )  # fmt: skip
    made.again = again
    if sample.files:
        made.across = roles.lateness([[at for at in times if at is not None]]).most
    if sample.arrivals:
        behind = [at - time for at, time in zip(sample.arrivals, times, strict=True) if time is not None]
        made.lags = roles.shares(behind)
    cut = root.cut or any(_seen(root, place).cut for place in opened)
    if not sample.left_out and (cut or not sample.whole):
        names = {one.name for one in columns}
        made.rest = next(name for name in (REST, f"{REST}_fields", f"{REST}_2") if name not in names)
    made.ignores = bool(sample.left_out)
    longest = max(map(_longest, root.fields.values()), default=0)
    made.elements = ELEMENTS if longest <= ELEMENTS else 2 * longest
    return made


def _parts(sample: Sample, times: Sequence[int | None]) -> list[list[int]]:
    """Return the event times of each file or partition, in the order in which the records arrive."""
    made, begins = [], 0
    for count in sample.parts:
        made.append([at for at in times[begins : begins + count] if at is not None])
        begins += count
    return made


def _seen(root: Observed, place: Path) -> Observed:
    for name in place:
        root = root.fields.get(name, Observed())
    return root


def _longest(seen: Observed) -> int:
    inner = [*seen.fields.values(), *([] if seen.inner is None else [seen.inner])]
    return max([seen.longest, *map(_longest, inner)])


def _misfits(made: Inferred) -> list[Column]:
    """Read the sample's records with the log; return columns whose type does not fit, and count other reasons."""
    rejected, names = Counter[str](), {one.name: one for one in made.columns}
    found = dict[str, Column]()
    for reason in made.sample.reasons(made.log()):
        rejected[re.sub("[0-9]+", "N", reason)[:200]] += 1
        for part in reason.split("; "):
            column = names.get(re.split(r"[^a-z0-9_]", part, maxsplit=1)[0])
            if column is not None and column.type not in ("json", "string") and " is not a" in part:
                found[column.name] = column
    made.rejected = dict(rejected)
    return [one for one in found.values() if one.name not in _roles(made)]


def _roles(made: Inferred) -> set[str]:
    return {one.path for one in (made.event, made.arrival) if one is not None}


def log_name(text: str) -> str:
    """Return the name of a log for the name of a file, a folder or a topic.

    >>> log_name("orders-2026-01-31.v2"), log_name("part-0001"), log_name("ShopEvents")
    ('orders', 'events', 'shop_events')
    """
    words = snake(text.partition(".")[0]).removeprefix("field_").split("_")
    kept = [one for one in words if not one.isdigit() and one not in ("part", "field", "")]
    return snake("_".join(kept))[:40] if kept else "events"
