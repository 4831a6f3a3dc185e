"""Load definitions from Python files, such as `pipelines/flights.py` or `pipelines/flights.py:hourly_departures`."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import cast

from tailrace.model.base.errors import DefinitionError, TailraceError
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition, Ranged
from tailrace.model.definition.pipeline import Pipeline


class LoadError(TailraceError, ValueError):
    """Raised if a definition file cannot be loaded. The message starts with the file and, if it is known, the line."""


_NAMED = re.compile(r"(?P<path>.+):(?P<name>\w+)", re.DOTALL)


def load(definition: str) -> Pipeline:
    """Load a pipeline from `FILE` or `FILE:NAME`. Raises `LoadError` if the definition has no windows."""
    loaded = load_any(definition)
    if not loaded.windowed:
        raise _no_windows(definition, loaded)
    return cast("Pipeline", loaded)


def load_ranged(definition: str) -> Ranged:
    """Load a definition from `FILE` or `FILE:NAME`.

    Raises `LoadError` if the definition's output for a range of event time cannot be recomputed. This error is raised
    for every computation.
    """
    loaded = load_any(definition)
    if not loaded.recomputable:
        raise _no_windows(definition, loaded)
    return cast("Ranged", loaded)


def _no_windows(definition: str, loaded: Definition) -> LoadError:
    kind, told = loaded.kind_name, "stream, audit, explain, status, trace and tables"
    if loaded.recomputable:
        told = "stream, backfill, audit, replay, explain, status, simulate, trace, sql and tables"
    return LoadError(
        f"{definition}: {loaded.name} is a {kind}, and has no windows: expected a Pipeline; what there is of a {kind}, "
        f"the commands {told} tell"
    )


def load_any(definition: str) -> Definition:
    """Load a definition from `FILE` or `FILE:NAME`.

    `NAME` is the name of the definition, or of its variable in the file. The file is run as a separate module, which
    can import the other files of its folder. Raises `LoadError` if the file does not exist, if running it fails, if it
    contains no definition, or if it contains several definitions and `NAME` does not select one.
    """
    path, name = _split(definition)
    variables = _pipelines(path)
    if not variables:
        raise LoadError(f'{path}: no Pipeline in it: expected for example hourly = Pipeline(name="hourly", ...)')
    unique = {id(pipeline): pipeline for _, pipeline in variables}
    # If another definition in the same file reads a stage, the stage belongs to that definition. Such a stage is loaded
    # as a separate definition only if the user names the stage.
    earlier = {stage.name for pipeline in unique.values() for stage in chain(pipeline)[:-1]}
    last = [pipeline for pipeline in unique.values() if pipeline.name not in earlier]
    if name is None and len(last) == 1:
        return last[0]
    names = sorted({pipeline.name for pipeline in unique.values()})
    if name is None:
        examples = " or ".join(f"{path}:{each}" for each in names)
        raise LoadError(f"{path}: holds {len(unique)} pipelines ({', '.join(names)}): say which, as {examples}")
    named = {id(p): p for variable, p in variables if name == p.name} or {id(p): p for v, p in variables if name == v}
    if not named:
        raise LoadError(f"{path}: no pipeline {name!r} in it: expected one of {', '.join(names)}")
    if len(named) > 1:
        raise LoadError(f"{path}: {len(named)} pipelines named {name!r}: give each a name of its own")
    return next(iter(named.values()))


def load_all(definitions: Sequence[str]) -> list[Definition]:
    """Load several definitions. Raises `LoadError` if two definitions have the same name."""
    pipelines = [load_any(definition) for definition in definitions]
    names = [pipeline.name for pipeline in pipelines]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise LoadError(f"{' '.join(definitions)}: more than one pipeline named {', '.join(twice)}: pass each once")
    return pipelines


def _split(definition: str) -> tuple[Path, str | None]:
    match = None if Path(definition).exists() else _NAMED.fullmatch(definition)
    path, name = (Path(match["path"]), match["name"]) if match else (Path(definition), None)
    if path.is_dir():
        raise LoadError(f"{path}: a folder: expected a Python file, for example {path / 'flights.py'}")
    if not path.is_file():
        raise LoadError(f"{path}: no such file: expected a Python file that holds a Pipeline (from {Path.cwd()})")
    return path, name


def _pipelines(path: Path) -> list[tuple[str, Definition]]:
    """Run a file, and return its definitions as pairs of variable name and definition, in the order of the file."""
    module = ModuleType(f"tailrace_definition_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}")
    module.__file__ = str(path)
    # The module has to be registered, because `dataclass` looks up the module of a class by name.
    sys.modules[module.__name__] = module
    try:
        source = path.read_bytes()
        with _importing_from(path.parent):
            exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    except DefinitionError as error:
        raise LoadError(f"{path}{_line(error, path)}: {error}") from error
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno and error.filename == str(path) else _line(error, path)
        raise LoadError(f"{path}{line}: SyntaxError: {error.msg}") from error
    except (Exception, SystemExit) as error:
        message = " ".join(str(error).split())
        raise LoadError(
            f"{path}{_line(error, path)}: {type(error).__name__}{': ' if message else ''}{message}"
        ) from error
    finally:
        del sys.modules[module.__name__]
    # All instances of `Definition` are returned, because a kind of definition may be defined outside of this package.
    return [(name, value) for name, value in vars(module).items() if isinstance(value, Definition)]


def _line(error: BaseException, path: Path) -> str:
    """Find the last entry of the error's stack trace that belongs to the file, and return its line number as `:LINE`.

    Returns an empty text if the stack trace has no line of the file.
    """
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f":{lines[-1]}" if lines else ""


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    place = str(folder.resolve())
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)
