"""The meaning that a ledger stores of the definition that wrote it, and its comparison with a definition."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice, product

from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.catalog.transactions import open_transaction
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.column_names import match_names
from tailrace.lake.schema.filters import at_most, every, has_value
from tailrace.lake.schema.iceberg_types import type_name
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.lake.schema.table_names import LEDGER, ledger_name
from tailrace.model.base.errors import DefinitionError
from tailrace.model.base.types import element_type, struct_fields, widens
from tailrace.model.definition.chain import D, chain
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.fingerprint import Parts, decode_meaning, encode_meaning, means_the_same, outputs
from tailrace.model.definition.pipeline import UNANSWERED
from tailrace.model.definition.renamed_columns import Names, with_names
from tailrace.model.definition.wider_types import Types, code_with_types, with_types
from tailrace.model.logs.derived_logs import Panes, Productions
from tailrace.model.logs.log import Log

MEANING = "tailrace.meaning"
"""The name of the table property that describes, in named parts, what the definition computes.

The text is written and read by `model.definition.fingerprint`.
"""

READS = "tailrace.reads"
"""The name of the table property that names the definitions whose output the definition reads, as a list in JSON."""

KNOWN = "tailrace.known"
"""The name of the table property with a fingerprint in the ledger's commits that stands for the stored meaning."""

_Former = tuple[dict[str, str], dict[str, str]]
"""The former names of a log's columns by their present names, and former types by former names."""

_CHOICES = 200
"""The maximum number of combinations of former columns of several logs that are compared with a stored meaning."""

_TRIES = 20
"""The maximum number of attempts to store a meaning while other commits to the ledger interfere."""


def stored_meaning(ledger: Table) -> Parts | None:
    """Return the parts of the meaning that a ledger stores, or None if the ledger stores none."""
    text = ledger.properties.get(MEANING)
    return decode_meaning(text) if text else None


def holds(lake: Lake, definition: Definition) -> bool:
    """Return True if the lake has a ledger of a definition, written by a definition with the same meaning.

    Earlier versions stored a meaning with all columns of the log. Such a meaning is still the same if the definition's
    own columns are among these columns, with the same types. The meaning of a map or a join is also still the same if
    it passes on more columns of its logs, which have no values in the records so far. And any definition means the same
    if its log's columns have wider types or other names, and its answers stay as they are.
    """
    if _holds_as_it_is(lake, definition):
        return True
    former = former_definition(lake, definition)
    return former is not None and why_answers_differ(former, definition) is None


def former_definition(lake: Lake, definition: D) -> D | None:
    """Return the definition as the lake holds it, over a log whose columns had narrower types or other names.

    Returns None if the lake holds the definition as it is, or with another meaning.
    """
    if not lake.has(ledger_name(definition.name)) or _holds_as_it_is(lake, definition):
        return None
    for names, types in _former_columns(lake, definition):
        renamed = with_names(definition, names) if any(names.values()) else definition
        if renamed is None:
            continue
        try:
            former = with_types(renamed, types)
        except DefinitionError:
            # The logs of a union had a column with different types.
            continue
        if _holds_as_it_is(lake, former):
            return former
    return None


def why_answers_differ(former: Definition, definition: Definition) -> str | None:
    """Return the reason why a log's columns with wider types or other names need a new generation.

    `former` is the definition with the columns of before. Returns None if the answers stay as they are.

    The answers stay if the tables keep all their values when their columns get the types that follow (`types.widens`).
    A total may need columns in addition, for its upper digits.
    """
    for code in code_with_types(definition):
        return f"{code} may see the types of columns"
    before, now = tables_of(former), tables_of(definition)
    if now.registry is not None:
        return "the ids that it claims have other types"
    pairs = [(before.ledger, now.ledger)]
    pairs += [(before.answers, now.answers)] if before.answers is not None and now.answers is not None else []
    for was, own in pairs:
        for name, type in was.types.items():
            if (other := own.types.get(name)) is None:
                return f"{own.table} would not have column {name}"
            if not _fits(name, type, other):
                return f"column {name} of {own.table} would have type {other}, and it has {type}"
        if added := own.types.keys() - was.types.keys() - {UNANSWERED}:
            return f"{own.table} would have another column, {min(added)}"
    return None


HELD = ("fired", "pending", "predecessors", "answer")
"""The ledger's struct columns whose fields are either the parts of an accumulator (a partial result) or the results."""


def _fits(name: str, narrow: str, wide: str) -> bool:
    """Return True if a column can be widened in place; an accumulator may also get more parts."""
    before, now = (struct_fields(element_type(type) or type) for type in (narrow, wide))
    if name not in HELD or before is None or now is None:
        return widens(narrow, wide)
    return all(field in now and widens(type, now[field]) for field, type in before.items())


def _former_columns(lake: Lake, definition: Definition) -> Iterator[tuple[Names, Types]]:
    """Yield the names and narrower types that the columns of a definition's logs may have had, the latest first.

    They are in the schemas that the log's table has had; a definition may use a former name or the present one. The
    stored meaning of a definition that reads a log has types, too. Types are by the former names of
    their columns.
    """
    logs = {log.name: log for log in definition.sources}
    tries: dict[str, list[_Former]] = {name: [({}, {})] for name in logs}
    for stage in reversed(chain(definition)):
        if stage.log.landed and lake.has(ledger := ledger_name(stage.name)):
            columns = dict((stored_meaning(lake.table(ledger)) or {}).get("columns", ()))
            tries[stage.log.name].append(({}, _narrower_types(stage.log, {}, columns)))
    for name, log in logs.items():
        table = lake.find(name)
        schemas = [] if table is None else sorted(table.schemas().values(), key=lambda one: one.schema_id, reverse=True)
        ids = {field.name: field.field_id for schema in reversed(schemas) for field in schema.fields}
        if table is not None:
            ids |= {field.name: field.field_id for field in table.schema().fields}
        for schema in schemas:
            there = {field.field_id: field for field in schema.fields}
            own = {column: there[ids[column]] for column in log.columns if ids.get(column) in there}
            names = {column: field.name for column, field in own.items() if field.name != column}
            if {*names.values()} & (log.columns.keys() - names.keys()):
                # Another column has the former name by now.
                continue
            types = {field.name: type_name(field.field_type) for field in own.values()}
            tries[name].append((names, _narrower_types(log, names, types)))
    choices = ([one for place, one in enumerate(own) if one not in own[:place]] for own in tries.values())
    for choice in islice(product(*choices), _CHOICES):
        if any(names or types for names, types in choice):
            yield tuple(dict(zip(tries, own, strict=True)) for own in zip(*choice, strict=True))  # type: ignore[misc]


def _narrower_types(log: Log, names: Mapping[str, str], types: Mapping[str, str]) -> dict[str, str]:
    """Return those of the former types of columns that are narrower than the types that a log declares."""
    now = {names.get(name, name): type for name, type in log.columns.items()}
    return {name: type for name, type in types.items() if type != now.get(name, type) and widens(type, now[name])}


def _holds_as_it_is(lake: Lake, definition: Definition) -> bool:
    """Return True if the lake holds the meaning of a definition with the definition's own types (see `holds`)."""
    name = ledger_name(definition.name)
    if not lake.has(name):
        return False
    ledger, meaning = lake.table(name), definition.meaning
    found, was = head_of(ledger).properties.get("fingerprint"), stored_meaning(ledger)
    if found in definition.fingerprints:
        return True
    if was is None or meaning is None:
        return False
    if ledger.properties.get(KNOWN) == found and ledger.properties[MEANING] == encode_meaning(meaning):
        return True
    if _passes_on_more(lake, definition, was):
        return True
    if definition.used >= definition.log.columns.keys():
        return False
    log, now = definition.log, decode_meaning(encode_meaning(meaning))
    if isinstance(log, Panes | Productions) and _wrote(lake, log.of, was.get("of")):
        was = {**was, "of": now["of"]}
    return means_the_same(was, now)


def _wrote(lake: Lake, earlier: Definition, fingerprint: object) -> bool:
    """Return True if the lake holds an earlier definition with this fingerprint."""
    if fingerprint in earlier.fingerprints:
        return True
    return holds(lake, earlier) and lake.head(ledger_name(earlier.name)).properties.get("fingerprint") == fingerprint


def _passes_on_more(lake: Lake, definition: Definition, was: Parts) -> bool:
    """Return True if a map or a join differs from the stored meaning only in output columns that it has in addition.

    The additional columns pass on columns of logs that have no value in any record up to the ledger's last epoch. So
    the rows in the ledger are as if the definition had had these columns from the start.
    """
    before = outputs(was)
    if not before or definition.windowed:
        return False
    head = lake.head(ledger_name(definition.name))
    if definition.fingerprint_of(before) != head.properties.get("fingerprint"):
        return False
    added = [definition.passed_on(name) for name in tables_of(definition).values if name not in (*before, *SPAN)]
    return bool(added) and all(one is not None and _is_empty(lake, *one, head.number("epoch")) for one in added)


def _is_empty(lake: Lake, log: Log, column: str, epoch: int) -> bool:
    """Return True if a log's column is null in all records up to an epoch; False if this cannot be read."""
    if isinstance(log, Productions):
        name, by = ledger_name(log.of.name), "epoch"
    elif log.landed:
        name, by = log.name, "_epoch"
    else:
        return False
    if not lake.has(name):
        return False
    table = lake.table(name)
    live = match_names(table, [column], [field.name for field in table.schema().fields])[column]
    if live is None:
        return True
    if not table.schema().find_field(live).field_type.is_primitive:
        return False
    found = table.scan(row_filter=every(has_value(live), at_most(by, epoch)), selected_fields=(live,), limit=1)
    return len(found.to_arrow()) == 0


def meaning_properties(definition: Definition) -> dict[str, str]:
    """Return the table properties with which a ledger describes its definition."""
    reads = {READS: json.dumps([one.name for one in definition.before])}
    return reads if definition.meaning is None else reads | {MEANING: encode_meaning(definition.meaning)}


def renew_meaning(lake: Lake, definition: Definition) -> None:
    """Store a definition's meaning in its ledger, if the ledger has the meaning in the form of an earlier version.

    The caller has the ledger's lease, so no other process changes the definition at the same time.
    """
    name, wanted = ledger_name(definition.name), meaning_properties(definition)
    for _ in range(_TRIES):
        ledger = lake.table(name)
        if not ledger.properties.get(MEANING):
            wanted.pop(MEANING, None)
        found = head_of(ledger).properties.get("fingerprint")
        if MEANING in wanted and found and found != definition.fingerprint:
            wanted[KNOWN] = found
        if wanted.items() <= ledger.properties.items():
            return
        try:
            with open_transaction(ledger) as transaction:
                transaction.set_properties(wanted)
        except MovedError:
            continue


def readers_of(lake: Lake, name: str) -> set[str]:
    """Return the names of the definitions in a lake that read the output of the definition called `name`.

    A generation that is being built beside its tables is no reader.
    """
    found = set[str]()
    for ledger in (table for table in lake.tables if table.endswith(LEDGER)):
        own, properties = ledger.removesuffix(LEDGER), lake.table(ledger).properties
        reads = json.loads(properties.get(READS) or "[]")
        # Ledgers of earlier versions name only the definition that a later stage reads.
        reads.append((decode_meaning(properties.get(MEANING) or "{}")).get("reads"))
        if name in reads and not re.search(r"__g\d+$", own):
            found.add(own)
    return found
