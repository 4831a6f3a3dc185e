"""The rule book says each rule that is cited, and each rule is held by tests that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.transcripts import staged, transcripts

ROOT = Path(__file__).parents[2]
BOOK = (ROOT / "docs" / "rules.md").read_text()
RULES = dict(re.findall(r"^### ([TMVXL]\d)\. [^\n]+\n(.*?)(?=^##|\Z)", BOOK, re.MULTILINE | re.DOTALL))
CITED = re.compile(r"(?<![\w\"`.])([TMVXL]\d)(?:_(?=[a-zLMTVX])|(?![\w.\"`(]))")
"""A rule's number in prose or at the head of a test's name; not a chart's `alt.X2("right")`, nor a quoted schema."""


def texts() -> Iterator[tuple[str, str]]:
    """What may cite a rule: code, contracts, DAGs, docs and transcripts, by path."""
    for folder, kinds in {
        "spark": ("py",),
        "pipelines": ("py",),
        "dags": ("py",),
        "docs": ("md",),
        "tests": ("py", "yaml"),
    }.items():
        for kind in kinds:
            for path in sorted((ROOT / folder).rglob(f"*.{kind}")):
                if path != Path(__file__):
                    yield str(path.relative_to(ROOT)), path.read_text()


def names_of_tests() -> set[str]:
    """The names of all tests."""
    return {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_rule_that_is_cited_is_in_the_book() -> None:
    unknown = {(path, rule) for path, text in texts() for rule in CITED.findall(text) if rule not in RULES}
    assert not unknown
    assert len(RULES) == len(re.findall(r"^### ", BOOK, re.MULTILINE)), "a heading that is no rule"


def test_every_rule_is_held_by_tests_that_exist() -> None:
    existing = names_of_tests()
    cases = {str(one) for one in (*transcripts(), *staged())}
    for rule, text in RULES.items():
        held = text.partition("Tested by ")[2]
        named = re.findall(r"`(\w+\*?)`", held)
        assert named, f"{rule} names no test"
        for name in named:
            if name.endswith("*"):
                assert any(case.startswith(name[:-1]) for case in cases), name
            else:
                assert name in existing, f"{rule} is held by {name}, which is not there"
            assert rule in name.split("_") or {"L1", "L3"} <= set(name.split("_")), f"{name} does not say {rule}"


def test_no_text_leads_to_a_design_that_is_not_in_the_project() -> None:
    assert not [path for path, text in texts() if "DESIGN" in text]
