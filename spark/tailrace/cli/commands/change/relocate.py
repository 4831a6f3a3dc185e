"""`tailrace relocate`: make a copied or moved lake independent of the first."""

from __future__ import annotations

from dataclasses import asdict

from tailrace.cli.runtime.options import Json
from tailrace.cli.runtime.process import skip_unused_imports
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.formats import quantity
from tailrace.settings import Settings


def relocate(json: Json = False) -> None:
    """Make a lake that was copied or moved one of its own: its tables then name the files where it is.

    Iceberg's tables name each file by its whole path, so a copy's still name those of the first lake, and nothing opens
    a lake that is not at its place. The lake is the one that TAILRACE_WAREHOUSE names. What names files is written
    anew, data files stay as they are, and the lake that it came from is not touched. A relocation that died is run
    again. Nothing may write to the lake meanwhile. Starts no Spark.
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
