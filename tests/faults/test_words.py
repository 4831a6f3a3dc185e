"""A lake, a disk or a JVM that fails: each command says what happened, in which file, what is lost and what to do."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError
from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.lake_errors import DamagedError, LakeError, MovedError
from tailrace.lake.upkeep.damage import Damage, find_damages
from tailrace.lake.upkeep.diagnosis import MachineError, diagnose, explain_error
from tailrace.settings import Settings
from tests.support.faults.killing import environment
from tests.support.lakes import small_lake

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")

COMMANDS = {
    "status": (),
    "late": (),
    "audit": (),
    "replay": (),
    "plan": (),
    "trace": ("--where", "city = 'Oslo'"),
    "watermark": (),
    "backfill": ("--from", "2026-01-01", "--to", "2026-01-01T10:00"),
}
"""Commands that need no JVM, with their arguments after the definition."""


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(file: Path) -> None:
    """Change the bytes after the file's first mark, which stays."""
    found = bytearray(file.read_bytes())
    found[8:60] = bytes(byte ^ 0xFF for byte in found[8:60])
    file.write_bytes(found)


def latest(settings: Settings, table: str) -> Path:
    """The metadata of a table that the catalog names."""
    with closing(sqlite3.connect(f"{settings.warehouse}/catalog.db")) as catalog:
        named = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
        return Path(catalog.execute(named, (table,)).fetchone()[0].removeprefix("file://"))


KINDS: dict[str, Callable[[Settings, str], list[Path]]] = {
    "metadata": lambda settings, table: [latest(settings, table)],
    "list of manifests": lambda settings, table: [*latest(settings, table).parent.glob("snap-*.avro")],
    "manifest": lambda settings, table: [*latest(settings, table).parent.glob("*-m0.avro")],
    "data file": lambda settings, table: [*latest(settings, table).parents[1].glob("data/**/*.parquet")],
}


@pytest.fixture
def definition(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The definition of a small lake, which is where the environment says."""
    small_lake.make(settings)
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    monkeypatch.setenv("TAILRACE_CONTRACTS", str(settings.contracts))
    file = tmp_path / "hourly.py"
    file.write_text(small_lake.DEFINITION)
    return str(file)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("table", ["rides", "hourly_rides__ledger"])
def test_a_file_that_is_missing_or_damaged_is_named_by_every_command_that_needs_it(
    table: str, kind: str, settings: Settings, definition: str, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(settings.warehouse, whole)
    for damage in (os.remove, cut, flip):
        files = KINDS[kind](settings, table)
        assert files
        for file in files:
            damage(file)
        failed = 0
        for command, more in COMMANDS.items():
            result = CliRunner().invoke(app, [command, definition, *more])
            assert "unexpected" not in result.stderr, (damage, command, result.stderr)
            if result.exit_code in (0, 1):
                continue
            failed += 1
            said = " ".join(result.stderr.split())
            assert f"the {kind} of table {table}, " in said, (damage, command, said)
            assert any(file.name in said for file in files), said
            assert "put it back from a copy" in said
        assert failed > 1, damage
        assert {Path(one.file.removeprefix("file://")) for one in damages_of(settings)} <= {*files}
        shutil.rmtree(settings.warehouse)
        shutil.copytree(whole, settings.warehouse)
    assert not damages_of(settings)


def damages_of(settings: Settings) -> list[Damage]:
    return list(find_damages(Lake(settings, looks=True)))


@pytest.mark.parametrize("damage", [cut, flip])
def test_a_damaged_catalog_is_named_by_every_command(
    damage: Callable[[Path], None], settings: Settings, definition: str
) -> None:
    damage(Path(f"{settings.warehouse}/catalog.db"))
    for command, more in COMMANDS.items():
        result = CliRunner().invoke(app, [command, definition, *more])
        assert result.exit_code == 3, (command, result.stderr)
        assert "unexpected" not in result.stderr
        assert f"{settings.warehouse}/catalog.db" in result.stderr.replace("\n", "")


def on_a_disk_of_its_own(
    settings: Settings, tmp_path: Path, options: str, *words: str
) -> subprocess.CompletedProcess[str]:
    """Run a command with the lake on a file system in memory that is mounted for it alone."""
    whole = shutil.copytree(settings.warehouse, tmp_path / "whole")
    steps = (
        f"mount -t tmpfs -o size=16m none {settings.warehouse} && cp -a {whole}/. {settings.warehouse} && {options} && "
        f"exec {sys.executable} -m tailrace.cli.main {' '.join(words)}"
    )
    return subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", steps],
        env=environment(settings, {"TAILRACE_CONTRACTS": str(settings.contracts)}),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("head -c 16m /dev/zero >{lake}/filler 2>&- || true", "is full"),
        ("mount -o remount,ro {lake}", "cannot be used"),
    ],
)
def test_a_full_disk_and_a_lake_that_cannot_be_written_are_told_and_nothing_is_lost(
    options: str, says: str, settings: Settings, definition: str, tmp_path: Path
) -> None:
    more = COMMANDS["backfill"]
    done = on_a_disk_of_its_own(
        settings, tmp_path, options.format(lake=settings.warehouse), "backfill", definition, *more
    )
    assert done.returncode == 3, done.stderr
    assert "unexpected" not in done.stderr
    said = " ".join(done.stderr.split())
    assert says in said
    assert str(settings.warehouse) in said
    assert "nothing that was published is lost" in said


@pytest.mark.slow
def test_a_jvm_that_was_killed_is_told_as_that(settings: Settings, tmp_path: Path) -> None:
    landing, definition = tmp_path / "landing", tmp_path / "hourly.py"
    landing.mkdir()
    (landing / "one.json").write_text('{"at": "2026-01-01T09:00:00Z", "city": "Oslo", "price": 3}\n')
    definition.write_text(small_lake.DEFINITION)
    command = [sys.executable, "-m", "tailrace.cli.main", "stream", str(definition), "--from", str(landing)]
    with subprocess.Popen(command, env=environment(settings), stderr=subprocess.PIPE, text=True) as stream:
        assert stream.stderr is not None
        # Once the first epoch is told the JVM runs, and the stream waits for files.
        while "epoch 0" not in (line := stream.stderr.readline()):
            assert line, "the stream has ended"
        (jvm,) = jvms_of(stream.pid)
        os.kill(jvm, signal.SIGKILL)
        _, said = stream.communicate(timeout=120)
    assert stream.returncode == 3, said
    assert "unexpected" not in said
    assert "Spark's JVM has ended" in " ".join(said.split())


def jvms_of(parent: int) -> list[int]:
    """The processes of Java that a process has started."""
    found = subprocess.run(["ps", "-eo", "pid,ppid,comm"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in found.splitlines()[1:]]
    children = {parent}
    for _ in rows:
        children |= {int(pid) for pid, above, _ in rows if int(above) in children}
    return [int(pid) for pid, _, name in rows if int(pid) in children and name.strip() == "java"]


def raised(error: BaseException, behind: BaseException | None = None) -> BaseException:
    """An error as it is caught, with another one behind it."""
    try:
        raise error from behind
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/disk/file"), "the disk of /disk/file is full"),
        (sqlite3.OperationalError("database or disk is full"), "is full"),
        (duckdb.IOException("IO Error: Could not write file /spill/x: No space left on device"), "/spill/x is full"),
        (OSError(errno.EROFS, "Read-only file system", "/disk/file"), "/disk/file cannot be used"),
        (PermissionError(errno.EACCES, "Permission denied", "/disk/file"), "/disk/file cannot be used"),
        (sqlite3.OperationalError("attempt to write a readonly database"), "cannot be used"),
        (MemoryError(), "not enough memory"),
        (pa.ArrowMemoryError("malloc of size 99 failed"), "not enough memory"),
        (duckdb.OutOfMemoryException("Out of Memory Error: failed to pin block"), "DuckDB has no more room (failed"),
        (Py4JNetworkError("Answer from Java side is empty"), "Spark's JVM has ended"),
    ],
)
def test_what_a_machine_cannot_do_is_told_wherever_it_is_behind(error: Exception, says: str) -> None:
    for one in (error, raised(RuntimeError("it failed"), error), raised(LakeError("it failed"), error)):
        found = diagnose(one, None)
        assert isinstance(found, MachineError)
        assert says in str(found)
        assert "nothing that was published is lost" in str(found)


def test_an_error_that_says_what_happened_and_a_bug_stay_as_they_are(settings: Settings, definition: str) -> None:
    said = DamagedError("the manifest of table rides", "file:///x.avro", "is missing")
    for error in (said, MovedError("it moved"), LakeError("no such table"), KeyError("boom"), ValueError("odd")):
        assert explain_error(error, settings) is error
    assert re.search(r"x\.avro, is missing: nothing was written", str(said))
