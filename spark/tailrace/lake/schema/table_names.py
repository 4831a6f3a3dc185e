"""Derive table names from the name of a definition or of a log."""

from __future__ import annotations

LEDGER = "__ledger"
"""The suffix of a ledger's table name."""

RESTING = "resting"
"""The word in the names of tables with resting windows: open windows that a fold keeps in files, not in memory."""


def ledger_name(definition: str) -> str:
    """Return the name of a definition's ledger.

    >>> ledger_name("hourly_departures")
    'hourly_departures__ledger'
    """
    return definition + LEDGER


def runs_name(definition: str) -> str:
    """Return the name of a definition's table of runs."""
    return f"{definition}__runs"


def rejected_name(log: str) -> str:
    """Return the name of the table with the records that were rejected while they were read into a log."""
    return f"{log}__rejected"


def signals_name(log: str) -> str:
    """Return the name of the table with the signals for the pipelines that read a log."""
    return f"{log}__signals"


def complete_name(log: str) -> str:
    """Return the name of the table that states up to which instant a log's input is complete."""
    return f"{log}__complete"
