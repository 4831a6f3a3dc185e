"""Define the arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import typer

from tailrace.settings import Settings

Definition: TypeAlias = Annotated[
    str, typer.Argument(metavar="DEFINITION", help="A Python file with a definition: FILE or FILE:NAME.")
]
Definitions: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="DEFINITION", help="Python files with definitions: FILE or FILE:NAME.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Report as JSON.")]
EngineName: TypeAlias = Annotated[
    Literal["auto", "duckdb", "spark"] | None,
    typer.Option("--engine", help="DuckDB in this process, or Spark. [default: TAILRACE_ENGINE, or auto]"),
]


def on_engine(settings: Settings, engine: Literal["auto", "duckdb", "spark"] | None) -> Settings:
    """Return the settings with the requested engine, if any."""
    return settings if engine is None else settings.model_copy(update={"engine": engine})
