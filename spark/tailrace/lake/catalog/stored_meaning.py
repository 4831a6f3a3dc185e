"""The meaning that a ledger stores of the definition that wrote it, and its comparison with a definition."""

from __future__ import annotations

import json
import re

from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.transactions import open_transaction
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.table_names import LEDGER, ledger_name
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.fingerprint import Parts, decode_meaning, encode_meaning, means_the_same
from tailrace.model.logs.derived_logs import Panes, Productions

MEANING = "tailrace.meaning"
"""The name of the table property that describes, in named parts, what the definition computes.

The text is written and read by `model.definition.fingerprint`.
"""

READS = "tailrace.reads"
"""The name of the table property that names the definitions whose output the definition reads, as a list in JSON."""

_TRIES = 20
"""The maximum number of attempts to store a meaning while other commits to the ledger interfere."""


def stored_meaning(ledger: Table) -> Parts | None:
    """Return the parts of the meaning that a ledger stores, or None if the ledger stores none."""
    text = ledger.properties.get(MEANING)
    return decode_meaning(text) if text else None


def holds(lake: Lake, definition: Definition) -> bool:
    """Return True if the lake has a ledger of a definition, written by a definition with the same meaning.

    Earlier versions stored a meaning with all columns of the log. Such a meaning is still the same if the definition's
    own columns are among these columns, with the same types.
    """
    name = ledger_name(definition.name)
    if not lake.has(name):
        return False
    if lake.head(name).properties.get("fingerprint") in definition.fingerprints:
        return True
    was, meaning = stored_meaning(lake.table(name)), definition.meaning
    if was is None or meaning is None or definition.used >= definition.log.columns.keys():
        return False
    log, now = definition.log, decode_meaning(encode_meaning(meaning))
    if isinstance(log, Panes | Productions) and _wrote(lake, log.of, was.get("of")):
        was = {**was, "of": now["of"]}
    return means_the_same(was, now)


def _wrote(lake: Lake, earlier: Definition, fingerprint: object) -> bool:
    """Return True if a fingerprint is that of an earlier definition, as the lake holds it."""
    if fingerprint in earlier.fingerprints:
        return True
    return holds(lake, earlier) and lake.head(ledger_name(earlier.name)).properties.get("fingerprint") == fingerprint


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
