"""Asks whether the tests notice: changes the package a little, one place at a time, and runs the tests that reach it.

    make coverage ARGS=--junitxml=build/coverage/times.xml
    .venv/bin/python tools/mutants.py --count 200 --seed 1

It draws so many places of the packages that say what Tailrace means, changes each in a copy of the project (an
operator, a constant, a word of SQL, a statement left out), and runs the tests that reach the line, those of its module
and folder first, then the quickest, until one fails or two minutes of them have passed. What none notices is a
survivor: a test that is missing, or code that changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from queue import Queue
from random import Random
from xml.etree import ElementTree

from coverage import CoverageData

ROOT = Path(__file__).parents[1]
WHERE = ("model", "sql", "lake/commit", "engines")
"""The packages of which a change must be noticed: what the platform means, computes and commits."""

SQL = re.compile(r"\b(SELECT|WHERE|JOIN|CASE|OVER|COALESCE|MIN|MAX|SUM|GROUP BY|ORDER BY)\b")
SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "+", "//": "*",
    "|": "&", "and": "or", "or": "and", "is not": "is", "is": "is not", "not in": "in", "in": "not in", "True": "False",
    "False": "True", "min": "max", "max": "min", "any": "all", "all": "any",
}  # fmt: skip
WORDS = {
    " AND ": " OR ", " OR ": " AND ", " < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " = ": " <> ",
    " + ": " - ", " - ": " + ", "MIN(": "MAX(", "MAX(": "MIN(", "LEAST(": "GREATEST(", "GREATEST(": "LEAST(",
    " IS NULL": " IS NOT NULL", " IS NOT NULL": " IS NULL", "LEFT JOIN": "JOIN", "UNION ALL": "UNION", " DESC": "",
    "NOT EXISTS": "EXISTS",
}  # fmt: skip
BATCHES = (12, 60, 400)
"""How many tests to run before asking whether one has failed: nearly every change fails in the first."""

LONGEST = 120.0
"""The seconds of tests, by their times, after which a change counts as one that no test noticed."""


@dataclass(frozen=True)
class Mutant:
    """One change: the file, the place in it as a slice of its text, what stands there then, and the line."""

    path: Path
    start: int
    end: int
    text: str
    line: int

    def __str__(self) -> str:
        source = (ROOT / self.path).read_text()
        return f"{self.path}:{self.line}: {source[self.start : self.end].strip()!r} -> {self.text.strip()!r}"


class Places:
    """Finds what can be changed in a module."""

    def __init__(self, path: Path) -> None:
        self.path, self.source = path, (ROOT / path).read_text()
        self.starts = [0]
        for line in self.source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def all(self) -> Iterator[Mutant]:
        """Every change of the module."""
        tree = ast.parse(self.source)
        skipped = {id(one) for node in ast.walk(tree) for one in self._left_out(node)}
        for node in ast.walk(tree):
            if id(node) not in skipped:
                yield from self._of(node)

    @staticmethod
    def _left_out(node: ast.AST) -> Iterator[ast.AST]:
        """What says nothing that a run could notice: texts for people, types, and what only a type checker reads."""
        parts: list[ast.AST] = []
        if isinstance(node, ast.Raise | ast.AnnAssign):
            parts = [node] if isinstance(node, ast.Raise) else [node.annotation]
        elif isinstance(node, ast.FunctionDef):
            parts = [node.args, *filter(None, [node.returns]), *node.decorator_list]
        elif isinstance(node, ast.ClassDef):
            parts = [*node.decorator_list]
        elif isinstance(node, ast.keyword) and node.arg == "strict":
            parts = [node.value]
        elif isinstance(node, ast.FormattedValue):
            # Before Python 3.12 the places of what stands in an f-string are not told.
            parts = [node.value]
        elif (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING") or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            parts = [node]
        for part in parts:
            yield from ast.walk(part)

    def _of(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, right in pairwise(sides):
                yield from self._operator(left, right)
        elif isinstance(node, ast.BoolOp):
            for left, right in pairwise(node.values):
                yield from self._operator(left, right)
        elif isinstance(node, ast.BinOp):
            yield from self._operator(node.left, node.right)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield self._change(self._at(node), self._at(node) + len("not"), "")
        elif isinstance(node, ast.Name) and node.id in ("min", "max", "any", "all"):
            yield self._change(self._at(node), self._end(node), SWAPS[node.id])
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield self._change(self._at(node), self._end(node), "pass")
        elif isinstance(node, ast.Constant):
            yield from self._constant(node)

    def _constant(self, node: ast.Constant) -> Iterator[Mutant]:
        start, end = self._at(node), self._end(node)
        if isinstance(node.value, bool):
            yield self._change(start, end, SWAPS[str(node.value)])
        elif isinstance(node.value, int):
            yield self._change(start, end, str(node.value + 1))
        elif isinstance(node.value, str) and SQL.search(self.source[start:end]):
            for word, other in WORDS.items():
                for found in re.finditer(re.escape(word), self.source[start:end]):
                    yield self._change(start + found.start(), start + found.end(), other)

    def _operator(self, left: ast.expr, right: ast.expr) -> Iterator[Mutant]:
        start, end = self._end(left), self._at(right)
        between = self.source[start:end]
        found = re.fullmatch(
            r"[\s)]*(" + "|".join(map(re.escape, sorted(SWAPS, key=len, reverse=True))) + r")[\s(]*", between
        )
        if found:
            yield self._change(start + found.start(1), start + found.end(1), SWAPS[found[1]])

    def _change(self, start: int, end: int, text: str) -> Mutant:
        return Mutant(self.path, start, end, text, self.source.count("\n", 0, start) + 1)

    def _at(self, node: ast.expr | ast.stmt) -> int:
        return self._offset(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column: int) -> int:
        start = self.starts[line - 1]
        return start + len(self.source[start : self.starts[line]].encode()[:column].decode())


class Reached:
    """Which tests reach a line, the nearest first and then the quickest, by the data of `make coverage`."""

    def __init__(self) -> None:
        self.data = CoverageData(str(ROOT / "build" / "coverage" / "data"))
        self.data.read()
        tree = ElementTree.parse(ROOT / "build" / "coverage" / "times.xml")
        self.times = {
            f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}": float(case.get("time", 0))
            for case in tree.iter("testcase")
        }

    def by(self, mutant: Mutant) -> list[str]:
        """The tests of a line; of one that is only imported, those of the module's other lines."""
        contexts = self.data.contexts_by_lineno(str(ROOT / mutant.path))
        found = _tests(contexts.get(mutant.line, ()))
        if not found:
            found = {test for each in contexts.values() for test in _tests(each)}
        ordered = sorted(found, key=lambda test: (_apart(mutant.path, test), self.times.get(test, 60.0), test))
        passed = accumulate(self.times.get(test, 60.0) for test in ordered)
        return [test for test, until in zip(ordered, passed, strict=True) if until < LONGEST]


def _apart(path: Path, test: str) -> int:
    """How far a test is from a module: it is the module's own, of its folder, or of elsewhere."""
    folders, file = test.split("::")[0].split("/")[:-1], Path(test.split("::")[0]).stem
    words = set(path.stem.split("_"))
    if path.stem in file or words <= set(file.split("_")) or str(path) == test.split("::")[0]:
        return 0
    return 1 if words & set(file.split("_")) or path.parts[2] in folders else 2


def _tests(contexts: Sequence[str]) -> set[str]:
    return {context.split("|")[0] for context in contexts if context}


def notice(copy: Path, mutant: Mutant, tests: Sequence[str]) -> str | None:
    """Change the copy and run the tests; gives the first that failed, None where all passed."""
    target = copy / mutant.path
    source = target.read_text()
    target.write_text(source[: mutant.start] + mutant.text + source[mutant.end :])
    try:
        place = 0
        for size in BATCHES:
            some = tests[place : place + size]
            place += size
            if not some:
                break
            command = [sys.executable, "-m", "pytest", "-q", "-x", "--timeout", "300", "--no-header", *some]
            env = {"PYTHONPATH": f"{copy / 'spark'}:{copy}", "PATH": "/usr/bin:/bin", "HOME": str(copy), "CI": "1"}
            done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, check=False)
            if done.returncode:
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
                return failed[1] if failed else done.stdout[-300:]
    finally:
        target.write_text(source)
    return None


def copied(number: int) -> Path:
    """Copy what git has of the project to a folder of its own, with what is installed."""
    copy = ROOT / "build" / "mutants" / str(number)
    shutil.rmtree(copy, ignore_errors=True)
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    (copy / ".venv").symlink_to(ROOT / ".venv")
    (copy / "build").mkdir()
    (copy / "build" / "jars").symlink_to(ROOT / "build" / "jars")
    return copy


def main() -> None:
    """Draw mutants, run them, and say which were noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--side", type=int, default=2, help="how many run side by side")
    given = parser.parse_args()
    files = [path for name in WHERE for path in sorted((ROOT / "spark" / "tailrace" / name).rglob("*.py"))]
    every = [one for path in files for one in Places(path.relative_to(ROOT)).all()]
    drawn = Random(given.seed).sample(every, given.count)
    reached, copies = Reached(), Queue[Path]()
    for number in range(given.side):
        copies.put(copied(number))

    def tried(mutant: Mutant) -> bool:
        copy = copies.get()
        try:
            by = notice(copy, mutant, reached.by(mutant))
        finally:
            copies.put(copy)
        print(f"{'survived' if by is None else 'noticed '} {mutant}{'' if by is None else f'  by {by}'}", flush=True)
        return by is not None

    with ThreadPoolExecutor(given.side) as pool:
        noticed = sum(pool.map(tried, drawn))
    print(f"{noticed} of {len(drawn)} noticed ({noticed / len(drawn):.1%}), of {len(every)} that could be made")


if __name__ == "__main__":
    main()
