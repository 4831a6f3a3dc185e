"""Tell a lake that was copied or moved, whose tables name the files of another place.

Iceberg's metadata names every file by its whole path. The tables of a lake that was copied are so those of the first
one: a stream of the copy writes there, and its expiry deletes there. Each lake in a folder has therefore an id and its
place in a file beside its tables, and nothing opens a lake that is elsewhere than its place.

A place is a folder, whatever it is called: links, mounts and relative paths to it are the same place.
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
"""The file of a lake's folder that says which lake it is, and where."""


class PlaceError(CatalogError):
    """The lake is not where its tables say that it is: it was copied or moved."""


@dataclass(frozen=True)
class LakeNote:
    """The id of a lake, its folder as its tables name it, and that folder without links."""

    id: str
    place: str
    real: str

    @classmethod
    def of(cls, place: str) -> LakeNote:
        """Make the note of a new lake."""
        return cls(uuid.uuid4().hex, place, os.path.realpath(place))

    @classmethod
    def read(cls, folder: Path) -> LakeNote | None:
        """Read the note of a folder; None where there is none."""
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
        """Write the note into a folder, all or nothing; without `anew` one that is there stays."""
        draft = folder / f".{NOTE}-{uuid.uuid4().hex[:8]}"
        draft.write_text(json.dumps(asdict(self), indent=1) + "\n")
        if not anew and (folder / NOTE).exists():
            draft.unlink()
            return
        draft.replace(folder / NOTE)


def check_place(settings: Settings, catalog: Path | None, *, makes: bool) -> None:
    """Raise `PlaceError` where the lake's tables are those of another place.

    `catalog` is its SQLite file, if it has one. A lake without a note gets one where it may be changed (`makes`).
    """
    if settings.on_s3:
        return
    folder = Path(settings.warehouse)
    note = LakeNote.read(folder)
    if note is None:
        named = places_of(rows_of(catalog)) if catalog is not None and is_inside(catalog, folder) else []
        note = LakeNote.of(next((one for one in named if not same_place(one, folder)), str(folder)))
        if makes:
            # A lake that may only be read gets none.
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                note.write(folder)
    if same_place(note.place, folder):
        return
    raise _misplaced(note, folder)


def _misplaced(note: LakeNote, folder: Path) -> PlaceError:
    if copied(note):
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


def copied(note: LakeNote) -> bool:
    """Tell whether the lake of a note is still at the place that the note names, too."""
    there = Path(note.place)
    if not there.is_dir():
        return False
    with suppress(PlaceError):
        other = LakeNote.read(there)
        # A lake of before there were notes has none.
        return other.id == note.id if other is not None else (there / "catalog.db").exists()
    return True


def same_place(place: str, folder: Path) -> bool:
    """Tell whether two names are of one folder."""
    if place == str(folder):
        return True
    with suppress(OSError):
        return os.path.samefile(place, folder)
    return False


def is_inside(file: Path, folder: Path) -> bool:
    """Tell whether a file lies in a folder itself, and so goes where the folder goes."""
    return same_place(str(file.parent), folder)


def rows_of(catalog: Path) -> list[tuple[str, str, str]]:
    """List namespace, name and place of the metadata of each table of a catalog in a file; none where there is none."""
    if not catalog.is_file():
        return []
    with suppress(sqlite3.Error), closing(sqlite3.connect(catalog, timeout=60)) as connection:
        text = "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables"
        return [one for one in connection.execute(text) if one[2]]
    return []


def places_of(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """List the folders that tables of a catalog lie in, as warehouses, by where their metadata is.

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
    """Return the path of a file of this machine, by its address in any of its forms.

    >>> path_of("file:///srv/a"), path_of("file:/srv/a"), path_of("/srv/a"), path_of("s3://b/a")
    ('/srv/a', '/srv/a', '/srv/a', 's3://b/a')
    """
    return re.sub(r"^file:(//(?=/)|(?=/[^/]))", "", address)
