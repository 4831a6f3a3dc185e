"""Audit a map: each record must have the output rows that a batch computes, be left out, or be rejected (X6, L1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tailrace.engines import log_records
from tailrace.engines.batch.batch_answers import split_records
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.table_protocol import Head
from tailrace.lake.schema.contracts import PRODUCTION, REJECTED
from tailrace.model.definition.map import Map
from tailrace.sql.epoch import map_rows
from tailrace.sql.results.output_rows import output_rows
from tailrace.sql.terms import Condition, Query, Relation, all_of
from tailrace.verify.audit_checks import RowsAudit
from tailrace.verify.tampering.audit_result import Check


class MapAudit(RowsAudit[Map]):
    """The audit of a map's ledger rows."""

    of = "rows"

    def __init__(self, definition: Map, session: Session, head: Head) -> None:
        super().__init__(definition, session, head)
        # The log's records are materialized, so that the map's steps run only once for all checks.
        self.log = session.materialized(all_of(log_records.rows_of_log(session, definition.log, self.epoch)))
        good, self.failed = split_records(session, definition, self.log)
        self.computed = session.materialized(map_rows.output(definition, good))
        self.current = session.view(output_rows(definition).current(self.rows))

    def checks(self, counts: dict[str, int]) -> Iterator[Check]:
        yield from (*self.landing_checks(counts), self.order_check(), self._each_record(counts), self._once())
        if self.failed is not None:
            rejected = self.session.view(Query(f"SELECT * FROM {self.rows} WHERE kind = '{REJECTED}'"))
            yield self.rejected_check(rejected, all_of(self._failed_as_streamed()))
        # Rows are counted: if the ledger has a row twice by mistake, the comparison finds the second row.
        rows = replace(output_rows(self.definition), several=True)
        yield self.differences_check(
            "rows are the batch's", rows.differences(all_of(self.computed), all_of(self.current))
        )

    def _failed_as_streamed(self) -> Relation:
        """Return the records that the map's steps reject among the records that a stream has read.

        Corrections that the stream has not read are left out.
        """
        assert self.failed is not None
        if self.definition.log.landed:
            return self.failed
        return (
            split_records(
                self.session, self.definition, log_records.streamed_rows(self.session, self.definition.log, self.epoch)
            )[1]
            or self.failed
        )

    def counts(self) -> dict[str, int]:
        production = f"kind = '{PRODUCTION}'"
        place = ", ".join(map_rows.PLACE)
        out = [f"NOT EXISTS (SELECT 1 FROM {self.computed} c WHERE {_same('c', 'r', map_rows.PLACE.values())})"]
        if self.failed is not None:
            own = " AND ".join(f"f.{name} <=> r.{name}" for name in map_rows.PLACE.values())
            out.append(f"NOT EXISTS (SELECT 1 FROM {self.failed} f WHERE {own})")
        gave = f"EXISTS (SELECT 1 FROM {self.current} c WHERE {_same('c', 'x', map_rows.PLACE)})"
        relations = {
            "rows": self.current,
            "retractions": f"{self.rows} WHERE {production} AND retraction",
            "giving": f"(SELECT DISTINCT {place} FROM {self.current})",
            "left_out": f"{self.log} r WHERE {' AND '.join(out)}",
            # A map's steps may make several records from one record, and may reject only some of the resulting records.
            # A record that has output rows is therefore not counted here.
            "rejected_by_it": f"(SELECT DISTINCT {place} FROM {self.rows} x WHERE kind = '{REJECTED}' AND NOT {gave})",
        }
        return self.count_rows(relations)

    def _each_record(self, counts: dict[str, int]) -> Check:
        """Check that each record of the log had output rows, was left out by the definition, or was rejected."""
        total, parts = counts["records"], [counts[name] for name in ("giving", "left_out", "rejected_by_it")]
        detail = "{:,} records = {:,} that gave rows + {:,} left out + {:,} rejected".format(total, *parts)
        return Check("every record gave rows, was left out, or was rejected", total == sum(parts), detail)

    def _once(self) -> Check:
        """Check that a stream wrote a record's output rows in the record's own epoch, and therefore only once (X2)."""
        own = f"writer = 'stream' AND epoch > {self.built_until}L"
        apart = self.session.count(Relation(f"{self.rows} WHERE {own} AND epoch <> source_epoch"))
        detail = f"{apart:,} rows in an epoch that is not their record's"
        return Check("a record gave rows in its own epoch", apart == 0, detail)


def _same(left: str, right: str, theirs: Iterable[str]) -> Condition:
    """Return an SQL condition: the `PLACE` columns of `left` equal the columns `theirs` of `right`."""
    pairs = zip(map_rows.PLACE, theirs, strict=True)
    return Condition(" AND ".join(f"{left}.{ours} <=> {right}.{name}" for ours, name in pairs))
