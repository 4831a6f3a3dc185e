#!/usr/bin/env python
"""Make a lake with this version of Tailrace, and pack it for the tests of later versions.

The lake has streams over two logs with duplicates, late and rejected records; a generation that was applied; and
backfills of closed and open windows. The tests of later versions stream it on, and compare it with a fresh one
(`tests/stream/test_released_lakes.py`). The records and definitions are the same each time, but ids and times differ.

    .venv/bin/python tools/released_lake.py

writes `tests/support/lakes/released/VERSION.tar.xz`, in about two minutes. An archive that is there is never replaced:
what a release wrote does not change. `--anew` replaces it, as long as the release is not tagged.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import tailrace
from tests.support.lakes.released_lakes import ARCHIVES, BEFORE, DEFINITIONS, LOGS, STREAMED, land_records

FILES, MORE = 10, 3
"""How many files of each log the lake has read, and how many are to land later."""


def main() -> None:
    """Make and pack the lake of this version."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--anew", action="store_true", help="replace the archive of this version")
    anew, archive = parser.parse_args().anew, ARCHIVES / f"{tailrace.__version__}.tar.xz"
    if archive.exists() and not anew:
        raise SystemExit(f"{archive} is there: what a release wrote does not change")
    with tempfile.TemporaryDirectory(prefix="tailrace-released-") as place:
        make(Path(place).resolve())
        ARCHIVES.mkdir(exist_ok=True)
        pack(Path(place).resolve(), archive)
    print(f"{archive}: {archive.stat().st_size / 1000:,.0f} kB")


def make(folder: Path) -> None:
    """Make the lake in a folder, by the commands of this version."""
    land_records(folder / "landing", folder / "later", FILES, MORE)
    (folder / "before.py").write_text(BEFORE)
    (folder / "definitions.py").write_text(DEFINITIONS)
    facts = {"version": tailrace.__version__, "place": str(folder), "pyspark": version("pyspark")}
    (folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    # Half of the files first, with the definitions of before.
    kept = [one for log in LOGS for one in sorted((folder / "landing" / log).iterdir())[FILES // 2 :]]
    for file in kept:
        file.rename(file.parent / f".{file.name}")
    stream(folder, "before.py")
    tailrace_(folder, "backfill", "before.py:by_length", "--from", "2025-12-31", "--reason", "the first")
    tailrace_(folder, "apply", "definitions.py:by_length", "--all-stages", "--once", "--reason", "longer visits")
    for file in kept:
        (file.parent / f".{file.name}").rename(file)
    stream(folder, "definitions.py")
    some = ("--from", "2025-12-31", "--to", "2026-01-01T00:04")
    tailrace_(folder, "backfill", "definitions.py:by_length", *some, "--reason", "late")
    tailrace_(folder, "backfill", "definitions.py:takings", *some, "--reason", "late")
    (folder / "before.py").unlink()


def stream(folder: Path, definitions: str) -> None:
    """Stream what has landed, a file of each log in an epoch."""
    sources = [part for log in LOGS for part in ("--from", f"{log}={folder}/landing/{log}")]
    named = [f"{definitions}:{one}" for one in STREAMED]
    tailrace_(folder, "stream", *named, *sources, "--per-epoch", "1", "--once")


def tailrace_(folder: Path, *args: str) -> None:
    """Run a command on the lake, with no other settings than the defaults."""
    names = {"TAILRACE_WAREHOUSE": f"{folder}/lake"}
    names |= {one: os.environ[one] for one in ("TAILRACE_JARS", "TAILRACE_JAVA_HOME") if one in os.environ}
    others = {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
    others.setdefault("TAILRACE_JARS", str(Path(__file__).parents[1] / "build" / "jars"))
    command: Sequence[str] = [sys.executable, "-m", "tailrace.cli.main", *args]
    print(" ".join(args))
    subprocess.run(command, cwd=folder, env=others | names, check=True)


def pack(folder: Path, archive: Path) -> None:
    """Pack the folder, in the order of names and with nothing of who packed it."""
    with closing(sqlite3.connect(folder / "lake" / "catalog.db")) as catalog:
        catalog.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        catalog.execute("PRAGMA journal_mode=DELETE")
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for file in sorted(one for one in folder.rglob("*") if one.is_file() and "__pycache__" not in one.parts):
            held = packed.gettarinfo(file, str(file.relative_to(folder)))
            held.uid = held.gid = 0
            held.uname = held.gname = ""
            held.mode, held.mtime = 0o644, int(held.mtime)
            with file.open("rb") as data:
                packed.addfile(held, data)


if __name__ == "__main__":
    main()
