"""The names of the tables that go with a definition or a log, made from its own name."""

from __future__ import annotations

LEDGER = "__ledger"
"""The ending of the names of ledgers."""

RESTING = "resting"
"""The word in the names of tables in which a running fold has open windows rest."""


def ledger_name(definition: str) -> str:
    """Name the ledger of a pipeline, a map or a computation.

    >>> ledger_name("hourly_departures")
    'hourly_departures__ledger'
    """
    return definition + LEDGER


def runs_name(definition: str) -> str:
    """Name the table of a definition's runs."""
    return f"{definition}__runs"


def rejected_name(log: str) -> str:
    """Name the table of the records that a log rejected."""
    return f"{log}__rejected"


def signals_name(log: str) -> str:
    """Name the table of the signals to a log's pipelines."""
    return f"{log}__signals"


def complete_name(log: str) -> str:
    """Name the table that says until when a log's input is complete."""
    return f"{log}__complete"
