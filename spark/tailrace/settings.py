"""Define the settings of an installation, such as its lake, Spark and brokers.

Every field can be set in two ways: by the environment variable `TAILRACE_` + the field's name in capitals, or in a file
`tailrace.toml`. The environment has precedence. The file is searched for in the working directory, and then in each
folder above it. A relative path is relative to the folder of the file or, if there is no file, to the working
directory.

A secret can also be the content of a file: `TAILRACE_KAFKA_CREDENTIAL_FILE`, or `kafka_credential_file` in
`tailrace.toml`, is the path of a file with the secret `kafka_credential`.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    SecretStr,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from tailrace.machine import usable_cores, usable_memory
from tailrace.model.base.errors import Fault, TailraceError

__all__ = ["Settings", "SettingsError"]

PREFIX = "TAILRACE_"
FILE = "tailrace.toml"

Place = Path | str
"""A folder on this machine, or an address in S3."""

Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]


HttpAddress = Annotated[str, StringConstraints(pattern=r"^https?://[\w.-]+(:\d+)?(/[\w./-]*)?$")]

_REST = ("catalog_credential", "catalog_token_uri", "catalog_scope", "catalog_warehouse", "catalog_prefix")
"""The settings that are valid only for a REST catalog."""

SECRETS = (
    "catalog_secret", "catalog_credential", "serve_token", "schema_registry_credential", "schema_registry_token",
    "kafka_credential", "kafka_key_password",
)  # fmt: skip
"""The settings whose values are secret. Each of them may also be the content of a file, `TAILRACE_..._FILE`."""

HIDDEN = (*SECRETS, "kafka_options")
"""The settings whose values are never shown in messages. Someone may have written a secret into the options."""

KafkaSecurity = Literal["plaintext", "tls", "iam", "plain", "scram-sha-256", "scram-sha-512", "oauthbearer"]

_SASL = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer")
_KAFKA_USES = {
    "kafka_ca": ("tls", "iam", *_SASL),
    "kafka_certificate": ("tls", *_SASL),
    "kafka_credential": _SASL,
    "kafka_token_uri": ("oauthbearer",),
    "kafka_scope": ("oauthbearer",),
    "kafka_extensions": ("oauthbearer",),
}
"""The settings for Kafka, and for each setting the values of `kafka_security` that use it."""

_KAFKA_OWN = {
    "group.id": "Spark gives each query its own group, and the log records the position",
    "auto.offset.reset": "a stream reads every message; --start says where a new log begins",
    "enable.auto.commit": "the log records the position",
    "auto.commit.interval.ms": "the log records the position",
    "key.deserializer": "Tailrace reads the bytes",
    "value.deserializer": "Tailrace reads the bytes",
    "interceptor.classes": "an interceptor could change or drop messages",
    "isolation.level": "messages of aborted transactions are never read",
    "config.providers": "settings come from the environment, or from files TAILRACE_..._FILE",
    "bootstrap.servers": "set TAILRACE_KAFKA_BOOTSTRAP",
    "security.protocol": "set TAILRACE_KAFKA_SECURITY",
    "enable.metrics.push": "set it at the broker",
}
"""The consumer settings that `kafka_options` may not have, with the reason."""

_KAFKA_SECURE = re.compile(
    r"(?i)sasl\..*|ssl\.(truststore|keystore|key|ca|certificate)\..*|.*(password|secret|jaas|credential).*"
)
"""The consumer settings for which Tailrace has settings of its own, because their values may be secret."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _age(value: Any) -> Any:
    """Parse a duration, which is a number and a unit, such as `12h`. A value that is not text is returned unchanged."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", value.strip())
    if found is None:
        raise ValueError("a whole number and a unit, s, m, h or d, such as 12h")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


Age = Annotated[timedelta, BeforeValidator(_age), Field(ge=timedelta(0))]


SHORTEST_TOKEN = 16
"""The minimum length of a token, in characters; a shorter token could be guessed."""


def _options(value: Any) -> Any:
    """Parse options, which are a JSON object in the environment; numbers and booleans become texts."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError('a JSON object, such as {"fetch.min.bytes": 100000}') from None
    if not isinstance(value, dict) or not all(isinstance(one, str | int | float) for one in value.values()):
        raise ValueError('an object of texts, numbers and booleans, such as {"fetch.min.bytes": 100000}')
    return {name: str(one).lower() if isinstance(one, bool) else str(one) for name, one in value.items()}


Options = Annotated[dict[str, str], NoDecode, BeforeValidator(_options)]


@dataclass(frozen=True)
class _SecretFile:
    """The path of the file that contains a secret."""

    path: str


def _secret(value: Any) -> Any:
    """Read a secret from its file. A line end after the secret is no part of it."""
    if not isinstance(value, _SecretFile):
        return value
    try:
        text = (project_folder() / Path(value.path).expanduser()).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ValueError(f"a file with the secret at {value.path} ({reason})") from None
    return SecretStr(text.removesuffix("\n").removesuffix("\r"))


class SettingsError(TailraceError, ValueError):
    """Raised if the settings are invalid.

    `faults` has one entry per invalid field, with the environment variable to set.
    """

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__(
            "\n".join(["the settings do not hold:", *(f"  {n}. {fault}" for n, fault in enumerate(faults, 1))])
        )


def project_folder() -> Path:
    """Return the folder to which relative paths in the settings are relative."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / FILE).is_file()), here)


def _path(value: Path) -> Path:
    """Make a path absolute.

    Raises `ValueError` if the path contains a character with a special meaning in an address.
    """
    path = Path(os.path.normpath(project_folder() / value.expanduser()))
    if odd := sorted(set(str(path)) & set("?#%\\")):
        raise ValueError(f"a path without {' '.join(odd)}, which has a meaning in an address")
    return path


AbsolutePath = Annotated[Path, AfterValidator(_path)]


def _form(pattern: str, expected: str) -> AfterValidator:
    """Return a validator that accepts a secret if the whole secret matches `pattern`.

    If the secret does not match, `expected` is the error message.
    """

    def check(value: SecretStr) -> SecretStr:
        if re.fullmatch(pattern, value.get_secret_value()) is None:
            raise ValueError(expected)
        return value

    return AfterValidator(check)


def _default_jars() -> Path:
    """Return the folder `build/jars` in the checkout that contains this module.

    If there is no checkout, return the relative path `build/jars`.
    """
    checkout = Path(__file__).resolve().parents[2]
    return checkout / "build" / "jars" if (checkout / "pyproject.toml").is_file() else Path("build/jars")


def _quarter() -> str:
    """Return a quarter of the memory that this process may use as a text that DuckDB can parse, such as `2000MB`."""
    return f"{max(1, usable_memory() // 4 // 10**6)}MB"


class Settings(BaseSettings):
    """The settings of one installation, read from the environment and `tailrace.toml`. Settings are immutable.

    Raises a SettingsError that lists all faults if a value is invalid or the file has an unknown key.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", validate_default=True)

    warehouse: Place = Path("build/lake")
    """The location of the tables' files: a folder on this machine, or `s3://BUCKET/PREFIX`."""
    catalog: Identifier = "lake"
    """The name of the catalog. This name is part of the key of each table in the catalog, so all users of the tables
    must use the same name.
    """
    catalog_uri: str = ""
    """The address of the catalog: `sqlite:///FILE`, `postgresql://USER@HOST:PORT/DATABASE`, `glue://ACCOUNT`,
    `glue://`, or the address of a catalog with Iceberg's REST interface. If empty, the catalog is the SQLite file
    `catalog.db` in the warehouse.
    """
    catalog_secret: SecretStr | None = None
    """The password of PostgreSQL, or the token of a REST catalog."""
    catalog_credential: Annotated[SecretStr, _form(r"[^:\s]+:\S+", "ID:SECRET")] | None = None
    """The OAuth2 client of a REST catalog, as `ID:SECRET`. The client is used instead of a token."""
    catalog_token_uri: HttpAddress | None = None
    """The address at which the OAuth2 client requests tokens for a REST catalog."""
    catalog_scope: Annotated[str, StringConstraints(pattern=r"^[\x21\x23-\x5B\x5D-\x7E ]+$")] | None = None
    """The scope of the tokens that the OAuth2 client requests. If None, the scope is `catalog`."""
    catalog_warehouse: Annotated[str, StringConstraints(min_length=1)] | None = None
    """The name of the warehouse, for a REST catalog that has several warehouses."""
    catalog_prefix: Annotated[str, StringConstraints(pattern=r"^[\w.-]+(/[\w.-]+)*$")] | None = None
    """The prefix of a REST catalog's paths. This setting is needed only if the catalog does not report the prefix."""
    namespace: Identifier = "main"
    """The namespace of the tables whose names contain no namespace."""
    registry: Identifier = "registry"
    """The namespace of the registry tables. In a registry table, computations of several namespaces claim records, so
    that each record counts only once.
    """
    checkpoints: Place | None = None
    """The folder or address of Spark's checkpoints, which record the positions up to which a stream has read its
    sources. If None, the checkpoints are in the folder `_checkpoints` of the warehouse.
    """
    contracts: AbsolutePath = Path("iceberg_schemas")
    """The folder of the contract files. If a table has no contract file, its contract is derived from its
    definition.
    """
    jars: AbsolutePath = Field(default_factory=_default_jars)
    """The folder of the pinned jars, into which `tailrace setup` downloads them."""
    jars_mirror: HttpAddress | None = None
    """The address of a Maven repository from which `tailrace setup` downloads jars. If None, the jars come from Maven
    Central. The sha256 of each jar is checked in any case.
    """
    java_home: AbsolutePath | None = None
    """The home folder of Java. If None, Tailrace uses the first suitable Java among `JAVA_HOME`, the `PATH` and the
    extra `java`.
    """
    spark_master: Annotated[str, StringConstraints(min_length=1)] = "local[*]"
    """The URL of Spark's master. This URL is not used in a process that a cluster's `spark-submit` has started."""
    driver_memory: Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]*[kmgt]$")] = "4g"
    """The heap size of Spark's driver. In local mode, all of Spark shares this heap."""
    shuffle_partitions: Annotated[int, Field(ge=1)] = Field(default_factory=usable_cores)
    """The number of partitions of a shuffle in Spark. The default is one partition per core that this process may use,
    because small epochs need few partitions.
    """
    windows_in_driver: Annotated[int, Field(ge=0)] | None = None
    """The maximum number of open windows of a definition that a stream on Spark keeps in the process of Spark's driver,
    while executors only aggregate the records. If None, the maximum is as many windows as fit into TAILRACE_MEMORY at
    400 bytes each. If a definition has more open windows than this maximum, or if custom code computes the windows,
    executors keep all open windows. If the definition has steps, or if a trigger that has finished may refuse records,
    executors keep the open windows from the first large epoch on.
    """
    windows_in_memory: Annotated[int, Field(ge=0)] = 200_000
    """The maximum number of a definition's open windows that all of Spark's executors together keep in memory. If more
    windows are open, the windows are kept in files in the lake, and an epoch reads only the windows that it touches.
    """
    engine: Literal["auto", "duckdb", "spark"] = "auto"
    """The engine that computes epochs, backfills and other runs. With `auto`, DuckDB in the stream's process does the
    work that fits into memory, and Spark does the other work.
    """
    threads: Annotated[int, Field(ge=1)] = Field(default_factory=usable_cores)
    """The number of threads that compute in this process: DuckDB's, those that read and parse files, and those that
    write files, of which each holds the rows of a file. The default is one thread per core that this process may use:
    of the machine, or of its container. Results do not depend on the number. Spark's threads, `spark_master`, are
    not included.
    """
    memory: Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]*(MB|GB)$")] = Field(default_factory=_quarter)
    """The memory that DuckDB may use before it spills to disk, such as `2GB`; the minimum is 16 MB. The default is a
    quarter of the memory of the machine or of its container. In addition, the records of each epoch may take a quarter
    of `memory`, and up to three epochs may be in memory at once, besides an eighth of `memory` for files that are read
    ahead. Spark reads larger epochs, unless `engine` is `duckdb`. A process may therefore take up to twice the amount
    `memory`, plus the memory of Python and its packages. Spark's heap, `driver_memory`, is not included.
    """
    scratch: AbsolutePath | None = None
    """The folder to which DuckDB spills. If None, DuckDB spills to the machine's folder for temporary files."""
    freshness: Age = timedelta(minutes=1)
    """The maximum time by which a stream's answers are behind the ledger, even while no records arrive. A stream
    updates its answers every ten epochs. If the updates would take more than a quarter of the stream's time, the stream
    makes fewer updates, but still at least one update per `freshness`. Updates take long for global windows, because
    each update rewrites all files of the answers.
    """
    worker_idle: Age = timedelta(minutes=10)
    """The time without a run after which a scheduler's worker ends. The Spark session that the runs share ends with the
    worker.
    """
    dev: str | None = None
    """The arguments of `tailrace dev` if it is called without definitions: definitions and sources. `tailrace init`
    sets it for a new project. Paths are relative to the folder of the file.
    """
    kafka_bootstrap: Annotated[str, StringConstraints(pattern=r"^[^\s,:]+:\d+(,[^\s,:]+:\d+)*$")] | None = None
    """The addresses of the Kafka brokers, separated by commas: `host:port,host:port`."""
    kafka_security: KafkaSecurity = "plaintext"
    """The security of the connections to Kafka brokers: none (`plaintext`), TLS (`tls`, with a certificate of one's own
    if `kafka_certificate` is set), authentication by IAM, as in MSK (`iam`), or a mechanism of SASL (`plain`,
    `scram-sha-256`, `scram-sha-512`, `oauthbearer`).
    """
    kafka_tls: bool = True
    """Whether connections with a mechanism of SASL are encrypted. Without TLS, `plain` and `oauthbearer` send the
    password or token in clear.
    """
    kafka_credential: Annotated[SecretStr, _form(r"(?s)[^:]+:.+", "USER:PASSWORD")] | None = None
    """The user and password for Kafka, as `USER:PASSWORD`. For `oauthbearer`, the OAuth2 client, as `ID:SECRET`."""
    kafka_ca: AbsolutePath | None = None
    """The PEM file with the certificates of the authorities that the brokers' certificates are signed by. If None,
    Java's own authorities are trusted.
    """
    kafka_certificate: AbsolutePath | None = None
    """The PEM file with the certificate by which the brokers know this client (mutual TLS), followed by the
    certificates of its issuers. The file may also contain the key.
    """
    kafka_key: AbsolutePath | None = None
    """The PEM file with the key of `kafka_certificate`, in the form PKCS #8. If None, the key is in the file of the
    certificate.
    """
    kafka_key_password: SecretStr | None = None
    """The password with which the key of `kafka_certificate` is encrypted."""
    kafka_token_uri: HttpAddress | None = None
    """The address at which the OAuth2 client requests tokens for Kafka."""
    kafka_scope: Annotated[str, StringConstraints(pattern=r"^[\x21\x23-\x5B\x5D-\x7E ]+$")] | None = None
    """The scope of the tokens that the OAuth2 client requests for Kafka."""
    kafka_extensions: Options = Field(default_factory=dict)
    """A JSON object of SASL extensions that go with a token, such as `{"logicalCluster": "lkc-1"}` for Confluent's
    cloud.
    """
    kafka_options: Options = Field(default_factory=dict)
    """A JSON object of further settings of Kafka's consumer, such as `{"fetch.min.bytes": 100000}`. Settings for which
    Tailrace has a setting of its own are refused.
    """
    schema_registry_uri: HttpAddress | None = None
    """The address of the schema registry for Kafka messages. The registry must have Confluent's interface."""
    schema_registry_credential: Annotated[SecretStr, _form(r"[^:\s]+:\S+", "USER:PASSWORD")] | None = None
    """The user and password for the schema registry, as `USER:PASSWORD`."""
    schema_registry_token: (
        Annotated[SecretStr, _form(r"[\x21-\x7E]+", "a token of ASCII, without white space")] | None
    ) = None
    """The token for the schema registry. The token is used instead of a user and a password."""
    source_failure: Literal["stop", "go_on"] = "stop"
    """How a stream of several logs reacts if the source of one log fails. With `stop`, the stream stops. With `go_on`,
    the stream continues with the other sources until the failed source is available again.
    """
    poison: Literal["set_aside", "stop"] = "set_aside"
    """How a stream reacts to records that make an epoch fail at every attempt, and to a timer that fails. With
    `set_aside`, the stream sets these records aside, rejects the failing timer, and continues. With `stop`, the stream
    stops.
    """
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """The port at which a stream serves its metrics. 0 selects any free port. If None, a stream serves no metrics."""
    metrics_host: Annotated[str, StringConstraints(pattern=r"^[^\s/]+$")] = "127.0.0.1"
    """The address at which a stream serves its metrics. By default, only this machine can reach the address."""
    metrics_file: AbsolutePath | None = None
    """The file to which each run writes its metrics when it ends. If this path is a folder, each run writes its own
    file in the folder.
    """
    log_format: Literal["json", "text"] | None = None
    """The format of structured logs. If this setting is None and `log_file` is set, the format is text. If both
    settings are None, no structured logs are written.
    """
    log_file: AbsolutePath | None = None
    """The file to which structured logs are appended. If None, structured logs are written to standard error."""

    serve_token: (
        Annotated[SecretStr, _form(f"(?s).{{{SHORTEST_TOKEN},}}", f"a token of at least {SHORTEST_TOKEN} characters")]
        | None
    ) = None
    """The token that `tailrace serve` requires from visitors. A token is required if other machines can reach the
    page.
    """
    serve_names: tuple[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.:\[\]_-]+$")], ...] = ()
    """A JSON list of additional host names under which browsers may reach `tailrace serve`, such as the name of a
    proxy.
    """
    serve_rows: Annotated[int, Field(ge=1, le=1000)] = 50
    """The maximum number of rows of a table that `tailrace serve` shows on one page."""
    serve_files: Annotated[int, Field(ge=0)] = 20_000
    """The maximum number of data files whose statistics `tailrace serve` keeps in memory between two visits. With 0, no
    statistics are kept.
    """
    serve_timeout: Annotated[Age, Field(ge=timedelta(seconds=1))] = timedelta(seconds=20)
    """The maximum duration of a query that `tailrace serve` runs. A query that takes longer is cancelled."""

    small_files: Annotated[int, Field(ge=0, le=1000)] = 20
    """The number of small files in a partition of a table at which a running stream merges the small files of this
    partition. With 0 or 1, a stream never merges files and leaves them to `tailrace maintain`.
    """
    most_snapshots: Annotated[int, Field(ge=20)] = 500
    """The number of snapshots at which a table is trimmed. If a table has at least this number of snapshots, a running
    stream removes the table's oldest snapshots.
    """
    keep_snapshots: Age = timedelta(days=1)
    """The age up to which `tailrace maintain` keeps the earlier snapshots of a table, such as `12h` or `7d`."""
    keep_leftovers: Age = timedelta(days=7)
    """The age at which `tailrace maintain` treats an unfinished run as dead and removes the remains of this run."""
    keep_orphans: Annotated[Age, Field(ge=timedelta(days=1))] = timedelta(days=3)
    """The age at which `tailrace maintain` deletes files that no snapshot names. Younger files may belong to a commit
    in progress.
    """

    _engine_named: str | None = PrivateAttr(None)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError([fault for each in error.errors() for fault in _faults(each)]) from None
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(
                [Fault(FILE, str(project_folder() / FILE), "a TOML file", f"correct it: {error}")]
            ) from None

    @classmethod
    def origins(cls) -> dict[str, str]:
        """Return the source of each setting: its environment variable, the path of the file, or `default`."""
        file = project_folder() / FILE
        held = tomllib.loads(file.read_text()) if file.is_file() else {}
        found, named = dict[str, str](), {name.upper() for name in os.environ}
        for name in cls.model_fields:
            keys = (name, f"{name}_file") if name in SECRETS else (name,)
            places = [variable(key) for key in keys if variable(key) in named]
            places += [str(file) for key in keys if key in held]
            found[name] = next(iter(places), "default")
        return found

    @property
    def engine_named(self) -> str | None:
        """The reason for which a run chose `engine`, as a clause for messages.

        The value is None if a user chose the engine.
        """
        return self._engine_named

    def on_engine(self, engine: Literal["auto", "duckdb", "spark"], named: str | None = None) -> Settings:
        """Return a copy of the settings with another engine.

        If a run chose the engine, `named` is the reason for the choice.
        """
        changed = self.model_copy(update={"engine": engine})
        changed._engine_named = named
        return changed

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of settings in the order of precedence: arguments, environment, file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=project_folder() / FILE)

    @model_validator(mode="before")
    @classmethod
    def _secret_files(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Take secrets from files: `TAILRACE_..._FILE` in the environment, or `..._file` in `tailrace.toml`."""
        files = {name: values.pop(f"{name}_file", None) for name in SECRETS}
        for name, place in files.items():
            place = os.environ.get(variable(f"{name}_file")) or place
            # A secret that is given as None is not taken from a file either.
            if place and name not in values:
                values[name] = _SecretFile(str(place))
        return values

    @field_validator(*SECRETS, mode="before")
    @classmethod
    def _secret_text(cls, value: Any) -> Any:
        return _secret(value)

    @field_validator("warehouse", "checkpoints", mode="before")
    @classmethod
    def _place(cls, value: Any) -> Any:
        if isinstance(value, str):
            # Spark and Iceberg write the address of a local folder as `file:/folder` or `file:///folder`.
            value = re.sub(r"^file:(//(?=/)|(?=/[^/]))", "", value)
        if not isinstance(value, str) or "://" not in value:
            return _path(Path(value)) if isinstance(value, str | Path) else value
        if not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._=-]+)*/?", value):
            raise ValueError("a folder, or s3://BUCKET/PREFIX")
        return value.rstrip("/")

    @field_validator("catalog_uri")
    @classmethod
    def _catalog(cls, value: str) -> str:
        scheme, _, rest = value.partition("://")
        match scheme:
            case "":
                return value
            case "sqlite" if rest.startswith("/") and len(rest) > 1 and not set(rest) & set("?#%\\"):
                return f"sqlite:///{project_folder() / rest[1:]}"
            case "postgresql" if re.fullmatch(r"[\w.-]+@[\w.-]+(:\d+)?/[\w.-]+", rest):
                return value
            case "glue" if re.fullmatch(r"(\d{12})?", rest):
                return value
            case "http" | "https" if re.fullmatch(r"[\w.-]+(:\d+)?(/[\w./-]*)?", rest):
                return value
        raise ValueError(
            "sqlite:///FILE (without ? # % \\), postgresql://USER@HOST:PORT/DATABASE (its password is "
            f"{PREFIX}CATALOG_SECRET), glue://ACCOUNT, glue:// or https://HOST/PATH"
        )

    @model_validator(mode="after")
    def _kept_somewhere(self) -> Settings:
        if self.on_s3 and not self.catalog_uri:
            raise ValueError(f"the warehouse {self.warehouse} is no folder that could hold a catalog, too")
        return self

    @model_validator(mode="after")
    def _tokens(self) -> Settings:
        """Check the settings of a REST catalog.

        Raises an error if settings of a REST catalog are given for another kind of catalog. Also raises an error if the
        credentials contradict one another or are incomplete.
        """
        if self.of_rest:
            if self.catalog_credential and self.catalog_secret:
                raise PydanticCustomError("catalog_credential", "no client of OAuth2 beside a token (catalog_secret)")
            if self.catalog_credential and not self.catalog_token_uri:
                raise PydanticCustomError("catalog_token_uri", "the address at which catalog_credential gets tokens")
            for name in ("catalog_token_uri", "catalog_scope"):
                if getattr(self, name) and not self.catalog_credential:
                    raise PydanticCustomError("catalog_credential", f"the client for which {name} is set")
            return self
        for name in _REST:
            if getattr(self, name) is not None:
                raise PydanticCustomError("catalog_uri", f"a REST catalog, https://HOST/PATH, since {name} is set")
        return self

    @model_validator(mode="after")
    def _one_way_to_schemas(self) -> Settings:
        named = [name for name in ("schema_registry_credential", "schema_registry_token") if getattr(self, name)]
        if len(named) > 1:
            raise PydanticCustomError("schema_registry_token", "no token beside a user (schema_registry_credential)")
        if named and not self.schema_registry_uri:
            raise PydanticCustomError("schema_registry_uri", f"the registry for which {named[0]} is set")
        return self

    @model_validator(mode="after")
    def _one_way_to_brokers(self) -> Settings:
        """Check that the settings for Kafka belong together. All faults are reported at once."""
        if faults := list(self._kafka_faults()):
            raise PydanticCustomError("faults", "settings for Kafka that belong together", {"faults": faults})
        return self

    def _kafka_faults(self) -> Iterator[Fault]:
        security = self.kafka_security
        for name, uses in _KAFKA_USES.items():
            if getattr(self, name) and security not in uses:
                expected = f"nothing, since kafka_security is {security!r}"
                value = "(not shown)" if name in HIDDEN else _masked(getattr(self, name))
                remedy = f"take it out, or set {variable('kafka_security')} to {' or '.join(uses)}"
                yield Fault(name, value, expected, remedy)
        needed = {"kafka_credential": _SASL, "kafka_token_uri": ("oauthbearer",)}
        for name, uses in needed.items():
            if security in uses and getattr(self, name) is None:
                form = "an address" if name == "kafka_token_uri" else "USER:PASSWORD"
                named = variable(name) + (f" or {variable(name)}_FILE" if name in SECRETS else "")
                yield Fault(name, "", f"{form}, which kafka_security {security!r} needs", f"set {named}")
        if not self.kafka_tls:
            if security not in _SASL:
                yield Fault("kafka_tls", False, f"true, since kafka_security is {security!r}",
                            f"take it out, or set {variable('kafka_security')} to {' or '.join(_SASL)}")  # fmt: skip
            for name in ("kafka_ca", "kafka_certificate"):
                if getattr(self, name):
                    remedy = f"take out {variable(name)} or {variable('kafka_tls')}"
                    yield Fault(name, getattr(self, name), "nothing, since kafka_tls is false", remedy)
        for name in ("kafka_key", "kafka_key_password"):
            if getattr(self, name) and not self.kafka_certificate:
                yield Fault("kafka_certificate", "", f"the certificate for which {name} is set",
                            f"set {variable('kafka_certificate')}")  # fmt: skip
        remedy = f"take it out of {variable('kafka_options')}"
        for name in self.kafka_options:
            place = f"kafka_options[{name!r}]"
            if name.startswith("kafka."):
                yield Fault(place, "(not shown)", "Kafka's own name of a consumer setting, without kafka.",
                            f"write {name.removeprefix('kafka.')!r}")  # fmt: skip
            elif name in _KAFKA_OWN or name.endswith((".deserializer", ".serializer")):
                reason = _KAFKA_OWN.get(name, "Tailrace reads the bytes")
                yield Fault(place, "(not shown)", f"nothing: {reason}", remedy)
            elif _KAFKA_SECURE.fullmatch(name):
                expected = "nothing: its value may be secret, and Tailrace has settings for it"
                instead = "TAILRACE_KAFKA_CREDENTIAL, _CA, _CERTIFICATE, _KEY or _TOKEN_URI"
                yield Fault(place, "(not shown)", expected, f"{remedy}, and set {instead}")

    @property
    def of_rest(self) -> bool:
        """Whether the catalog is reached through Iceberg's REST interface."""
        return self.catalog_uri.startswith(("http://", "https://"))

    @property
    def on_s3(self) -> bool:
        """Whether the files of the tables are in S3."""
        return isinstance(self.warehouse, str)

    @property
    def unplaced(self) -> str:
        """A remark for messages if no setting says where the lake is and no `tailrace.toml` was found; else empty."""
        if {"warehouse", "catalog_uri"} & self.model_fields_set or (project_folder() / FILE).is_file():
            return ""
        return f" (there is no {FILE} in {Path.cwd()} or a folder above it)"

    @property
    def warehouse_uri(self) -> str:
        """The address of the warehouse, in the form in which Spark and this process pass it to the catalog."""
        return self.warehouse if isinstance(self.warehouse, str) else f"file://{self.warehouse}"

    def checkpoint(self, *names: str) -> str:
        """Return the path or address of a folder within the folder of Spark's checkpoints."""
        return "/".join([str(self.checkpoints or f"{self.warehouse}/_checkpoints"), *names])


def variable(name: str) -> str:
    """Return the name of a setting's environment variable."""
    return f"{PREFIX}{name.upper()}"


def setting_text(value: object) -> str:
    """Format a setting's value for its environment variable."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, dict | list | tuple):
        return json.dumps(value)
    return f"{int(value.total_seconds())}s" if isinstance(value, timedelta) else str(value)


def _faults(error: Any) -> list[Fault]:
    """Convert one of pydantic's validation errors to faults."""
    return error["ctx"]["faults"] if error["type"] == "faults" else [_fault(error)]


def _fault(error: Any) -> Fault:
    if not error["loc"]:
        named, expected = "catalog_uri", str(error.get("ctx", {}).get("error", "")) or error["msg"]
        if error["type"] in Settings.model_fields:
            named = error["type"]
        return Fault(named, "", _lower(expected), f"set {variable(named)}")
    name = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        known = ", ".join(Settings.model_fields)
        return Fault(name, error["input"], f"one of {known}", f"take it out of {FILE}")
    expected = str(error.get("ctx", {}).get("error", "")) or _lower(error["msg"])
    value = "(not shown)" if name in HIDDEN else _masked(error["input"])
    return Fault(name, value, expected, f"set {variable(name)}")


def _masked(value: Any) -> Any:
    """Replace the password in an address with a placeholder. A value that is not text is returned unchanged."""
    return re.sub(r"(://[^/@:]*:)[^/@]*@", r"\1(not shown)@", value) if isinstance(value, str) else value


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
