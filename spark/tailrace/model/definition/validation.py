"""Validate the steps of pipelines and maps: each step by itself, and steps over records that are not kept."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.model.base.errors import Fault
from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.record_steps import Each, element_faults
from tailrace.model.logs.derived_logs import Productions
from tailrace.model.logs.log import Log


def each_faults(definition: Ranged) -> Iterable[Fault]:
    """Find the faults of the first step that has any, because later steps need the columns that it makes."""
    types = definition.log.columns
    for place, step in enumerate(definition.each):
        faults = list(element_faults(f"each[{place}]", step, types))
        yield from faults
        if faults:
            return
        types = step.columns(types)


def weak_step_faults(definition: Ranged) -> Iterable[Fault]:
    """Find the steps that may reject records, in a definition whose records are not kept."""
    for place, one in enumerate(definition.each):
        if isinstance(one, Each) and is_weak(definition.log):
            expected = "records that are kept, for it may reject some"
            yield Fault(f"each[{place}]", one, expected, STRONG.format(definition.log.name))


def is_weak(log: Log) -> bool:
    """Return True if a log's records are productions that the ledger does not keep."""
    return isinstance(log, Productions) and not log.kept


STRONG = 'leave productions="weak" out of {}'
"""The remedy for records that are not kept; `{}` stands for the name of their log."""
