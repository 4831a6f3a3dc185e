"""Make the wheel of the Tailrace that runs here, and read what a wheel needs.

A wheel is built of the source if Tailrace is installed from a checkout. Otherwise the installed files are packed again:
they are the files of the wheel that was installed, and each file is compared with the sum in its record.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cached_property
from importlib.metadata import Distribution, distribution
from pathlib import Path
from urllib.parse import unquote, urlparse

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from tailrace.aws.objects import AwsError

NAME = "tailrace"

_OF_THE_INSTALLER = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json"}
"""The files of a distribution's metadata that an installer writes."""

_FIRST = (1980, 1, 1, 0, 0, 0)
"""The modification time of every file in a wheel: the earliest time in a zip file."""


@dataclass(frozen=True)
class Wheel:
    """A wheel of Tailrace. Raises `AwsError` if the file is no such wheel."""

    file: Path

    def __post_init__(self) -> None:
        try:
            name = parse_wheel_filename(self.file.name)[0]
        except InvalidWheelFilename:
            name = None
        if name != NAME or not zipfile.is_zipfile(self.file):
            raise AwsError(f"{self.file}: expected a wheel of tailrace, such as tailrace-0.9.0-py3-none-any.whl")

    @cached_property
    def _metadata(self) -> tuple[str, tuple[Requirement, ...]]:
        with zipfile.ZipFile(self.file) as file:
            place = next(one for one in file.namelist() if one.endswith(".dist-info/METADATA"))
            headers = HeaderParser().parsestr(file.read(place).decode())
        return headers["Version"], tuple(Requirement(one) for one in headers.get_all("Requires-Dist") or ())

    @property
    def version(self) -> str:
        """The version of Tailrace."""
        return self._metadata[0]

    def needed(self, extra: str, *without: str) -> list[Requirement]:
        """Return the requirements that an extra adds to those of the package, except for some packages.

        Raises `AwsError` if the wheel does not have the extra.
        """
        found = []
        for one in self._metadata[1]:
            if one.marker and one.marker.evaluate({"extra": extra}) and not one.marker.evaluate({"extra": ""}):
                plain = Requirement(str(one))
                plain.marker = None
                found.append(plain)
        if not found:
            raise AwsError(f"--extra {extra}: tailrace {self.version} has no such extra, or the extra needs nothing")
        return [one for one in found if canonicalize_name(one.name) not in without]


def make_wheel(folder: Path, build: Callable[[Path, Path], None]) -> Wheel:
    """Make the wheel of the installed Tailrace in a folder.

    `build` builds a wheel of a source folder into another folder, and is called if Tailrace is installed from a
    checkout. Raises `AwsError` if an installed file was changed.
    """
    held = distribution(NAME)
    source = _source(held)
    if source is not None:
        build(source, folder)
        (made,) = folder.glob("*.whl")
        return Wheel(made)
    tag = HeaderParser().parsestr(held.read_text("WHEEL") or "")["Tag"]
    made = folder / f"{NAME}-{held.version}-{tag}.whl"
    _pack(made, dict(_installed(held)))
    return Wheel(made)


def copy_wheel(file: Path, folder: Path) -> Wheel:
    """Copy a wheel of Tailrace into a folder. Raises `AwsError` if the file is no such wheel."""
    if not file.is_file():
        raise AwsError(f"--wheel {file}: there is no such file")
    Wheel(file)
    return Wheel(Path(shutil.copyfile(file, folder / file.name)))


def _source(held: Distribution) -> Path | None:
    """Return the folder from which a distribution was installed in a way that follows changes there, or None."""
    told = json.loads(held.read_text("direct_url.json") or "{}")
    if not told.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlparse(told["url"]).path))


def _installed(held: Distribution) -> Iterator[tuple[str, bytes]]:
    """Yield the path in the wheel and the content of each installed file that came from the wheel."""
    for one in held.files or ():
        path = one.as_posix()
        if path.startswith(("../", "/")) or "__pycache__" in one.parts:
            continue
        if one.parent.name.endswith(".dist-info") and one.name in _OF_THE_INSTALLER:
            continue
        try:
            content = Path(str(one.locate())).read_bytes()
        except OSError:
            content = None
        if content is None or (one.hash and one.hash.value != _sum(content, one.hash.mode)):
            found = "is missing" if content is None else "was changed after it was installed"
            raise AwsError(f"{one.locate()} {found}: install tailrace again, or pass a wheel by --wheel")
        yield path, content


def _pack(file: Path, contents: Mapping[str, bytes]) -> None:
    # The metadata is at the end, as installers like to find it.
    order = sorted(contents, key=lambda path: (".dist-info/" in path, path))
    record = next(path for path in order if path.endswith(".dist-info/METADATA")).replace("METADATA", "RECORD")
    rows = [(path, f"sha256={_sum(contents[path])}", str(len(contents[path]))) for path in order]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([*rows, (record, "", "")])
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for path in (*order, record):
            entry = zipfile.ZipInfo(path, _FIRST)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            made.writestr(entry, text.getvalue() if path == record else contents[path])


def _sum(content: bytes, kind: str = "sha256") -> str:
    return base64.urlsafe_b64encode(hashlib.new(kind, content).digest()).rstrip(b"=").decode()
