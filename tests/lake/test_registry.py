"""The registries that computations of several namespaces share have contracts as all tables have. No JVM."""

from __future__ import annotations

from pathlib import Path

from tailrace.lake.catalog.drift import drift
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.migration import evolve, plan_changes
from tailrace.lake.change.registry import registry_contracts, registry_lake
from tailrace.lake.schema.contract_diff import Kind
from tailrace.lake.schema.contracts import Contract
from tailrace.plan.loader import load_any
from tailrace.settings import Settings

PHOTON = load_any("pipelines/photon.py")
(REGISTRY,) = registry_contracts(PHOTON)


def regions(settings: Settings) -> list[Lake]:
    return [Lake(settings.model_copy(update={"namespace": name})) for name in ("eu", "us")]


def registered(lake: Lake) -> Contract:
    (one,) = [each.contract for each in plan_changes(lake, PHOTON) if each.contract.table == REGISTRY.table]
    return one


def test_a_registry_is_planned_and_evolved_once_for_all_the_namespaces_that_share_it(settings: Settings) -> None:
    eu, us = regions(settings)
    assert not any(one.made for one in plan_changes(eu, PHOTON))
    registry = registry_lake(eu)
    # Made by whoever came first, when something else was agreed.
    registry.ensure(REGISTRY)
    former = {"owner": "somebody else", "tailrace.retention": "a week"}
    registry.table(REGISTRY.table).transaction().set_properties(former).commit_transaction()
    for lake in (eu, us):
        (found,) = [one for one in plan_changes(lake, PHOTON) if one.made]
        assert found.lake.settings.namespace == settings.registry
        assert {(one.kind, one.name) for one in found.changes} == {(Kind.SET, name) for name in former}
    (done,) = evolve(us, PHOTON)
    assert (done.table, len(done.done), done.left) == (REGISTRY.table, 2, ())
    assert drift(registry_lake(eu), registered(eu)).differences == ()
    assert [one for one in plan_changes(eu, PHOTON) if one.changes] == []
    assert not any(lake.has(REGISTRY.table) for lake in (eu, us))


def test_who_comes_first_makes_the_registry_as_its_file_says(settings: Settings) -> None:
    eu, us = regions(settings.model_copy(update={"contracts": Path("iceberg_schemas")}))
    registry_lake(us).ensure(REGISTRY)
    assert registry_lake(eu).table(REGISTRY.table).properties["owner"] == registered(eu).owner == "ad operations"
