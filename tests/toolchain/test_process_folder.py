"""What a process keeps beside it is its user's alone, and is gone with it, however it ends."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.spark.session import process_conf, socket_conf
from tailrace.settings import Settings
from tailrace.toolchain.process_folder import process_folder

HOLDS = """
import os, sys
from pathlib import Path
os.umask(0)
from tailrace.toolchain.process_folder import process_folder
folder = process_folder(Path(sys.argv[1]))
(folder / "inner").mkdir()
(folder / "inner" / "spilled").write_text("a record")
print(folder, flush=True)
sys.stdin.read()
assert (folder / "inner" / "spilled").read_text() == "a record"
"""


@contextmanager
def started(program: str, place: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that runs a program, and the first line that it prints; it ends when its input does."""
    command = [sys.executable, "-c", program, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_the_folder_of_a_process_is_gone_as_it_ends(tmp_path: Path) -> None:
    with started(HOLDS, tmp_path) as (process, folder):
        assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
        process.communicate()
        assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next_and_nothing_of_a_living_one(tmp_path: Path) -> None:
    others = tmp_path / "tailrace-another"
    others.mkdir()
    (tmp_path / "tailrace-linked").symlink_to(others)
    with started(HOLDS, tmp_path) as (living, held), started(HOLDS, tmp_path) as (killed, left):
        killed.kill()
        killed.wait()
        assert (Path(left) / "inner" / "spilled").exists()
        with started(HOLDS, tmp_path) as (next_one, own):
            assert own
            assert not Path(left).exists()
            next_one.communicate()
            assert next_one.returncode == 0
        living.communicate()
        assert living.returncode == 0
        assert not Path(held).exists()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["tailrace-another", "tailrace-linked"]


def test_processes_that_start_at_once_keep_their_folders(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(12)]
    said = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0] * 12
    assert len({folder for folder, _ in said}) == 12


def test_what_duckdb_spills_is_its_users_alone(tmp_path: Path) -> None:
    with connect(Settings(scratch=tmp_path, memory="100MB"), threads=1) as connection:
        connection.execute("CREATE TABLE spilled AS SELECT md5(r::VARCHAR) AS word FROM range(3000000) t(r)")
        spilled = [one for one in tmp_path.rglob("*.tmp") if one.stat().st_size]
        assert spilled
        for file in spilled:
            assert any(stat.S_IMODE(one.stat().st_mode) & 0o077 == 0 for one in file.parents if tmp_path in one.parents)
    assert not list(tmp_path.rglob("*.tmp"))


def test_all_that_this_process_keeps_is_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(scratch=tmp_path / "scratch")
    with connect(settings) as connection:
        ((kept,),) = connection.execute("SELECT current_setting('temp_directory')").fetchall()
    assert process_folder(tmp_path / "scratch") in Path(kept).parents
    own = str(process_folder())
    assert Path(own).parent == Path(tempfile.gettempdir())
    assert process_conf(Settings())["spark.local.dir"] == own
    # Other machines have no such folder.
    assert process_conf(Settings(spark_master="spark://elsewhere:7077"))["spark.local.dir"] == tempfile.gettempdir()
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert socket_conf(Settings())["spark.python.unix.domain.socket.dir"] == own


def test_a_forked_process_has_a_folder_of_its_own(tmp_path: Path) -> None:
    own = process_folder(tmp_path)
    reads, writes = os.pipe()
    if not (child := os.fork()):
        os.write(writes, str(process_folder(tmp_path)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reads, 1000).decode() not in ("", str(own))
    os.close(reads)
    os.close(writes)
    assert own.exists()
