"""Every command and snippet of the README and the docs does what it says."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WHAT, WHEN, WATERMARKS = (ROOT / "docs" / "model" / f"{page}.md" for page in ("what", "when", "watermarks"))
TABLES, READING = (ROOT / "docs" / f"{page}.md" for page in ("tables", "reading"))
GENERATIONS = ROOT / "docs" / "generations.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(page.read_text()) if found == language]


def commands(page: Path) -> list[list[str]]:
    lines = [line for block in blocks(page, "sh") for line in block.splitlines() if line.strip()]
    return [shlex.split(line, comments=True) for line in lines]


def test_the_definition_in_the_readme_is_the_one_in_pipelines() -> None:
    shown = blocks(ROOT / "README.md", "python")[0].strip()
    held = (ROOT / "pipelines" / "flights.py").read_text()
    assert held.endswith(shown + "\n")
    assert len(held.splitlines()) <= 25


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_that_are_named_exist(page: Path) -> None:
    targets = {words[1] for words in commands(page) if words and words[0] == "make" and len(words) > 1}
    for target in targets:
        found = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_say_what_is_printed(page: Path) -> None:
    found = doctest.testfile(str(page), module_relative=False)
    assert not found.failed
    if page.parent.name == "model" and page.stem != "terms":
        assert found.attempted > 5


@pytest.mark.slow
def test_the_commands_of_the_running_page_run_in_their_order(tmp_path: Path) -> None:
    from tailrace.observe.flights import landing_cuts, load, write_files

    for folder in ("pipelines", "docs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    shutil.copytree(ROOT / "iceberg_schemas", tmp_path / "iceberg_schemas")
    first, last = date(2013, 3, 7), date(2013, 3, 11)
    write_files(load(first, last), tmp_path / "landing", landing_cuts(first, last, fine_day=date(2013, 3, 8)))
    (tmp_path / "changed.py").write_text(blocks(GENERATIONS, "python")[0])
    env = os.environ | {"TAILRACE_JARS": str(ROOT / "build" / "jars")}
    ran = 0
    for words in [
        *commands(ROOT / "README.md"),
        *commands(ROOT / "docs" / "running.md"),
        *commands(WHAT),
        *commands(WHEN),
        *commands(WATERMARKS),
        *commands(ROOT / "docs" / "observing.md"),
        *commands(ROOT / "docs" / "maintenance.md"),
        *commands(TABLES),
        *commands(READING),
        *commands(GENERATIONS),
    ]:
        if Path(words[0]).name != "tailrace":
            continue
        command = [sys.executable, "-m", "tailrace.cli.main", *words[1:]]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
        assert done.stdout.strip(), f"{words} says something"
        ran += 1
    assert ran >= 25
    for text in blocks(READING, "python"):
        done = subprocess.run(
            [sys.executable, "-c", text], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
