"""Keep the registries of ids that computations in several regions share (`model.definition.once`; Photon's IdRegistry).

A registry is a table in a namespace that all regions share. A claimant appends its claims to its own branch, and
publishes them only if the table is still at the snapshot in which the claimant looked up existing claims. So no two
claimants claim the same id (rule X1).
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
    """Return the contracts of the registries of a definition and its inputs."""
    return [one for stage in chain(definition) if (one := tables_of(stage).registry) is not None]


class Registry:
    """A registry in which one computation claims ids; `token` is the token of the computation's ledger lease.

    Only the writer with the latest token should claim ids. The claims of a fenced writer do no harm: these claims
    belong to the same claimant, and the ledger decides which claims count.
    """

    def __init__(self, lake: Lake, computation: Computation, token: int) -> None:
        assert computation.once is not None
        self.lake = registry_lake(lake)
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
        """Remove the branches of this claimant's fenced writers, because no other writer continues these branches."""
        mine = re.compile(rf"claim_{self._name}_(\d+)")
        found = ((name, mine.fullmatch(name)) for name in self.lake.refs(self.table))
        self.lake.unname(self.table, [name for name, one in found if one and int(one[1]) < token])

    def properties(self, epoch: int) -> dict[str, str]:
        """Return unique properties for a commit, by which the claimant finds its own commit if the reply is lost."""
        return {"claimant": self.claimant, "epoch": str(epoch), "claim": uuid.uuid4().hex}

    def start(self) -> int | None:
        """Base the branch on main's current snapshot, and return this snapshot.

        Existing claims are looked up in this snapshot, and new claims are published on top of it.
        """
        return self.branch.start().snapshot

    def publish(self) -> None:
        """Publish the branch's claims. Raises `MovedError` if another claimant has published meanwhile."""
        self.branch.publish()
        self._trimming.after_commit()

    def close(self) -> None:
        """Remove the claimant's branch."""
        self.branch.drop()


def claimant_of(lake: Lake, computation: Computation) -> str:
    """Return the name of a claimant, which consists of its namespace and its computation's name."""
    return f"{lake.settings.namespace}.{computation.name}"


def registry_lake(lake: Lake) -> Lake:
    """Return a lake for the namespace of the registries in the same catalog."""
    return Lake(lake.settings.model_copy(update={"namespace": lake.settings.registry}), lake.tell)
