"""Make a copied or moved lake independent: its catalog and tables then refer to the files at their new location.

All tables and views of the lake, in all namespaces, are changed. A new version of each file that refers to other files
is written next to the old file (`lake.metadata.moved_files`). Then one transaction of the catalog's database switches
all tables to the new metadata, and the lake gets a new id. If a relocation is interrupted before the transaction,
nothing has changed. If a relocation is interrupted after the transaction, only the new id is missing. After any
interruption, run the relocation again.
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

from tailrace.lake.catalog.backends import Postgres, Sqlite, catalog_kind, storage_properties
from tailrace.lake.catalog.sqlite import changing_catalog
from tailrace.lake.change.refusal_texts import refusal_text
from tailrace.lake.metadata.lake_place import LakeNote, is_copy, is_inside, places_of, same_place
from tailrace.lake.metadata.moved_files import Renaming
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.settings import Settings


class RelocationError(LakeError):
    """The error that is raised if a lake cannot be relocated to its present location."""


@dataclass(frozen=True)
class Relocation:
    """The result of a relocation: the lake's old and new location, its new id, and the number of rewritten files.

    `copied` means that the old lake still exists. `elsewhere` is the number of data files that the lake's tables use,
    but that are outside the lake. `relocated` is False if the tables already referred to the lake's location.
    """

    before: str
    now: str
    id: str
    tables: int
    files: int
    elsewhere: int
    copied: bool
    relocated: bool = True


def relocate(settings: Settings) -> Relocation:
    """Make a lake's tables refer to the files at the lake's present location, and give the lake a new id.

    Raises `RelocationError` if the lake cannot be relocated, and `PlaceError` if a file is missing.
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
            return Relocation(before.place, str(folder), before.id, 0, 0, 0, copied=False, relocated=False)
        copied = is_copy(before)
        if copied and not _goes_along(settings, folder):
            label = catalog_kind(settings).label
            raise RelocationError(refusal_text("shared-catalog", before=before.place, catalog=label))
        renaming = Renaming(_former(before, named), str(folder))
        count = _renamed(session, renaming)
        session.commit()
    new = LakeNote.of(str(folder))
    new.write(folder, anew=True)
    return Relocation(before.place, str(folder), new.id, count, renaming.files, len(renaming.elsewhere), copied)


def _former(before: LakeNote, named: Iterable[str]) -> list[str]:
    """List all paths by which a lake's tables may refer to its old folder, including paths with symbolic links."""
    real = {before.real, os.path.realpath(before.place)}
    return list(dict.fromkeys([before.place, before.real, *(one for one in named if os.path.realpath(one) in real)]))


def _renamed(session: Session, renaming: Renaming) -> int:
    """Switch the lake's tables and views to their new metadata in an open transaction; return the number of switched
    tables and views.
    """
    tables = 0
    for row in session.query(IcebergTables).all():
        old = row.metadata_location
        if not old or renaming.new_address(old) in (None, old):
            continue
        key = (IcebergTables.catalog_name == row.catalog_name, IcebergTables.table_namespace == row.table_namespace)
        mine = (*key, IcebergTables.table_name == row.table_name, IcebergTables.metadata_location == old)
        new = {"metadata_location": renaming.rewrite_metadata(old), "previous_metadata_location": None}
        if session.execute(update(IcebergTables).where(*mine).values(**new)).rowcount != 1:  # type: ignore[attr-defined]
            session.rollback()
            raise RelocationError(refusal_text("committed-meanwhile", table=row.table_name))
        tables += 1
    for space in session.query(IcebergNamespaceProperties):
        space.property_value = renaming.new_address(space.property_value) or space.property_value
    return tables


def _goes_along(settings: Settings, folder: Path) -> bool:
    """Return True if the catalog is in the lake's folder, and was therefore copied with the lake."""
    there = catalog_kind(settings)
    return isinstance(there, Sqlite) and is_inside(there.file, folder)


def _catalog(settings: Settings, folder: Path) -> SqlCatalog:
    """Open the lake's catalog without checking the lake's location."""
    there = catalog_kind(settings)
    if settings.on_s3:
        raise RelocationError(refusal_text("bucket", warehouse=settings.warehouse))
    if not isinstance(there, Sqlite | Postgres):
        raise RelocationError(refusal_text("served-catalog", catalog=there.label))
    if not there.exists or not folder.is_dir():
        raise RelocationError(refusal_text("no-lake", folder=folder))
    catalog = changing_catalog(there.open(storage_properties(settings)[0]))
    assert isinstance(catalog, SqlCatalog)
    return catalog
