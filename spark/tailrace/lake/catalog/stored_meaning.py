"""The meaning that a ledger stores of the definition that wrote it, and its comparison with a definition."""

from __future__ import annotations

from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.transactions import open_transaction
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.fingerprint import Parts, decode_meaning, encode_meaning, means_the_same
from tailrace.model.logs.derived_logs import Panes, Productions

MEANING = "tailrace.meaning"
"""The name of the table property that describes, in named parts, what the definition computes.

The text is written and read by `model.definition.fingerprint`.
"""

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


def renew_meaning(lake: Lake, definition: Definition) -> None:
    """Store a definition's meaning in its ledger, if the ledger has the meaning in the form of an earlier version.

    The caller has the ledger's lease, so no other process changes the definition at the same time.
    """
    if definition.meaning is None:
        return
    name, text = ledger_name(definition.name), encode_meaning(definition.meaning)
    for _ in range(_TRIES):
        ledger = lake.table(name)
        if ledger.properties.get(MEANING) in (None, "", text):
            return
        try:
            with open_transaction(ledger) as transaction:
                transaction.set_properties({MEANING: text})
        except MovedError:
            continue
