"""Claim the ids of a computation's output before its epoch is written (`model.definition.once`; Photon's IdRegistry).

Only one claimant can claim an id, so each id is output at most once. An epoch's claims are published before the epoch
itself. If the process dies between these two publications, the ledger lacks the output rows (productions) whose ids are
claimed. The epoch is then folded again from the same state and the same records, by the same claimant. If this claimant
has claimed an id, but the ledger lacks the production with this id, the production must still be written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import stamina

from tailrace.engines.protocol import Consumed, Records, Side, State, Stepped
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.registry import Registry
from tailrace.lake.commit.lease import Lease
from tailrace.lake.schema.contracts import PRODUCTION
from tailrace.lake.schema.filters import Filter, equal, every, since, up_to
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.model.definition.computation import Computation
from tailrace.model.logs.log import PANE_TIME
from tailrace.sql.records.stage_records import claimed_ids
from tailrace.sql.terms import Condition, Query, Relation

SOONEST, LATEST = 0.05, 5.0
"""The initial and the maximum waiting time, in seconds, before a claimant retries.

A claimant retries if another claimant has committed first.
"""


class Known(Protocol):
    """What a process remembers of a registry, and of the ids that it has output itself."""

    def as_of(self, snapshot: int | None, first: int) -> Relation:
        """Return a relation of the registry's claims at a snapshot with the event time `first` or a later one.

        `first` is in microseconds. The relation may also contain earlier claims.
        """

    def output(self, epoch: int) -> Relation:
        """Return a relation of the ids that this process has output before an epoch. Ids may be missing."""

    def will_output(self, epoch: int, ids: Relation | None) -> None:
        """Remember the ids that an epoch outputs, instead of those that an earlier try of the epoch would have."""


_ID = ("id", PANE_TIME)
CLAIM_PLACE = ("source_partition", "source_offset")
"""The columns that identify a production (an output row of a computation) within an epoch."""


@dataclass(frozen=True)
class _Wanted:
    """The productions (output rows) of an epoch whose ids are to be claimed.

    `relation` contains the ids and positions of the productions, `rows` is the number of productions, and `ids` is the
    number of distinct ids. `first` and `last` are the first and the last event time of the productions, in
    microseconds.
    """

    relation: Relation
    ids: int
    rows: int
    first: int
    last: int

    @property
    def files(self) -> Filter:
        """The filter for the files that can have rows with event times from `first` to `last`."""
        return every(since(PANE_TIME, self.first), up_to(PANE_TIME, self.last))

    @property
    def within(self) -> Condition:
        """The SQL condition that a row's event time is between `first` and `last`, both included."""
        return Condition(f"{PANE_TIME} BETWEEN TIMESTAMP_MICROS({self.first}L) AND TIMESTAMP_MICROS({self.last}L)")


class Claiming:
    """Claims the ids of one computation's output rows. `lease` is the lease on the computation's ledger."""

    def __init__(self, lake: Lake, computation: Computation, lease: Lease) -> None:
        self.computation, self.lease = computation, lease
        self.registry = Registry(lake, computation, lease.token)

    def left_out(self, session: Session, rows: Relation, epoch: int, known: Known | None = None) -> Relation | None:
        """Claim the ids of an epoch's productions; return a relation of the productions that must not be output.

        The relation has one row per such production, with the columns that identify the production within the epoch
        (`CLAIM_PLACE`). `rows` is a relation of the computed ledger rows. Returns None if all productions may be
        output. A production must not be output if another claimant has claimed its id, if its id is already in the
        ledger, or if an earlier production in the same epoch has the same id. Such a production is written to the
        ledger as a `claimed` row. `known` looks up the registry's claims; if `known` is None, the registry itself is
        read.
        """
        wanted = self._wanted(session, rows)
        if not wanted.rows:
            if known is not None:
                known.will_output(epoch, None)
            return None
        counting, all_count = self._counting(session, wanted, epoch, known)
        if known is not None:
            known.will_output(epoch, counting)
        if all_count and wanted.ids == wanted.rows:
            return None
        same = " AND ".join(f"w.{name} = c.{name}" for name in _ID)
        places = ", ".join(f"w.{name}" for name in CLAIM_PLACE)
        others = f"FROM {wanted.relation} w LEFT JOIN {counting} c ON {same} WHERE w.place > 1 OR c.id IS NULL"
        return session.materialized(Query(f"SELECT {places} {others}"))

    def close(self) -> None:
        """Close the registry of claims."""
        self.registry.close()

    def _wanted(self, session: Session, rows: Relation) -> _Wanted:
        """Find the output rows whose ids are to be claimed.

        Number the rows that have the same id: 1, 2, 3, and so on.
        """
        place = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(_ID)} ORDER BY {', '.join(CLAIM_PLACE)}) AS place"
        relation = session.materialized(Query(f"SELECT *, {place} FROM ({claimed_ids(self.computation, rows)})"))
        span = f"UNIX_MICROS(MIN({PANE_TIME})) AS first, UNIX_MICROS(MAX({PANE_TIME})) AS last"
        (row,) = session.rows(Query(f"SELECT COUNT(*) AS n, COUNT_IF(place = 1) AS ids, {span} FROM {relation}"))
        return _Wanted(relation, row["ids"], row["n"], row["first"] or 0, row["last"] or 0)

    def _counting(self, session: Session, wanted: _Wanted, epoch: int, known: Known | None) -> tuple[Relation, bool]:
        """Claim those of an epoch's ids that no claimant has claimed yet; retry if another claimant commits first.

        Returns two values: a relation of the ids that may be output, and a boolean that is true if this relation
        contains all ids of the epoch.
        """
        ours = Relation("")
        for attempt in stamina.retry_context(
            on=MovedError, attempts=None, timeout=None, wait_initial=SOONEST, wait_max=LATEST
        ):
            with attempt:
                ours = self._claimed(session, wanted, epoch, known)
        (row,) = session.rows(Query(f"SELECT COUNT(*) AS n, COUNT_IF(claimed) AS earlier FROM {ours}"))
        if not row["earlier"]:
            return ours, row["n"] == wanted.ids
        if known is not None:
            left = session.materialized(_without(ours, Query(f"SELECT * FROM {known.output(epoch)}")))
            (row,) = session.rows(Query(f"SELECT COUNT(*) AS n, COUNT_IF(claimed) AS earlier FROM {left}"))
            if not row["earlier"]:
                # This process has output all ids itself that it had claimed earlier: the ledger need not be read.
                return left, row["n"] == wanted.ids
        there = claimed_ids(self.computation, self._ledger(session, wanted))
        left = session.materialized(_without(ours, there))
        return left, session.count(left) == wanted.ids

    def _claimed(self, session: Session, wanted: _Wanted, epoch: int, known: Known | None) -> Relation:
        """Claim those of an epoch's ids that are not claimed yet. Return a relation of the ids that this claimant has
        claimed.

        The column `claimed` is true for an id that this claimant had claimed before this call. Raises `MovedError` if
        another claimant committed in the meantime.
        """
        registry, claimant = self.registry, f"'{self.registry.claimant}'"
        snapshot = registry.start()
        if known is None:
            claims = session.table(registry.table, wanted.files, snapshot, registry.lake)
        else:
            claims = known.as_of(snapshot, wanted.first)
        there = f"(SELECT * FROM {claims} WHERE {wanted.within})"
        same = " AND ".join(f"w.{name} = k.{name}" for name in _ID)
        ids = ", ".join(f"w.{name}" for name in _ID)
        text = Query(
            f"SELECT {ids}, k.claimant IS NOT NULL AS claimed FROM {wanted.relation} w LEFT JOIN {there} k ON {same} "
            f"WHERE w.place = 1 AND (k.claimant IS NULL OR k.claimant = {claimant})"
        )
        ours = session.materialized(text)
        new = f"FROM {ours} WHERE NOT claimed"
        if session.count(Relation(f"(SELECT 1 {new})")):
            text = Query(f"SELECT {', '.join(_ID)}, {claimant} AS claimant, {epoch}L AS epoch {new}")
            session.write(text, registry.branch, registry.properties(epoch), registry.lake)
            registry.publish()
        return ours

    def _ledger(self, session: Session, wanted: _Wanted) -> Relation:
        """Return the parenthesized query of the ledger's output rows (productions) in the time range of `wanted`."""
        files = every(equal("kind", PRODUCTION), wanted.files)
        table = session.table(self.lease.table, files, self.lease.head.snapshot)
        return Relation(f"(SELECT * FROM {table} WHERE {wanted.within})")


def _without(ids: Relation, others: Query) -> Query:
    """Return the query of the rows of `ids` whose ids are not among `others`."""
    same = " AND ".join(f"o.{name} = l.{name}" for name in _ID)
    there = f"SELECT DISTINCT {', '.join(_ID)} FROM ({others})"
    return Query(f"SELECT o.* FROM {ids} o LEFT JOIN ({there}) l ON {same} WHERE l.id IS NULL")


class KeySide(Side[Records, State, Consumed, Stepped], Protocol[Records, State, Consumed, Stepped]):
    """The interface through which a fold runs a computation on an engine.

    The state consists of the states of the computation's keys. Computations have no triggers, so a caller passes empty
    `periods` and empty `delays` to the method `due`.
    """

    def settled(self, stepped: Stepped, claiming: Claiming, epoch: int) -> Stepped:
        """Claim the ids of an epoch's output rows (productions).

        Returns the epoch's result, in which each production that must not be output has become a ledger row of the kind
        `claimed`.
        """
