"""The audit of a map: each record gave rows once, was left out, or was rejected; the rows are the batch's (X6, L1)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from tailrace.engines import log_records
from tailrace.engines.batch.batch_answers import taken
from tailrace.engines.batch.run_engine import here_first, session_for
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.pins import pinned
from tailrace.lake.schema.contracts import PRODUCTION, REJECTED
from tailrace.lake.schema.filters import EVERYTHING
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.map import Map
from tailrace.sql.results import map_rows
from tailrace.sql.terms import Condition, Query, Relation, all_of
from tailrace.verify.audit_checks import Audited, corrections_came
from tailrace.verify.tampering.audit_result import Audit, Check


def audit_map(lake: Lake, definition: Map) -> Audit:
    """Audit a map and its log as of the last epoch in the ledger.

    Raises `OtherDefinitionError` where the tables are another definition's.
    """
    check_definition(lake, definition)
    return here_first(lake, partial(_audited, definition=definition))


def _audited(lake: Lake, definition: Map) -> Audit:
    ledger = ledger_name(definition.name)
    reads = [*log_records.read(lake, definition.log, lake.head(ledger).number("epoch")), (ledger, EVERYTHING)]
    with session_for(lake, definition, "audit", reads) as session:
        auditing = _MapAudit(session, definition)
        with pinned(lake, {auditing.ledger: auditing.head.snapshot}):
            return auditing.run()


class _MapAudit(Audited):
    of = "rows"

    def __init__(self, session: Session, definition: Map) -> None:
        super().__init__(session, definition)
        self.map = definition
        # The log's records are kept, so that the steps run over them once for all checks.
        self.log = session.materialized(all_of(log_records.records(session, definition.log, self.epoch)))
        self.rows = session.view(all_of(session.table(self.ledger, snapshot=self.head.snapshot)))
        good, self.failed = taken(session, definition, self.log)
        self.computed = session.materialized(map_rows.output(definition, good))
        self.current = session.view(map_rows.current(definition, self.rows))

    def run(self) -> Audit:
        counts = self._counts()
        checks = [
            *self.landed(counts),
            self.in_order(),
            self._each_record(counts),
            self._once(),
        ]
        if self.failed is not None:
            rejected = self.session.view(Query(f"SELECT * FROM {self.rows} WHERE kind = '{REJECTED}'"))
            checks.append(self.rejected_again(rejected, all_of(self._failed_as_streamed())))
        differences = map_rows.differences(self.map, all_of(self.computed), all_of(self.current), doubled=True)
        checks.append(self.compared("rows are the batch's", differences))
        checks += corrections_came(self.lake, self.map)
        return Audit(counts, tuple(checks), self.session.choice)

    def _failed_as_streamed(self) -> Relation:
        """Name the records that the stream has rejected: what runs have mended of others since, it was not brought."""
        assert self.failed is not None
        if self.map.log.landed:
            return self.failed
        return (
            taken(self.session, self.map, log_records.streamed(self.session, self.map.log, self.epoch))[1]
            or self.failed
        )

    def _counts(self) -> dict[str, int]:
        production = f"kind = '{PRODUCTION}'"
        place = ", ".join(map_rows.PLACE)
        out = [f"NOT EXISTS (SELECT 1 FROM {self.computed} c WHERE {_same('c', 'r', map_rows.PLACE.values())})"]
        if self.failed is not None:
            own = " AND ".join(f"f.{name} <=> r.{name}" for name in map_rows.PLACE.values())
            out.append(f"NOT EXISTS (SELECT 1 FROM {self.failed} f WHERE {own})")
        gave = f"EXISTS (SELECT 1 FROM {self.current} c WHERE {_same('c', 'x', map_rows.PLACE)})"
        relations = {
            "records": self.log,
            "rejected": self.rejected_by_sources(),
            "rows": self.current,
            "retractions": f"{self.rows} WHERE {production} AND retraction",
            "giving": f"(SELECT DISTINCT {place} FROM {self.current})",
            "left_out": f"{self.log} r WHERE {' AND '.join(out)}",
            # Steps may make several records of one, and reject only some of these.
            "rejected_by_it": f"(SELECT DISTINCT {place} FROM {self.rows} x WHERE kind = '{REJECTED}' AND NOT {gave})",
        }
        return self.counted(relations)

    def _each_record(self, counts: dict[str, int]) -> Check:
        """Check that every record of the log gave rows, was left out by the definition, or was rejected."""
        total, parts = counts["records"], [counts[name] for name in ("giving", "left_out", "rejected_by_it")]
        detail = "{:,} records = {:,} that gave rows + {:,} left out + {:,} rejected".format(total, *parts)
        return Check("every record gave rows, was left out, or was rejected", total == sum(parts), detail)

    def _once(self) -> Check:
        """Check that a stream wrote a record's rows in the record's own epoch, and so once (X2)."""
        apart = self.session.count(Relation(f"{self.rows} WHERE writer = 'stream' AND epoch <> source_epoch"))
        detail = f"{apart:,} rows in an epoch that is not their record's"
        return Check("a record gave rows in its own epoch", apart == 0, detail)


def _same(left: str, right: str, theirs: Iterable[str]) -> Condition:
    """Write the condition by which the `PLACE` columns of `left` equal the columns `theirs` of `right`."""
    pairs = zip(map_rows.PLACE, theirs, strict=True)
    return Condition(" AND ".join(f"{left}.{ours} <=> {right}.{name}" for ours, name in pairs))
