"""The toolchain: which jars and which Java are accepted, and what is said of those that are not."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tailrace import toolchain
from tailrace.settings import Settings
from tailrace.toolchain import ToolchainError, class_path, find_java, jars, java, missing_jars, pinned_jars, quiet_home
from tailrace.toolchain.jars import Jar
from tailrace.toolchain.preparation import prepare
from tailrace.toolchain.trust import jks


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Jar:
    """One pinned jar in a group of its own; its content is `jar`."""
    jar = Jar("small", "org.example:thing:1.0", sha256(b"jar").hexdigest())
    monkeypatch.setattr(jars, "pinned_jars", lambda group: (jar,))
    return jar


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java; the folder is its PATH."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(java, "_packaged", lambda: None)
    return folder


def put(folder: Path, jar: Jar, content: bytes) -> Path:
    path = folder / jar.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def java_at(home: Path, version: str) -> Path:
    command = home / "bin/java"
    command.parent.mkdir(parents=True)
    command.write_text('#!/bin/sh\nfor a; do echo "$a"; done\n')
    command.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def test_every_pinned_jar_has_full_coordinates_and_a_sum() -> None:
    for group in toolchain.GROUPS:
        for jar in pinned_jars(group):
            assert len(jar.coordinates.split(":")) in (3, 4)
            assert len(bytes.fromhex(jar.sha256)) == 32


def test_the_list_names_no_host() -> None:
    folder = Path(jars.__file__).parent
    for path in folder.glob("*.*"):
        # The name of Ivy's own attributes is one that nobody is asked by.
        text = path.read_text().replace("http://ant.apache.org/ivy/maven", "")
        assert "://" not in text, path.name


def test_an_unknown_group_is_refused() -> None:
    with pytest.raises(ToolchainError, match="no group of jars 'flink'; there are lake, aws, postgres, kafka"):
        pinned_jars("flink")


def test_a_missing_jar_is_named_with_the_command_that_fetches_it(tmp_path: Path, small: Jar) -> None:
    with pytest.raises(ToolchainError) as caught:
        class_path(tmp_path, ["small"])
    assert "small/thing-1.0.jar" in str(caught.value)
    assert "tailrace setup --group small" in str(caught.value)


def test_a_jar_with_other_content_counts_as_missing(tmp_path: Path, small: Jar) -> None:
    put(tmp_path, small, b"not it")
    assert missing_jars(tmp_path, ["small"]) == [small]


def test_a_checked_jar_is_not_read_again(tmp_path: Path, small: Jar, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, small, b"jar")
    assert class_path(tmp_path, ["small"]) == [path]
    monkeypatch.setattr(jars, "sha256_of", pytest.fail)
    assert class_path(tmp_path, ["small"]) == [path]


def test_a_jar_that_changed_after_its_check_is_found(tmp_path: Path, small: Jar) -> None:
    path = put(tmp_path, small, b"jar")
    assert missing_jars(tmp_path, ["small"]) == []
    path.write_bytes(b"raj")
    os.utime(path, ns=(0, 0))
    assert missing_jars(tmp_path, ["small"]) == [small]


def test_a_broken_note_only_costs_a_second_check(tmp_path: Path, small: Jar) -> None:
    put(tmp_path, small, b"jar")
    note = tmp_path / "small" / jars.CHECKED
    note.write_text("{")
    assert missing_jars(tmp_path, ["small"]) == []
    assert list(json.loads(note.read_text())) == [small.file]


def fetched_as(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_retrieve", lambda wanted, scratch, *_: [put(scratch, jar, content) for jar in wanted])


def test_fetching_twice_downloads_once(tmp_path: Path, small: Jar, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched_as(b"jar", monkeypatch)
    any_java = java.Java(tmp_path, 21)
    assert jars.fetch(tmp_path / "jars", ["small"], any_java) == [small]
    assert jars.fetch(tmp_path / "jars", ["small"], any_java) == []
    assert sorted(path.name for path in (tmp_path / "jars").iterdir()) == ["small"]


def test_a_download_that_is_not_the_pinned_jar_is_not_kept(
    tmp_path: Path, small: Jar, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched_as(b"something else", monkeypatch)
    with pytest.raises(ToolchainError) as caught:
        jars.fetch(tmp_path / "jars", ["small"], java.Java(tmp_path, 21))
    assert f"sha256 {sha256(b'something else').hexdigest()}, pinned {small.sha256}" in str(caught.value)
    assert list((tmp_path / "jars").iterdir()) == []


@pytest.mark.slow
def test_jars_come_from_the_mirror_that_a_setting_names(
    tmp_path: Path, small: Jar, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """Ivy itself asks a Maven repository on this machine; a jar of other content is refused."""
    _, name, version = small.coordinates.split(":")
    held = tmp_path / "mirror" / "maven" / small.coordinates.split(":")[0].replace(".", "/") / name / version
    held.mkdir(parents=True)
    (held / f"{name}-{version}.jar").write_bytes(b"jar")
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path / "mirror")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        mirror = f"http://127.0.0.1:{server.server_port}/maven"
        told = settings.model_copy(update={"jars": tmp_path / "jars", "jars_mirror": mirror})
        assert "1 jars in" in prepare(told, ["small"])
        assert (tmp_path / "jars" / small.file).read_bytes() == b"jar"
        (tmp_path / "jars" / small.file).unlink()
        (held / f"{name}-{version}.jar").write_bytes(b"something else")
        with pytest.raises(ToolchainError, match="none of them kept"):
            prepare(told, ["small"])
        server.shutdown()
    assert not (tmp_path / "jars" / small.file).exists()


@pytest.mark.parametrize(
    ("version", "release"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25), ("odd", 0)]
)
def test_the_feature_release_is_read_from_a_version(version: str, release: int) -> None:
    assert java._release(version) == release


def test_an_explicit_java_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    home = java_at(tmp_path / "jdk", "11.0.2")
    with pytest.raises(ToolchainError, match=r"Java 11 there, wanted Java 17 to 21; correct TAILRACE_JAVA_HOME"):
        find_java(home)
    with pytest.raises(ToolchainError, match="no working bin/java"):
        find_java(tmp_path / "nothing")


def test_a_java_that_does_not_fit_is_passed_over(
    no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_at(tmp_path / "eleven", "11.0.2")))
    fitting = java_at(tmp_path / "twenty-one", "21.0.8")
    (no_java / "java").symlink_to(fitting / "bin/java")
    assert find_java() == java.Java(fitting, 21)


def test_no_java_at_all_says_how_to_get_one(no_java: Path) -> None:
    with pytest.raises(ToolchainError, match=r"no Java 17 to 21 .*run `make setup`.*TAILRACE_JAVA_HOME"):
        toolchain.require_java()


def test_the_quiet_java_drops_one_argument_and_keeps_the_others_as_they_are(tmp_path: Path) -> None:
    real = java.Java(java_at(tmp_path / "it's a jdk", "21.0.8"), 21)
    home = quiet_home(real, tmp_path / "jars")
    assert quiet_home(real, tmp_path / "jars") == home
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "--add-modules=other", "$x"]
    ran = subprocess.run([home / "bin/java", *given], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["-Xmx1g", "a b", "", "--add-modules=other", "$x"]


def test_a_trust_store_carries_the_certificates_and_its_seal() -> None:
    authority = ssl.PEM_cert_to_DER_cert("-----BEGIN CERTIFICATE-----\n" + "QUJD" + "\n-----END CERTIFICATE-----\n")
    store = jks([authority])
    assert store[:12] == bytes.fromhex("feedfeed 00000002 00000001")
    assert store[-20 - len(authority) : -20] == authority
