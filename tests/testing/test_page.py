"""The page on tests shows tests of the shop that pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tailrace import TailraceError, testing

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text()


def test_every_part_of_the_kit_is_on_the_page() -> None:
    """But for the errors, whose messages say what to do, and for what a backfill returns."""
    named = set(re.findall(r"^::: tailrace\.testing\.(\w+)$", PAGE, re.MULTILINE))
    errors = {name for name in testing.__all__ if name.endswith("Error")}
    assert named == {*testing.__all__} - errors - {"BackfillCounts"}
    assert all(issubclass(getattr(testing, name), TailraceError) for name in errors)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.slow
def test_the_shops_tests_on_the_page_pass(pytester: pytest.Pytester) -> None:
    (ini,) = blocks("toml")
    pytester.makefile(".toml", pyproject=ini.replace('"pipelines"', f'"{ROOT / "pipelines"}"'))
    (transcript,) = blocks("yaml")
    pytester.mkdir("transcripts").joinpath("offline.yaml").write_text(transcript)
    pytester.makepyfile(test_shop="\n\n".join(blocks("python")))
    # In a process of its own: this one would forget DuckDB, which cannot be imported twice.
    done = pytester.runpytest_subprocess("-p", "tailrace.testing.plugin", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=10)
