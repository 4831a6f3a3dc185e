"""Find Java and fetch the pinned jars, or report the missing tools: `python -m tailrace.toolchain`.

The exit status is 0 if all tools are present, and 1 if a tool is missing (with `--check`) or could not be fetched.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tailrace.model.base.errors import TailraceError
from tailrace.settings import Settings
from tailrace.toolchain import GROUPS, require_java
from tailrace.toolchain.preparation import prepare


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, and return its exit status."""
    parser = argparse.ArgumentParser("python -m tailrace.toolchain", description="Fetch and check the pinned jars.")
    parser.add_argument("--group", action="append", choices=GROUPS, help="what to fetch, more than once; default: lake")
    parser.add_argument("--check", action="store_true", help="only look, never fetch")
    parser.add_argument("--java", action="store_true", help="only print the home of the Java that would run")
    options = parser.parse_args(arguments)
    groups = options.group or ["lake"]
    try:
        settings = Settings()
        if options.java:
            print(require_java(settings.java_home).home)
            return 0
        told = prepare(settings, groups, fetches=not options.check)
    except TailraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
