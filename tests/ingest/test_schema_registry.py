"""A schema registry is asked once for each schema; that it does not answer is an error, and never a rejection."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from tailrace.doctor import machine_checks
from tailrace.ingest.framed import schema_registry
from tailrace.ingest.framed.schema_registry import RegistryError, SchemaRegistry
from tailrace.settings import Settings
from tests.support.services.schema_registry import Registry, any_registry, basic, serving

SCHEMA = {"type": "record", "name": "T", "fields": [{"name": "n", "type": "long"}]}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving() as one:
        yield one


def test_a_schema_is_asked_for_once_and_one_that_is_not_there_again(registry: Registry, settings: Settings) -> None:
    assert registry.server is not None
    id = registry.register("t-value", SCHEMA)
    client = SchemaRegistry(registry.settings(settings))
    for _ in range(2):
        found = client.schemas([id, 99])
        assert list(found) == [id]
        assert (found[id].kind, json.loads(found[id].text)) == ("AVRO", SCHEMA)
    assert registry.server.asked == [f"/schemas/ids/{id}", "/schemas/ids/99", "/schemas/ids/99"]


def test_what_a_schema_refers_to_comes_with_it_each_after_what_it_needs(settings: Settings) -> None:
    with any_registry() as registry:
        files = {
            "a": 'syntax = "proto3"; message A {}',
            "b": 'syntax = "proto3"; import "a"; message B { A a = 1; }',
            "c": 'syntax = "proto3"; import "a"; import "b"; message C { A a = 1; B b = 2; }',
        }
        for name, text in files.items():
            needed = [one for one in files if f'import "{one}"' in text]
            told = [{"name": one, "subject": f"of/{one}", "version": 1} for one in needed]
            id = registry.register(f"of%2F{name}", text, "PROTOBUF", told)
        found = SchemaRegistry(registry.settings(settings)).schemas([id, 2**31 - 1])
        assert list(found) == [id]
        assert found[id].kind == "PROTOBUF"
        assert [name for name, _ in found[id].references] == ["a", "b"]


@pytest.mark.parametrize("failing", [500, 503, 429])
def test_a_registry_that_fails_is_asked_again_and_then_told(
    registry: Registry, settings: Settings, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    assert registry.server is not None
    monkeypatch.setattr(schema_registry, "ATTEMPTS", 2)
    registry.server.failing = failing
    with pytest.raises(RegistryError, match=rf"{registry.uri} does not answer \(status {failing}\): start it"):
        SchemaRegistry(registry.settings(settings)).schemas([1])
    assert len(registry.server.asked) == 2


def test_a_registry_that_is_away_or_is_none_is_an_error_that_names_the_setting(
    registry: Registry, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert registry.server is not None
    monkeypatch.setattr(schema_registry, "ATTEMPTS", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        deaf = settings.model_copy(update={"schema_registry_uri": f"http://127.0.0.1:{taken.getsockname()[1]}"})
        with pytest.raises(RegistryError, match=r"does not answer .*correct TAILRACE_SCHEMA_REGISTRY_URI"):
            SchemaRegistry(deaf).schemas([1])
    registry.server.page = "<html>not found</html>"
    with pytest.raises(
        RegistryError, match=r"status 404 when asked for schemas/ids/1: set TAILRACE_SCHEMA_REGISTRY_URI"
    ):
        SchemaRegistry(registry.settings(settings)).schemas([1])
    with pytest.raises(RegistryError, match="no schema registry is set: set TAILRACE_SCHEMA_REGISTRY_URI"):
        SchemaRegistry(settings)


def test_who_asks_is_told_as_the_settings_say_and_a_refusal_names_the_setting(
    registry: Registry, settings: Settings
) -> None:
    assert registry.server is not None
    registry.register("t-value", SCHEMA)
    by_user = registry.settings(settings, schema_registry_credential=SecretStr("me:hüsh:hush"))
    by_token = registry.settings(settings, schema_registry_token=SecretStr("hush-hush"))
    nobody = registry.settings(settings)
    registry.server.authorization = basic("me:hüsh:hush")
    assert 1 in SchemaRegistry(by_user).schemas([1])
    for one, named in ((by_token, "TOKEN"), (nobody, "CREDENTIAL")):
        with pytest.raises(RegistryError, match=f"refuses who asks .*set TAILRACE_SCHEMA_REGISTRY_{named}") as error:
            SchemaRegistry(one).schemas([1])
        assert "hush" not in str(error.value)
    registry.server.authorization = "Bearer hush-hush"
    assert 1 in SchemaRegistry(by_token).schemas([1])
    assert machine_checks.check_schema_registry(by_token) == f"{registry.uri} answers: 1 subjects"
    with pytest.raises(RegistryError, match="refuses who asks"):
        machine_checks.check_schema_registry(by_user)
