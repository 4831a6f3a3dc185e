"""Settings: where they come from, what they mean, and what a wrong one says."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tailrace.lake.catalogs import Sqlite
from tailrace.model.errors import TailraceError
from tailrace.settings import Settings, SettingsError


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
