"""The values of options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from tailrace.cli.terminal.usage import UsageError
from tailrace.model.definition.pipeline import Pipeline
from tailrace.settings import Settings

EngineName: TypeAlias = Literal["auto", "duckdb", "spark"] | None
"""The value of the option `--engine`."""


def settings_on(engine: EngineName) -> Settings:
    """Read the settings. If `engine` (the option `--engine`) is given, it replaces the engine of the settings."""
    settings = Settings()
    return settings if engine is None else settings.on_engine(engine)


def key_texts(pipeline: Pipeline, texts: Sequence[str]) -> list[str]:
    """Return the values of the `--key` options, in the order of the key's columns. An option is VALUE or COLUMN=VALUE.

    Raises `UsageError` unless each column has exactly one value.
    """
    named: dict[str, str] = {}
    for place, text in enumerate(texts):
        name, equals, value = text.partition("=")
        if equals and name in pipeline.key:
            named[name] = value
        elif place < len(pipeline.key):
            named[pipeline.key[place]] = text
    if len(texts) != len(pipeline.key) or set(named) != set(pipeline.key):
        wanted = " ".join(f"--key {name}=VALUE" for name in pipeline.key) or "no --key, for it has one group"
        raise UsageError(f"the key of {pipeline.name} is ({', '.join(pipeline.key)}): expected {wanted}")
    return [named[name] for name in pipeline.key]
