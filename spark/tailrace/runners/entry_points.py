"""Find the entry points of streams and runs that `spark-submit` starts: a file for each command."""

from __future__ import annotations

from pathlib import Path

import tailrace


def find_entry_points() -> Path:
    """Return the folder of the entry points: `jobs` in the installed package, `spark/jobs` in a checkout."""
    package = Path(tailrace.__file__).parent
    inside = package / "jobs"
    return inside if inside.is_dir() else package.with_name("jobs")
