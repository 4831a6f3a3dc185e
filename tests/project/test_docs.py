"""Every command and snippet of the README and the docs does what it says."""

from __future__ import annotations

import ast
import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from itertools import pairwise, takewhile
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import tailrace
from tailrace.project.new_project import NewProject, Source
from tailrace.settings import Settings
from tests.support.depth import DEPTH, deep
from tests.support.processes.serve_process import serving
from tests.support.processes.shell import Shell, shell

ROOT = Path(__file__).parents[2]
FRONT = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")]
PAGES = [*FRONT, *sorted((ROOT / "docs").rglob("*.md"))]
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


def test_all_that_is_public_is_on_the_page_of_what_a_definition_may_say() -> None:
    named = re.findall(r"^::: tailrace\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(tailrace.__all__)


def test_every_setting_has_the_text_that_its_page_shows() -> None:
    assert "::: tailrace.settings.Settings\n" in (ROOT / "docs" / "settings.md").read_text()
    tree = ast.parse((ROOT / "spark" / "tailrace" / "settings.py").read_text())
    (body,) = [one.body for one in tree.body if isinstance(one, ast.ClassDef) and one.name == "Settings"]
    texts = {
        field.target.id
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr)
    }
    assert texts == {*Settings.model_fields}


def test_every_page_is_in_the_sites_list() -> None:
    listed = set(re.findall(r"- (?:\w+: |The demo: )?([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    made = NewProject("web-shop", "", "", "", Source()).files
    for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*/[a-z_0-9]+\.py)`", page.read_text()):
        there = name in made or any((folder / name).is_file() for folder in (ROOT, ROOT / "spark" / "tailrace"))
        assert there, f"{page.name} names {name}"


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


@dataclass(frozen=True)
class Place:
    """A folder as a reader of the docs has it, with flights to land."""

    folder: Path
    first: date
    last: date

    def __post_init__(self) -> None:
        from tailrace.generate.flights import landing_cuts, load, write_files

        for name in ("pipelines", "docs"):
            (self.folder / name).symlink_to(ROOT / name)
        cuts = landing_cuts(self.first, self.last, fine_day=date(2013, 3, 8))
        write_files(load(self.first, self.last), self.folder / "landing", cuts)

    @contextmanager
    def shell(self) -> Iterator[Shell]:
        with shell(self.folder, {"TAILRACE_JARS": str(ROOT / "build" / "jars")}) as running:
            yield running

    def run(self, text: str) -> None:
        """Run Python in a process of its own, as a reader would."""
        env = os.environ | {"TAILRACE_JARS": str(ROOT / "build" / "jars")}
        command = [sys.executable, "-c", text]
        done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{text}: {done.stdout}\n{done.stderr}"
        assert done.stdout.strip(), f"{text} says something"


def apart(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The variables that stand before a command, as in a shell, and the command."""
    env = dict(word.split("=", 1) for word in takewhile(lambda word: re.match(r"[A-Z_]+=", word), words))
    return env, words[len(env) :]


ELSEWHERE = (["simulate", "--paper"], ["dbt", "--"])
"""How long commands begin that tests of their own run at each change, and the pages' in `make test-deep`."""


def run_all(running: Shell, pages: list[Path]) -> int:
    """Run the commands of pages; gives how many there were."""
    said = 0
    for env, words in (apart(words) for page in pages for words in commands(page)):
        if Path(words[0]).name == "tailrace" and (DEPTH > 1 or words[1:3] not in ELSEWHERE):
            assert running.run(*words[1:], env=env).strip(), f"{words} says something"
            said += 1
    return said


def test_the_commands_of_the_pages_on_settings_and_the_doctor_find_nothing_wrong(tmp_path: Path) -> None:
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    with shell(tmp_path, {"TAILRACE_JARS": str(ROOT / "build" / "jars")}) as running:
        assert run_all(running, [ROOT / "docs" / f"{page}.md" for page in ("doctor", "settings", "installing")]) >= 5


@pytest.mark.slow
def test_the_commands_of_the_page_on_serving_show_the_lake(tmp_path: Path) -> None:
    """Each at a port that is free; they go on until they are told to end."""
    said = [apart(words) for words in commands(ROOT / "docs" / "serving.md")]
    assert len(said) >= 4
    for env, (_, command, *options) in said:
        assert command == "serve"
        with serving(Settings(warehouse=tmp_path / "lake"), *options, **env) as server:
            token = env.get("TAILRACE_SERVE_TOKEN")
            asked = Request(server.address, headers={"Authorization": f"Bearer {token}"} if token else {})
            with urlopen(asked) as page:
                assert "hourly_departures" in page.read().decode()


@pytest.mark.slow
def test_the_commands_of_the_running_page_run_in_their_order(tmp_path: Path) -> None:
    place = Place(tmp_path, date(2013, 3, 7), date(2013, 3, 11))
    (tmp_path / "changed.py").write_text(blocks(GENERATIONS, "python")[0])
    pages = [ROOT / "README.md", ROOT / "docs" / "running.md", WHAT, WHEN, WATERMARKS]
    pages += [ROOT / "docs" / "observing.md", ROOT / "docs" / "maintenance.md", GENERATIONS]
    with place.shell() as running:
        assert run_all(running, pages) >= 20


@pytest.mark.slow
def test_the_commands_of_the_pages_on_tables_run_in_their_order(tmp_path: Path) -> None:
    place = Place(tmp_path, date(2013, 3, 8), date(2013, 3, 9))
    for name in ("iceberg_schemas", "dbt"):
        shutil.copytree(ROOT / name, tmp_path / name)
    with place.shell() as running:
        running.run("stream", "pipelines/flights.py", "--from", "landing", "--format", "json", "--once")
        assert run_all(running, [TABLES, READING, ROOT / "docs" / "dbt.md"]) >= 7
    for text in blocks(READING, "python"):
        place.run(text)


PIPELINES = sorted((ROOT / "docs" / "pipelines").glob("*.md"))
USE_CASES = (
    "ads",
    "auctions",
    "flights",
    "log_join",
    "photon",
    "recommendations",
    "shop",
    "video_statistics",
    "zeitgeist",
)


@pytest.mark.parametrize("page", PIPELINES, ids=lambda page: page.name)
def test_a_page_on_pipelines_shows_the_plots_that_its_commands_draw(page: Path) -> None:
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", page.read_text())
    assert [f"build/{Path(target).name}" for target in shown] == drawn(page)


@pytest.mark.parametrize("name", USE_CASES)
def test_a_page_on_a_use_case_has_a_plot_how_to_read_the_answer_and_what_to_change(name: str) -> None:
    page = ROOT / "docs" / "pipelines" / f"{name}.md"
    assert drawn(page)
    assert any(apart(words)[1][:2] == ["tailrace", "sql"] for words in commands(page))
    assert "To change:" in page.read_text()


def drawn(page: Path) -> list[str]:
    """The pictures that its commands write."""
    return [words[words.index("--png") + 1] for words in commands(page) if "--png" in words]


def size(picture: Path) -> bytes:
    """The width and height of a PNG, as it has them."""
    return picture.read_bytes()[16:24]


def test_there_is_a_page_that_names_each_definition() -> None:
    said = "".join(page.read_text() for page in PIPELINES)
    assert [one.name for one in (ROOT / "pipelines").glob("*.py") if f"pipelines/{one.name}" not in said] == []


@deep
@pytest.mark.slow
def test_the_commands_of_the_pages_on_pipelines_run_in_their_order(tmp_path: Path) -> None:
    from tailrace.generate.flights import landing_cuts, load, write_files

    first, last = date(2013, 3, 8), date(2013, 3, 11)
    write_files(load(first, last), tmp_path / "build" / "demo" / "landing", landing_cuts(first, last))
    for name in ("pipelines", "docs", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "dbt", tmp_path / "dbt")
    with shell(tmp_path, {"TAILRACE_JARS": str(ROOT / "build" / "jars")}) as running:
        assert run_all(running, PIPELINES) >= 7
    for picture in (name for page in PIPELINES for name in drawn(page)):
        assert size(tmp_path / picture) == size(ROOT / "docs" / "img" / Path(picture).name), picture
