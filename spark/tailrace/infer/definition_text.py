"""Write an inferred definition as a Python file, with the reasons for each decision as comments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta

from tailrace.infer.inference import Inferred
from tailrace.infer.python_text import WIDTH, comment, literal, quoted, width
from tailrace.infer.roles import Leaf, rounded_up
from tailrace.infer.sample import LONGEST
from tailrace.model.base.time import length
from tailrace.model.base.types import element_type, struct_fields
from tailrace.model.logs.csv_options import RFC_4180, Csv
from tailrace.model.logs.log import ELEMENTS

_NAMED = 20
"""The maximum number of columns that a comment names."""


def definition_text(made: Inferred) -> str:
    """Return the text of a definition file, which runs as it stands."""
    lines = [f'"""The log {made.name}, inferred from a sample, and its records counted by hour."""', ""]
    body = [*_log(made), "", *_pipeline(made)]
    lines += [*_imports(body), "", *_about(made), *body]
    return "\n".join(lines) + "\n"


def _imports(body: Sequence[str]) -> list[str]:
    code = "\n".join(line for line in body if not line.lstrip().startswith("#"))
    names = ["AfterCount", "AfterWatermark", "Col", "Count", "Csv", "Derive", "Fixed", "Log", "Pipeline", "Sum"]
    units = ["days", "hours", "minutes", "seconds"]
    used = [one for one in (*names, *units) if f"{one}(" in code]
    line = f"from tailrace import {', '.join(used)}"
    return [line] if width(line) <= WIDTH else ["from tailrace import (", *(f"    {one}," for one in used), ")"]


def _about(made: Inferred) -> Iterator[str]:
    """Yield comments about the sample, and about what is not certain in it."""
    sample, records = made.sample, len(made.sample.records)
    noun = "lines" if sample.format in ("json", "csv") and sample.files else "records"
    part = "all" if sample.whole else "a part"
    yield from comment(f"Inferred from {quoted(sample.source)} ({sample.format}): {records:,} records, {part} of it.")
    if sample.unread:
        yield from comment(f"{sample.unread:,} {noun} could not be read, and will be rejected.")
    if sample.skipped:
        yield from comment(f"{sample.skipped:,} {noun} of more than {LONGEST:,} bytes were not looked at.")
    for note in sample.notes:
        yield from comment(_printable(note))
    for reason, count in made.rejected.items():
        yield from comment(f"{count:,} of these records will be rejected: {_printable(reason)}.")
    if sample.left_out:
        named = ", ".join(f"{quoted(name)} ({type})" for name, type in [*sample.left_out.items()][:_NAMED])
        yield from comment(f"No column can have {named}; these fields are ignored.")


def _log(made: Inferred) -> Iterator[str]:
    yield "log = Log("
    yield f'    name="{made.name}",'
    yield "    columns={"
    for one in made.columns:
        for note in one.notes:
            yield from comment(f"{one.title}: {note}", 8)
        yield from _entry(one.name, one.type)
    yield "    },"
    yield from _mapping("fields", made.fields)
    yield from _mapping("instants", made.instants)
    yield from _mapping("rounding", made.rounding)
    if made.sample.local:
        yield from comment("Some times in the files have no zone.", 4)
        yield '    zone="UTC",'
    yield from _times(made)
    yield from _identity(made)
    if made.rest is not None:
        yield from comment("Fields that the sample lacks are kept here; without rest, their records are rejected.", 4)
        yield f'    rest="{made.rest}",'
    if made.ignores:
        yield '    unknown="ignore",'
    if made.messages is not None:
        yield from comment("The schemas are in the registry that TAILRACE_SCHEMA_REGISTRY_URI names.", 4)
        yield f'    messages="{made.messages}",'
    if made.sample.csv != RFC_4180:
        yield f"    csv={_csv(made.sample.csv)},"
    if made.folders:
        yield from comment("The names of the folders have these values.", 4)
        yield f"    folders={_names(made.folders)},"
    if made.elements != ELEMENTS:
        yield f"    elements={made.elements:_},"
    yield ")"


def _csv(csv: Csv) -> str:
    """Return the options of CSV files that differ from the usual ones, as code."""
    given = {one.name: getattr(csv, one.name) for one in fields(csv)}
    other = {name: value for name, value in given.items() if value != getattr(RFC_4180, name)}
    return f"Csv({', '.join(f'{name}={_value(value)}' for name, value in other.items())})"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(quoted, value))})"
    return quoted(value) if isinstance(value, str) else str(value)


def _times(made: Inferred) -> Iterator[str]:
    times, records = made.event, len(made.sample.records)
    there = "in each record" if times.there == records else f"in {times.there:,} of {records:,} records"
    yield from comment(f"The event time is {times.title}, which is {there}.{_others(made.events, records)}", 4)
    yield f'    event_time="{times.path}",'
    if made.arrival is not None:
        yield from comment(f"{made.arrival.title} is never before the event time.", 4)
        yield f'    arrival_time="{made.arrival.path}",'
    count, unit = rounded_up(made.lateness.usual)
    if made.lateness.late:
        usual, most = length_text(made.lateness.usual), length_text(made.lateness.most)
        said = (
            f"In the order of the sample, {made.lateness.late:,} of {records:,} records are behind the latest event "
            f"time before them: 99 % of all by at most {usual}, and each by at most {most}. The watermark waits for "
            "the 99 %."
        )
    else:
        said = "In the order of the sample, no record is behind another one, so the watermark need not wait."
    if made.lags is not None:
        said += (
            f" Messages arrived {length_text(made.lags.usual)} (99 %) and at most {length_text(made.lags.most)} after "
            "their event time."
        )
    yield from comment(said, 4)
    yield f"    disorder={unit}({count}),"


def _others(events: Sequence[Leaf], records: int) -> str:
    if not events:
        return ""
    named = [f"{one.title}{'' if one.there == records else ' (not in each record)'}" for one in events[:_NAMED]]
    return f" Other instants: {', '.join(named)}."


def _identity(made: Inferred) -> Iterator[str]:
    others = [one for one in made.unique if one != made.ids][:_NAMED]
    if made.ids is not None:
        again = f", and {made.again:,} of the sample's records came again" if made.again else ""
        said = f"{made.ids.title} has another value in each record{again}; a repeated record counts once."
        yield from comment(said, 4)
        yield f'    record_id="{made.ids.path}",'
    elif others:
        named = " or ".join(quoted(one.path) for one in others)
        yield from comment(
            f"If the source may deliver a record twice, set record_id. In the sample, each record has another value of "
            f"{named}; records with the same record_id count once.",
            4,
        )
    required = made.required
    always = [quoted(one.name) for one in made.always if one.name not in required and one.name != made.event.path]
    if always:
        more = f", and {len(always) - _NAMED} more" if len(always) > _NAMED else ""
        yield from comment(f"Each record of the sample also has a value of {', '.join(always[:_NAMED])}{more}.", 4)
    if required:
        yield f"    required={_names(required)},"


def _pipeline(made: Inferred) -> Iterator[str]:
    used = [one for one in (made.key, made.amount) if one is not None]
    derived = {one.column: one.path for one in used if "." in one.path}
    for one in made.columns:
        element = struct_fields(element_type(one.type) or "")
        if element:
            item = f"{one.name.removesuffix('s')}_1" if one.name.removesuffix("s") == one.name else one.name[:-1]
            step = f'Derive({{"{next(iter(element))}": Col("{item}.{next(iter(element))}")}})'
            yield from comment(f'For the elements of a list: each=(Explode("{one.name}", into="{item}"), {step}).')
            break
    yield "by_hour = Pipeline("
    yield f'    name="{made.name}_by_hour",'
    yield "    log=log,"
    if derived:
        yield "    each=Derive("
        yield "        {"
        for name, path in derived.items():
            yield f'            "{name}": Col("{path}"),'
        yield "        }"
        yield "    ),"
    if made.key is not None:
        yield f'    key="{made.key.column}",'
    what = {"records": "Count()"}
    if made.amount is not None:
        amount = made.amount.column
        what[amount if amount.startswith("total") else f"total_{amount}"[:63]] = f'Sum("{amount}")'
    yield f"    what={{{', '.join(f'{quoted(name)}: {value}' for name, value in what.items())}}},"
    yield "    where=Fixed(hours(1)),"
    yield "    when=AfterWatermark(late=AfterCount(1)),"
    if made.across > made.lateness.most:
        behind = length_text(made.across)
        yield from comment(f"Read by name, one file after another, records are up to {behind} behind earlier files.", 4)
    count, unit = rounded_up(max(timedelta(hours=1), made.lateness.most, made.across))
    yield f"    allowed_lateness={unit}({count}),"
    yield ")"


def _mapping(option: str, entries: Mapping[str, str]) -> Iterator[str]:
    if entries:
        yield f"    {option}={{"
        for name, value in entries.items():
            yield from _entry(name, value)
        yield "    },"


def _entry(name: str, value: str) -> Iterator[str]:
    start = f'        "{name}": '
    first, *more = literal(value, 8, len(start))
    yield from [start + first, *more[:-1], more[-1] + ","] if more else [f"{start}{first},"]


def _names(names: Sequence[str]) -> str:
    return quoted(names[0]) if len(names) == 1 else f"({', '.join(map(quoted, names))})"


def length_text(time: timedelta) -> str:
    """Return a length of time for comments, rounded up to a second."""
    seconds = -(-time // timedelta(seconds=1))
    return length(int(seconds) * 10**6)


def _printable(text: str) -> str:
    return quoted(text)[1:-1]
