"""The page on tests shows tests of the shop that pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.slow
def test_the_shops_tests_on_the_page_pass(pytester: pytest.Pytester) -> None:
    (ini,) = blocks("toml")
    pytester.makefile(".toml", pyproject=ini.replace('"pipelines"', f'"{ROOT / "pipelines"}"'))
    pytester.makepyfile(test_shop="\n\n".join(blocks("python")))
    # In a process of its own: this one would forget DuckDB, which cannot be imported twice.
    done = pytester.runpytest_subprocess("-p", "tailrace.testing.plugin", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=9)
