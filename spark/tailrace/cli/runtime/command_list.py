"""The list of commands by name.

Each entry has the command's summary and its module, which is imported only when the command is called. The list is read
from `commands.toml`. `options.toml` describes the options and arguments of all commands.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, get_origin, get_type_hints

import typer
from typer.core import TyperGroup
from typer.main import get_command

if TYPE_CHECKING:
    # The commands that typer returns are objects of typer's private copy of click, so the type has no public name.
    from typer._click.core import Command as LoadedCommand


@dataclass(frozen=True)
class Command:
    """An entry in the list of commands.

    `place` is `MODULE:NAME` within `cli.commands`. `summary` is the first paragraph of the command's docstring. `panel`
    is the section of the help text that shows the command; None hides the command.
    """

    place: str
    summary: str
    panel: str | None = None


COMMANDS: Mapping[str, Command] = {
    name: Command(**facts)
    for name, facts in tomllib.loads(files(__package__).joinpath("commands.toml").read_text()).items()
}

_typer = partial(typer.Typer, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


def load_command(name: str) -> LoadedCommand:
    """Import the module of a command, and return the command."""
    module, _, place = COMMANDS[name].place.partition(":")
    command = getattr(import_module(f"tailrace.cli.commands.{module}"), place)
    if isinstance(command, typer.Typer):
        return get_command(command)
    return get_command(_with_commands(_typer(), {name: command}))


def command_group(
    name: str, parts: Mapping[str, Callable[..., None]], cls: type[TyperGroup] = TyperGroup
) -> typer.Typer:
    """Create a command that has subcommands. The list of commands contains the summary of the command `name`."""
    return _with_commands(_typer(cls=cls, name=name, help=COMMANDS[name].summary, no_args_is_help=True), parts, name)


def _with_commands(
    app: typer.Typer, commands: Mapping[str, Callable[..., None]], group: str | None = None
) -> typer.Typer:
    """Add commands to an app. If the commands are the subcommands of a group, `group` is the name of the group.

    Each paragraph of a docstring is joined to one line, which the terminal wraps at its width.
    """
    options = _options()
    own = options if group is None else options.get(group, {})
    for name, command in commands.items():
        _describe(command, options["shared"] | own.get(name, {}))
        paragraphs = (inspect.getdoc(command) or "").split("\n\n")
        app.command(name, help="\n\n".join(" ".join(one.split()) for one in paragraphs))(command)
    return app


@cache
def _options() -> dict[str, Any]:
    """Read the descriptions of all options and arguments from `options.toml`, when a command is called."""
    return tomllib.loads(files(__package__).joinpath("options.toml").read_text())


def _describe(command: Callable[..., None], options: Mapping[str, Mapping[str, Any]]) -> None:
    """Turn the parameters of a command's function into options and arguments.

    `options` maps the name of a parameter to its description. A parameter whose annotation already has a description is
    not changed.
    """
    for name, hint in get_type_hints(command, include_extras=True).items():
        if name != "return" and get_origin(hint) is not Annotated:
            facts = dict(options[name])
            make: Callable[..., Any] = typer.Argument if facts.pop("argument", False) else typer.Option
            flags = [facts.pop("flag")] if "flag" in facts else []
            command.__annotations__[name] = Annotated[hint, make(*flags, **facts)]
