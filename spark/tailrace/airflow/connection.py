"""Read the settings of a lake from an Airflow connection of the type `tailrace_lake`.

A connection names a whole lake: its warehouse, its catalog and its namespaces. A setting of the lake that the
connection does not name has its default, never the value of the environment, so that two lakes are never mixed.
All other settings, such as `TAILRACE_MEMORY`, come from the environment unless the connection names them.

Secrets are where Airflow hides them: the password, or the object `secrets` in the connection's extras.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from tailrace.runners.jobs import RunnerError
from tailrace.settings import HIDDEN, SECRETS, Settings, setting_text, variable

if TYPE_CHECKING:
    from airflow.sdk import Connection

TYPE = "tailrace_lake"
"""The connection type."""

HELD = "secrets"
"""The name of the object in the extras that holds secrets. Airflow hides what has this name wherever it shows it."""

LAKE = (
    "warehouse", "catalog", "catalog_uri", "catalog_secret", "catalog_credential", "catalog_token_uri",
    "catalog_scope", "catalog_warehouse", "catalog_prefix", "namespace", "registry", "checkpoints",
)  # fmt: skip
"""The settings that together name a lake. With a connection, none of them comes from the environment."""


def settings_of(connection: Connection) -> Settings:
    """Return the settings that a connection gives. Raises `RunnerError` or `SettingsError` if they do not hold."""
    named = named_settings(connection)
    # A setting of the lake that the connection leaves out has its default, so that no value comes from elsewhere.
    left = {name for name in LAKE if name not in named and f"{name}_file" not in named}
    return Settings(**{name: Settings.model_fields[name].default for name in left}, **named)


def named_settings(connection: Connection) -> dict[str, Any]:
    """Return the settings that a connection names, by name. Raises a `RunnerError` that names every fault.

    No message shows a secret.
    """
    name = connection.conn_id
    extra = _extra(connection)
    held = extra.pop(HELD, None) or {}
    faults = []
    if not isinstance(held, Mapping):
        faults.append(f'{HELD} in its extras is no object, such as {{"kafka_credential": "USER:PASSWORD"}}')
        held = {}
    if connection.conn_type != TYPE:
        faults.append(f"its type is {connection.conn_type!r}, where {TYPE} was expected")
    values = {key: value for key, value in extra.items() if value not in (None, "")}
    for key in values:
        if key in HIDDEN:
            faults.append(f"{key} is a secret: put it into the object {HELD} of its extras, which Airflow hides")
        elif key not in Settings.model_fields and key.removesuffix("_file") not in SECRETS:
            faults.append(f"{key} in its extras is no setting of Tailrace (`tailrace settings` lists them)")
    faults += [f"{key} in {HELD} of its extras is no secret setting" for key in held if key not in HIDDEN]
    if "warehouse" not in values:
        faults.append("it names no warehouse")
    for key in ("warehouse", "checkpoints"):
        if key in values and not re.match(r"/|[a-z0-9]+:/", str(values[key])):
            faults.append(f"{key} = {values[key]!r} is relative, and processes of Airflow have several working folders")
    if re.match(r"sqlite:///[^/]", str(values.get("catalog_uri", ""))):
        faults.append("catalog_uri is a relative path, and processes of Airflow have several working folders")
    if faults:
        raise RunnerError(f"the connection {name} does not hold: {'; '.join(faults)}", again=False)
    # SecretStr, so that no message about a wrong value shows it.
    secrets = {key: SecretStr(str(value)) if key in SECRETS else value for key, value in held.items()}
    if connection.password:
        key, text = "catalog_secret", connection.password
        if connection.login:
            key, text = "catalog_credential", f"{connection.login}:{connection.password}"
        secrets.setdefault(key, SecretStr(text))
    return values | secrets


def secret_texts(settings: Settings) -> list[str]:
    """List the texts that logs must not show: each secret, and each password that follows a user's name."""
    found = [value.get_secret_value() for name in SECRETS if (value := getattr(settings, name)) is not None]
    return [*found, *(password for one in found if (password := one.partition(":")[2]))]


def load_settings(conn_id: str | None) -> Settings:
    """Return the settings of a connection, or those of the environment if `conn_id` is None.

    Airflow then hides the secrets in all logs of this process.
    """
    if conn_id is None:
        return Settings()
    from airflow.sdk import BaseHook
    from airflow.sdk.log import mask_secret

    settings = settings_of(BaseHook.get_connection(conn_id))
    for text in secret_texts(settings):
        mask_secret(text)
    return settings


@contextmanager
def connected(conn_id: str | None) -> Iterator[None]:
    """Give the settings of a connection to this process, and to the processes that it starts meanwhile.

    The environment of the process gets the settings, so that a runner of any kind takes them. If `conn_id` is None,
    nothing changes. Raises `RunnerError` if a file `tailrace.toml` names a part of the lake that the connection leaves
    out, because two lakes would then be mixed.
    """
    if conn_id is None:
        yield
        return
    settings = load_settings(conn_id)
    values = settings.model_dump(exclude_unset=True, exclude_none=True)
    environment = {variable(name): setting_text(value) for name, value in values.items()}
    lake = {variable(key) for name in LAKE for key in (name, f"{name}_file")}
    before = dict(os.environ)
    try:
        for name in [name for name in os.environ if name.upper() in lake | set(environment)]:
            del os.environ[name]
        os.environ.update(environment)
        found = Settings()
        mixed = [name for name in LAKE if getattr(found, name) != getattr(settings, name)]
        if mixed:
            origins = Settings.origins()
            raise RunnerError(
                f"the connection {conn_id} leaves out what {origins[mixed[0]]} sets ({', '.join(mixed)}): name it in "
                "the connection's extras, or take it out of the file",
                again=False,
            )
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _extra(connection: Connection) -> dict[str, Any]:
    try:
        extra = json.loads(connection.extra or "{}")
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise RunnerError(f"the connection {connection.conn_id} has extras that are no JSON object", again=False)
    return extra
