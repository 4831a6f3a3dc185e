"""Terraform as a test runs it: on a copy of `terraform/`, with the provider out of a mirror where there is one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "terraform"
MODULES = tuple(sorted(one.name for one in (SOURCES / "modules").iterdir() if one.is_dir()))
ENVIRONMENTS = ("dev", "prod")

# What a test server is and AWS is not: one host for all buckets, no accounts to check, http.
_ON_A_TEST_SERVER = """
provider "aws" {
  s3_use_path_style           = true
  skip_credentials_validation = true
  skip_metadata_api_check     = true
}
"""


def needed() -> str:
    """Where terraform is; skips the test where it is not."""
    found = shutil.which("terraform")
    if found is None:
        pytest.skip("terraform is not on the PATH")
    return found


@cache
def mirror() -> Path | None:
    """The folder of a filesystem mirror that has the provider: TF_PLUGIN_MIRROR, else in the usual places."""
    told = os.environ.get("TF_PLUGIN_MIRROR")
    usual = [*Path("/").glob("*/tf-plugins"), *Path("/").glob("*/*/tf-plugins"), Path.home() / ".terraform.d/plugins"]
    return next((one for one in ([Path(told)] if told else usual) if _holds(one)), None)


def _holds(folder: Path) -> bool:
    try:
        return any(folder.glob("*/hashicorp/aws"))
    except OSError:
        return False


def cli_config(folder: Path) -> Path:
    """A configuration of the CLI that takes the provider out of the mirror, and all else from the registry."""
    file, there = folder / "terraform.tfrc", mirror()
    lines = ["disable_checkpoint = true"]
    if there is not None:
        lines += [
            "provider_installation {",
            f'  filesystem_mirror {{\n    path = "{there}"\n  }}',
            '  direct {\n    exclude = ["hashicorp/aws"]\n  }',
            "}",
        ]
    file.write_text("\n".join(lines) + "\n")
    return file


@dataclass
class Terraform:
    """A copy of `terraform/` in `folder`, in which one configuration after the other can be run."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.binary = needed()
        ignored = shutil.ignore_patterns(".terraform", ".terraform.lock.hcl", "*.tfstate*", "*.tfvars", "backend.hcl")
        shutil.copytree(SOURCES, self.folder / "terraform", ignore=ignored)
        self.config = cli_config(self.folder)

    def at(self, where: str) -> Path:
        return self.folder / "terraform" / where

    def run(self, where: str, *words: str, fails: bool = False) -> str:
        """What a command prints, standard error after standard output; it has to succeed, unless it is to fail."""
        own = {"TF_CLI_CONFIG_FILE": str(self.config), "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TF_"))}
        done = subprocess.run(
            [self.binary, *words], cwd=self.at(where), env={**kept, **own, **self.environment}, text=True,
            capture_output=True, timeout=600, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert (done.returncode == 0) != fails, f"terraform {' '.join(words)} in {where}: {done.returncode}\n{said}"
        return said if fails or done.stderr else done.stdout

    def init(self, where: str, *words: str) -> None:
        """Prepare a configuration; skips the test where the provider is neither in a mirror nor to be had."""
        try:
            self.run(where, "init", "-input=false", "-no-color", *(words or ("-backend=false",)))
        except AssertionError as error:
            if mirror() is None and "Failed to query available provider packages" in str(error):
                pytest.skip("no mirror of the provider (TF_PLUGIN_MIRROR), and its registry is out of reach")
            raise

    def on_a_test_server(self, where: str, *, local_state: bool = True) -> None:
        """Have a configuration of the copy reach a test server, and keep its state in a file."""
        text = _ON_A_TEST_SERVER
        if local_state:
            text += 'terraform {\n  backend "local" {}\n}\n'
        (self.at(where) / "test_override.tf").write_text(text)

    def shown(self, where: str) -> dict[str, Any]:
        """The state as data."""
        found: dict[str, Any] = json.loads(self.run(where, "show", "-json"))
        return found

    def output(self, where: str, name: str) -> Any:
        return json.loads(self.run(where, "output", "-json", name))


def resources(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All managed resources of a state or plan, those of its modules included."""
    found, left = [], [state["values"]["root_module"]]
    while left:
        module = left.pop()
        found += [one for one in module.get("resources", []) if one["mode"] == "managed"]
        left += module.get("child_modules", [])
    return found
