"""The registries of ids that computations of several regions share (`model.definition.once`; Photon's IdRegistry).

A registry is a table in a namespace that all regions share. A claimant appends its claims on a branch of its own, and
publishes them only if the table still stands where it looked claims up, so that no two claim the same id (rule X1).
"""

from __future__ import annotations

import re
import uuid

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.trimming import Trimming
from tailrace.lake.schema.computation_tables import registry_contract
from tailrace.lake.schema.contracts import Contract
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.model.definition.chain import chain
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Definition


def registry_contracts(definition: Definition) -> list[Contract]:
    """Declare the registries of a definition and of the definitions that it reads."""
    return [one for stage in chain(definition) if (one := tables_of(stage).registry) is not None]


class Registry:
    """A registry in which one computation claims ids; `token` is that of the lease of the computation's ledger.

    Only the writer with the latest token is to claim. A writer that was fenced off claims for the same claimant, which
    takes nothing from anybody: the ledger says which of the claims have counted.
    """

    def __init__(self, lake: Lake, computation: Computation, token: int) -> None:
        assert computation.once is not None
        self.lake = shared(lake)
        self.table = computation.once.registry
        self.claimant = claimant_of(lake, computation)
        self.lake.ensure(registry_contract(self.table))
        self.branch = Branch(self.lake, self.table, f"claim_{self._name}_{token}")
        self._trimming = Trimming(self.lake, self.table, archived=False)
        self._clear(token)

    @property
    def _name(self) -> str:
        return re.sub(r"\W", "_", self.claimant)

    def _clear(self, token: int) -> None:
        """Remove the branches of this claimant's writers that were fenced off: nothing goes on from them."""
        mine = re.compile(rf"claim_{self._name}_(\d+)")
        found = ((name, mine.fullmatch(name)) for name in self.lake.refs(self.table))
        self.lake.unname(self.table, [name for name, one in found if one and int(one[1]) < token])

    def properties(self, epoch: int) -> dict[str, str]:
        """Return a commit's properties, which no other has: a claimant finds its commit where the reply was lost."""
        return {"claimant": self.claimant, "epoch": str(epoch), "claim": uuid.uuid4().hex}

    def start(self) -> int | None:
        """Start the branch at main's snapshot and return it: claims are looked up there and published on top of it."""
        return self.branch.start().snapshot

    def publish(self) -> None:
        """Publish the claims on the branch. Raises `MovedError` where somebody else has claimed meanwhile."""
        self.branch.publish()
        self._trimming.after_commit()

    def close(self) -> None:
        """Remove the branch."""
        self.branch.drop()


def claimant_of(lake: Lake, computation: Computation) -> str:
    """Name the claimant: a computation of a namespace."""
    return f"{lake.settings.namespace}.{computation.name}"


def shared(lake: Lake) -> Lake:
    """Return the lake that is the registries' namespace in the same catalog."""
    return Lake(lake.settings.model_copy(update={"namespace": lake.settings.registry}), lake.tell)
