"""Find Java and fetch the pinned jars, or report the missing tools: `python -m tailrace.toolchain`.

The exit status is 0 if all tools are present, and 1 if a tool is missing (with `--check`) or could not be fetched.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tailrace.model.base.errors import TailraceError
from tailrace.settings import Settings
from tailrace.toolchain import GROUPS, class_path, fetch, quiet_home, require_java


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
        java = require_java(settings.java_home)
        if options.java:
            print(java.home)
            return 0
        fetched = [] if options.check else fetch(settings.jars, groups, java)
        ready = class_path(settings.jars, groups)
        quiet_home(java, settings.jars)  # so that later readers without write permission find it
    except TailraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(
        f"Java {java.release} in {java.home}; {len(ready)} jars in {settings.jars}, {len(fetched)} of them fetched now"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
