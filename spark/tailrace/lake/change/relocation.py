"""Make a lake that was copied or moved one of its own: have its catalog and its tables name the files where they are.

All that names files is written anew beside what is there (`lake.metadata.moved_files`), for every table and view of
every namespace; then one transaction of the catalog's database has all of them name the new metadata, and the lake gets
an id of its own. A relocation that dies before the transaction has changed nothing, and one that dies after it has only
the id left to write: run it again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables, SqlCatalog
from sqlalchemy import update
from sqlalchemy.orm import Session

from tailrace.lake.catalog.backends import Postgres, Sqlite, kind, storage
from tailrace.lake.catalog.sqlite import changing
from tailrace.lake.metadata.lake_place import LakeNote, copied, is_inside, places_of, same_place
from tailrace.lake.metadata.moved_files import Renaming
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.settings import Settings


class RelocationError(LakeError):
    """A lake that cannot be made one of its own where it is."""


@dataclass(frozen=True)
class Relocated:
    """The result of a relocation: where the lake was and is, its new id, and how much was written anew.

    `copied` says that the lake is still where it was, too. `elsewhere` counts data files outside the lake, which it and
    the one that it came from both name. A lake that is at its place is not `relocated`.
    """

    before: str
    now: str
    id: str
    tables: int
    files: int
    elsewhere: int
    copied: bool
    relocated: bool = True


def relocate(settings: Settings) -> Relocated:
    """Have a lake's tables name the files where the lake is now, and give it an id of its own.

    Raises `RelocationError` where that cannot be done, and `PlaceError` where a file is missing.
    """
    folder = Path(settings.warehouse)
    catalog = _catalog(settings, folder)
    with closing(catalog), Session(catalog.engine) as session:
        rows = [
            (one.table_namespace, one.table_name, one.metadata_location or "") for one in session.query(IcebergTables)
        ]
        named, note = places_of(rows), LakeNote.read(folder)
        before = note or LakeNote.of(next((one for one in named if not same_place(one, folder)), str(folder)))
        if same_place(before.place, folder):
            return Relocated(before.place, str(folder), before.id, 0, 0, 0, copied=False, relocated=False)
        is_copy = copied(before)
        if is_copy and not _goes_along(settings, folder):
            raise RelocationError(
                f"the lake in {before.place} uses the catalog {kind(settings).named} too, so its tables would be taken "
                "from it: copy the catalog as well, with its database, and set TAILRACE_CATALOG_URI to the copy"
            )
        renaming = Renaming(_former(before, named), str(folder))
        count = _renamed(session, renaming)
        session.commit()
    new = LakeNote.of(str(folder))
    new.write(folder, anew=True)
    return Relocated(before.place, str(folder), new.id, count, renaming.files, len(renaming.elsewhere), is_copy)


def _former(before: LakeNote, named: Iterable[str]) -> list[str]:
    """List the names of the folder that a lake was in: tables may be made by several, where there are links to it."""
    real = {before.real, os.path.realpath(before.place)}
    return list(dict.fromkeys([before.place, before.real, *(one for one in named if os.path.realpath(one) in real)]))


def _renamed(session: Session, renaming: Renaming) -> int:
    """Have each table and view of the lake name its files where they are, in an open transaction; count them."""
    tables = 0
    for row in session.query(IcebergTables).all():
        old = row.metadata_location
        if not old or renaming.renamed(old) in (None, old):
            continue
        key = (IcebergTables.catalog_name == row.catalog_name, IcebergTables.table_namespace == row.table_namespace)
        mine = (*key, IcebergTables.table_name == row.table_name, IcebergTables.metadata_location == old)
        new = {"metadata_location": renaming.metadata(old), "previous_metadata_location": None}
        if session.execute(update(IcebergTables).where(*mine).values(**new)).rowcount != 1:  # type: ignore[attr-defined]
            session.rollback()
            raise RelocationError(f"{row.table_name} was committed to meanwhile: stop what writes to it, and try again")
        tables += 1
    for space in session.query(IcebergNamespaceProperties):
        space.property_value = renaming.renamed(space.property_value) or space.property_value
    return tables


def _goes_along(settings: Settings, folder: Path) -> bool:
    """Tell whether the catalog lies in the lake's folder, and so was copied with it."""
    there = kind(settings)
    return isinstance(there, Sqlite) and is_inside(there.file, folder)


def _catalog(settings: Settings, folder: Path) -> SqlCatalog:
    """Open the catalog, whatever place its tables name."""
    there = kind(settings)
    if settings.on_s3:
        raise RelocationError(
            f"the lake is in {settings.warehouse}: only a lake in a folder can be relocated; objects of a bucket keep "
            "their names, and a copy of a bucket needs a catalog of its own, into which its tables are registered"
        )
    if not isinstance(there, Sqlite | Postgres):
        raise RelocationError(
            f"the catalog {there.named} alone can say where its tables' metadata is: move the folder back, or register "
            "the tables with the catalog anew"
        )
    if not there.there or not folder.is_dir():
        raise RelocationError(f"there is no lake in {folder}: set TAILRACE_WAREHOUSE to the folder that it is in now")
    catalog = changing(there.opened(storage(settings)[0]))
    assert isinstance(catalog, SqlCatalog)
    return catalog
