"""Maintain the registries of ids that computations in several regions share (`model.definition.once`).

A registry is a table in a namespace that all regions share, like the IdRegistry of Photon. A computation appends its
claims to its own branch of the registry's table. The computation first looks up existing claims in the table's current
snapshot. The computation publishes its own claims only if this snapshot is still current. So no two computations claim
the same id (rule X1).
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
    """Return the contracts of the registries that a definition and its inputs use."""
    return [one for stage in chain(definition) if (one := tables_of(stage).registry) is not None]


class Registry:
    """A registry in which one computation claims ids; `token` is the token of the lease on the computation's ledger.

    Only the writer with the latest token should claim ids. If a writer that has lost the lease claims an id, this does
    no harm: the id still belongs to the same computation, and the ledger decides which claims count.
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
        """Remove the registry branches of this computation's earlier writers, which have lost the lease."""
        mine = re.compile(rf"claim_{self._name}_(\d+)")
        found = ((name, mine.fullmatch(name)) for name in self.lake.refs(self.table))
        self.lake.unname(self.table, [name for name, one in found if one and int(one[1]) < token])

    def properties(self, epoch: int) -> dict[str, str]:
        """Return unique properties for a commit, by which the writer recognizes its own commit if the reply is lost."""
        return {"claimant": self.claimant, "epoch": str(epoch), "claim": uuid.uuid4().hex}

    def start(self) -> int | None:
        """Base the next commit on the current snapshot of the branch main, and return this snapshot's id.

        The caller looks up existing claims in this snapshot, and publishes new claims on top of this snapshot.
        """
        return self.branch.start().snapshot

    def publish(self) -> None:
        """Publish the branch's claims on main. Raises `MovedError` if another computation has published claims
        meanwhile.
        """
        self.branch.publish()
        self._trimming.after_commit()

    def close(self) -> None:
        """Remove the computation's branch of the registry."""
        self.branch.drop()


def claimant_of(lake: Lake, computation: Computation) -> str:
    """Return the name under which a computation claims ids: the namespace, a dot, and the computation's name."""
    return f"{lake.settings.namespace}.{computation.name}"


def registry_lake(lake: Lake) -> Lake:
    """Return the lake for the registries' namespace in the same catalog."""
    return Lake(lake.settings.model_copy(update={"namespace": lake.settings.registry}), lake.tell)
