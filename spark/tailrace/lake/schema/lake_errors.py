"""The errors of the lake's tables."""

from __future__ import annotations

from tailrace.model.base.errors import TailraceError


class LakeError(TailraceError, RuntimeError):
    """The catalog or a table is not as it has to be."""


class MovedError(LakeError):
    """A table moved while a commit to it was being written; nothing of that commit is in the table."""


class CatalogError(LakeError):
    """The catalog does not do what it is asked: `found` says what it does, and `mend` how to mend it."""

    def __init__(self, found: str, mend: str) -> None:
        self.found, self.mend = found, mend
        super().__init__(f"{found}: {mend}")


class UnansweredError(CatalogError):
    """The catalog did not answer: what it was asked to do may have been done, or may still be."""


class FencedError(LakeError):
    """Another writer has taken the lease: this writer may not commit any more (rule X1)."""


class LentError(LakeError):
    """A run has borrowed this writer's lease: the writer waits, and goes on from what the run leaves (rule X4)."""


class OtherDefinitionError(LakeError):
    """The tables belong to a definition with another meaning."""


class DamagedError(LakeError):
    """A file of the lake is missing or damaged: `file` is its address, `found` how it was met."""

    def __init__(self, what: str, file: str, found: str, more: int = 0) -> None:
        """Describe the damage of `what`, such as `the metadata of table hourly`; `more` other files are damaged."""
        self.file, self.found = file, found
        others = f", and {more} more {'file' if more == 1 else 'files'}" if more else ""
        super().__init__(
            f"{what}, {file}, {found}{others}: nothing was written, and no other file is touched; put it back from a "
            "copy of the lake, or from an earlier version of the bucket, and run this again"
        )


class FormerShapeError(LakeError):
    """A table that an earlier version made, and that lacks columns which nothing can do without."""
