"""The pinned jars: list the jars, check that a folder has all of them, and download missing jars.

`jars.toml` lists the jars by group, with the sha256 of each jar. In a folder of jars, each group has its own subfolder.
A note in the subfolder records the size and modification time of each checked jar, so that Spark can start without
reading 60 MB again to compute checksums.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import file_digest
from importlib.resources import files
from pathlib import Path
from xml.sax.saxutils import quoteattr

from tailrace.toolchain import trust
from tailrace.toolchain.java import Java, is_packaged
from tailrace.toolchain.tool_errors import ToolchainError

GROUPS = ("lake", "aws", "postgres", "kafka", "kafka-broker", "s3-server", "rest-server")
"""The groups of jars: for Iceberg, for clients of AWS, PostgreSQL and Kafka, and for the three servers that tests
start.
"""

CHECKED = ".checked.json"


@dataclass(frozen=True)
class Jar:
    """A pinned jar: its group, its Maven coordinates (with its classifier, if any), and its file's sha256."""

    group: str
    coordinates: str
    sha256: str

    @property
    def file(self) -> str:
        """The path of the jar, relative to the folder of jars."""
        _, *named = self.coordinates.split(":")
        return f"{self.group}/{'-'.join(named)}.jar"


@cache
def pinned_jars(group: str) -> tuple[Jar, ...]:
    """Return the pinned jars of a group. Raises ToolchainError if there is no such group."""
    groups = tomllib.loads(files(__package__).joinpath("jars.toml").read_text())
    if group not in groups:
        raise ToolchainError(f"no group of jars {group!r}; there are {', '.join(GROUPS)}")
    return tuple(Jar(group, coordinates, sha256) for coordinates, sha256 in groups[group].items())


def sha256_of(path: Path) -> str:
    """Compute the sha256 of a file."""
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def missing_jars(folder: Path, groups: Iterable[str]) -> list[Jar]:
    """Return the jars of these groups that are missing from `folder` or whose checksum is wrong."""
    return [jar for group in groups for jar in _missing(folder, group)]


def _missing(folder: Path, group: str) -> list[Jar]:
    notes = folder / group / CHECKED
    try:
        before = json.loads(notes.read_text())
    except (OSError, ValueError):
        before = {}
    now: dict[str, list[object]] = {}
    absent = []
    for jar in pinned_jars(group):
        path = folder / jar.file
        if not path.is_file():
            absent.append(jar)
            continue
        facts = path.stat()
        note = [facts.st_size, facts.st_mtime_ns, jar.sha256]
        if before.get(jar.file) == note or sha256_of(path) == jar.sha256:
            now[jar.file] = note
        else:
            absent.append(jar)
    if now != before:
        _write(notes, json.dumps(now, indent=1))
    return absent


def _write(path: Path, text: str) -> None:
    """Write a note atomically.

    Errors while writing are ignored, for example in a read-only folder, because the note only saves time.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        draft.write_text(text)
        draft.replace(path)
    except OSError:
        return


def class_path(folder: Path, groups: Sequence[str] = ("lake",)) -> list[Path]:
    """Check the jars of these groups, and return their paths, in the order in which the jars are pinned.

    Raises ToolchainError if a jar is missing, or if its sha256 is not the pinned sha256. The error names all such jars,
    and the command that fetches the pinned jars.
    """
    if lacking := missing_jars(folder, groups):
        names = "".join(f"\n  {jar.file}" for jar in lacking)
        flags = "".join(f" --group {group}" for group in dict.fromkeys(jar.group for jar in lacking))
        raise ToolchainError(
            f"jars missing from {folder}, or not the pinned ones:{names}\n"
            f"run `tailrace setup{flags}`, or set TAILRACE_JARS to the folder that has them"
        )
    return [folder / jar.file for group in groups for jar in pinned_jars(group)]


def fetch(folder: Path, groups: Sequence[str], java: Java, mirror: str | None = None) -> list[Jar]:
    """Download the missing jars of these groups into `folder`, and return them. If no jar is missing, Ivy is not run.

    Ivy, which is part of Spark, downloads the jars; `java` runs Ivy. `mirror` is the address of a Maven
    repository, which Ivy asks in place of Maven Central. A jar is moved into `folder` only after its
    checksum has been verified. Raises ToolchainError if a download fails, or if the sha256 of a downloaded jar is not
    the pinned sha256.
    """
    wanted = missing_jars(folder, groups)
    if not wanted:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as name:
        scratch = Path(name).resolve()
        for group in dict.fromkeys(jar.group for jar in wanted):
            _retrieve([jar for jar in wanted if jar.group == group], scratch, java, mirror)
        wrong = [(jar, sha256_of(scratch / jar.file)) for jar in wanted if (scratch / jar.file).is_file()]
        complaints = [
            f"\n  {jar.coordinates}: sha256 {found}, pinned {jar.sha256}" for jar, found in wrong if found != jar.sha256
        ]
        complaints += [f"\n  {jar.coordinates}: not found" for jar in wanted if not (scratch / jar.file).is_file()]
        if complaints:
            raise ToolchainError("jars that are not the pinned ones, none of them kept:" + "".join(complaints))
        for jar in wanted:
            target = folder / jar.file
            target.parent.mkdir(exist_ok=True)
            (scratch / jar.file).replace(target)
    missing_jars(folder, groups)  # records the sums that were just compared
    return wanted


def _retrieve(jars: Sequence[Jar], scratch: Path, java: Java, mirror: str | None) -> None:
    """Download `jars` into the folder `scratch` with Ivy. Ivy itself knows the address of Maven Central."""
    settings = scratch / "settings.xml"
    # Ivy reads no POMs, because the pinned list already contains all dependencies. Ivy does not verify the repository's
    # checksums, because Tailrace verifies the pinned checksums.
    cache = quoteattr(str(scratch / "cache"))
    root = "" if mirror is None else f" root={quoteattr(mirror.rstrip('/') + '/')}"
    resolver = f"<ibiblio name='central'{root} m2compatible='true' usepoms='false' checksums=''/>"
    settings.write_text(
        f"<ivysettings><settings defaultResolver='central'/><caches defaultCacheDir={cache}/>"
        f"<resolvers>{resolver}</resolvers></ivysettings>"
    )
    wanted = scratch / "ivy.xml"
    modules: dict[tuple[str, str, str], list[str]] = {}
    for jar in jars:
        organisation, name, revision, *classifier = jar.coordinates.split(":")
        modules.setdefault((organisation, name, revision), []).append("".join(classifier))
    lines = [_dependency(*module, classifiers) for module, classifiers in modules.items()]
    wanted.write_text(
        "<ivy-module version='2.0' xmlns:m='http://ant.apache.org/ivy/maven'>"
        "<info organisation='tailrace' module='jars'/><configurations><conf name='default'/></configurations>"
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )
    options = trust.java_options(scratch) if is_packaged(java) else []
    command = [str(java.command), *options, f"-Duser.home={scratch}", "-cp", str(_ivy()), "org.apache.ivy.Main"]
    command += ["-warn", "-settings", str(settings), "-ivy", str(wanted), "-confs", "default"]
    command += ["-retrieve", f"{scratch}/{jars[0].group}/[artifact]-[revision](-[classifier]).[ext]"]
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )
    if ran.returncode:
        # Ivy prints its progress as lines of dots; its messages are in the other lines.
        messages = [line.strip() for line in ran.stdout.splitlines() if line.strip(". \t\n") and "....." not in line]
        raise ToolchainError("fetching jars failed; Ivy says:\n  " + "\n  ".join(messages[-20:]))


def _dependency(organisation: str, name: str, revision: str, classifiers: Sequence[str]) -> str:
    """Return a module as a dependency in Ivy's XML, with one jar for each classifier.

    An empty classifier stands for the jar that has no classifier.
    """
    attributes = f"org={quoteattr(organisation)} name={quoteattr(name)} rev={quoteattr(revision)}"
    named = [f" m:classifier={quoteattr(one)}" if one else "" for one in classifiers]
    inner = "".join(f"<artifact name={quoteattr(name)} ext='jar'{one}/>" for one in named) if any(named) else ""
    return f"<dependency {attributes} transitive='false' conf='default->default'>{inner}</dependency>"


def _ivy() -> Path:
    """Find Ivy among Spark's own jars. Raises ToolchainError if Spark is not installed."""
    spec = importlib.util.find_spec("pyspark")
    home = Path(spec.origin).parent if spec and spec.origin else None
    jars = sorted(home.glob("jars/ivy-*.jar")) if home else []
    if not jars:
        raise ToolchainError(
            "pyspark is not installed, and its jars bring what fetches jars; run `pip install 'tailrace[spark]'`"
        )
    return jars[-1]
