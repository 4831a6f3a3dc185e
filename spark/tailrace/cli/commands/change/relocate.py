"""`tailrace relocate`: make a copied or moved lake independent of the original lake."""

from __future__ import annotations

from dataclasses import asdict

from tailrace.cli.runtime.process import skip_unused_imports
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.formats import quantity
from tailrace.settings import Settings


def relocate(json: bool = False) -> None:
    """Make a copied or moved lake independent of the original: its tables then name the files at the new place.

    An Iceberg table names each of its files by the full path, so the tables of a copied lake still name the files of
    the original lake. Every other command refuses to open such a copy. This command relocates the lake that
    TAILRACE_WAREHOUSE names: it rewrites the metadata, leaves the data files unchanged, and does not touch the original
    lake. If the command is interrupted, run it again. No other process may write to the lake while this command runs.
    Starts no Spark.
    """
    output = Output(json)
    skip_unused_imports()
    from tailrace.lake.change.relocation import relocate as run

    done = run(Settings())
    if json:
        output.data(asdict(done))
        return
    if not done.relocated:
        output.text(f"nothing to do: the tables of the lake in {done.now} name the files there")
        return
    output.text(
        f"the lake in {done.now} names its own files, no longer those in {done.before}: "
        f"{quantity(done.tables, 'table')}, {quantity(done.files, 'file')} written"
    )
    if done.elsewhere:
        output.text(f"{quantity(done.elsewhere, 'data file')} outside of it: both lakes name them, so keep them there")
    if done.copied:
        output.say(f"the lake in {done.before} is as it was")
