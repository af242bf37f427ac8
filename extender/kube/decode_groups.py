"""Resource groups of ClusterQueues and Cohorts: their rules, and their amounts parsed.

A group list with a mistake has no quota at all: half of what somebody wrote would be a quota that nobody wrote.
Source: API reference, sections 2 and 3.1. We differ in one point: ``coveredResources`` may be left out, and then stands
for the resources that the first flavor lists.
"""

from typing import Final

import msgspec

from extender.kube import rules
from extender.kube.decode import Problems
from extender.kube.wire import FlavorQuotasWire, GroupWire, Quantity, QuotaWire
from extender.model.amounts import parse_quantity, quota_amount
from extender.model.errors import UserError
from extender.model.names import FlavorName, ResourceName
from extender.model.quota import FlavorQuotas, Quota, ResourceGroup

GROUPS_MAX: Final = 16
COVERED_MAX = FLAVORS_MAX = RESOURCES_MAX = 64
FLAVORS_TOTAL_MAX = COVERED_TOTAL_MAX = 256
RESOURCES_OF_GROUP_MAX: Final = 512


class Owner(msgspec.Struct, frozen=True):
    """Whose groups they are: a Cohort's limits count towards its parent and may exceed its own quota."""

    has_parent: bool
    is_cohort: bool = False

    @property
    def parent_field(self) -> str:
        """The field that would make limits meaningful."""
        return "spec.parentName" if self.is_cohort else "spec.cohortName"


def resource_groups(wires: list[GroupWire], *, owner: Owner, problems: Problems) -> tuple[ResourceGroup, ...]:
    """The groups in *wires*, empty when anything in them is wrong."""
    before = len(problems)
    where = "spec.resourceGroups"
    if len(wires) > GROUPS_MAX:
        problems.add(where, f"has {len(wires)} groups; at most {GROUPS_MAX}")
    groups = [_group(wire, owner=owner, where=f"{where}[{at}]", problems=problems) for at, wire in enumerate(wires)]
    _only_once([list(group.covered) for group in groups], what="resource", where=where, problems=problems)
    _only_once(
        [[one.flavor for one in group.flavors] for group in groups], what="flavor", where=where, problems=problems
    )
    if not owner.is_cohort:
        _at_most(sum(len(group.flavors) for group in groups), FLAVORS_TOTAL_MAX, "flavors", where, problems)
        _at_most(sum(len(group.covered) for group in groups), COVERED_TOTAL_MAX, "covered resources", where, problems)
        for at, group in enumerate(groups):
            count = sum(len(one.quotas) for one in group.flavors)
            _at_most(count, RESOURCES_OF_GROUP_MAX, "quotas", f"{where}[{at}]", problems)
    return tuple(groups) if len(problems) == before else ()


def _at_most(count: int, most: int, what: str, where: str, problems: Problems) -> None:
    if count > most:
        problems.add(where, f"has {count} {what}; at most {most}")


def _only_once(names: list[list[str]], *, what: str, where: str, problems: Problems) -> None:
    """Every name in at most one group, once."""
    first: dict[str, int] = {}
    for at, group in enumerate(names):
        for one in group:
            if one in first:
                problems.add(f"{where}[{at}]", f"{what} {one} is there twice (first in group {first[one]})")
            first.setdefault(one, at)


def _group(wire: GroupWire, *, owner: Owner, where: str, problems: Problems) -> ResourceGroup:
    flavors = wire.flavors or []
    if not 1 <= len(flavors) <= FLAVORS_MAX:
        problems.add(f"{where}.flavors", f"has {len(flavors)} flavors; write 1 to {FLAVORS_MAX}")
    covered = wire.covered_resources
    if covered is None:
        covered = [quota.name for quota in (flavors[0].resources or ())] if flavors else []
    if not 1 <= len(covered) <= COVERED_MAX:
        problems.add(f"{where}.coveredResources", f"has {len(covered)} resources; write 1 to {COVERED_MAX}")
    for at, resource in enumerate(covered):
        if not rules.is_label_key(resource):
            problems.add(f"{where}.coveredResources[{at}]", f"{resource!r} is not a name of a resource")
    return ResourceGroup(
        covered=tuple(ResourceName(resource) for resource in covered),
        flavors=tuple(
            _flavor(flavor, covered=covered, owner=owner, where=f"{where}.flavors[{at}]", problems=problems)
            for at, flavor in enumerate(flavors)
        ),
    )


def _flavor(
    wire: FlavorQuotasWire, *, covered: list[str], owner: Owner, where: str, problems: Problems
) -> FlavorQuotas:
    quotas = wire.resources or []
    names = [quota.name for quota in quotas]
    if not rules.is_name(wire.name):
        problems.add(f"{where}.name", f"{wire.name!r} is not a name of a ResourceFlavor")
    if names != covered:
        want = ", ".join(covered)
        problems.add(
            f"{where}.resources",
            f"lists {', '.join(names) or 'nothing'}; write what coveredResources lists, in its order: {want}",
        )
    return FlavorQuotas(
        flavor=FlavorName(wire.name),
        quotas=tuple(
            (
                ResourceName(quota.name),
                _quota(quota, owner=owner, where=f"{where}.resources[{at}]", problems=problems),
            )
            for at, quota in enumerate(quotas)
        ),
    )


def _quota(wire: QuotaWire, *, owner: Owner, where: str, problems: Problems) -> Quota:
    resource = ResourceName(wire.name)
    if wire.nominal_quota is None:
        problems.add(f"{where}.nominalQuota", "is missing; write 0 or more")
    nominal = _amount(wire.nominal_quota, resource, where=f"{where}.nominalQuota", problems=problems)
    limits: dict[str, int | None] = {}
    for field, value in (("borrowingLimit", wire.borrowing_limit), ("lendingLimit", wire.lending_limit)):
        if value is not None and not owner.has_parent:
            problems.add(
                f"{where}.{field}", f"has no meaning without a cohort; set {owner.parent_field} or leave it out"
            )
        limits[field] = _amount(value, resource, where=f"{where}.{field}", problems=problems)
    if not owner.is_cohort and _exceeds(wire.lending_limit, wire.nominal_quota) and limits["lendingLimit"] is not None:
        problems.add(f"{where}.lendingLimit", f"{wire.lending_limit} is above nominalQuota {wire.nominal_quota}")
    return Quota(nominal or 0, limits["borrowingLimit"], limits["lendingLimit"])


def _amount(value: Quantity | None, resource: ResourceName, *, where: str, problems: Problems) -> int | None:
    if value is None or rules.number(value, where=where, problems=problems) is None:
        return None
    return quota_amount(str(value), resource)


def _exceeds(limit: Quantity | None, nominal: Quantity | None) -> bool:
    """Whether *limit* is above *nominal*, compared exactly as the reference's webhook does."""
    if limit is None or nominal is None:
        return False
    try:
        return parse_quantity(str(limit)) > parse_quantity(str(nominal))
    except UserError:
        return False
