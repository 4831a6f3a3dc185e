"""The registries of ids that computations of several regions share (`model.definition.once`; Photon's IdRegistry).

A registry is a table in a namespace of its own, the same for all. Claims are appended on a branch of the claimant's,
and published only if the table still stands where it was looked at, so that two never claim the same (rule X1).
"""

from __future__ import annotations

import re
import uuid

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.trimming import Trimming
from tailrace.lake.schema.contracts import Column, Contract
from tailrace.model.definition.chain import Definition, chain
from tailrace.model.definition.computation import Computation


def registry_contract(name: str) -> Contract:
    """The claims of a registry, each id with its event time once. Append only."""
    columns = {
        "id": Column("string", "what is claimed, as text", required=True),
        "event_time": Column("timestamp", "when it happened: the same id at another time is another", required=True),
        "claimant": Column("string", "whose it is: the namespace and the computation", required=True),
        "epoch": Column("bigint", "the claimant's epoch that claimed it", required=True),
    }
    doc = f"what counts once of all that is produced with registry {name}, and whose it is"
    return Contract(name, doc, columns, partition_by=("day(event_time)",), key=("id", "event_time"))


def registry_contracts(definition: Definition) -> list[Contract]:
    """The registries of a definition and of those that it reads."""
    once = (one.once for one in chain(definition) if isinstance(one, Computation))
    return [registry_contract(one.registry) for one in once if one is not None]


class Registry:
    """A registry as one computation claims in it; `token` is that of the lease of its ledger.

    Only a writer with the latest token is to claim. One that was fenced off claims for the same claimant, which takes
    nothing from anybody: it is the ledger that says what of its claims has counted.
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
        """Remove the branches of claimants of this name that were fenced off: they are not needed to go on."""
        mine = re.compile(rf"claim_{self._name}_(\d+)")
        found = ((name, mine.fullmatch(name)) for name in self.lake.refs(self.table))
        self.lake.unname(self.table, [name for name, one in found if one and int(one[1]) < token])

    def properties(self, epoch: int) -> dict[str, str]:
        """What a commit of claims says: no two say the same, so a claimant knows its own where the reply was lost."""
        return {"claimant": self.claimant, "epoch": str(epoch), "claim": uuid.uuid4().hex}

    def start(self) -> int | None:
        """Where the registry stands now: claims are looked up as of there, and published on top of it alone."""
        return self.branch.start().snapshot

    def publish(self) -> None:
        """Publish what was appended to the branch. Raises `MovedError` where somebody has claimed meanwhile."""
        self.branch.publish()
        self._trimming.after_commit()

    def close(self) -> None:
        """Remove the branch."""
        self.branch.drop()


def claimant_of(lake: Lake, computation: Computation) -> str:
    """Who claims: a computation of a namespace."""
    return f"{lake.settings.namespace}.{computation.name}"


def shared(lake: Lake) -> Lake:
    """The namespace of the registries, in the catalog of a lake."""
    return Lake(lake.settings.model_copy(update={"namespace": lake.settings.registry}), lake.tell)
