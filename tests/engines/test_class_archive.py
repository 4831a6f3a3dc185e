"""The archive of Spark's classes: made once, used where it fits, and never in the way of a start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.cli.commands.change.setup import setup
from tailrace.cli.terminal.usage import UsageError
from tailrace.engines.spark.class_archive import Archive, archive_of
from tailrace.engines.spark.session import process_conf
from tailrace.operate import class_archive
from tailrace.settings import Settings
from tailrace.toolchain import ToolchainError, class_path, require_java

STARTS = """
from tailrace.settings import Settings
from tailrace.engines.spark.session import open_session
spark = open_session(Settings(driver_memory="1g"))
given = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
print([one for one in given if "SharedArchiveFile" in one])
print(spark.sql("SELECT SUM(id) FROM RANGE(11)").collect()[0][0])
"""


@pytest.fixture
def folder(settings: Settings, tmp_path: Path) -> Path:
    """A folder of the same jars in which no archive is."""
    folder = tmp_path / "some jars"
    folder.mkdir()
    for one in settings.jars.iterdir():
        if one.suffix != ".jsa":
            (folder / one.name).symlink_to(one)
    return folder


def found_in(folder: Path) -> Archive:
    return archive_of(folder, require_java(), class_path(folder))


def test_another_java_or_another_jar_has_another_archive(tmp_path: Path) -> None:
    java, jar = require_java(), tmp_path / "one.jar"
    jar.write_bytes(b"one")
    one = archive_of(tmp_path, java, [jar])
    assert one == archive_of(tmp_path, java, [jar])
    jar.write_bytes(b"other")
    assert archive_of(tmp_path, java, [jar]) != one


def test_a_process_is_told_of_an_archive_that_is_there_and_of_no_other(settings: Settings, folder: Path) -> None:
    here = settings.model_copy(update={"jars": folder})
    name = "spark.driver.extraJavaOptions"
    assert "SharedArchive" not in process_conf(here)[name]
    found_in(folder).file.touch()
    assert f'"-XX:SharedArchiveFile={found_in(folder).file}"' in process_conf(here)[name]


@pytest.mark.spark
def test_a_process_starts_without_a_word_with_an_archive_that_is_none(folder: Path, tmp_path: Path) -> None:
    found_in(folder).file.write_bytes(b"no archive at all")
    env = os.environ | {"TAILRACE_JARS": str(folder), "TAILRACE_WAREHOUSE": str(tmp_path / "lake")}
    done = subprocess.run([sys.executable, "-c", STARTS], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    given, total = done.stdout.splitlines()
    assert str(found_in(folder).file) in given
    assert total == "55"
    assert "rchive" not in done.stderr


def test_setup_goes_on_without_an_archive_that_cannot_be_made(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(settings: Settings) -> Archive:
        raise ToolchainError("there is no room for it")

    monkeypatch.setattr(class_archive, "make_archive", fails)
    monkeypatch.setenv("TAILRACE_JARS", str(settings.jars))
    setup()
    assert "archive" not in capsys.readouterr().out
    setup(archive=True)
    said = "no archive of Spark's classes was made, starts take longer: there is no room for it"
    assert capsys.readouterr().out.splitlines()[-1] == said
    with pytest.raises(UsageError, match="--check only looks, and --archive makes a file"):
        setup(archive=True, check=True)
