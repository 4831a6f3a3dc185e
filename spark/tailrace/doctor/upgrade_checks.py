"""Check for `tailrace doctor` what has to be migrated before this version of Tailrace goes on with a lake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tailrace.doctor.findings import UnseenError, fault
from tailrace.ingest.checkpoint_version import VERSION, other_version
from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.catalog.stored_meaning import holds
from tailrace.lake.change.migration import plan_changes
from tailrace.lake.schema.contract_diff import Kind
from tailrace.lake.schema.formats import FORMAT, MADE_BY
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition
from tailrace.settings import Settings

_LACKING = frozenset({Kind.ADD, Kind.WIDEN, Kind.RETYPE, Kind.RENAME, Kind.REQUIRE})
"""The kinds of changes that a stream cannot do without. Other columns, docs and properties do no harm."""


def check_formats(settings: Settings) -> str:
    """Check that this version knows the format of every table; return the versions that made the tables.

    Raises `FormatError` if a table has a newer format.
    """
    lake = Lake(settings, looks=True)
    made = Counter(found.properties.get(MADE_BY) for table in lake.tables if (found := lake.find(table)) is not None)
    if not made:
        raise UnseenError("there is no table yet", "the first stream makes them")
    by = [f"{count} made by {version or 'an earlier version'}" for version, count in sorted(made.items(), key=str)]
    return f"format {FORMAT} of all {made.total()} tables: {', '.join(by)}"


def check_checkpoints(settings: Settings) -> str:
    """Check the version of the checkpoints; return what the next stream does with checkpoints of another Spark."""
    if "://" in settings.checkpoint():
        raise UnseenError("the checkpoints are in a bucket", "a stream says if it writes one anew")
    folder = Path(settings.checkpoint(settings.namespace))
    logs = sorted(one for one in folder.iterdir() if one.is_dir()) if folder.is_dir() else []
    if not logs:
        raise UnseenError("there is no checkpoint yet", "the first stream makes one")
    others = [f"that of log {one.name} has {version}" for one in logs if (version := other_version(one))]
    if others:
        return f"another Spark wrote checkpoints ({', '.join(others)}): the next stream writes them anew from the logs"
    return f"{len(logs)} of version {VERSION}, which this Spark goes on with"


def check_definitions(settings: Settings, definitions: Sequence[Definition]) -> str:
    """Check that streams of definitions, and of all that they read, can continue the tables in the lake."""
    if not definitions:
        raise UnseenError("no definition is named", "name them: `tailrace doctor DEFINITION ...`")
    lake = Lake(settings, looks=True)
    stages = list({stage.name: stage for one in definitions for stage in chain(one)}.values())
    there = [stage for stage in stages if lake.has(ledger_name(stage.name))]
    if changed := [stage.name for stage in there if not holds(lake, stage)]:
        raise fault("changed-meaning", names=", ".join(changed))
    if lacking := list(dict.fromkeys(_lacking(lake, definitions))):
        raise fault("former-tables", changes="; ".join(lacking))
    renewed = [stage.name for stage in there if _fingerprint(lake, stage) not in ("", stage.fingerprint)]
    text = f"nothing has to be migrated: tables of {_names(there)} go on as they are"
    if renewed:
        text += f"; an earlier version wrote the fingerprint of {_names(renewed)}, which has the same meaning"
    return text


def _lacking(lake: Lake, definitions: Iterable[Definition]) -> Iterator[str]:
    for one in definitions:
        for plan in plan_changes(lake, one):
            yield from (f"{plan.contract.table}: {change}" for change in plan.changes if change.kind in _LACKING)


def _fingerprint(lake: Lake, stage: Definition) -> str:
    return head_of(lake.table(ledger_name(stage.name))).properties.get("fingerprint", "")


def _names(named: Sequence[Definition | str]) -> str:
    return ", ".join(one if isinstance(one, str) else one.name for one in named) or "no definition"
