"""Settings: where they come from, what they mean, and what a wrong one says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from tailrace.ingest.kafka_access import KafkaAccess
from tailrace.lake.catalog.backends import (
    CatalogKind,
    Glue,
    Postgres,
    Rest,
    Sqlite,
    catalog_kind,
    jar_groups,
    storage_properties,
)
from tailrace.model.base.errors import TailraceError
from tailrace.settings import SECRETS, Settings, SettingsError


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_relative_paths_are_taken_from_the_working_directory(tmp_path: Path) -> None:
    settings = Settings()
    assert settings.warehouse == tmp_path / "build/lake"
    assert Sqlite(settings).file == tmp_path / "build/lake/catalog.db"
    assert settings.warehouse_uri == f"file://{tmp_path}/build/lake"


def test_relative_paths_are_taken_from_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tailrace.toml").write_text('warehouse = "w"\ncatalog_uri = "sqlite:///c/x.db"\n')
    inner = tmp_path / "a/b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    settings = Settings()
    assert settings.warehouse == tmp_path / "w"
    assert Sqlite(settings).file == tmp_path / "c/x.db"


def test_an_absolute_catalog_stays_where_it_is() -> None:
    assert Sqlite(Settings(catalog_uri="sqlite:////srv/lake/c.db")).file == Path("/srv/lake/c.db")


PAGE = Path(__file__).parents[1] / "docs" / "lakes.md"


@pytest.mark.parametrize("block", re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL))
def test_the_settings_on_the_page_on_lakes_hold(block: str, tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text(block)
    assert Settings().model_fields_set == set(re.findall(r"^(\w+) =", block, re.MULTILINE))


KAFKA = PAGE.with_name("kafka.md")


@pytest.mark.parametrize("block", re.findall(r"```toml\n(.*?)```", KAFKA.read_text(), re.DOTALL))
def test_the_settings_on_the_page_on_kafka_hold(block: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("me:hush-hush\n")
    (tmp_path / "tailrace.toml").write_text(block.replace("/run/secrets/kafka", "secret"))
    names = {name.removesuffix("_file") for name in re.findall(r"^(\w+) =", block, re.MULTILINE)}
    settings = Settings()
    assert settings.model_fields_set == names
    if "kafka_credential" in names:
        assert settings.kafka_credential == SecretStr("me:hush-hush")


def test_settings_for_kafka_that_contradict_each_other_are_all_named_and_show_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hush = "me:hush-8c1f"
    options = {"group.id": hush, "sasl.jaas.config": hush, "kafka.fetch.min.bytes": 1, "value.deserializer": hush,
               "ssl.keystore.location": hush, "fetch.min.bytes": 1}  # fmt: skip
    wrong = {"SECURITY": "tls", "CREDENTIAL": hush, "TOKEN_URI": "https://login/x", "KEY_PASSWORD": hush,
             "TLS": "false", "CA": "ca.pem", "OPTIONS": json.dumps(options)}  # fmt: skip
    for name, value in wrong.items():
        monkeypatch.setenv(f"TAILRACE_KAFKA_{name}", value)
    with pytest.raises(SettingsError) as caught:
        Settings()
    named = [fault.path.removeprefix("kafka_") for fault in caught.value.faults]
    refused = [f"options[{name!r}]" for name in options if name != "fetch.min.bytes"]
    assert named == ["credential", "token_uri", "tls", "ca", "certificate", *refused]
    assert "hush" not in str(caught.value)
    assert "write 'fetch.min.bytes'" in str(caught.value)
    for name in wrong:
        monkeypatch.delenv(f"TAILRACE_KAFKA_{name}")
    monkeypatch.setenv("TAILRACE_KAFKA_SECURITY", "oauthbearer")
    with pytest.raises(SettingsError, match=r"(?s)kafka_credential.*_FILE.*kafka_token_uri.*'oauthbearer' needs"):
        Settings()
    for text in ("hush", "[1]", '{"a": {}}'):
        monkeypatch.setenv("TAILRACE_KAFKA_OPTIONS", text)
        with pytest.raises(SettingsError, match=r"kafka_options = '\(not shown\)'.*fetch.min.bytes") as caught:
            Settings()
        assert text not in str(caught.value)


def test_a_secret_may_be_the_content_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        file = tmp_path / name
        file.write_text("id:a secret of many letters\r\n")
        monkeypatch.setenv(f"TAILRACE_{name.upper()}_FILE", str(file))
    with pytest.raises(SettingsError) as caught:
        Settings()
    assert "many letters" not in str(caught.value)
    for name in SECRETS:
        if name != "serve_token":
            monkeypatch.delenv(f"TAILRACE_{name.upper()}_FILE")
    assert Settings().serve_token == SecretStr("id:a secret of many letters")
    monkeypatch.setenv("TAILRACE_SERVE_TOKEN", "the variable has precedence")
    assert Settings().serve_token == SecretStr("the variable has precedence")
    monkeypatch.delenv("TAILRACE_SERVE_TOKEN")
    (tmp_path / "serve_token").unlink()
    with pytest.raises(SettingsError, match=r"serve_token = '\(not shown\)': expected a file with the secret at "):
        Settings()


def test_pem_files_that_java_cannot_use_are_all_named_with_what_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "-----BEGIN {0}PRIVATE KEY-----\nhush\n-----END {0}PRIVATE KEY-----\n"
    (tmp_path / "key").write_text(key.format("RSA "))
    (tmp_path / "certificate").write_text(key.format("ENCRYPTED "))
    for name, value in {"SECURITY": "tls", "CA": "ca", "CERTIFICATE": "certificate", "KEY": "key"}.items():
        monkeypatch.setenv(f"TAILRACE_KAFKA_{name}", value)
    with pytest.raises(SettingsError) as caught:
        KafkaAccess.of(Settings())
    message = str(caught.value)
    assert [fault.path for fault in caught.value.faults] == ["kafka_ca", "kafka_certificate", "kafka_key"]
    assert "openssl pkcs8 -topk8 -nocrypt" in message
    assert "hush" not in message
    monkeypatch.delenv("TAILRACE_KAFKA_KEY")
    with pytest.raises(SettingsError, match=r"kafka_certificate.*set TAILRACE_KAFKA_KEY_PASSWORD"):
        KafkaAccess.of(Settings())


URIS = [
    ("", Sqlite, ("lake",)),
    ("sqlite:////srv/c.db", Sqlite, ("lake",)),
    ("postgresql://me@db:5432/lake", Postgres, ("lake", "postgres")),
    ("glue://", Glue, ("lake", "aws")),
    ("glue://123456789012", Glue, ("lake", "aws")),
    ("https://catalog.internal/v1", Rest, ("lake",)),
]


@pytest.mark.parametrize(("uri", "of", "groups"), URIS)
def test_the_catalog_is_of_the_kind_that_its_address_says(
    uri: str, of: type[CatalogKind], groups: tuple[str, ...]
) -> None:
    settings = Settings(catalog_uri=uri)
    assert type(catalog_kind(settings)) is of
    assert jar_groups(settings) == groups


@pytest.mark.parametrize(
    "uri", ["lake.db", "postgresql://me:secret@db/lake", "glue://eu-central-1", "https://me:secret@host", "mysql://x/y"]
)
def test_an_address_of_no_catalog_says_which_there_are(uri: str) -> None:
    with pytest.raises(SettingsError, match="TAILRACE_CATALOG_SECRET"):
        Settings(catalog_uri=uri)


def test_a_warehouse_in_S3_needs_a_catalog_elsewhere() -> None:
    with pytest.raises(SettingsError, match="set TAILRACE_CATALOG_URI"):
        Settings(warehouse="s3://lake/warehouse")
    settings = Settings(warehouse="s3://lake/warehouse/", catalog_uri="glue://")
    assert (settings.warehouse, settings.warehouse_uri) == ("s3://lake/warehouse", "s3://lake/warehouse")
    assert settings.checkpoint("main", "clicks") == "s3://lake/warehouse/_checkpoints/main/clicks"
    assert jar_groups(settings) == ("lake", "aws")
    assert Settings(checkpoints="/var/lake").checkpoint("clicks") == "/var/lake/clicks"


@pytest.mark.parametrize("place", ["/srv/lake", "/srv/lake/", "file:/srv/lake", "file:///srv/lake"])
def test_a_folder_may_be_named_by_its_address(place: str) -> None:
    assert Settings(warehouse=place).warehouse == Path("/srv/lake")


@pytest.mark.parametrize("place", ["s3://", "s3://B/x", "s3://bucket/a b", "gs://bucket/x", "file://host/srv"])
def test_a_place_that_is_neither_a_folder_nor_S3_is_refused(place: str) -> None:
    with pytest.raises(SettingsError, match="a folder, or s3://BUCKET/PREFIX"):
        Settings(warehouse=place, catalog_uri="glue://")


def test_a_secret_is_in_no_message_and_reaches_both_readers() -> None:
    settings = Settings(catalog_uri="postgresql://me@db/lake", catalog_secret="hush/hush")
    assert "hush/hush" not in f"{settings!r}{settings.model_dump_json()}"
    assert catalog_kind(settings).spark["jdbc.password"] == "hush/hush"


REST = "https://catalog.internal/api"


def test_a_REST_catalog_is_asked_as_who_the_settings_say_by_both_readers() -> None:
    settings = Settings(
        catalog_uri=REST,
        catalog_credential="me:hush/hush",
        catalog_token_uri="https://login.internal/token",
        catalog_scope="catalog:all more",
        catalog_warehouse="lake",
        catalog_prefix="tenants/me",
    )
    assert "hush/hush" not in f"{settings!r}{settings.model_dump_json()}"
    theirs = catalog_kind(settings).spark | storage_properties(settings)[1]
    assert theirs.items() >= {
        "uri": REST, "credential": "me:hush/hush", "oauth2-server-uri": "https://login.internal/token",
        "scope": "catalog:all more", "warehouse": "lake", "prefix": "tenants/me",
    }.items()  # fmt: skip
    assert storage_properties(settings)[0] == {"warehouse": "lake"}
    assert catalog_kind(Settings(catalog_uri=REST, catalog_secret="hush")).spark["token"] == "hush"
    assert storage_properties(Settings(catalog_uri=REST)) == ({}, {}), (
        "a server knows warehouses by names, not by places"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"catalog_credential": "no-colon-in-it"}, "expected ID:SECRET; set TAILRACE_CATALOG_CREDENTIAL"),
        ({"catalog_credential": "me:hush"}, "expected the address at which catalog_credential gets tokens; set "),
        ({"catalog_credential": "me:hush", "catalog_secret": "hush"}, "no client of OAuth2 beside a token"),
        ({"catalog_scope": "all"}, "the client for which catalog_scope is set; set TAILRACE_CATALOG_CREDENTIAL"),
        ({"catalog_token_uri": "login"}, "set TAILRACE_CATALOG_TOKEN_URI"),
        ({"catalog_prefix": "/x"}, "set TAILRACE_CATALOG_PREFIX"),
        (
            {"catalog_uri": "", "catalog_warehouse": "lake"},
            "a REST catalog, https://HOST/PATH, since catalog_warehouse",
        ),
        ({"catalog_uri": "https://me:hush@host"}, r"https://me:\(not shown\)@host"),
        ({"catalog_secret": ["hush"]}, "catalog_secret = '\\(not shown\\)'"),
    ],
)
def test_what_a_REST_catalog_cannot_be_asked_with_is_refused_and_no_secret_is_shown(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        Settings(**{"catalog_uri": REST, **given})
    assert "hush" not in str(caught.value)
    assert "no-colon" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"schema_registry_uri": "registry:8081"}, "set TAILRACE_SCHEMA_REGISTRY_URI"),
        ({"schema_registry_credential": "hush"}, "expected USER:PASSWORD; set TAILRACE_SCHEMA_REGISTRY_CREDENTIAL"),
        ({"schema_registry_token": "hush hush"}, "a token of ASCII, without white space"),
        (
            {"schema_registry_uri": None, "schema_registry_token": "hush"},
            "the registry for which schema_reg",
        ),
        ({"schema_registry_credential": "me:hush", "schema_registry_token": "hush"}, "no token beside a user"),
    ],
)
def test_a_schema_registry_is_asked_in_one_way_and_no_secret_is_shown(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        Settings(**{"schema_registry_uri": "https://registry.internal/api", **given})
    assert "hush" not in str(caught.value)


def test_AWS_is_where_its_own_tools_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(warehouse="s3://lake/w", catalog_uri="glue://123456789012")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_GLUE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert "s3.endpoint" not in storage_properties(settings)[1]
    assert catalog_kind(settings).spark["glue.id"] == "123456789012"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://one")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://two")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    ours, theirs = storage_properties(settings)
    assert (ours["s3.endpoint"], ours["s3.region"]) == ("http://two", "eu-north-1")
    assert (theirs["s3.endpoint"], theirs["s3.path-style-access"]) == ("http://two", "true")
    assert catalog_kind(settings).spark["glue.endpoint"] == "http://one"


def test_an_argument_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tailrace.toml").write_text('namespace = "file"\ncatalog = "file"\ndriver_memory = "1g"\n')
    monkeypatch.setenv("TAILRACE_NAMESPACE", "environment")
    monkeypatch.setenv("TAILRACE_CATALOG", "environment")
    settings = Settings(namespace="argument")
    assert (settings.namespace, settings.catalog, settings.driver_memory) == ("argument", "environment", "1g")


def test_settings_never_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().namespace = "other"  # type: ignore[misc]


def test_every_wrong_field_is_named_with_the_variable_that_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_SHUFFLE_PARTITIONS", "0")
    monkeypatch.setenv("TAILRACE_KAFKA_BOOTSTRAP", "broker")
    monkeypatch.setenv("TAILRACE_CATALOG_URI", "postgres://x")
    monkeypatch.setenv("TAILRACE_WAREHOUSE", "a?b")
    with pytest.raises(SettingsError) as caught:
        Settings()
    assert [fault.path for fault in caught.value.faults] == [
        "warehouse",
        "catalog_uri",
        "shuffle_partitions",
        "kafka_bootstrap",
    ]
    assert isinstance(caught.value, TailraceError)
    assert isinstance(caught.value, ValueError)
    message = str(caught.value)
    assert "4. kafka_bootstrap = 'broker': expected" in message
    assert "set TAILRACE_KAFKA_BOOTSTRAP" in message
    assert "catalog_uri = 'postgres://x': expected sqlite:///FILE" in message


def test_a_key_that_there_is_not_is_named(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text('warehose = "w"\n')
    with pytest.raises(SettingsError, match=r"warehose = 'w': expected one of warehouse, catalog"):
        Settings()


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text("warehouse = \n")
    with pytest.raises(SettingsError, match=r"tailrace\.toml = .* correct it: .*line 1"):
        Settings()
