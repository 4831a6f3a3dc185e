"""`tailrace settings` says each setting, its value and where it comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.settings import Settings


def test_every_setting_is_listed_with_its_source_from_any_folder_below_and_secrets_are_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "dags" / "team"
    below.mkdir(parents=True)
    (tmp_path / "tailrace.toml").write_text('warehouse = "a_lake"\nnamespace = "shop"\nfreshness = "2m"\n')
    monkeypatch.chdir(below)
    monkeypatch.setenv("TAILRACE_NAMESPACE", "other")
    monkeypatch.setenv("TAILRACE_SERVE_TOKEN", "a token that is long")
    monkeypatch.setenv("TAILRACE_KAFKA_OPTIONS", '{"client.rack": "a rack that nobody sees"}')
    (tmp_path / "password").write_text("a password that is long")
    monkeypatch.setenv("TAILRACE_CATALOG_URI", "postgresql://me@127.0.0.1/lake")
    monkeypatch.setenv("TAILRACE_CATALOG_SECRET_FILE", str(tmp_path / "password"))
    monkeypatch.delenv("TAILRACE_WAREHOUSE", raising=False)
    said = CliRunner().invoke(app, ["settings", "--json"])
    assert said.exit_code == 0, said.output
    told = json.loads(said.stdout)["settings"]
    assert {*told} == {*Settings.model_fields}
    file = str(tmp_path / "tailrace.toml")
    assert (told["warehouse"]["value"], told["warehouse"]["from"]) == (str(tmp_path / "a_lake"), file)
    assert (told["namespace"]["value"], told["namespace"]["from"]) == ("other", "TAILRACE_NAMESPACE")
    assert (told["driver_memory"]["value"], told["driver_memory"]["from"]) == ("4g", "default")
    assert told["serve_token"]["value"] == "(not shown)"
    assert (told["catalog_secret"]["value"], told["catalog_secret"]["from"]) == (
        "(not shown)", "TAILRACE_CATALOG_SECRET_FILE",
    )  # fmt: skip
    for output in (said.output, CliRunner().invoke(app, ["settings"]).output):
        assert not [word for word in ("a token", "a rack", "a password") if word in output]
