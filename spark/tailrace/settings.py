"""Define the settings of an installation, such as its lake, Spark and brokers.

Every field can be set by the environment variable `TAILRACE_` + its name in capitals, or in the nearest file
`tailrace.toml` at or above the working directory; the environment wins. A relative path starts from the folder of the
file or, without a file, from the working directory.
"""

from __future__ import annotations

import os
import re
import tomllib
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
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from tailrace.model.base.errors import Fault, TailraceError

PREFIX = "TAILRACE_"
FILE = "tailrace.toml"

Place = Path | str
"""A folder of this machine, or an address in S3."""

Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]


HttpAddress = Annotated[str, StringConstraints(pattern=r"^https?://[\w.-]+(:\d+)?(/[\w./-]*)?$")]

_REST = ("catalog_credential", "catalog_token_uri", "catalog_scope", "catalog_warehouse", "catalog_prefix")
"""The settings that are only for REST catalogs."""

_SECRETS = (
    "catalog_secret", "catalog_credential", "serve_token", "schema_registry_credential", "schema_registry_token",
)  # fmt: skip
"""The settings whose values are never shown in messages."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _age(value: Any) -> Any:
    """Parse a duration, a number and a unit such as `12h`. A value that is not text is returned unchanged."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", value.strip())
    if found is None:
        raise ValueError("a whole number and a unit, s, m, h or d, such as 12h")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


Age = Annotated[timedelta, BeforeValidator(_age), Field(ge=timedelta(0))]


SHORTEST_TOKEN = 16
"""The minimum number of characters of a token, because a shorter token could be guessed."""


class SettingsError(TailraceError, ValueError):
    """The settings are invalid. `faults` has every invalid field, and the variable that corrects it."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__(
            "\n".join(["the settings do not hold:", *(f"  {n}. {fault}" for n, fault in enumerate(faults, 1))])
        )


def _root() -> Path:
    """Return the folder that relative paths are relative to."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / FILE).is_file()), here)


def _path(value: Path) -> Path:
    """Make a path absolute. Raises `ValueError` for a character that has a meaning in an address."""
    path = Path(os.path.normpath(_root() / value.expanduser()))
    if odd := sorted(set(str(path)) & set("?#%\\")):
        raise ValueError(f"a path without {' '.join(odd)}, which has a meaning in an address")
    return path


AbsolutePath = Annotated[Path, AfterValidator(_path)]


def _form(pattern: str, expected: str) -> AfterValidator:
    """Make a check that a secret as a whole matches a pattern; `expected` describes the pattern in the error."""

    def check(value: SecretStr) -> SecretStr:
        if re.fullmatch(pattern, value.get_secret_value()) is None:
            raise ValueError(expected)
        return value

    return AfterValidator(check)


def _default_jars() -> Path:
    """Return `build/jars` in the checkout of this module, or the relative path `build/jars` if there is no checkout."""
    checkout = Path(__file__).resolve().parents[2]
    return checkout / "build" / "jars" if (checkout / "pyproject.toml").is_file() else Path("build/jars")


def _quarter() -> str:
    """Return a quarter of the machine's memory in the form that DuckDB reads, such as `2000MB`."""
    return f"{max(1, os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 4 // 10**6)}MB"


class Settings(BaseSettings):
    """The settings of one installation, read from the environment and `tailrace.toml`; they cannot be changed later.

    Raises SettingsError, with all faults, if a value is invalid or the file has an unknown key.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", validate_default=True)

    warehouse: Place = Path("build/lake")
    """The location of the tables' files: a folder, or `s3://BUCKET/PREFIX`."""
    catalog: Identifier = "lake"
    """The name of the catalog. It is part of the key of every table, so all users of the tables need the same name."""
    catalog_uri: str = ""
    """The address of the catalog: `sqlite:///FILE`, `postgresql://USER@HOST:PORT/DATABASE`, `glue://ACCOUNT`,
    `glue://`, or the address of a catalog with Iceberg's REST interface. Empty: the SQLite file `catalog.db` in the
    warehouse.
    """
    catalog_secret: SecretStr | None = None
    """The password of PostgreSQL, or the token of a REST catalog."""
    catalog_credential: Annotated[SecretStr, _form(r"[^:\s]+:\S+", "ID:SECRET")] | None = None
    """The OAuth2 client of a REST catalog, `ID:SECRET`, in place of a token."""
    catalog_token_uri: HttpAddress | None = None
    """The address at which the OAuth2 client requests the tokens of a REST catalog."""
    catalog_scope: Annotated[str, StringConstraints(pattern=r"^[\x21\x23-\x5B\x5D-\x7E ]+$")] | None = None
    """The scope of the tokens that the OAuth2 client requests. None: `catalog`."""
    catalog_warehouse: Annotated[str, StringConstraints(min_length=1)] | None = None
    """The name of the warehouse in a REST catalog that has several."""
    catalog_prefix: Annotated[str, StringConstraints(pattern=r"^[\w.-]+(/[\w.-]+)*$")] | None = None
    """The prefix of the paths of a REST catalog, if the catalog does not report it."""
    namespace: Identifier = "main"
    """The namespace of tables whose names have no namespace."""
    registry: Identifier = "registry"
    """The namespace of registries, in which computations of several namespaces claim records that count once."""
    checkpoints: Place | None = None
    """The folder or address of Spark's checkpoints, which hold the positions in the sources. None: `_checkpoints` in
    the warehouse."""
    contracts: AbsolutePath = Path("iceberg_schemas")
    """The folder of the contract files. A table without a file has the contract of its definition."""
    jars: AbsolutePath = Field(default_factory=_default_jars)
    """The folder of the pinned jars, filled by `python -m tailrace.toolchain`."""
    java_home: AbsolutePath | None = None
    """The home of Java. None: the first suitable Java of JAVA_HOME, the PATH and the extra `java`."""
    spark_master: Annotated[str, StringConstraints(min_length=1)] = "local[*]"
    """The master of Spark. Not used in a process that a cluster's `spark-submit` started."""
    driver_memory: Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]*[kmgt]$")] = "4g"
    """The heap of Spark's driver; in local mode, the heap of all of Spark."""
    shuffle_partitions: Annotated[int, Field(ge=1)] = Field(default_factory=lambda: os.cpu_count() or 1)
    """The number of partitions of a shuffle in Spark. Small epochs need few; the default is one per core."""
    windows_in_driver: Annotated[int, Field(ge=0)] | None = None
    """The maximum number of open windows of a definition that a stream on Spark keeps in the process of Spark's driver,
    while executors only add up the records. None: as many as fit into TAILRACE_MEMORY, at 400 bytes each. Executors
    keep the windows if more are open, or if custom code computes them. They also keep the windows after a large epoch
    whose records go through steps or may be refused by a finished trigger."""
    windows_in_memory: Annotated[int, Field(ge=0)] = 200_000
    """The maximum number of open windows of a definition that Spark keeps in the memory of its executors. If more are
    open, they are in files of the lake, and an epoch reads the windows that it touches."""
    engine: Literal["auto", "duckdb", "spark"] = "auto"
    """The engine of epochs and runs. `auto`: DuckDB, in the process, for work that fits into memory, else Spark."""
    memory: Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]*(MB|GB)$")] = Field(default_factory=_quarter)
    """The memory that DuckDB may use before it spills, such as `2GB`, and at least 16 MB. The default is a quarter of
    the machine's memory. The records of an epoch, as they are in memory, may take a quarter of this amount on top, for
    up to three epochs at once; Spark reads a larger epoch, unless `engine` is `duckdb`. So a process may take up to
    twice this amount, and the memory of Python and its packages. Spark's heap, `driver_memory`, is not included."""
    scratch: AbsolutePath | None = None
    """The folder to which DuckDB spills. None: the folder of the machine for temporary files."""
    freshness: Age = timedelta(minutes=1)
    """The maximum time that the answers of a stream may be behind the ledger if their updates take over a quarter of
    the stream's time, as with global windows, whose files are rewritten by each update. Otherwise, the answers are
    updated every ten epochs."""
    worker_idle: Age = timedelta(minutes=10)
    """The time that a worker, whose Spark session a scheduler's runs share, waits for the next run."""
    kafka_bootstrap: Annotated[str, StringConstraints(pattern=r"^[^\s,:]+:\d+(,[^\s,:]+:\d+)*$")] | None = None
    """The Kafka brokers, `host:port,host:port`."""
    kafka_security: Literal["plaintext", "tls", "iam"] = "plaintext"
    """The security of connections to brokers: none, TLS, or TLS with authentication by IAM, as in MSK."""
    schema_registry_uri: HttpAddress | None = None
    """The address of the schema registry for messages, which has Confluent's interface."""
    schema_registry_credential: Annotated[SecretStr, _form(r"[^:\s]+:\S+", "USER:PASSWORD")] | None = None
    """The user of the schema registry, `USER:PASSWORD`."""
    schema_registry_token: (
        Annotated[SecretStr, _form(r"[\x21-\x7E]+", "a token of ASCII, without white space")] | None
    ) = None
    """The token for the schema registry, in place of a user and a password."""
    source_failure: Literal["stop", "go_on"] = "stop"
    """Whether a stream of several logs stops if a source fails, or goes on with the others until the source is back."""
    poison: Literal["set_aside", "stop"] = "set_aside"
    """Whether records that make every attempt to fold an epoch fail are set aside, and failing timers are rejected, or
    the stream stops."""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """The port at which a stream serves its metrics; 0 is any free port. None: no port."""
    metrics_host: Annotated[str, StringConstraints(pattern=r"^[^\s/]+$")] = "127.0.0.1"
    """The address at which metrics are served; by default, only this machine can reach it."""
    metrics_file: AbsolutePath | None = None
    """The file to which a run writes its metrics at its end, or a folder with a file for each run."""
    log_format: Literal["json", "text"] | None = None
    """The format of structured logs. None: text if `log_file` is set, else no logs."""
    log_file: AbsolutePath | None = None
    """The file to which structured logs are appended. None: standard error."""

    serve_token: (
        Annotated[SecretStr, _form(f"(?s).{{{SHORTEST_TOKEN},}}", f"a token of at least {SHORTEST_TOKEN} characters")]
        | None
    ) = None
    """The token that `tailrace serve` requires; necessary if other machines can reach the page."""
    serve_names: tuple[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.:\[\]_-]+$")], ...] = ()
    """More host names by which browsers may reach `tailrace serve`, such as the names of a proxy, as a JSON list."""
    serve_rows: Annotated[int, Field(ge=1, le=1000)] = 50
    """The maximum number of rows of a table that one page shows."""
    serve_files: Annotated[int, Field(ge=0)] = 20_000
    """The maximum number of data files whose statistics the page keeps between two visits; 0 keeps none."""
    serve_timeout: Annotated[Age, Field(ge=timedelta(seconds=1))] = timedelta(seconds=20)
    """The maximum duration of a query of the page; a longer query is cancelled."""

    small_files: Annotated[int, Field(ge=0, le=1000)] = 20
    """The number of small files in a partition of a table at which a running stream merges them. 0 or 1: a stream never
    merges files, and leaves them to maintenance."""
    most_snapshots: Annotated[int, Field(ge=20)] = 500
    """The maximum number of snapshots of a table; a running stream then removes the oldest."""
    keep_snapshots: Age = timedelta(days=1)
    """The age up to which maintenance keeps the earlier snapshots of a table, such as `12h` or `7d`."""
    keep_leftovers: Age = timedelta(days=7)
    """The age at which maintenance treats an unfinished run as dead, and removes its remains."""
    keep_orphans: Annotated[Age, Field(ge=timedelta(days=1))] = timedelta(days=3)
    """The age at which maintenance deletes files that no snapshot names; younger files may belong to a commit in
    progress."""

    _engine_named: str | None = PrivateAttr(None)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError([_fault(each) for each in error.errors()]) from None
        except tomllib.TOMLDecodeError as error:
            raise SettingsError([Fault(FILE, str(_root() / FILE), "a TOML file", f"correct it: {error}")]) from None

    @property
    def engine_named(self) -> str | None:
        """The reason for `engine`, as a clause for people, if a run chose the engine; None if a user chose it."""
        return self._engine_named

    def on_engine(self, engine: Literal["auto", "duckdb", "spark"], named: str | None = None) -> Settings:
        """Return the settings with another engine; `named` is the reason if a run chose the engine."""
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
        """Return the sources in the order of their precedence: arguments, environment, file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=_root() / FILE)

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
                return f"sqlite:///{_root() / rest[1:]}"
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
        """Refuse settings of a REST catalog for another catalog, and contradictory or incomplete credentials."""
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

    @property
    def of_rest(self) -> bool:
        """Whether the catalog has Iceberg's REST interface."""
        return self.catalog_uri.startswith(("http://", "https://"))

    @property
    def on_s3(self) -> bool:
        """Whether the tables' files are in S3."""
        return isinstance(self.warehouse, str)

    @property
    def warehouse_uri(self) -> str:
        """The address of the warehouse, which Spark and this process give to the catalog."""
        return self.warehouse if isinstance(self.warehouse, str) else f"file://{self.warehouse}"

    def checkpoint(self, *names: str) -> str:
        """Return the path or address of a folder within Spark's checkpoints."""
        return "/".join([str(self.checkpoints or f"{self.warehouse}/_checkpoints"), *names])


def _fault(error: Any) -> Fault:
    """Convert an error of pydantic to a `Fault`."""
    if not error["loc"]:
        named, expected = "catalog_uri", str(error.get("ctx", {}).get("error", "")) or error["msg"]
        if error["type"] in Settings.model_fields:
            named = error["type"]
        return Fault(named, "", _lower(expected), f"set {PREFIX}{named.upper()}")
    name = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        known = ", ".join(Settings.model_fields)
        return Fault(name, error["input"], f"one of {known}", f"take it out of {FILE}")
    expected = str(error.get("ctx", {}).get("error", "")) or _lower(error["msg"])
    value = "(not shown)" if name in _SECRETS else _masked(error["input"])
    return Fault(name, value, expected, f"set {PREFIX}{name.upper()}")


def _masked(value: Any) -> Any:
    """Hide the password in an address."""
    return re.sub(r"(://[^/@:]*:)[^/@]*@", r"\1(not shown)@", value) if isinstance(value, str) else value


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
