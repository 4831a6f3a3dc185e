"""Derive the names of the tables of a definition or a log from its own name."""

from __future__ import annotations

LEDGER = "__ledger"
"""The suffix of the names of ledgers."""

RESTING = "resting"
"""The word in the names of tables in which a fold keeps resting windows: open windows in files instead of in memory."""


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
    """Return the name of the table with the records that a log rejected."""
    return f"{log}__rejected"


def signals_name(log: str) -> str:
    """Return the name of the table with the signals to a log's pipelines."""
    return f"{log}__signals"


def complete_name(log: str) -> str:
    """Return the name of the table that states until when a log's input is complete."""
    return f"{log}__complete"
