"""Detect that a lake was copied or moved, so that its tables name files in another place.

Iceberg's metadata names every file by its full path. The tables of a copied lake still name the first lake's files: a
stream of the copy would write there, and its expiry would delete there. So each lake in a folder has a file with its id
and its place, and a lake in another place is not opened.

A place is a folder under any name: links, mounts and relative paths to one folder are the same place.
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
"""The file in a lake's folder with the lake's id and place."""


class PlaceError(CatalogError):
    """The lake is not at the place that its tables name: it was copied or moved."""


@dataclass(frozen=True)
class LakeNote:
    """The id of a lake, its folder as its tables name it, and the same folder without links."""

    id: str
    place: str
    real: str

    @classmethod
    def of(cls, place: str) -> LakeNote:
        """Make the note of a new lake."""
        return cls(uuid.uuid4().hex, place, os.path.realpath(place))

    @classmethod
    def read(cls, folder: Path) -> LakeNote | None:
        """Read the note in a folder; None if there is none."""
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
        """Write the note into a folder atomically; without `anew`, an existing note stays."""
        draft = folder / f".{NOTE}-{uuid.uuid4().hex[:8]}"
        draft.write_text(json.dumps(asdict(self), indent=1) + "\n")
        if not anew and (folder / NOTE).exists():
            draft.unlink()
            return
        draft.replace(folder / NOTE)


def check_place(settings: Settings, catalog: Path | None, *, makes: bool) -> None:
    """Raise `PlaceError` if the lake's tables name files in another place.

    `catalog` is the lake's SQLite file, if it has one. With `makes`, a lake without a note gets one.
    """
    if settings.on_s3:
        return
    folder = Path(settings.warehouse)
    note = LakeNote.read(folder)
    if note is None:
        named = places_of(rows_of(catalog)) if catalog is not None and is_inside(catalog, folder) else []
        note = LakeNote.of(next((one for one in named if not same_place(one, folder)), str(folder)))
        if makes:
            # A read-only lake cannot get a note.
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
    """Tell whether the lake of a note still exists at the note's place, so that another one is a copy."""
    there = Path(note.place)
    if not there.is_dir():
        return False
    with suppress(PlaceError):
        other = LakeNote.read(there)
        # A lake that an early version made has no note.
        return other.id == note.id if other is not None else (there / "catalog.db").exists()
    return True


def same_place(place: str, folder: Path) -> bool:
    """Tell whether two names mean the same folder."""
    if place == str(folder):
        return True
    with suppress(OSError):
        return os.path.samefile(place, folder)
    return False


def is_inside(file: Path, folder: Path) -> bool:
    """Tell whether a file is directly in a folder, so that it moves with the folder."""
    return same_place(str(file.parent), folder)


def rows_of(catalog: Path) -> list[tuple[str, str, str]]:
    """List the namespace, name and metadata location of each table in an SQLite catalog; empty if it does not exist."""
    if not catalog.is_file():
        return []
    with suppress(sqlite3.Error), closing(sqlite3.connect(catalog, timeout=60)) as connection:
        text = "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables"
        return [one for one in connection.execute(text) if one[2]]
    return []


def places_of(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """List the warehouse folders of a catalog's tables, from their metadata locations.

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
    """Return the path of a local file from any form of its address.

    >>> path_of("file:///srv/a"), path_of("file:/srv/a"), path_of("/srv/a"), path_of("s3://b/a")
    ('/srv/a', '/srv/a', '/srv/a', 's3://b/a')
    """
    return re.sub(r"^file:(//(?=/)|(?=/[^/]))", "", address)
