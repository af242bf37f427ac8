"""What ``kubectl cohort explain pod`` says: a pod's queue, what it was given, or what it waits for.

The pods of a queued Job wait with their Job, so of such a pod the Job is told.
"""

from typing import Any, Final

import msgspec
from rich.text import Text

from extender.cli.ask import Object, fetch, items
from extender.cli.jobs import admission_in, describe_state, queue_of
from extender.jobs.kinds import SHIPPED
from extender.kube.client import ApiClient
from extender.kube.resources import KUEUE_GROUP, kueue_version
from extender.model.amounts import format_amount
from extender.model.errors import UserError
from extender.model.jobs import UNIT_ANNOTATION, UNIT_JOB
from extender.model.names import ResourceName
from extender.model.pods import ADMISSION_ANNOTATION, ADMITTED_CONDITION, GATE
from extender.model.reasons import ReasonCode

OWNERS_MAX: Final = 5
_PATHS: Final = {
    (f"{row.group}/{row.version}", row.kind): f"/apis/{row.group}/{row.version}/namespaces/{{}}/{row.plural}/{{}}"
    for row in SHIPPED.values()
}


class Found(msgspec.Struct, frozen=True):
    """A pod; the object that is queued for it if it is part of one; the LocalQueues it could name, if it names none of
    them."""

    pod: Object
    unit: Object | None = None
    queues: tuple[str, ...] = ()


async def find(client: ApiClient, name: str, namespace: str) -> Found:
    """The pod of that name and what belongs to it. Raises: ExtenderError."""
    absent = f"no pod {name} in namespace {namespace}; is it another one? Name it with -n"
    pod = await fetch(client, f"/api/v1/namespaces/{namespace}/pods/{name}", absent=absent)
    annotations = pod["metadata"].get("annotations") or {}
    if annotations.get(UNIT_ANNOTATION) == UNIT_JOB:
        return Found(pod, unit=await _unit(client, pod))
    lost = any(one.get("reason") == ReasonCode.QUEUE_NOT_FOUND for one in _waits(pod))
    return Found(pod, queues=await _queues(client, namespace) if lost else ())


async def _queues(client: ApiClient, namespace: str) -> tuple[str, ...]:
    """The LocalQueues of *namespace*; none, if they may not be read."""
    path = f"/apis/{KUEUE_GROUP}/{await kueue_version(client)}/namespaces/{namespace}/localqueues"
    try:
        found = items(await fetch(client, path, absent=""))
    except UserError:
        return ()
    return tuple(sorted(one["metadata"]["name"] for one in found))


def _waits(pod: Object) -> list[Object]:
    """The conditions of *pod* that say why it waits: one, or none."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return [one for one in conditions if one["type"] == ADMITTED_CONDITION and one["status"] == "False"]


async def _unit(client: ApiClient, pod: Object) -> Object | None:
    """The object above *pod* that names a queue, by its controllers; None if it cannot be found or read."""
    at = pod
    for _ in range(OWNERS_MAX):
        owners = at["metadata"].get("ownerReferences") or ()
        owner = next((one for one in owners if one.get("controller")), None)
        path = _PATHS.get((owner["apiVersion"], owner["kind"])) if owner else None
        if owner is None or path is None:
            return None
        try:
            at = await fetch(client, path.format(pod["metadata"]["namespace"], owner["name"]), absent="gone")
        except UserError:
            return None
        at = {**at, "kind": owner["kind"]}
        if queue_of(at["metadata"]):
            return at
    return None


def describe(found: Found) -> Text:
    """One paragraph about a pod."""
    pod = found.pod
    metadata, spec = pod["metadata"], pod["spec"]
    annotations = metadata.get("annotations") or {}
    words = Text(f"{metadata['namespace']}/{metadata['name']}", style="bold")
    gates = [gate["name"] for gate in spec.get("schedulingGates") or ()]
    if annotations.get(UNIT_ANNOTATION) == UNIT_JOB:
        _of_a_unit(words, pod, found.unit)
    else:
        words.append(f"  queue {queue_of(metadata) or 'none'}\n")
        _by_itself(words, pod, gated=GATE in gates)
    if found.queues:
        words.append(f"\nLocalQueues of this namespace: {', '.join(found.queues)}")
    others = [gate for gate in gates if gate != GATE]
    if others:
        words.append(f"\nother gates: {', '.join(others)}", style="yellow")
    return words


def _by_itself(words: Text, pod: Object, *, gated: bool) -> None:
    annotations = pod["metadata"].get("annotations") or {}
    reasons = [f"{condition.get('reason')}: {condition.get('message')}" for condition in _waits(pod)]
    if ADMISSION_ANNOTATION in annotations:
        words.append(_admission(admission_in(annotations)), style="green")
    elif reasons:
        words.append(reasons[0], style="yellow")
    elif gated:
        words.append(
            "waits for admission; if it waits for more than two seconds, the reason is written", style="yellow"
        )
    else:
        words.append("does not wait for quota")


def _of_a_unit(words: Text, pod: Object, unit: Object | None) -> None:
    if unit is None:
        owners = pod["metadata"].get("ownerReferences") or ()
        names = ", ".join(f"{owner['kind']} {owner['name']}" for owner in owners) or "an object that is gone"
        words.append(f"  part of {names}\n")
        words.append("waits and runs with it; it cannot be read here, look at its own conditions")
        return
    kind, metadata = unit["kind"], unit["metadata"]
    words.append(f"  part of {kind} {metadata['name']}, queue {queue_of(metadata)}\n")
    words.append(f"the {kind} as a whole: ")
    describe_state(words, unit)
    if kind == "Job":
        words.append(f"\nmore: kubectl cohort explain job {metadata['name']} -n {metadata['namespace']}", style="dim")


class _Set(msgspec.Struct, rename="camel"):
    name: str = ""
    count: int = 0
    flavors: dict[str, str] = {}
    usage: dict[str, int] = {}


def _admission(written: dict[str, Any]) -> str:
    """What a pod was given: its share of what its pod set was given, a pod set's pods being alike."""
    said = f"admitted by ClusterQueue {written.get('clusterQueue')}"
    try:
        sets = msgspec.convert(written.get("podSets") or [], list[_Set])
    except msgspec.ValidationError:
        return said
    mine = next((one for one in sets if one.name == written.get("podSet")), None)
    if mine is None or mine.count < 1:
        return said
    given = [
        f"{format_amount(mine.usage.get(name, 0) // mine.count, ResourceName(name))} {name} of flavor {flavor}"
        for name, flavor in sorted(mine.flavors.items())
    ]
    together = sum(one.count for one in sets)
    group = f" (one of {together} pods that were admitted together)" if together > 1 else ""
    return f"{said}: {', '.join(given) or 'it asks for nothing'}{group}"
