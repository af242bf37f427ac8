"""The books of pods with StatefulSets that are admitted as a whole: who belongs to them, who stands apart (``sets``).

A StatefulSet is a group whose size is its own to say, so all else about groups goes for it too.
"""

from extender.model.effects import AdoptPod
from extender.model.events import EngineEvent, Event, StatefulSetGone, StatefulSetSeen
from extender.model.names import PodUid, WorkloadUid
from extender.model.pods import Pod
from extender.model.workload import Workload
from extender.pods.gangs import Gang, role_of
from extender.pods.intake import MAIN
from extender.pods.records import Records
from extender.pods.sets import SetGang, as_member, gather_set, is_member, restated, runs_uncounted, set_workload


class SetRecords(Records):
    """What is known of pods and StatefulSets, and what the engine was told of their workloads."""

    def __init__(self) -> None:
        super().__init__()
        self._apart: dict[PodUid, WorkloadUid] = {}
        self._restating: dict[PodUid, str] = {}

    def workload_of(self, pod: Pod) -> WorkloadUid:
        """The workload that *pod* belongs to: its StatefulSet or group, or itself."""
        return WorkloadUid(pod.uid) if pod.uid in self._apart else super().workload_of(pod)

    def pod_set_of(self, pod: Pod) -> str:
        """The name of the pod set of its workload that *pod* is in."""
        return role_of(pod) if pod.group and pod.uid not in self._apart else MAIN

    def tell_again(self, workload: WorkloadUid) -> list[EngineEvent]:
        """What is to be told of *workload*, if it has changed by something other than its pods."""
        pod = self._pods.get(PodUid(workload))
        if pod is not None and pod.uid in self._apart:
            return self._tell(self._single(pod))
        return super().tell_again(workload)

    def apply(self, event: Event) -> list[EngineEvent]:
        """Take a fact; answer what it means to the engine."""
        match event:
            case StatefulSetSeen(uid) | StatefulSetGone(uid):
                before = self.directory.sets.get(uid)
                if before == event or (before is None and isinstance(event, StatefulSetGone)):
                    return []  # its status never rests
                return super().apply(event)
            case _:
                return super().apply(event)

    def restatements(self) -> list[AdoptPod]:
        """The writes that give up places of StatefulSets which they will not fill."""
        writes = []
        for group in self._unfinished - self._stopped:
            gang = self._gang(group) if group in self._members else None
            for pod, text in restated(gang, self._set_of(gang)) if isinstance(gang, SetGang) else ():
                if self._restating.get(pod.uid) != pod.resource_version and pod.uid not in self._assumed:
                    self._restating[pod.uid] = pod.resource_version
                    version = pod.resource_version
                    writes.append(AdoptPod(pod.uid, pod.namespace, pod.name, version, text, again=True))
        return writes

    def adopt_again(self, uid: PodUid) -> list[EngineEvent]:
        """A write to that pod has failed: it is tried again, if it still is to be done."""
        self._restating.pop(uid, None)
        pod = self._adopting.get(uid) or self._native.get(uid) or self._pods.get(uid)
        return self._pod_seen(pod) if pod is not None else []

    # --- details ---

    def _set_of(self, gang: Gang) -> StatefulSetSeen | None:
        owner = gang.chosen[0].owner if gang.chosen else None
        return self.directory.sets.get(owner.uid) if owner else None

    def _resolved(self, seen: Pod) -> Pod:
        return as_member(super()._resolved(seen))

    def _gang(self, uid: WorkloadUid) -> Gang:
        members = self._members[uid]
        first = next(iter(members.values()))
        if not is_member(first):
            return super()._gang(uid)
        found = self.directory.sets.get(first.owner.uid) if first.owner else None
        told = self._told.get(uid)
        held = told is not None and told.admission is not None
        gang = gather_set(members.values(), found, writing=self._assumed, held=held)
        running = runs_uncounted(gang)
        if not running:
            return gang
        uses = self._found(_alike(running)).admission
        return gather_set(members.values(), found, writing=self._assumed, held=held, running=uses) if uses else gang

    def _gang_workload(self, gang: Gang) -> Workload:
        if not isinstance(gang, SetGang):
            return super()._gang_workload(gang)
        workload = set_workload(gang, self._set_of(gang), self.directory.classes)
        return workload if workload.admission is not None else self._waiting(workload, gang)

    def _tell_gang(self, uid: WorkloadUid) -> list[EngineEvent]:
        told = super()._tell_gang(uid)
        if self._batch is not None or uid not in self._members:
            return told
        gang = self._gang(uid)
        if not isinstance(gang, SetGang):
            return told
        now = {pod.uid for pod in gang.apart}
        for former in [pod for pod, group in self._apart.items() if group == uid and pod not in now]:
            del self._apart[former]
            told += self._end(WorkloadUid(former))
        for pod in gang.apart:
            self._apart[pod.uid] = uid
            told += self._tell(self._single(pod))
        if restated(gang, self._set_of(gang)):
            self._unfinished.add(uid)
        return told

    def _pod_gone(self, uid: PodUid) -> list[EngineEvent]:
        self._restating.pop(uid, None)
        alone = self._apart.pop(uid, None) is not None
        told = super()._pod_gone(uid)
        return self._end(WorkloadUid(uid)) + told if alone else told


def _alike(pods: list[Pod]) -> list[tuple[str, list[Pod]]]:
    roles: dict[str, list[Pod]] = {}
    for pod in pods:
        roles.setdefault(role_of(pod), []).append(pod)
    return sorted(roles.items())
