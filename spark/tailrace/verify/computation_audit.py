"""Audit a computation by counting: every record must be accounted for exactly once (X6).

Every timer must have fired, have been deleted, or still be pending. Every record that was sent back into the
computation must have been received once, in the next epoch, or still be in flight.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.engines import log_records
from tailrace.lake.change.registry import claimant_of, registry_lake
from tailrace.lake.commit.epoch_properties import CLOCK, ONWARD
from tailrace.lake.schema.column_groups import SOURCE
from tailrace.lake.schema.contracts import CLAIMED, FEEDBACK, LATE, PARTIAL, PRODUCTION, REJECTED
from tailrace.lake.schema.filters import equal
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.once import Once
from tailrace.model.logs.derived_logs import Productions
from tailrace.sql.epoch.key_state import OF_TIMER, latest_partials
from tailrace.sql.records.stage_records import claimed_ids
from tailrace.sql.terms import Query, quoted
from tailrace.verify.audit_checks import RowsAudit
from tailrace.verify.tampering.audit_result import Check


class ComputationAudit(RowsAudit[Computation]):
    """The audit of a computation's ledger rows."""

    def counts(self) -> dict[str, int]:
        computation, epoch = self.definition, self.epoch
        kinds = {"productions": PRODUCTION, "late": LATE} | ({} if computation.once is None else {"claimed": CLAIMED})
        items = [f"COUNT_IF(kind = '{kind}') AS {name}" for name, kind in kinds.items()]
        of_records = f"kind = '{REJECTED}' AND NOT ({OF_TIMER})"
        items.append(f"COUNT_IF({of_records}{' AND returned = 0' if computation.loops else ''}) AS rejected")
        items.append(f"COUNT_IF(kind = '{REJECTED}' AND {OF_TIMER}) AS timers_failed")
        items += [f"CAST(COALESCE(SUM({name}), 0) AS bigint) AS {name}" for name in _COUNTS]
        if computation.loops:
            items += [f"{term} AS {name}" for name, term in _looped(epoch).items()]
        (row,) = self.session.rows(Query(f"SELECT {', '.join(items)} FROM {self.rows}"))
        sums = {"pending": "SIZE(timers)", "waiting": "SIZE(waiting)" if computation.ordered else "0"}
        items = ["COUNT(*) AS keys", *(f"CAST(COALESCE(SUM({t}), 0) AS bigint) AS {name}" for name, t in sums.items())]
        keys = latest_partials(computation, self.rows, epoch)
        return {"epochs": epoch + 1, **row, **self.session.rows(Query(f"SELECT {', '.join(items)} FROM ({keys})"))[0]}

    def checks(self, counts: dict[str, int]) -> Iterator[Check]:
        yield self._every_record(counts)
        if self.definition.loops:
            parts = [counts[name] for name in ("fed_back", "returned", "in_flight")]
            detail = "{:,} records fed back = {:,} came round + {:,} in flight".format(*parts)
            yield Check("what is fed back comes round once", parts[0] == sum(parts[1:]), detail)
        known = [counts[name] for name in ("timers_set", "timers_fired", "timers_dropped", "pending")]
        detail = "{:,} timers set = {:,} fired + {:,} deleted or set anew + {:,} pending".format(*known)
        failed = counts["timers_failed"]
        detail += f"; {failed:,} of the fired were rejected" if failed else ""
        yield Check("every timer fires once", known[0] == sum(known[1:]) and failed <= known[1], detail)
        spans = {PARTIAL: [*map(quoted, self.definition.key), "epoch"]}
        spans |= {kind: [*SOURCE] for kind in (PRODUCTION, CLAIMED, FEEDBACK, LATE)}
        # The position of a rejected timer is its index among the timers of its epoch, so it occurs again in other
        # epochs. Therefore, the epoch is also needed to identify the row.
        spans[REJECTED] = [*SOURCE, f"IF({OF_TIMER}, epoch, NULL)"]
        yield self.once_check(spans)
        if self.definition.once is not None:
            yield self._counted_once(self.definition.once)
        yield self.order_check((*CLOCK, ONWARD))

    def _every_record(self, counts: dict[str, int]) -> Check:
        """Check that each record of the log was processed, is kept in the state, was too late, or was rejected."""
        name, log = "every record was taken, waits, or was left out", self.definition.log
        if isinstance(log, Productions) and not log.kept:
            return Check(name, True, f"left out: what {log.name} produces is not kept")
        # Only records that a stream has received are counted; later corrections by backfills of other definitions are
        # left out.
        records = counts["records"] = self.session.count(log_records.streamed_rows(self.session, log, self.epoch))
        parts = [counts[part] for part in ("taken", "waiting", "late", "rejected")]
        detail = "{:,} records = {:,} taken + {:,} waiting + {:,} late + {:,} rejected".format(records, *parts)
        return Check(name, records == sum(parts), detail)

    def _counted_once(self, once: Once) -> Check:
        """Check that each claimed id occurs once in the ledger, and belongs to this computation in the registry."""
        claimant, shared_ = claimant_of(self.lake, self.definition), registry_lake(self.lake)
        rows = self.session.table(once.registry, equal("claimant", claimant), of=shared_)
        own = f"SELECT id, event_time FROM {rows} WHERE claimant = '{claimant}'"
        claimed = claimed_ids(self.definition, self.rows)
        ids = f"SELECT id, event_time, COUNT(*) AS times FROM ({claimed}) GROUP BY id, event_time"
        items = "COUNT(*) AS ids, COUNT_IF(times > 1) AS twice, COUNT_IF(own.id IS NULL) AS foreign"
        text = f"SELECT {items} FROM ({ids}) c LEFT JOIN ({own}) own USING (id, event_time)"
        (row,) = self.session.rows(Query(text))
        detail = "{ids:,} counted, {twice:,} of them twice, {foreign:,} of them another's".format(**row)
        return Check("what counts once was claimed, and counted once", not row["twice"] + row["foreign"], detail)


_COUNTS = ("taken", "timers_set", "timers_fired", "timers_dropped")


def _looped(epoch: int) -> dict[str, str]:
    """Return SQL terms that count, in a computation's ledger, the records that the computation sent back to itself.

    The keys of the returned dict are the names of the counts.
    """
    return {
        "fed_back": f"COUNT_IF(kind = '{FEEDBACK}')",
        "in_flight": f"COUNT_IF(kind = '{FEEDBACK}' AND epoch = {epoch}L)",
        "returned": f"CAST(COALESCE(SUM(IF(kind = '{PARTIAL}', returned, 0)), 0) AS bigint)",
    }
