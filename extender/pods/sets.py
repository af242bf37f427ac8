"""StatefulSets that are admitted as a whole: how many pods there are to be, which of them exist, and who is apart.

The set waits until there is quota for all of its replicas, also if it makes them one after the other: the first pod
stands for all. Once admitted it keeps the places it was given, also of a pod that is being replaced, until it is scaled
down or stopped. A pod that finds no place among them stands apart (the set has grown, or the pod asks for something
else than the pods before it): it is a workload of its own, so nothing that runs has to go for it.

What a set holds is written on its pods and nowhere else. Given back is only what no pod's annotation claims any more,
so a new leader counts what the one before counted. Source: jobs specification, section 7; ADR 0062.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from extender.model.events import StatefulSetSeen
from extender.model.names import PodUid
from extender.model.pods import Pod
from extender.model.reasons import Reason, ReasonCode, reason
from extender.model.workload import Admission, PodSet, PodSetAssignment, Workload
from extender.pods.admission import PodAdmission, read_admission, write_admission
from extender.pods.gangs import Gang, group_uid, role_of, scaled
from extender.pods.intake import MAIN, hold, pod_set_of, priority_of, queue_of
from extender.pods.running import runs_without_admission

SET_PREFIX = "statefulset/"
"""Before the UID of a StatefulSet, where a group has its name."""


class SetGang(Gang, frozen=True):
    """A StatefulSet as it stands.

    ``chosen`` are the pods of the admission that it has or waits for, by number; ``apart`` those that are workloads of
    their own. ``missing`` is how many pods there are to be that do not exist.
    """

    apart: tuple[Pod, ...] = ()
    missing: int = 0


def as_member(pod: Pod) -> Pod:
    """The pod as a member of its StatefulSet; as it is, if it names a group, or is none of a StatefulSet's pods."""
    if not pod.of_set or pod.group or pod.owner is None or pod.owner.kind != "StatefulSet" or number_of(pod) is None:
        return pod
    return msgspec.structs.replace(pod, group=SET_PREFIX + pod.owner.uid)


def is_member(pod: Pod) -> bool:
    """Whether the pod's group is a StatefulSet."""
    return pod.group.startswith(SET_PREFIX)


def number_of(pod: Pod) -> int | None:
    """The pod's number in its StatefulSet."""
    name = pod.owner.name if pod.owner else ""
    text = pod.name.removeprefix(f"{name}-")
    return int(text) if text != pod.name and text.isascii() and text.isdecimal() else None


def gather_set(
    members: Iterable[Pod],
    found: StatefulSetSeen | None,
    *,
    writing: Mapping[PodUid, str],
    held: bool,
    running: Admission | None = None,
) -> SetGang:
    """The StatefulSet that *members* are pods of; *found* None: it does not exist (any more).

    *writing* are the admissions being written to pods, which count if the set is *held* already. *running* is what it
    uses if it runs without an admission.
    """
    live = sorted((pod for pod in members if not pod.ended), key=lambda pod: (number_of(pod) or 0, pod.created_ms))
    alone = {pod.uid for pod in live if (read := _read(pod, writing)) is not None and read.pod_set == MAIN}
    own = [pod for pod in live if pod.uid in alone]
    others = [pod for pod in live if pod.uid not in alone]
    first = (live or list(members))[0]
    places = _numbers(found)
    reads = [(pod, read) for pod in others if (read := read_admission(pod.uid, pod.admission)) is not None]
    if held and not reads:
        reads = [(pod, read) for pod in others if (read := _read(pod, writing)) is not None]
    given = _given(reads) or running
    started = [pod for pod in others if not pod.gated or pod.uid in writing]
    waiting = [pod for pod in others if pod.gated and pod.uid not in writing and not pod.deleting]
    if found is not None:
        waiting = [pod for pod in waiting if number_of(pod) in places]
    if given is None:
        count = max(0, len(places) - len(own) - len(started)) if found is not None else len(waiting)
        taken, apart = waiting[:count], list[Pod]()
    elif all(pod.deleting for pod in started):
        taken, apart = waiting, []  # it is being stopped: they wait with it for the next admission
    else:
        there = {number_of(pod) for pod in live}
        missing = [number for number in places if number not in there]
        taken, apart = _placed(waiting, started, given, missing)
    chosen = sorted([*started, *taken], key=lambda pod: (number_of(pod) or 0, pod.created_ms))
    return SetGang(
        uid=group_uid(first),
        chosen=tuple(chosen),
        excess=(),
        succeeded=(),
        given=given,
        writing=frozenset(pod.uid for pod in chosen if pod.uid in writing),
        apart=(*own, *apart),
        missing=len(places) - sum(number_of(pod) in places for pod in live),
    )


def _numbers(found: StatefulSetSeen | None) -> range:
    return range(found.start, found.start + found.replicas) if found else range(0)


def _read(pod: Pod, writing: Mapping[PodUid, str]) -> PodAdmission | None:
    return read_admission(pod.uid, pod.admission or writing.get(pod.uid))


def _given(reads: list[tuple[Pod, PodAdmission]]) -> Admission | None:
    """The newest admission, of each pod set the largest count that a pod which stays still claims."""
    if not reads:
        return None
    newest = max(read.admission.at_ms for _, read in reads)
    alike = [(pod, read.admission) for pod, read in reads if read.admission.at_ms == newest]
    staying = [admission for pod, admission in alike if not pod.deleting] or [admission for _, admission in alike]
    largest: dict[str, PodSetAssignment] = {}
    for admission in staying:
        for one in admission.assignments:
            if one.name not in largest or largest[one.name].count < one.count:
                largest[one.name] = one
    for pod, read in reads:
        if pod.deleting and not largest.get(read.pod_set, read.assignment).count:
            largest[read.pod_set] = scaled(read.assignment, 1)  # the last of its kind, on its way out
    return msgspec.structs.replace(staying[0], assignments=tuple(largest[name] for name in sorted(largest)))


def _placed(
    waiting: list[Pod], started: list[Pod], given: Admission, missing: list[int]
) -> tuple[list[Pod], list[Pod]]:
    """Those that take a place of *given*, and those apart. A place is kept for *missing* pods of smaller numbers."""
    places = {one.name: one.count for one in given.assignments}
    for pod in started:
        places[role_of(pod)] = places.get(role_of(pod), 0) - 1
    queue = queue_of(started[0])
    taken, apart = [], []
    for pod in waiting:
        before = bisect_left(missing, number_of(pod) or 0)
        if places.get(role_of(pod), 0) > before and queue_of(pod) == queue:
            places[role_of(pod)] -= 1
            taken.append(pod)
        else:
            apart.append(pod)
    return taken, apart


def set_workload(gang: SetGang, found: StatefulSetSeen | None, classes: Mapping[str, int]) -> Workload:
    """The workload of a StatefulSet of which at least one pod exists. Its place in line is by the set's creation."""
    first = gang.chosen[0]
    name = found.name if found else first.owner.name if first.owner else first.name
    return Workload(
        uid=gang.uid,
        name=f"{first.namespace}/{name}",
        queue=queue_of(_newest(gang)),
        created_ms=found.created_ms if found else min(pod.created_ms for pod in gang.chosen),
        pod_sets=_pod_sets(gang),
        priority=priority_of(_newest(gang), classes),
        admission=_held(gang, found),
        evicted=gang.given is not None and gang.stopping,
        held=None if gang.given else _hold(gang, found, classes),
    )


def _newest(gang: SetGang) -> Pod:
    """The pod that shows what the set's template says now; pods on their way out do not, unless there is no other."""
    return max(gang.chosen, key=lambda pod: (not pod.deleting, pod.created_ms, pod.uid))


def _pod_sets(gang: SetGang) -> tuple[PodSet, ...]:
    """What it asks for: pods alike, and those that do not exist yet like the newest."""
    roles: dict[str, list[Pod]] = {}
    for pod in gang.chosen:
        roles.setdefault(role_of(pod), []).append(pod)
    more = {role_of(_newest(gang)): gang.missing} if gang.given is None else {}
    return tuple(
        pod_set_of(alike[0], name=name, count=len(alike) + more.get(name, 0)) for name, alike in sorted(roles.items())
    )


def _held(gang: SetGang, found: StatefulSetSeen | None) -> Admission | None:
    """What it was given, and not less than its pods take; without its StatefulSet nothing will replace them."""
    if gang.given is None:
        return None
    live = _started(gang)
    counts = {
        one.name: max(one.count, live[one.name]) if found and not gang.stopping else live[one.name]
        for one in gang.given.assignments
    }
    left = tuple(scaled(one, counts[one.name]) for one in gang.given.assignments)
    return msgspec.structs.replace(gang.given, assignments=left)


def _started(gang: SetGang) -> Counter[str]:
    return Counter(role_of(pod) for pod in gang.chosen if not pod.gated or pod.uid in gang.writing)


def _hold(gang: SetGang, found: StatefulSetSeen | None, classes: Mapping[str, int]) -> Reason | None:
    if found is None:
        return reason(ReasonCode.NOT_EVALUATED)
    leaving = sum(pod.deleting for pod in gang.chosen)
    if leaving:
        return reason(ReasonCode.PODS_LEAVING, left=leaving)
    return next((why for pod in gang.chosen if (why := hold(pod, classes)) is not None), None)


def restated(gang: SetGang, found: StatefulSetSeen | None) -> list[tuple[Pod, str]]:
    """The pods whose annotation claims more places than the set will fill, with what it is to say.

    Places are given up when the set was scaled down, or when pods that replace others stand apart.
    """
    if gang.given is None or found is None or gang.stopping:
        return []
    numbers = _numbers(found)
    apart = sum(number_of(pod) in numbers for pod in gang.apart)
    surplus = sum(one.count for one in gang.given.assignments) - max(0, found.replicas - apart)
    if surplus <= 0:
        return []
    staying = Counter(role_of(pod) for pod in gang.chosen if not pod.deleting and number_of(pod) in numbers)
    counts: dict[str, int] = {}
    for one in gang.given.assignments:
        cut = min(surplus, max(0, one.count - staying[one.name]))
        counts[one.name] = one.count - cut
        surplus -= cut
    told = []
    for pod in gang.chosen:
        read = None if pod.deleting else read_admission(pod.uid, pod.admission)
        if read is None or all(one.count <= counts.get(one.name, 0) for one in read.admission.assignments):
            continue
        less = tuple(scaled(one, min(one.count, counts.get(one.name, 0))) for one in read.admission.assignments)
        told.append(
            (pod, write_admission(pod.uid, read.pod_set, msgspec.structs.replace(read.admission, assignments=less)))
        )
    return told


def runs_uncounted(gang: SetGang) -> list[Pod]:
    """Its pods that run although nobody has admitted them."""
    return [pod for pod in gang.chosen if runs_without_admission(pod)] if gang.given is None else []
