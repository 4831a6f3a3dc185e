"""Detect that a lake was copied or moved, so that its tables refer to files in another location.

Iceberg's metadata contains the full path of every file. The tables of a copied lake still refer to the original lake's
files: a stream on the copy would write files into the original lake, and maintenance of the copy would delete files of
the original lake. So the folder of each lake contains a file that records the lake's id and location. A lake that is
not at its recorded location is not opened.

A location is a folder, whatever path leads to it. If several paths, such as symbolic links, mounts or relative paths,
lead to one folder, all these paths are the same location.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import uuid
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tailrace.lake.schema.lake_errors import CatalogError
from tailrace.settings import Settings

NOTE = "_lake.json"
"""The name of the file, in a lake's folder, that records the lake's id and location."""


class PlaceError(CatalogError):
    """The error that is raised if a lake was copied or moved, so that its tables refer to files in another location."""


@dataclass(frozen=True)
class LakeNote:
    """A record of a lake's id and of its folder.

    `place` is the folder's path as used in the lake's tables; `real` is this path with symbolic links resolved.
    """

    id: str
    place: str
    real: str

    @classmethod
    def of(cls, place: str) -> LakeNote:
        """Create the record of a lake whose folder is `place`, with a new id."""
        return cls(uuid.uuid4().hex, place, os.path.realpath(place))

    @classmethod
    def read(cls, folder: Path) -> LakeNote | None:
        """Read the record of a lake from the lake's folder; return None if the folder has no record.

        Raises `PlaceError` if the record is unreadable.
        """
        try:
            return cls(**json.loads((folder / NOTE).read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise PlaceError(
                f"{folder / NOTE}, which says which lake this is, cannot be read ({error})",
                "remove it if the lake was neither copied nor moved: it is written anew",
            ) from None

    def write(self, folder: Path, *, anew: bool = False) -> None:
        """Write the record into the lake's folder atomically. An existing record is replaced only if `anew` is set."""
        draft = folder / f".{NOTE}-{uuid.uuid4().hex[:8]}"
        draft.write_text(json.dumps(asdict(self), indent=1) + "\n")
        if not anew and (folder / NOTE).exists():
            draft.unlink()
            return
        draft.replace(folder / NOTE)


def check_place(settings: Settings, catalog: Path | None, *, makes: bool) -> None:
    """Raise `PlaceError` if the lake's tables refer to files in another location.

    `catalog` is the path of the lake's SQLite catalog, or None for another kind of catalog. If `makes` is set and the
    lake has no record of its location, a record is written.
    """
    if settings.on_s3:
        return
    folder = Path(settings.warehouse)
    note = LakeNote.read(folder)
    if note is None:
        named = places_of(rows_of(catalog)) if catalog is not None and is_inside(catalog, folder) else []
        note = LakeNote.of(next((one for one in named if not same_place(one, folder)), str(folder)))
        if makes:
            # If the lake's folder is read-only, the record of its location cannot be written.
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                note.write(folder)
    if same_place(note.place, folder):
        return
    raise _misplaced(note, folder)


def _misplaced(note: LakeNote, folder: Path) -> PlaceError:
    if is_copy(note):
        return PlaceError(
            f"the lake in {folder} is a copy of the one in {note.place}, and its tables still name the files there: "
            "whatever reads here reads that lake, and whatever writes or expires here would change it",
            "make the copy a lake of its own by `tailrace relocate`, or set TAILRACE_WAREHOUSE to the right one",
        )
    return PlaceError(
        f"the lake in {folder} was in {note.place}, and its tables still name their files there",
        "have them name the files here by `tailrace relocate`, or give the folder its former name again (a move, a "
        "link, a mount)",
    )


def is_copy(note: LakeNote) -> bool:
    """Return True if the lake that `note` describes still exists at the location that `note` records.

    If `note` was read from another folder, True means that the lake in that other folder is a copy.
    """
    there = Path(note.place)
    if not there.is_dir():
        return False
    with suppress(PlaceError):
        other = LakeNote.read(there)
        # A lake from an early version of Tailrace has no record of its location, but its catalog file shows that it
        # exists.
        return other.id == note.id if other is not None else (there / "catalog.db").exists()
    return True


def same_place(place: str, folder: Path) -> bool:
    """Return True if two paths lead to the same folder."""
    if place == str(folder):
        return True
    with suppress(OSError):
        return os.path.samefile(place, folder)
    return False


def is_inside(file: Path, folder: Path) -> bool:
    """Return True if a file is directly in a folder, so that moving the folder also moves the file."""
    return same_place(str(file.parent), folder)


def rows_of(catalog: Path) -> list[tuple[str, str, str]]:
    """List each table in an SQLite catalog: its namespace, its name, and the location of its metadata file.

    The list is empty if the catalog does not exist or cannot be read.
    """
    if not catalog.is_file():
        return []
    with suppress(sqlite3.Error), closing(sqlite3.connect(catalog, timeout=60)) as connection:
        text = "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables"
        return [one for one in connection.execute(text) if one[2]]
    return []


def places_of(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """Derive the warehouse folders of a catalog's tables from the locations of the tables' metadata files.

    >>> places_of([("main", "rides", "file:///srv/lake/main/rides/metadata/00001-a.metadata.json")])
    ['/srv/lake']
    """
    found = dict[str, None]()
    for space, name, at in rows:
        ending = rf"/{re.escape(space)}/{re.escape(name)}/metadata/[^/]+"
        if (match := re.fullmatch(rf"(/.+?){ending}", path_of(at))) is not None:
            found[match[1]] = None
    return list(found)


def path_of(address: str) -> str:
    """Return the path of a local file from any form of its address; return the address of any other file unchanged.

    >>> path_of("file:///srv/a"), path_of("file:/srv/a"), path_of("/srv/a"), path_of("s3://b/a")
    ('/srv/a', '/srv/a', '/srv/a', 's3://b/a')
    """
    return re.sub(r"^file:(//(?=/)|(?=/[^/]))", "", address)
