"""No layer asks a definition for its kind: a kind has its home in each, behind a verb (`singledispatch`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import tailrace

ROOT = Path(tailrace.__file__).parent
KINDS = {"Pipeline", "Computation", "Map", "Join", "Ranged", "Windowless"}
ASKING = {"isinstance", "issubclass"}


def asked(path: Path) -> Iterator[int]:
    """Yield the lines of a file that ask an object whether it is of a kind, or compare its class with one."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[_, classes]) if name in ASKING:
                found = named(classes)
            case ast.MatchClass(cls=classes):
                found = named(classes)
            case ast.Compare(left=left, comparators=right):
                # `type(one) is Join`, `one.__class__ == Join`; a name alone is no comparison of classes.
                found = {one.id for one in (left, *right) if isinstance(one, ast.Name)}
            case _:
                continue
        if found & KINDS:
            yield node.lineno if isinstance(node, ast.expr) else node.cls.lineno


def named(classes: ast.expr) -> set[str]:
    """Name the classes of a question: one, a tuple or a union of them, by its name or as an attribute."""
    names = {node.id for node in ast.walk(classes) if isinstance(node, ast.Name)}
    return names | {node.attr for node in ast.walk(classes) if isinstance(node, ast.Attribute)}


def test_no_layer_asks_a_definition_for_its_kind() -> None:
    files = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] != "model"]
    found = {str(path.relative_to(ROOT)): lines for path in files if (lines := list(asked(path)))}
    assert not found, f"they ask for kinds; register what the layer does for each kind with its verb: {found}"


def test_every_way_to_ask_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "asking.py"
    file.write_text(
        "isinstance(one, Join)\nisinstance(one, (str, join.Join))\nisinstance(one, Map | None)\nissubclass(a, Ranged)\n"
        "type(one) is Pipeline\nmatch one:\n    case Computation(): pass\nisinstance(one, Log)\nverb.register(Map, f)\n"
    )
    assert sorted(asked(file)) == [1, 2, 3, 4, 5, 7]


def test_the_walk_of_a_new_kind_names_every_verb() -> None:
    walk = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    verbs = {
        (str(path.relative_to(ROOT)), node.name)
        for path in ROOT.rglob("*.py")
        if "raise KindError" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and "raise KindError" in ast.unparse(node)
    }
    assert len(verbs) > 10
    assert not [verb for verb in verbs if not all(f"`{name}`" in walk for name in verb)]
