"""Check the lake for `tailrace doctor`: the warehouse, the catalog, the catalog's conflict check, and commit times."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from tailrace.doctor.findings import UnseenError, fault, permission_advice
from tailrace.lake.catalog.backends import catalog_kind, open_catalog
from tailrace.lake.catalog.lake import Lake, no_rows
from tailrace.lake.catalog.sqlite import changing_catalog
from tailrace.lake.catalog.transactions import open_transaction
from tailrace.lake.metadata.commit_times import EARLIEST, now_milliseconds
from tailrace.lake.schema.lake_errors import LakeError, MovedError
from tailrace.lake.upkeep.time_mending import SERVED, can_mend, wrong_times
from tailrace.model.base.errors import line_of
from tailrace.settings import Settings

SCRATCH = "_doctor"
"""The folder in the warehouse to which checks write. The checks remove all files that they write there."""

LITTLE = 10**9
"""The minimum free space of a warehouse, in bytes. With less free space, the check reports a fault."""


def check_folder(settings: Settings) -> str:
    """Check that the warehouse's folder is writable and has enough free space; return a text with the free space."""
    place = Path(settings.warehouse)
    there = next(one for one in (place, *place.parents) if one.exists())
    if not there.is_dir():
        raise fault("file-for-folder", folder=there)
    try:
        if there == place:
            with tempfile.TemporaryFile(dir=place) as file:
                file.write(b"doctor")
                file.flush()
                os.fsync(file.fileno())
        else:
            # The first stream creates the warehouse, so this check only tests whether the folder can be created.
            with tempfile.TemporaryDirectory(dir=there, prefix=".tailrace-doctor-"):
                pass
    except OSError as error:
        raise fault("barred-folder", folder=there, why=error.strerror) from error
    free = shutil.disk_usage(there).free
    if free < LITTLE:
        raise fault("full-folder", folder=there, free=free / 1e6)
    access = "can be written" if there == place else "is not there yet, and can be made"
    return f"{place} {access}, {free / 1e9:,.0f} GB free"


def check_catalog(settings: Settings) -> str:
    """Check that the catalog can be opened and has the namespace, and return a text with the number of tables."""
    there = catalog_kind(settings)
    if not there.exists:
        raise UnseenError(f"{there.label} is not there yet", "the first stream makes it")
    try:
        with closing(open_catalog(settings)) as found:
            if not found.namespace_exists(settings.namespace):
                raise UnseenError(
                    f"{there.label} has no namespace {settings.namespace} yet",
                    "the first stream makes it; TAILRACE_NAMESPACE names another",
                )
            tables = found.list_tables(settings.namespace)
    except (LakeError, UnseenError):
        raise
    except Exception as error:
        advice = permission_advice(error)
        raise fault("closed-catalog", advice, catalog=there.label, why=line_of(error)) from error
    return f"{there.label}: namespace {settings.namespace}, {len(tables)} {'table' if len(tables) == 1 else 'tables'}"


def check_times(settings: Settings) -> str:
    """Check that this machine's clock is plausible, and that each table's commit times are in order and in the past."""
    if now_milliseconds() < EARLIEST:
        raise fault("old-clock")
    lake = Lake(settings, looks=True)
    if not lake.exists:
        raise UnseenError("there is no table yet", "the first stream makes them")
    tables = lake.tables
    if wrong := wrong_times(lake, tables):
        name = "odd-times" if can_mend(lake) else "odd-served-times"
        raise fault(name, times="; ".join(map(str, wrong)), served=SERVED)
    return f"the commits of {len(tables)} {'table' if len(tables) == 1 else 'tables'} are dated in order"


def check_swap(settings: Settings, sweep: Callable[[str], None]) -> str:
    """Check that the catalog refuses a commit to a scratch table if another commit has changed the table first.

    If a catalog accepts a commit that is based on an outdated version of a table, the table loses an earlier commit
    without an error. Every guarantee of Tailrace therefore depends on this refusal. `sweep` removes all files below an
    address.
    """
    ours, theirs = Lake(settings), Lake(settings)
    name = f"doctor_{uuid.uuid4().hex[:12]}"
    with closing(ours.catalog), closing(theirs.catalog):
        ours.catalog.create_table(
            (settings.namespace, name),
            Schema(NestedField(1, "n", LongType())),
            location=f"{settings.warehouse_uri}/{SCRATCH}/{name}",
        )
        try:
            refused = _refuses_overtaken(ours, theirs, name)
            snapshots = theirs.table(name).metadata.snapshots
        finally:
            _drop_scratch(ours, name, sweep)
    if refused and len(snapshots) == 1:
        return "a commit that was overtaken by another is refused"
    broken = "kept-refused-commit" if refused else "lost-commit"
    raise fault(broken, catalog=catalog_kind(settings).label)


def _refuses_overtaken(ours: Lake, theirs: Lake, name: str) -> bool:
    """Return True if a commit is refused because another commit has changed the table after the table was loaded."""
    staged = ours.table(name)

    def first() -> None:
        loaded = theirs.table(name)
        with open_transaction(loaded) as transaction:
            transaction.append(no_rows(loaded.schema()))

    catalog = changing_catalog(ours.catalog)
    if isinstance(catalog, MetastoreCatalog):
        stage, gone = catalog._update_and_stage_table, list[bool]()

        def between(*args: Any) -> Any:
            made = stage(*args)
            if not gone:
                gone.append(True)
                first()
            return made

        vars(catalog)["_update_and_stage_table"] = between
    else:
        # A catalog server compares the table version on which a commit is based, so a staged commit with an old base is
        # enough for this test.
        first()
    try:
        with open_transaction(staged) as transaction:
            transaction.append(no_rows(staged.schema()))
    except MovedError:
        return True
    return False


def _drop_scratch(lake: Lake, name: str, sweep: Callable[[str], None]) -> None:
    """Drop the scratch table, and remove all of its files, including the files of refused commits."""
    try:
        table = lake.table(name)
        lake.catalog.drop_table((lake.settings.namespace, name))
    except NoSuchTableError:
        return
    except Exception as error:
        table_name, advice = f"{lake.settings.namespace}.{name}", permission_advice(error)
        raise fault("left-table", advice, table=table_name, why=line_of(error)) from error
    sweep(table.location())


def remove_folder(address: str) -> None:
    """Remove a folder of this machine, and also its parent folder if the parent folder is then empty."""
    place = Path(address.removeprefix("file://"))
    shutil.rmtree(place)
    with suppress(OSError):
        place.parent.rmdir()
