"""The errors of the lake's tables."""

from __future__ import annotations

from tailrace.model.base.errors import TailraceError


class LakeError(TailraceError, RuntimeError):
    """The catalog or a table is not as it has to be."""


class MovedError(LakeError):
    """A table moved while a commit to it was being written; nothing of that commit is in the table."""


class FencedError(LakeError):
    """Another writer has taken the lease: this writer may not commit any more (rule X1)."""


class LentError(LakeError):
    """A run has borrowed this writer's lease: the writer waits, and goes on from what the run leaves (rule X4)."""


class OtherDefinitionError(LakeError):
    """The tables belong to a definition with another meaning."""
