"""Name the format of the lake's tables, and refuse tables whose format is newer than this version of Tailrace knows.

The format is a number. It covers all that one version of Tailrace writes and another version has to read: the columns
of the tables and their meaning, the properties of tables and commits, the stored meanings and fingerprints of
definitions, and the checkpoints. The number grows only if an earlier version of Tailrace would read or continue the
tables wrongly. New columns and properties that an earlier version can ignore do not change the number.

A change of a table's format makes a commit and takes the table's lease. So the running streams of an earlier version
stop at their next commit.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.lake.schema.lake_errors import CatalogError

FORMAT = 1
"""The format of the tables that this version writes, which is also the newest format that this version reads."""

_FORMAT = "tailrace.format"
"""The name of the table property with the table's format. A table without this property has format 1."""

MADE_BY = "tailrace.version"
"""The name of the table property with the version of Tailrace that gave the table its format."""


class FormatError(CatalogError):
    """A table's format is newer than this version of Tailrace knows, so the table can be neither read nor written."""


def format_properties() -> dict[str, str]:
    """Return the properties that name the format of a new table."""
    return {_FORMAT: str(FORMAT), MADE_BY: _own_version()}


def check_format(table: str, properties: Mapping[str, str]) -> None:
    """Raise `FormatError` if a table with these properties has a newer format than this version knows.

    >>> check_format("rides", {})
    >>> check_format("rides", {"tailrace.format": "1"})
    """
    if table_format(properties) is None:
        by = properties.get(MADE_BY)
        raise FormatError(
            f"table {table} has format {properties[_FORMAT]}{f', which Tailrace {by} gave it' if by else ''}, and "
            f"Tailrace {_own_version()} knows formats up to {FORMAT}",
            f"install Tailrace {by} or later" if by else "install a later version of Tailrace",
        )


def table_format(properties: Mapping[str, str]) -> int | None:
    """Return the format of a table with these properties, or None if this version does not know the format.

    >>> table_format({}), table_format({"tailrace.format": "1"}), table_format({"tailrace.format": "999"})
    (1, 1, None)
    """
    text = properties.get(_FORMAT, "1")
    return int(text) if text.isdecimal() and 1 <= int(text) <= FORMAT else None


def _own_version() -> str:
    # The import is here, because the package's own module imports the modules of the public classes.
    from tailrace import __version__

    return __version__
