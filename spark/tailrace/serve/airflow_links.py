"""Build the command that starts a backfill, and the address of an Airflow form for the same backfill."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

from tailrace.model.base.errors import TailraceError
from tailrace.serve.reading.event_time import TimeRange, address_text


class AirflowAddressError(TailraceError, ValueError):
    """Raised if the address of an Airflow server is invalid."""


def airflow_address(text: str) -> str:
    """Return the address of an Airflow server without trailing slashes.

    Raises `AirflowAddressError` if the text is not the address of a server. The check is strict because pages link to
    this address.
    """
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
        odd = bool(parts.query or parts.fragment) or any(not one.isprintable() or one == " " for one in text)
    except ValueError:
        known, odd = False, True
    if not known or odd:
        raise AirflowAddressError(f"--airflow {text!r}: expected an address such as http://127.0.0.1:8080")
    return text.rstrip("/")


@dataclass(frozen=True)
class Remedy:
    """The command that backfills a range, and the address of a form in which the range is filled in.

    The address is None if no Airflow server is known.

    The form is a page that Tailrace adds to Airflow, because the fields of Airflow's *Trigger* form cannot be filled in
    from an address.
    """

    range: TimeRange
    command: str
    form: str | None


def remedy(definition: str, stage: str, range: TimeRange, airflow: str | None) -> Remedy:
    """Return the command that backfills a range of a definition and, if `airflow` is given, the address of a form.

    >>> found = remedy("pipelines/a b.py", "hourly", TimeRange(0, 3_600_000_000), "http://127.0.0.1:8080")
    >>> found.command
    "tailrace backfill 'pipelines/a b.py' --from 1970-01-01T00:00:00Z --to 1970-01-01T01:00:00Z"
    >>> found.form
    'http://127.0.0.1:8080/tailrace/backfill/hourly.backfill?from=1970-01-01T00%3A00%3A00Z&to=1970-01-01T01%3A00%3A00Z'
    """
    first, last = address_text(range.first), address_text(range.last)
    command = f"tailrace backfill {shlex.quote(definition)} --from {first} --to {last}"
    query = urlencode({"from": first, "to": last})
    form = None if airflow is None else f"{airflow}/tailrace/backfill/{quote(f'{stage}.backfill')}?{query}"
    return Remedy(range, command, form)
