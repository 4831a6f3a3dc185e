"""Define the errors that are raised for the lake's catalog and tables."""

from __future__ import annotations

from tailrace.model.base.errors import RemedyError, TailraceError


class LakeError(TailraceError, RuntimeError):
    """The catalog or a table is not in the required state."""


class MovedError(LakeError):
    """A commit was not made, because another commit had changed the table in the meantime."""


class CatalogError(RemedyError, LakeError):
    """The catalog did not do what was requested; `found` states what the catalog did instead."""


class UnansweredError(CatalogError):
    """The catalog did not respond: the requested operation may have succeeded, or may still succeed later."""


class FencedError(LakeError):
    """Another writer has taken the lease, so this writer must not commit any more (rule X1)."""


class LentError(LakeError):
    """A run has borrowed this writer's lease; this writer waits, and then continues from the run's result (rule X4)."""


class OtherDefinitionError(LakeError):
    """The tables belong to a definition that computes something different from the given definition."""


class DamagedError(LakeError):
    """A file of the lake is missing or damaged: `file` is its address, and `found` describes the damage."""

    def __init__(self, what: str, file: str, found: str, more: int = 0) -> None:
        """Create the error; `what` names the damaged part, for example `the metadata of table hourly`.

        `more` is the number of further damaged files.
        """
        self.file, self.found = file, found
        others = f", and {more} more {'file' if more == 1 else 'files'}" if more else ""
        super().__init__(
            f"{what}, {file}, {found}{others}: nothing was written, and no other file is touched; put it back from a "
            "copy of the lake, or from an earlier version of the bucket, and run this again"
        )


class FormerShapeError(LakeError):
    """An earlier version of Tailrace created the table without columns that are needed to read it correctly."""
