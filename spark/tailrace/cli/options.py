"""The arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

Definition: TypeAlias = Annotated[
    str, typer.Argument(metavar="DEFINITION", help="A Python file with a definition: FILE or FILE:NAME.")
]
Definitions: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="DEFINITION", help="Python files with definitions: FILE or FILE:NAME.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Report as JSON.")]
