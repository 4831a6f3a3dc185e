"""The package's rooms and modules import one another one way, and say what they hold."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import tailrace
from tests.support.checks import public_api

ROOT = Path(tailrace.__file__).parent
MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path
    for path in ROOT.rglob("*.py")
    if path.stem != "__init__"
}


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports of the package, wherever in it and also for types alone."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{one.name}" for one in node.names if f"{node.module}.{one.name}" in MODULES)
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names)


def folders() -> dict[Path, list[Path]]:
    found = defaultdict(list)
    for path in MODULES.values():
        found[path.parent].append(path)
    return found


def test_folders_and_modules_import_one_another_one_way() -> None:
    folders, modules = defaultdict[Path, set[Path]](set), defaultdict[Path, set[Path]](set)
    for path in MODULES.values():
        for name in imported(path):
            if found := MODULES.get(name):
                modules[path].add(found)
                if found.parent != path.parent:
                    folders[path.parent].add(found.parent)
    TopologicalSorter(folders).prepare()
    TopologicalSorter(modules).prepare()


def test_a_folder_says_what_it_holds_and_imports_nothing() -> None:
    """But for packages whose users name no module of them."""
    doors = {ROOT.parent / Path(*module.split(".")) for module in public_api.modules()} | {ROOT / "toolchain"}
    for folder in folders():
        tree = ast.parse((folder / "__init__.py").read_text())
        assert ast.get_docstring(tree), folder
        assert folder in doors or len(tree.body) == 1, folder


BESIDE = {"transcripts", "laws", "faults", "browser", "cloud", "project", "support", "dbt"}
"""Folders of tests that are of no one package: of its meaning, of the whole system, of the repository."""


def test_a_test_is_in_the_folder_of_the_package_that_it_is_of() -> None:
    tests = Path(__file__).parents[1]
    there = {path.relative_to(tests).parts[0] for path in tests.rglob("*.py") if path.parent != tests}
    assert there - BESIDE <= {path.name for path in ROOT.iterdir() if path.is_dir()}


def test_every_test_of_the_whole_system_is_among_those_that_make_runs() -> None:
    checkout = ROOT.parents[1]
    marked = {
        path.relative_to(checkout)
        for path in (checkout / "tests").rglob("test_*.py")
        if "mark.system" in path.read_text() and path.name != Path(__file__).name
    }
    (line,) = [one for one in (checkout / "Makefile").read_text().splitlines() if one.startswith("SYSTEM_TESTS := ")]
    places = [Path(one) for one in line.split()[2:]]
    assert marked
    for path in marked:
        assert any(path == place or place in path.parents for place in places), f"make system-test leaves out {path}"
