"""Pod groups: pods that are admitted together or not at all.

A group has the size its pods name. Pods alike form one pod set (a role). While no member carries an admission the group
waits, complete or not; from the first admission on it is admitted as a whole, so a crash between two writes leaves a
group that the next leader finishes. It holds its admitted size, less what has succeeded, while an admitted member
lives.
"""

import hashlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from extender.model.events import StatefulSetSeen
from extender.model.names import PodUid, ResourceName, WorkloadUid
from extender.model.pods import Pod
from extender.model.reasons import Reason, ReasonCode, reason
from extender.model.workload import Admission, PodSet, PodSetAssignment, Workload
from extender.pods.admission import PodAdmission, read_admission
from extender.pods.intake import hold, pod_set_of, priority_of, queue_of

ROLES_MAX = 18
"""As many pod sets as the reference allows in a workload."""


def group_uid(pod: Pod) -> WorkloadUid:
    """The identity of the pod's group: its namespace and name, since a group has no object of its own."""
    return WorkloadUid(f"group:{pod.namespace}/{pod.group}")


def role_of(pod: Pod) -> str:
    """The name of the pod set that this pod belongs to: equal for pods that are alike to the quota.

    An admitted pod keeps the role it was admitted in: its selector and tolerations are its flavor's by now.
    """
    read = read_admission(pod.uid, pod.admission)
    if read is not None:
        return read.pod_set
    alike = msgspec.json.encode((pod.requests, pod.node_selector, pod.tolerations, pod.affinity))
    return hashlib.blake2b(alike, digest_size=4).hexdigest()


class Gang(msgspec.Struct, frozen=True):
    """A group as it stands.

    ``chosen`` are the live pods that belong to it, oldest first; ``excess`` those beyond its size. ``given`` is its
    admission as some member carries it, None while it waits. ``writing`` are members whose admission is being written.
    """

    uid: WorkloadUid
    chosen: tuple[Pod, ...]
    excess: tuple[Pod, ...]
    succeeded: tuple[Pod, ...]
    given: Admission | None
    writing: frozenset[PodUid] = frozenset()

    @property
    def over(self) -> bool:
        """Whether nothing of it is left to run."""
        return not self.chosen

    def unfinished(self) -> list[tuple[Pod, PodSetAssignment]]:
        """Gated members of an admitted group, with what they were given: they missed their write, or replace a pod."""
        if self.given is None or self.stopping:
            return []
        found = []
        for given in self.given.assignments:
            alike = [pod for pod in self.chosen if role_of(pod) == given.name]
            done = self.done(given)
            open_places = given.count - done - sum(self._started(pod) for pod in alike)
            gated = [pod for pod in alike if not self._started(pod)]
            found += [(pod, given) for pod in gated[: max(0, open_places)]]
        return found

    @property
    def stopping(self) -> bool:
        """Whether every member that was started is on its way out: replacements wait for a new admission."""
        started = [pod for pod in self.chosen if self._started(pod)]
        return bool(started) and all(pod.deleting for pod in started)

    def done(self, given: PodSetAssignment) -> int:
        """How many pods of a pod set have succeeded under this admission; one given anew later counts the rest only."""
        since_ms = self.given.at_ms if self.given else None
        return sum(
            read.pod_set == given.name and read.admission.at_ms == since_ms
            for pod in self.succeeded
            if (read := read_admission(pod.uid, pod.admission)) is not None
        )

    def _started(self, pod: Pod) -> bool:
        return not pod.gated or pod.uid in self.writing


def gather(members: Iterable[Pod], *, writing: Mapping[PodUid, str] = MappingProxyType({}), held: bool = False) -> Gang:
    """The gang that *members* (all pods of one group, ended ones included) form.

    *writing* are the admissions that are being written to pods. If the group is *held* already, they count like those
    that stand on pods: the last member that carries one may end while a replacement's is under way.
    """
    ordered = sorted(members, key=lambda pod: (pod.gated, pod.created_ms, pod.name))
    succeeded = tuple(pod for pod in ordered if pod.phase == "Succeeded")
    live = [pod for pod in ordered if not pod.ended]
    total = max((pod.group_total for pod in ordered), default=0)
    given = [read for pod in live if (read := read_admission(pod.uid, pod.admission)) is not None]
    busy = {pod.uid: writing[pod.uid] for pod in live if pod.uid in writing}
    if held and not given:
        given = [read for uid, text in busy.items() if (read := read_admission(uid, text)) is not None]
    # Pods on their way out are replaced already: they take no place.
    leaving = [pod for pod in live if pod.deleting]
    staying = [pod for pod in live if not pod.deleting]
    # Without a valid size all of them wait together, with the reason.
    places = max(0, total - len(succeeded)) if total else len(staying)
    return Gang(
        uid=group_uid(ordered[0]),
        chosen=(*leaving, *staying[:places]),
        excess=tuple(staying[places:]),
        succeeded=succeeded,
        given=_newest(given),
        writing=frozenset(busy),
    )


def _newest(given: list[PodAdmission]) -> Admission | None:
    return max((read.admission for read in given), key=lambda admission: admission.at_ms, default=None)


def gang_workload(
    gang: Gang, classes: Mapping[str, int], sets: Mapping[str, StatefulSetSeen] = MappingProxyType({})
) -> Workload:
    """The workload of a gang with at least one live member.

    *classes* are priority classes with their values, *sets* the StatefulSets by UID.
    """
    first = gang.chosen[0]
    return Workload(
        uid=gang.uid,
        name=f"{first.namespace}/{first.group}",
        queue=queue_of(first),
        created_ms=min(pod.created_ms for pod in gang.chosen),
        pod_sets=_pod_sets(gang),
        priority=priority_of(first, classes),
        admission=_still_held(gang),
        evicted=gang.given is not None and gang.stopping,
        held=None if gang.given else _hold(gang, classes, sets),
    )


def _pod_sets(gang: Gang) -> tuple[PodSet, ...]:
    roles: dict[str, list[Pod]] = {}
    for pod in gang.chosen:
        if not (pod.deleting and gang.given is None):
            roles.setdefault(role_of(pod), []).append(pod)
    return tuple(
        msgspec.structs.replace(
            pod_set_of(alike[0], name=name, count=len(alike)), count_min=_count_min(alike[0], len(roles), len(alike))
        )
        for name, alike in sorted(roles.items())
    )


def _count_min(pod: Pod, roles: int, count: int) -> int | None:
    """The fewest pods that do: only of a group of one role, as the reference allows it."""
    return pod.group_min if roles == 1 and 0 < pod.group_min < count else None


def _still_held(gang: Gang) -> Admission | None:
    """The admission, less the members that have succeeded: whole pods of each pod set."""
    if gang.given is None:
        return None
    left = tuple(scaled(given, max(0, given.count - gang.done(given))) for given in gang.given.assignments)
    return msgspec.structs.replace(gang.given, assignments=left)


def scaled(given: PodSetAssignment, count: int) -> PodSetAssignment:
    """Division by the old count first, then multiplication, as the reference does (quota specification, 1.3)."""
    if count == given.count or not given.count:
        return given
    usage: tuple[tuple[ResourceName, int], ...] = tuple(
        (resource, amount // given.count * count) for resource, amount in given.usage
    )
    return msgspec.structs.replace(given, usage=usage, count=count)


def _hold(gang: Gang, classes: Mapping[str, int], sets: Mapping[str, StatefulSetSeen]) -> Reason | None:
    first = gang.chosen[0]
    for field, values in (
        ("total count", {pod.group_total for pod in gang.chosen}),
        ("queue", {pod.queue for pod in gang.chosen}),
    ):
        if len(values) > 1:
            differing = " and ".join(sorted(str(value) for value in values))
            return reason(
                ReasonCode.REQUEST_INVALID,
                problem=f"pods of group {first.group} disagree on their {field}: {differing}",
            )
    staying = [pod for pod in gang.chosen if not pod.deleting]
    have = len(staying) + len(gang.succeeded)
    if have < first.group_total:
        return next((why for pod in staying if (why := _ordered(pod, sets)) is not None), None) or reason(
            ReasonCode.GANG_INCOMPLETE, have=have, want=first.group_total, group=first.group
        )
    if len({role_of(pod) for pod in staying}) > ROLES_MAX:
        return reason(
            ReasonCode.REQUEST_INVALID, problem=f"group {first.group} has more than {ROLES_MAX} different kinds of pods"
        )
    return next((why for pod in staying if (why := hold(pod, classes)) is not None), None)


def _ordered(pod: Pod, sets: Mapping[str, StatefulSetSeen]) -> Reason | None:
    """Why the group of a StatefulSet's pod can never be complete: it makes the next pod only when this one is ready."""
    found = sets.get(pod.owner.uid) if pod.owner else None
    if found is None or not found.ordered:
        return None
    return reason(
        ReasonCode.REQUEST_INVALID,
        problem=f"StatefulSet {found.name} makes one pod at a time, so group {pod.group} can never be complete; "
        "create it with podManagementPolicy: Parallel",
    )


def excess_reason(pod: Pod) -> Reason:
    """Why a pod beyond its group's size waits."""
    return reason(ReasonCode.EXCESS_POD, group=pod.group, total=pod.group_total)


def remarks(gang: Gang) -> dict[PodUid, Reason]:
    """What is to be said of single members: those beyond the group's size, and those that were not admitted with it."""
    said = {pod.uid: excess_reason(pod) for pod in gang.excess}
    if gang.given is not None and not gang.stopping:
        count = sum(given.count for given in gang.given.assignments)
        coming = {pod.uid for pod, _ in gang.unfinished()}
        for pod in gang.chosen:
            if pod.gated and pod.uid not in coming and pod.uid not in gang.writing:
                said[pod.uid] = reason(ReasonCode.ADMITTED_IN_PART, group=pod.group, count=count, total=pod.group_total)
    return said
