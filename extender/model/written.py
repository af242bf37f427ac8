"""How the assignment of a pod set stands in an annotation, on a pod or on a Job: JSON, bounded before it is read."""

import msgspec

from extender.model.amounts import Whole
from extender.model.names import FlavorName, ResourceName
from extender.model.workload import PodSetAssignment

ANNOTATION_LENGTH_MAX = 65_536


class WrittenPodSet(msgspec.Struct, rename="camel", frozen=True):
    """One pod set. ``usage`` is its total by resource, in canonical units; ``flavors`` are by resource too."""

    name: str
    count: Whole
    flavors: dict[str, str]
    usage: dict[str, Whole]

    @classmethod
    def of(cls, given: PodSetAssignment) -> "WrittenPodSet":
        """*given* as it is written."""
        return cls(given.name, given.count, dict(given.flavors), dict(given.usage))

    def assignment(self) -> PodSetAssignment:
        """What was written."""
        return PodSetAssignment(
            name=self.name,
            flavors=tuple(sorted((ResourceName(key), FlavorName(value)) for key, value in self.flavors.items())),
            usage=tuple(sorted((ResourceName(key), amount) for key, amount in self.usage.items())),
            count=self.count,
        )
