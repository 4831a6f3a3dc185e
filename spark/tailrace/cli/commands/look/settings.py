"""`tailrace settings`: list every setting, its value, and where the value comes from."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tailrace.cli.terminal.console import Output, table
from tailrace.cli.terminal.formats import span
from tailrace.settings import HIDDEN, Settings, variable


def settings(json: bool = False) -> None:
    """List every setting with its value, and where the value comes from: the environment, a file, or the default.

    The values of secrets are not shown. Starts no Spark.
    """
    output, given = Output(json), Settings()
    origins = Settings.origins()
    rows = [(name, _shown(name, getattr(given, name)), origins[name]) for name in Settings.model_fields]
    data = {name: {"variable": variable(name), "value": value, "from": at} for name, value, at in rows}
    output.report({"settings": data}, [table("setting", "value", "from", rows=rows, whole=("setting",))])


def _shown(name: str, value: Any) -> str:
    if value and name in HIDDEN:
        return "(not shown)"
    match value:
        case None:
            return "-"
        case timedelta():
            return span(value.total_seconds())
        case tuple() | list():
            return ", ".join(map(str, value)) or "-"
        case dict():
            return ", ".join(f"{key}={one}" for key, one in value.items()) or "-"
    return str(value) or "-"
