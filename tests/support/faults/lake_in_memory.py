"""A lake in memory: what `lake.catalog.table_protocol` asks for, with rows as plain mappings.

It behaves as the catalog's tables do, as far as the protocol can tell: tests/lake holds both to the same claims.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.lake.catalog.events import Notice, ignore_notice
from tailrace.lake.catalog.table_protocol import MAIN, MAINTAINED, Commit, FileChange, Head, head_of_commits
from tailrace.lake.schema.contracts import Contract
from tailrace.lake.schema.lake_errors import LakeError, MovedError

Row = Mapping[str, Any]

MANY = 4
"""After so many commits a small table's rows are put together: few, so that schedules come to it."""


@dataclass(frozen=True)
class Snapshot:
    """What a commit made of its parent: rows added, or all rows put in place of what was there."""

    id: int
    parent: int | None
    properties: Mapping[str, str]
    added: tuple[Row, ...]
    replaces: bool = False


@dataclass
class Table:
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    refs: dict[str, int] = field(default_factory=dict)

    def lineage(self, at: int | None) -> list[Snapshot]:
        found = []
        while at is not None:
            found.append(self.snapshots[at])
            at = found[-1].parent
        return found


@dataclass
class MemoryLake:
    """The tables of one lake, for every writer of it."""

    tables: dict[str, Table] = field(default_factory=dict)
    tell: Callable[[Notice], None] = ignore_notice
    _ids: Iterable[int] = field(default_factory=lambda: itertools.count(1))

    def spark_name(self, table: str, branch: str | None = None) -> str:
        return table if branch is None else f"{table}.{branch}"

    def ensure(self, contract: Contract, properties: Mapping[str, str] | None = None) -> Table:
        return self.made(contract.table, properties)

    def made(self, table: str, properties: Mapping[str, str] | None = None) -> Table:
        if table not in self.tables:
            self.tables[table] = Table()
            self.write(table, MAIN, (), properties or {})
        return self.tables[table]

    def head(self, table: str, branch: str = MAIN) -> Head:
        held = self._table(table)
        commits = [Commit(one.id, one.properties) for one in held.lineage(held.refs.get(branch))]
        found = head_of_commits(commits)
        return Head(found.snapshot, found.properties, len(self.contents(table, found.snapshot)))

    def refs(self, table: str) -> dict[str, int]:
        return dict(self._table(table).refs)

    def commits(self, table: str) -> list[Commit]:
        held = self._table(table)
        return [Commit(one.id, one.properties) for one in held.lineage(held.refs.get(MAIN))]

    def move(self, table: str, branch: str, to: int, expected: int | None) -> None:
        held = self._table(table)
        if held.refs.get(branch) not in (expected, to):
            raise MovedError(f"branch {branch} of {table} moved away from snapshot {expected}")
        held.refs[branch] = to

    def unname(self, table: str, names: Collection[str]) -> None:
        for name in names:
            self._table(table).refs.pop(name, None)

    def mark(self, table: str, properties: Mapping[str, str], expected: int | None) -> int:
        return self.enter(table, (), properties, expected)

    def graft(self, table: str, staged: int, properties: Mapping[str, str], expected: int | None) -> int:
        return self.enter(table, self._table(table).snapshots[staged].added, properties, expected)

    def rows(self, table: str) -> tuple[int | None, list[dict[str, Any]]]:
        at = self._table(table).refs.get(MAIN)
        return at, [dict(row) for row in self.contents(table, at)]

    def gather(self, table: str) -> None:
        head, lineage = self.head(table), self._table(table).lineage(self._table(table).refs.get(MAIN))
        since = next((place for place, one in enumerate(lineage) if one.replaces), len(lineage))
        if since >= MANY:
            rows = self.contents(table, head.snapshot)
            self.write(table, MAIN, rows, {**head.properties, MAINTAINED: "true"}, replaces=True)

    def enter(self, table: str, rows: Sequence[Row], properties: Mapping[str, str], expected: int | None) -> int:
        if self._table(table).refs.get(MAIN) != expected:
            raise MovedError(f"{table} moved away from snapshot {expected}")
        return self.write(table, MAIN, rows, properties)

    def change(self, table: str, change: FileChange, properties: Mapping[str, str], expected: int | None) -> int:
        if self._table(table).refs.get(MAIN) != expected:
            raise MovedError(f"{MAIN} of {table} moved away from snapshot {expected}")
        return self.write(table, MAIN, change.added, properties, replaces=bool(change.removed))

    def write(
        self, table: str, branch: str, rows: Sequence[Row], properties: Mapping[str, str], *, replaces: bool = False
    ) -> int:
        """What an engine does: append rows to a branch wherever it stands, or put them in place of all it has."""
        held = self._table(table)
        if branch != MAIN and branch not in held.refs:
            raise LakeError(f"there is no branch {branch} of {table}")
        one = Snapshot(next(iter(self._ids)), held.refs.get(branch), dict(properties), tuple(rows), replaces)
        held.snapshots[one.id] = one
        held.refs[branch] = one.id
        return one.id

    def contents(self, table: str, at: int | None) -> list[Row]:
        """The rows as of a snapshot, in the order of their commits."""
        found: list[tuple[Row, ...]] = []
        for one in self._table(table).lineage(at):
            found.append(one.added)
            if one.replaces:
                break
        return [row for added in reversed(found) for row in added]

    def gained(self, table: str, since: int | None, until: int) -> list[Row]:
        """The rows that the commits after one snapshot up to another have added."""
        lineage = self._table(table).lineage(until)
        known = [one.id for one in lineage]
        new = lineage if since is None else lineage[: known.index(since)]
        return [row for one in reversed(new) for row in one.added]

    def _table(self, table: str) -> Table:
        if table not in self.tables:
            raise LakeError(f"there is no table {table}")
        return self.tables[table]
