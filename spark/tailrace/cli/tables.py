"""`tailrace tables`: the contract of every table of a pipeline, and whether the live table keeps to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tailrace.cli.console import Output, facts, table
from tailrace.cli.definitions import load_any
from tailrace.cli.errors import Status
from tailrace.cli.options import Definition, Json
from tailrace.cli.process import without_pandas
from tailrace.lake.contract_files import contract_data, write_contracts
from tailrace.lake.contracts import archives, contracts, spark_type
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.lake.drift import Drift

_STYLES = {"as agreed": "green", "differs": "bold red", "not made yet": "dim"}


def tables(
    definition: Definition,
    write: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the contracts into this folder, a JSON file a table.", file_okay=False),
    ] = None,
    json: Json = False,
) -> None:
    """Show the contract of each table: columns, partitioning, properties, and whether the live table keeps to it.

    The exit status is 1 where a live table differs. Reads the catalog, without Spark.
    """
    output, settings = Output(json), Settings()
    stage = load_any(definition)
    agreed = [*contracts(stage), *archives(stage)]
    if write is not None:
        written = write_contracts(agreed, write)
        if json:
            output.data({"written": [{"file": str(path), "changed": changed} for path, changed in written]})
        else:
            output.text(*(f"{path}  {'written' if changed else 'as it was'}" for path, changed in written))
        return
    without_pandas()
    from tailrace.lake.catalog import Lake
    from tailrace.lake.drift import drift

    lake = Lake(settings)
    found = [drift(lake, contract) for contract in agreed]
    if json:
        output.data({"lake": str(settings.warehouse), "tables": [_data(one) for one in found]})
    else:
        output.text(*_shown(found, settings))
    if any(one.differences for one in found):
        raise typer.Exit(Status.FOUND)


def _shown(found: Sequence[Drift], settings: Settings) -> Iterator[Any]:
    for one in found:
        contract = one.contract
        name = f"{settings.namespace}.{contract.table}"
        yield Text.assemble((name, "bold"), f"  {contract.doc}  ", (one.state, _STYLES[one.state]))
        for difference in one.differences:
            yield Text(f"  ! {difference}", style="red")
        columns = table("column", "type", "", "what it holds")
        for column, said in contract.columns.items():
            columns.add_row(column, spark_type(said.shape), "required" if said.required else "", said.doc)
        yield columns
        own = {k: v for k, v in contract.properties.items() if k.endswith(".mode") and "distribution" not in k}
        yield facts(
            [
                ("partitioned by", ", ".join(contract.partition_by) or "nothing"),
                ("format", ", ".join([f"version {contract.format_version}", *(f"{k} {v}" for k, v in own.items())])),
            ]
        )
        yield ""
    states: list[str] = [one.state for one in found]
    yield ", ".join(f"{states.count(state)} {state}" for state in _STYLES if state in states)


def _data(one: Drift) -> dict[str, Any]:
    return {**contract_data(one.contract), "state": one.state, "differences": list(one.differences)}
