"""The names that users may import: `docs/api.md` lists their modules, and each module's `__all__` its names.

`python -m tests.support.checks.public_api` writes anew the signatures of all of them, and the names on the page. All is
read from the source, so a module need not be importable here, as those for Airflow may not be.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "api.md"
SIGNATURES = ROOT / "tests" / "project" / "public_api.txt"
_ROW = re.compile(r"^\| `(tailrace[\w.]*)` \|(.*)\|([^|]*)\|$", re.MULTILINE)
_Callable = ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> list[str]:
    """The public modules, in the order of the page."""
    return [found[1] for found in _ROW.finditer(PAGE.read_text())]


@cache
def source(module: str) -> tuple[Path, ast.Module] | None:
    """The file of a module of the package and its tree, or None if there is no such module."""
    place = ROOT / "spark" / Path(*module.split("."))
    for file in (place / "__init__.py", place.with_suffix(".py")):
        if file.is_file():
            return file, ast.parse(file.read_text())
    return None


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, with those for type checkers alone."""
    for one in body:
        if isinstance(one, ast.If):
            yield from statements(one.body)
        yield one


def names(module: str) -> list[str]:
    """The names of a public module, as its `__all__` has them."""
    found = source(module)
    assert found, f"docs/api.md lists {module}, which does not exist"
    for one in found[1].body:
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__all__":
            listed = ast.literal_eval(one.value)
            assert isinstance(listed, list)
            return listed
    raise AssertionError(f"{module} is public: expected __all__, a list of names")


@dataclass(frozen=True)
class Defined:
    """Where a name is defined: the module, its statement, and the text after it, which documents a constant."""

    module: str
    node: ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
    text: str | None


def definition(module: str, name: str) -> Defined | None:
    """Find the definition of a name through the imports of the package; None if it is defined elsewhere."""
    found = source(module)
    if found is None:
        return None
    body = list(statements(found[1].body))
    for at, one in enumerate(body):
        if isinstance(one, (ast.FunctionDef, ast.ClassDef)) and one.name == name:
            return Defined(module, one, ast.get_docstring(one))
        if isinstance(one, (ast.Assign, ast.AnnAssign)):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            held = [t.id for target in targets for t in ast.walk(target) if isinstance(t, ast.Name)]
            if name in held:
                after = body[at + 1] if at + 1 < len(body) else None
                said = (
                    after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
                )
                return Defined(module, one, said if isinstance(said, str) else None)
        if isinstance(one, ast.ImportFrom) and one.module:
            for alias in one.names:
                if (alias.asname or alias.name) == name:
                    return definition(one.module, alias.name)
    return None


def _text(node: ast.stmt | None) -> str | None:
    found = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else None
    return found if isinstance(found, str) else None


def lineage(found: Defined) -> list[Defined]:
    """A class and those of its bases that the package defines, each before its own bases."""
    assert isinstance(found.node, ast.ClassDef)
    bases = [definition(found.module, base) for base in map(_base, found.node.bases) if base]
    kept = [base for base in bases if base is not None and isinstance(base.node, ast.ClassDef)]
    return [found, *(one for base in kept for one in lineage(base))]


def _base(node: ast.expr) -> str | None:
    node = node.value if isinstance(node, ast.Subscript) else node
    return node.id if isinstance(node, ast.Name) else None


_Member = ast.FunctionDef | ast.AsyncFunctionDef | ast.AnnAssign


def members(found: Defined) -> Iterator[_Member]:
    """The public members of a class, its own before those of its bases, each once."""
    seen = set[str]()
    for one in lineage(found):
        own = {name: node for name, node in _own_members(one) if name not in seen}
        yield from own.values()
        seen |= {*own}


def _own_members(found: Defined) -> Iterator[tuple[str, _Member]]:
    assert isinstance(found.node, ast.ClassDef)
    for node in statements(found.node.body):
        if isinstance(node, _Callable):
            name = node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        else:
            continue
        if name == "__init__" or not name.startswith("_"):
            yield name, node


def callables(found: Defined) -> Iterator[_Callable]:
    """A function itself, or the public methods of a class."""
    if isinstance(found.node, ast.FunctionDef):
        yield found.node
    elif isinstance(found.node, ast.ClassDef):
        yield from (one for one in members(found) if isinstance(one, _Callable))


def untyped(node: _Callable) -> list[str]:
    """What a callable takes or gives without saying its type."""
    taken = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    taken += [one for one in (node.args.vararg, node.args.kwarg) if one]
    bare = [one.arg for one in taken if one.annotation is None and one.arg not in ("self", "cls")]
    return bare + (["return"] if node.returns is None else [])


def signature(node: _Callable) -> str:
    """One line: the name of a callable, what it takes and what it gives."""
    given = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return f"{node.name}({ast.unparse(node.args)}){given}"


def _lines(module: str, bases: dict[str, Defined]) -> Iterator[str]:
    yield f"# {module}"
    for name in names(module):
        found = definition(module, name)
        if found is not None and isinstance(found.node, ast.ClassDef):
            yield from _class(found)
            bases |= {one.node.name: one for one in lineage(found)[1:] if isinstance(one.node, ast.ClassDef)}
        elif found is not None and isinstance(found.node, ast.FunctionDef):
            yield signature(found.node)
        elif found is not None and isinstance(found.node, ast.AnnAssign):
            yield f"{name}: {ast.unparse(found.node.annotation)}"
        else:
            yield name
    yield ""


def _class(found: Defined) -> Iterator[str]:
    assert isinstance(found.node, ast.ClassDef)
    bases = ", ".join(ast.unparse(one) for one in found.node.bases)
    yield f"class {found.node.name}({bases})" if bases else f"class {found.node.name}"
    for _, one in _own_members(found):
        if isinstance(one, ast.AnnAssign):
            yield f"    {ast.unparse(one)}"
            continue
        marks = [ast.unparse(each).removeprefix("cached_") for each in one.decorator_list]
        kind = next((f"{mark} " for mark in ("property", "classmethod", "staticmethod") if mark in marks), "")
        yield f"    {kind}{signature(one)}"


def signatures() -> str:
    """The text of the file of signatures: those of each module, and of the classes that public ones are made of."""
    bases = dict[str, Defined]()
    lines = [line for module in modules() for line in _lines(module, bases)]
    public = {name for module in modules() for name in names(module)}
    lines.append("# The bases of these classes, which nobody imports")
    lines += [line for name in sorted({*bases} - public) for line in _class(bases[name])]
    return "\n".join(lines) + "\n"


def page() -> str:
    """The text of the page, with the names of each module."""

    def row(found: re.Match[str]) -> str:
        here = found[1] == "tailrace"
        listed = "all that is below" if here else ", ".join(f"`{name}`" for name in names(found[1]))
        return f"| `{found[1]}` |{found[2]}| {listed} |"

    return _ROW.sub(row, PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
    SIGNATURES.write_text(signatures())
