"""Draws the quota tree with a bar per flavor and resource, from the objects and their status as the API shows them.

A ClusterQueue's bar is what it uses of its own nominal quota, with what it borrows beyond it; a cohort's is what
everything under it uses of what they all bring.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from rich.text import Text
from rich.tree import Tree

from extender.model.amounts import UNLIMITED, format_amount, quota_amount
from extender.model.errors import UserError
from extender.model.names import FlavorName, FlavorResource, ResourceName

BAR_WIDTH, BAR_WIDTH_MIN = 24, 6
BESIDE_A_BAR = 70
"""Columns for what stands beside a bar: branches of the tree, amounts, resource and flavor."""
Object = Mapping[str, Any]
Amounts = dict[FlavorResource, int]


class QueueNode(msgspec.Struct):
    """A cohort or ClusterQueue with its own quota and usage, and what hangs below it."""

    name: str
    is_cohort: bool
    parent: str = ""
    weight: str = ""
    quota: Amounts = {}
    used: Amounts = {}
    pending: int = 0
    note: str = ""
    children: list["QueueNode"] = []


def build(cohorts: Iterable[Object], cluster_queues: Iterable[Object]) -> list[QueueNode]:
    """The roots of the forest, children sorted by name. A parent without an object is drawn all the same."""
    nodes = {node.name: node for node in map(_cohort, cohorts)}
    leaves = [_cluster_queue(found) for found in cluster_queues]
    for node in [*nodes.values(), *leaves]:
        if node.parent and node.parent not in nodes:
            nodes[node.parent] = QueueNode(node.parent, is_cohort=True)
    roots = []
    for node in sorted([*nodes.values(), *leaves], key=lambda node: (not node.is_cohort, node.name)):
        if node.parent and not _in_cycle(node, nodes):
            nodes[node.parent].children.append(node)
        else:
            roots.append(node)
    return roots


def _in_cycle(node: QueueNode, nodes: Mapping[str, QueueNode]) -> bool:
    seen, name = {node.name} if node.is_cohort else set(), node.parent
    while name and name in nodes:
        if name in seen:
            return True
        seen.add(name)
        name = nodes[name].parent
    return False


def bar_width(columns: int) -> int:
    """How long a bar may be where lines have *columns*: numbers and names should stay on its line."""
    return max(BAR_WIDTH_MIN, min(BAR_WIDTH, columns - BESIDE_A_BAR))


def draw(roots: Iterable[QueueNode], *, width: int = BAR_WIDTH) -> Tree:
    """The forest as a rich tree."""
    top = Tree("quota", guide_style="dim")
    for root in roots:
        _draw(root, top, width)
    return top


def _draw(node: QueueNode, under: Tree, width: int) -> None:
    quota, used = totals(node)
    lines = Text(node.name, style="bold" if node.is_cohort else "cyan")
    if node.weight:
        lines.append(f"  weight {node.weight}", style="dim")
    if node.pending:
        lines.append(f"  {node.pending} waiting", style="yellow")
    if node.note:
        lines.append(f"  {node.note}", style="red")
    for pair in sorted(quota.keys() | used.keys()):
        if quota.get(pair, 0) or used.get(pair, 0):
            lines.append("\n")
            lines.append_text(_bar(pair, used.get(pair, 0), quota.get(pair, 0), width))
    branch = under.add(lines)
    for child in node.children:
        _draw(child, branch, width)


def totals(node: QueueNode) -> tuple[Amounts, Amounts]:
    """Quota and usage of the node and everything below it."""
    quota, used = dict(node.quota), dict(node.used)
    for child in node.children:
        child_quota, child_used = totals(child)
        for pair, amount in child_quota.items():
            quota[pair] = min(quota.get(pair, 0) + amount, UNLIMITED)
        for pair, amount in child_used.items():
            used[pair] = used.get(pair, 0) + amount
    return quota, used


def _bar(pair: FlavorResource, used: int, quota: int, width: int) -> Text:
    scale = max(used, quota, 1)
    own, borrowed = min(used, quota), max(0, used - quota)
    full, over = width * own // scale, width * borrowed // scale
    bar = Text("█" * full, style="green")
    bar.append("█" * over, style="magenta")
    bar.append("░" * (width - full - over), style="dim")
    words = f" {format_amount(used, pair.resource)} of {format_amount(quota, pair.resource)}"
    if borrowed:
        words += f", {format_amount(borrowed, pair.resource)} borrowed"
    bar.append(f"{words}  {pair.resource} {pair.flavor}")
    return bar


def _cohort(found: Object) -> QueueNode:
    spec = found.get("spec") or {}
    return QueueNode(
        name=found["metadata"]["name"],
        is_cohort=True,
        parent=spec.get("parentName") or spec.get("parent") or "",
        weight=str((spec.get("fairSharing") or {}).get("weight", "")),
        quota=_quota(spec),
        children=[],
    )


def _cluster_queue(found: Object) -> QueueNode:
    spec, status = found.get("spec") or {}, found.get("status") or {}
    inactive = [
        condition.get("message") or condition.get("reason", "")
        for condition in status.get("conditions") or ()
        if condition.get("type") == "Active" and condition.get("status") == "False"
    ]
    return QueueNode(
        name=found["metadata"]["name"],
        is_cohort=False,
        parent=spec.get("cohortName") or spec.get("cohort") or "",
        weight=str((spec.get("fairSharing") or {}).get("weight", "")),
        quota=_quota(spec),
        used=_used(status),
        pending=status.get("pendingWorkloads") or 0,
        note=inactive[0] if inactive else "",
        children=[],
    )


def _quota(spec: Object) -> Amounts:
    found: Amounts = {}
    for group in spec.get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                pair = FlavorResource(FlavorName(flavor["name"]), ResourceName(resource["name"]))
                found[pair] = _amount(resource.get("nominalQuota", 0), pair.resource)
    return found


def _used(status: Object) -> Amounts:
    found: Amounts = {}
    for flavor in status.get("flavorsReservation") or ():
        for resource in flavor.get("resources") or ():
            pair = FlavorResource(FlavorName(flavor["name"]), ResourceName(resource["name"]))
            found[pair] = _amount(resource.get("total", 0), pair.resource)
    return found


def _amount(value: object, resource: ResourceName) -> int:
    try:
        return quota_amount(str(value), resource)
    except UserError:
        return 0  # an unreadable quota is the service's to report; a picture leaves it out
