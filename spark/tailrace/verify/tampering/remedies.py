"""Define the remedies for faults that an audit finds.

A failed check is shown together with the command that repairs it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

_BACKFILL = "`tailrace backfill {definition}` of the range computes it anew from the log"
_RESTORE = (
    "`tailrace restore {definition} --epoch N` goes back to the end of an epoch before it went wrong, and the next "
    "stream folds the log again from there"
)
_LOG = (
    "a copy of the lake has what is gone from a log or from its rejected records; `tailrace restore {definition} "
    "--epoch N --log` goes back to before that, and the source is read again from there"
)

REMEDIES: Mapping[str, str] = {
    "panes give the answers": "`tailrace repair answers {definition}` writes the answers anew from the ledger",
    "every record is in a window or late": _BACKFILL,
    "answers are the batch answers": _BACKFILL,
    "pairs are the batch's": _BACKFILL,
    "rows are the batch's": _BACKFILL,
    "corrections reached it": _BACKFILL,
    "corrections came in time": _BACKFILL,
    "records are those that were landed": _LOG,
    "rejected are those that were landed": _LOG,
    "no record was landed twice": _LOG,
    "no record came again within the horizon": _LOG,
    "every commit is this lake's own": (
        "see what the commits did; one that is to stay is accepted by `tailrace repair accept {definition} COMMIT "
        '--reason "…"`, and what it changed is compared all the same'
    ),
    "files are there": "bring the files back from a copy of the lake; nothing that was published can be read without",
    "files are there and whole": "bring the files back from a copy of the lake, as they were written",
    "the rows add up": "bring the files back, and audit again",
    "the tables are of one time": (
        "a table was set back by another hand: move its `main` to where it was, or `tailrace restore {definition} "
        "--epoch N` sets all tables back to one epoch"
    ),
}
"""A mapping from a check's name to the remedy for a failure of this check.

For checks that are not listed, the remedy is a restore.
"""


def remedy(check: str, definition: str) -> str:
    """Return the remedy for a check that failed; `definition` is the definition's name on the command line."""
    return REMEDIES.get(check, _RESTORE).format(definition=shlex.quote(definition))
