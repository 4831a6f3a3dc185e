"""Compare a definition with a transcript: a file of epochs and of the rows that are expected of each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from tailrace.model.base.errors import Fault, TailraceError
from tailrace.model.base.values import in_utc
from tailrace.model.definition.definition import Definition
from tailrace.testing.epochs import Epoch, EpochCutter
from tailrace.testing.folds import Output, folded
from tailrace.testing.rows import Rows, RowsError

_TABLES = ("answers", "late", "rejected")
_WHOLE = ("about", "epochs", *_TABLES, "duplicates")
_EPOCH = ("records", "now", "complete", "signals", "end", "gives")


class TranscriptError(TailraceError, ValueError):
    """The error for a file that is not a transcript; `faults` has all faults of the file."""

    def __init__(self, file: Path, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        lines = [f"  {number}. {fault}" for number, fault in enumerate(self.faults, 1)]
        super().__init__("\n".join([f"{file} is not a transcript:", *lines]))


def check_transcript(definition: Definition, file: str | Path) -> Output:
    """Fold the epochs of a transcript into a definition, and compare what each epoch gives with the transcript.

    A transcript is a file in YAML. `epochs` is a list, and each of its items may have `records`, `now`, `complete` and
    `signals`, as `Epoch` has them, and `gives`: the table of the rows that the epoch gives. If any epoch has `gives`,
    an epoch without it is expected to give nothing. A last item `end: true` moves the watermark to the end of time.
    Beside `epochs`, there may be the tables `answers`, `late` and `rejected`, the number `duplicates`, and `about` for
    people. No record may be rejected that the table `rejected` does not have.

    Raises `RowsError` with all that differs, and `TranscriptError` if the file is not a transcript. Returns what the
    definition gave, as `fold` does.
    """
    __tracebackhide__ = True
    path = Path(file)
    written = _written(path)
    cutter = EpochCutter(definition.sources)
    for one in written["epochs"]:
        if one.get("end"):
            cutter.end()
        else:
            signals = tuple(one.get("signals") or ())
            cutter.add(Epoch(one.get("records") or (), one.get("now"), one.get("complete"), signals))
    output = folded(definition, cutter.cut, allow_rejected=True)
    different = list(_differences(written, output))
    if different:
        raise RowsError("\n".join([f"{path}: {output.what} != the transcript", *different]))
    return output


def _differences(written: Mapping[str, Any], output: Output) -> Iterator[str]:
    """Yield the lines that show what differs, epoch by epoch."""
    epochs: Sequence[Mapping[str, Any]] = written["epochs"]
    if any("gives" in one for one in epochs):
        for number, one in enumerate(epochs):
            yield from _different(f"epoch {number}", output.where(epoch=number), one.get("gives"))
    for name in _TABLES:
        if name in written or name == "rejected":
            yield from _different(name, getattr(output, name), written.get(name))
    if written.get("duplicates", output.duplicates) != output.duplicates:
        yield f"duplicates: {written['duplicates']} in the transcript, {output.duplicates} given"


def _different(place: str, rows: Rows, table: str | None) -> Iterator[str]:
    found = rows.compared(table or " ".join(rows.printed))
    if not found.same:
        counts, *lines = found.lines("in the transcript", rows.what)
        yield from (f"{place}: {counts}", *lines)


def _written(file: Path) -> dict[str, Any]:
    """Read a transcript. Raises `TranscriptError` with all its faults."""
    import yaml

    try:
        found = yaml.load(file.read_text(encoding="utf-8"), _loader())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        fault = Fault("the file", " ".join(str(error).split()), "YAML", "correct it")
        raise TranscriptError(file, [fault]) from error
    if faults := list(_faults(found)):
        raise TranscriptError(file, faults)
    written: dict[str, Any] = found
    return written


def _faults(found: object) -> Iterator[Fault]:
    if not isinstance(found, dict) or not isinstance(found.get("epochs"), list):
        yield Fault("the file", found, "a mapping with a list `epochs`", "write `epochs:` and an item for each epoch")
        return
    yield from _unknown("", found, _WHOLE)
    for name in _TABLES:
        yield from _no_text(name, found.get(name))
    if not isinstance(found.get("duplicates", 0), int):
        yield Fault("duplicates", found["duplicates"], "a number", "count the records that came again")
    for number, one in enumerate(found["epochs"]):
        place = f"epochs[{number}]"
        if not isinstance(one, dict):
            yield Fault(place, one, "a mapping", f"name some of {', '.join(_EPOCH)}")
            continue
        yield from _unknown(f"{place}.", one, _EPOCH)
        yield from _no_text(f"{place}.gives", one.get("gives"))
        if not isinstance(one.get("signals") or [], list):
            yield Fault(f"{place}.signals", one["signals"], "a list of names", "write [name]")
        if one.get("end") is not None and (one["end"] is not True or not one.keys() <= {"end", "gives"}):
            yield Fault(f"{place}.end", one["end"], "`end: true`, with nothing but `gives`", "write the rest before it")
        if one.get("end") and number + 1 < len(found["epochs"]):
            yield Fault(f"{place}.end", True, "no epoch after it", "move it to the end of the list")


def _unknown(place: str, found: Mapping[Any, Any], names: Sequence[str]) -> Iterator[Fault]:
    for name in found:
        if name not in names:
            yield Fault(
                f"{place}{name}", found[name], f"one of {', '.join(names)}", "leave it out, or correct its name"
            )


def _no_text(place: str, table: object) -> Iterator[Fault]:
    if table is not None and not isinstance(table, str):
        yield Fault(place, table, "a table as text", "write `|` after the colon, and the table below it")


def _loader() -> Any:
    """Return a loader of YAML for which a plain word is a text unless it would be something else in JSON.

    YAML 1.1 takes `NO` for false, and `9:05` for a number. An instant becomes a `datetime`, so that a record has it in
    the form of its column.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.yaml_implicit_resolvers = {}
    number = r"-?(0|[1-9][0-9]*)"
    for tag, pattern, first in (
        ("null", r"null|~|", ["n", "~", ""]),
        ("bool", r"true|false", ["t", "f"]),
        ("int", number, [*"-0123456789"]),
        ("float", number + r"(\.[0-9]+)?([eE][-+]?[0-9]+)?", [*"-0123456789"]),
    ):
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"), first)
    instant = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?(Z|[-+][0-9]{2}:[0-9]{2})?"
    Loader.add_implicit_resolver("!instant", re.compile(rf"(?:{instant})\Z"), [*"0123456789"])
    Loader.add_constructor("!instant", lambda loader, node: in_utc(datetime.fromisoformat(node.value)))
    # A number keeps its digits, also those that a double does not have.
    Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: Decimal(node.value))
    return Loader
