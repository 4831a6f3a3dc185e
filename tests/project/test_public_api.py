"""What users may import is listed, typed and documented, and nothing that they read or are given imports more."""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import pytest

import tailrace
from tests.support.checks.public_api import (
    PAGE,
    ROOT,
    SIGNATURES,
    Defined,
    callables,
    definition,
    modules,
    names,
    page,
    signatures,
    untyped,
)

COMMAND = ".venv/bin/python -m tests.support.checks.public_api"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "pipelines").rglob("*.md")]
SCRIPTS = [path for folder in ("dags", "pipelines") for path in (ROOT / folder).rglob("*.py")]
TEMPLATES = [*(ROOT / "spark" / "tailrace" / "project" / "template").rglob("*.py.txt")]
PUBLIC = modules()


def test_the_page_lists_the_names_of_each_public_module() -> None:
    assert PUBLIC[0] == "tailrace"
    assert PAGE.read_text() == page(), f"write the page anew: {COMMAND}"


def test_the_file_of_signatures_is_the_signatures() -> None:
    """A change of what users call shows in the diff of a file; it is for `CHANGELOG.md`, too."""
    assert SIGNATURES.read_text() == signatures(), f"write the file anew: {COMMAND}"


# Importing Airflow takes seconds.
LATER = {one: pytest.mark.slow for one in PUBLIC if one.startswith("tailrace.airflow")}


@pytest.mark.parametrize("module", [pytest.param(one, marks=LATER.get(one, ())) for one in PUBLIC])
def test_every_public_name_imports(module: str) -> None:
    if module in LATER:
        pytest.importorskip("airflow")
    loaded = import_module(module)
    assert loaded.__doc__
    assert loaded.__all__ == names(module)
    for name in loaded.__all__:
        assert getattr(loaded, name) is not None
    with pytest.raises(AttributeError):
        _ = loaded.no_such_name


def found(module: str) -> Iterator[tuple[str, Defined]]:
    for name in names(module):
        one = definition(module, name)
        assert one, f"{module}.{name} is not of the package"
        yield name, one


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_says_what_it_is_for(module: str) -> None:
    assert [name for name, one in found(module) if not one.text] == []


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_callable_has_types(module: str) -> None:
    bare = {f"{name}.{one.name}": untyped(one) for name, at in found(module) for one in callables(at)}
    assert {name: lacks for name, lacks in bare.items() if lacks} == {}
    assert files(tailrace).joinpath("py.typed").is_file()


def private(text: str) -> list[str]:
    """What a text of Python imports of the package, or uses of a module that it has imported, and is not public."""
    tree = ast.parse(text)
    listed = {module: {*names(module)} for module in PUBLIC}
    held, wrong = dict[str, str](), list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                held[one.asname or one.name] = one.name
                if one.name.split(".")[0] == "tailrace" and one.name not in listed:
                    wrong.append(one.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tailrace":
            for one in node.names:
                whole = f"{node.module}.{one.name}"
                if whole in listed:
                    held[one.asname or one.name] = whole
                elif one.name != "*" and one.name not in listed.get(node.module or "", ()):
                    wrong.append(whole)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (module := held.get(ast.unparse(node.value))) in listed:
            own = f"{module}.{node.attr}"
            if node.attr not in listed[module] and not node.attr.startswith("__") and own not in listed:
                wrong.append(own)
    return wrong


def snippets(path: Path) -> Iterator[str]:
    """The Python of a page: its blocks, and what stands after the prompt in its examples."""
    for language, text in BLOCK.findall(path.read_text()):
        if ">>> " in text:
            yield "".join(one.source for one in doctest.DocTestParser().get_examples(text))
        elif language in ("python", "py"):
            yield text


@pytest.mark.parametrize("path", [*PAGES, *SCRIPTS, *TEMPLATES], ids=lambda path: str(path.relative_to(ROOT)))
def test_what_users_read_and_are_given_imports_only_what_is_public(path: Path) -> None:
    if path.suffix == ".md":
        texts = list(snippets(path))
    else:
        # What a template fills in is a name, or lines of its own.
        kept = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("{="))
        texts = [re.sub(r"<< [\w. |]+ >>", "filled", kept)]
    assert [one for text in texts for one in private(text)] == []


def test_what_is_private_is_found() -> None:
    assert private("from tailrace import Log, Fixed\nfrom tailrace.testing import fold") == []
    assert private("from tailrace.lake.catalog.lake import Lake") == ["tailrace.lake.catalog.lake.Lake"]
    assert private("import tailrace.sql") == ["tailrace.sql"]
    assert private("import tailrace as t\nt.Log, t.sql") == ["tailrace.sql"]
    assert private("from tailrace.model.samples import examples\nexamples.at, examples.Sum") == [
        "tailrace.model.samples.examples.Sum"
    ]
    assert len(list(snippets(ROOT / "docs" / "reading.md"))) >= 2
