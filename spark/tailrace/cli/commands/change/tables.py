"""`tailrace tables`: show and write the contracts of a definition's tables, and compare the live tables with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from tailrace.cli.commands.change.table_changes import apply_tables, plan_tables
from tailrace.cli.runtime.command_list import command_group
from tailrace.cli.runtime.process import skip_unused_imports
from tailrace.cli.terminal.console import Output, facts, table
from tailrace.cli.terminal.usage import ExitStatus
from tailrace.lake.schema.owned_tables import all_contracts
from tailrace.plan.loader import load_all, load_any
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.lake.catalog.drift import Drift

_STYLES = {"as agreed": "green", "differs": "bold red", "not made yet": "dim"}


class ShownByDefault(TyperGroup):
    """A command group that runs the subcommand `show` if the first argument names no subcommand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help", "-h"}:
            args = ["show", *args]
        return super().parse_args(ctx, args)


def show(definition: str, json: bool = False) -> None:
    """Show the contract of each table (columns, key, layout, owner), and whether the live table matches it.

    The exit status is 1 if a live table differs from its contract. Reads the catalog, without Spark.
    """
    output, settings = Output(json), Settings()
    stage = load_any(definition)
    skip_unused_imports()
    from tailrace.lake.catalog.drift import drift
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.change.migration import placed_contracts

    drifts = [drift(lake, contract) for lake, contract in placed_contracts(Lake(settings), stage)]
    output.report({"lake": str(settings.warehouse), "tables": [_data(one) for one in drifts]}, _lines(drifts))
    if any(one.differences for one in drifts):
        raise typer.Exit(ExitStatus.FOUND)


def write(
    definition: str,
    folder: Path | None = None,
    json: bool = False,
) -> None:
    """Write the contracts of a definition's tables as files, one file per table.

    If a contract file already exists, its owner, retention, docs and layout are kept, because the definition does not
    contain them.
    """
    output, stage = Output(json), load_any(definition)
    from tailrace.lake.change.registry import registry_contracts
    from tailrace.lake.schema.contract_files import write_contracts

    made = (*all_contracts(stage), *registry_contracts(stage))
    written = write_contracts(made, folder or Settings().contracts)
    data = [{"file": str(path), "changed": changed} for path, changed in written]
    output.report({"written": data}, (_written(path, changed) for path, changed in written))


def sources(
    definitions: list[str],
    file: Path = Path("dbt/models/sources.yml"),
) -> None:
    """Write the contracts as sources of a dbt project: columns with docs, keys, and the freshness of the watermark."""
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.schema.contract_files import apply_contract_file
    from tailrace.lake.schema.dbt_sources import sources_text

    stages, lake = load_all(definitions), Lake(Settings())
    made = {one.table: one for stage in stages for one in all_contracts(stage, lake.has)}
    agreed = [apply_contract_file(one, lake.settings.contracts) for one in made.values()]
    text = sources_text(stages, agreed)
    changed = not file.is_file() or file.read_text() != text
    if changed:
        file.write_text(text)
    Output().text(_written(file, changed))


def _written(file: Path, changed: bool) -> str:
    return f"{file}  {'written' if changed else 'as it was'}"


def _lines(drifts: Sequence[Drift]) -> Iterator[Any]:
    for drift in drifts:
        contract = drift.contract
        name = f"{drift.namespace}.{contract.table}"
        yield Text.assemble((name, "bold"), f"  {contract.doc}  ", (drift.state, _STYLES[drift.state]))
        for difference in drift.differences:
            yield Text(f"  ! to be done: {difference}", style="red")
        yield table(
            "column", "type", "", "what it holds",
            rows=((column, declared.type, "required" if declared.required else "", declared.doc)
                  for column, declared in contract.columns.items()),
        )  # fmt: skip
        own = {k: v for k, v in contract.properties.items() if k.endswith(".mode") and "distribution" not in k}
        yield facts(
            [
                ("key", ", ".join(contract.key) or "none"),
                ("partitioned by", ", ".join(contract.partition_by) or "nothing"),
                ("sorted by", ", ".join(contract.sort_by) or "nothing"),
                ("kept", contract.retention),
                ("owner", contract.owner),
                ("format", ", ".join([f"version {contract.format_version}", *(f"{k} {v}" for k, v in own.items())])),
            ]
        )
        yield ""
    states: list[str] = [drift.state for drift in drifts]
    yield ", ".join(f"{states.count(state)} {state}" for state in _STYLES if state in states)


def _data(drift: Drift) -> dict[str, Any]:
    from tailrace.lake.schema.contract_files import contract_data

    differences = [str(difference) for difference in drift.differences]
    return {**contract_data(drift.contract), "state": drift.state, "differences": differences}


group = command_group(
    "tables",
    {"show": show, "write": write, "plan": plan_tables, "apply": apply_tables, "sources": sources},
    ShownByDefault,
)
