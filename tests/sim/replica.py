"""One replica of the service inside a story: the shipped driver, books and engine, with fake watches and a fake writer.

The writer keeps the contract that the real one must keep: ``refused`` is said only when a write certainly did not
happen. A lost answer is followed by the same guarded write again, and a conflict by a look at the pod.
"""

import json
from collections.abc import Callable, Iterable
from random import Random

from extender.driver import Driver
from extender.engine.engine import Engine
from extender.jobs.placement import JobPlacement
from extender.jobs.shelf import Shelf
from extender.model.effects import Admit, AdoptPod, Effect, Evict, EvictPod, SetPodCondition, UngatePod
from extender.model.names import PodUid, WorkloadUid
from extender.model.pods import Pod
from extender.model.policy import Policy
from tests.sim.api import GONE, KINDS, SEEN, Api, Refused, Stream, keep_finished
from tests.sim.holdings import uid_of

KINDS_OF_REFUSAL = {404: "gone", 409: "conflict", 422: "invalid"}
"""What the writer calls a refusal, by its HTTP status."""
WRITES = (UngatePod, AdoptPod, EvictPod, SetPodCondition)


class Meter:
    """Counts nothing: stories look at decisions themselves."""

    def attempt(self, *, admitted: bool, seconds: float) -> None:
        """A pass ended."""

    def admitted(self, cluster_queue: str, *, waited_s: float) -> None:
        """A workload was admitted."""

    def evicted(self, cluster_queue: str, *, reason: str, preempting: str | None = None) -> None:
        """A workload was told to stop."""

    def leading(self, leads: bool) -> None:
        """Whether this replica writes."""

    def violated(self, invariant: str) -> None:
        """What must always hold did not."""
        raise AssertionError(invariant)

    def pending(self, cluster_queue: str, *, active: int, inadmissible: int) -> None:
        """How many wait."""

    def active(self, cluster_queue: str, count: int) -> None:
        """How many hold quota."""

    def usage(self, cluster_queue: str, flavor: str, resource: str, amount: float) -> None:
        """Quota in use."""

    def share(self, cluster_queue: str, weighted_share: float) -> None:
        """The weighted share."""

    def forget(self, cluster_queue: str) -> None:
        """The ClusterQueue is gone."""


class Witness(Driver):
    """The shipped driver; its decisions are shown to a witness before they are carried out."""

    on_admit: Callable[[Admit], None]
    on_evict: Callable[[Evict], None]

    def _admit(self, admit: Admit, now_ms: int) -> None:
        self.on_admit(admit)
        super()._admit(admit, now_ms)

    def _evict(self, evict: Evict) -> None:
        self.on_evict(evict)
        super()._evict(evict)


class Write:
    """A write on its way. ``zombie``: it is stuck in the network and outlives its sender's lease."""

    def __init__(self, effect: Effect, due_ms: int) -> None:
        self.effect = effect
        self.due_ms = due_ms
        self.zombie = False


class Replica:
    """Engine, books, driver, their watches and their writes."""

    driver_type: type[Witness] = Witness

    def __init__(self, name: str, *, api: Api, policy: Policy, rng: Random, clock: Callable[[], int]) -> None:
        self.name = name
        self.api = api
        self.policy = policy
        self.rng = rng
        self.clock = clock
        self.writes: list[Write] = []
        self.unseen: dict[PodUid, str] = {}
        self.outdated: dict[PodUid, UngatePod] = {}
        self.finished: dict[PodUid, Pod] = {}
        self.evicting: dict[WorkloadUid, WorkloadUid | None] = {}
        self.stays: set[WorkloadUid] = set()
        self.on_admit: Callable[[Admit], None] = lambda _: None
        self.on_evict: Callable[[Evict], None] = lambda _: None
        self.tell: Callable[[str], None] = lambda _: None
        self.streams: dict[str, Stream] = {}
        self.start()

    def start(self) -> None:
        """A fresh process: nothing in memory but what a list of everything shows, kinds in any order."""
        self.api.unwatch(self.streams)
        self.engine = Engine(self.policy)
        self.books = Shelf(())
        self.driver = self.make_driver()
        self.driver.on_admit = lambda admit: self.on_admit(admit)
        self.driver.on_evict = lambda evict: self.on_evict(evict)
        self.placement = JobPlacement(self.books, self.engine)
        self.evicting, self.stays = {}, set()
        self.unseen, self.outdated, self.finished = {}, {}, {}
        self.streams = self.api.watch()
        kinds = list(KINDS)
        self.rng.shuffle(kinds)
        for kind in kinds:
            self.driver.take([SEEN[kind](record) for record in self.streams[kind].seen.values()])

    def make_driver(self) -> Witness:
        """The driver of this process."""
        return self.driver_type(
            engine=self.engine, books=self.books, submit=self.submit, clock_ms=self.clock, meter=Meter()
        )

    def submit(self, effect: Effect) -> None:
        """Take an effect over from the driver; how long it is under way is the story's affair."""
        if isinstance(effect, UngatePod | EvictPod | AdoptPod):
            self.tell(f"{self.name} writes {_short(effect)}")
        if isinstance(effect, WRITES):
            self.writes.append(Write(effect, self.clock()))

    # --- watches ---

    def lag(self, kinds: Iterable[str]) -> int:
        """How many changes of these kinds have not been delivered; a broken watch counts as one more."""
        return sum(len(self.streams[kind].coming) + self.streams[kind].broken for kind in kinds)

    def deliver(self, kind: str, *, faults: bool) -> None:
        """Deliver one change of *kind*: the oldest, or with faults any that overtakes none of its own object or group.

        The API server promises more: changes of one kind come in their order.
        """
        stream = self.streams[kind]
        if not stream.coming:
            return
        place = 0
        if faults and len(stream.coming) > 1 and self.rng.random() < 0.3:
            place = self.rng.randrange(len(stream.coming))
            line = _line(stream, *stream.coming[place])
            place = next(n for n, change in enumerate(stream.coming) if _line(stream, *change) == line)
        key, record = stream.coming[place]
        del stream.coming[place]
        again = faults and self.rng.random() < 0.1
        for _ in range(2 if again else 1):
            self._take(kind, key, record)
        if record is None:
            stream.seen.pop(key, None)
        else:
            stream.seen[key] = record

    def relist(self, kind: str) -> None:
        """The watch was lost, or its version is too old (410): list again and tell the difference."""
        stream = self.streams[kind]
        for key, record in self.api.relist(stream, kind):
            self._take(kind, key, record)
        stream.seen = dict(self.api.objects[kind])

    def _take(self, kind: str, key: object, record: object | None) -> None:
        self.tell(f"{self.name} sees {kind} {_shown(key, record)}")
        if kind == "pod":
            self._seen(PodUid(str(key)), record)
        self.driver.take([GONE[kind](key) if record is None else SEEN[kind](record)])

    def _seen(self, uid: PodUid, record: object | None) -> None:
        if not isinstance(record, Pod) or record.admission is not None:
            self.unseen.pop(uid, None)
        outdated = self.outdated.get(uid)
        if outdated and not (isinstance(record, Pod) and record.resource_version == outdated.resource_version):
            del self.outdated[uid]
        before = self.pods().get(uid)
        if record is None and before is not None:
            left = [pod for pod in self.pods().values() if pod.uid != uid]
            keep_finished(self.finished, before, left)

    def take_over(self) -> None:
        """Lead, with a view as new as the lease: it shows what the leader before has written."""
        self.relist("pod")
        self.evicting, self.stays = {}, set()  # others decided meanwhile
        self.driver.lead(True)

    def catch_up(self) -> None:
        """Deliver everything."""
        for kind in KINDS:
            if self.streams[kind].broken:
                self.relist(kind)
            while self.streams[kind].coming:
                self.deliver(kind, faults=False)

    # --- writes ---

    def attempt(self, write: Write, *, grace_ms: int) -> None:
        """Carry the write out and tell the driver how it ended."""
        try:
            self.apply(write, grace_ms=grace_ms)
        except Refused as refusal:
            self.answer(write, refusal)
        else:
            self.writes.remove(write)
            self.tell(f"{self.name} has written {_short(write.effect)}")
            self._done(write.effect)

    def apply(self, write: Write, *, grace_ms: int) -> None:
        """Let the API server see the write. Raises: Refused."""
        match write.effect:
            case UngatePod() as effect:
                self.api.ungate(effect)
            case AdoptPod() as effect:
                self.api.adopt(effect)
            case SetPodCondition() as effect:
                self.api.condition(effect)
            case EvictPod() as effect:
                self.api.evict(effect, gone_at_ms=self.clock() + grace_ms)

    def answer(self, write: Write, refusal: Refused) -> None:
        """The server said no: the end of this write, unless an earlier attempt of it has succeeded after all."""
        self.writes.remove(write)
        effect = write.effect
        late_success = isinstance(effect, UngatePod) and self.api.carries(effect)
        if late_success or (isinstance(effect, EvictPod) and refusal.status == 404):
            self._done(effect)
            return
        self.tell(f"{self.name} is refused {_short(effect)}: {refusal.status} {refusal}")
        if isinstance(effect, EvictPod):
            self.stays.add(effect.workload)
        if isinstance(effect, UngatePod) and refusal.status == 409:
            self._meet_conflict(effect)
        self.driver.refused(effect, f"{KINDS_OF_REFUSAL[refusal.status]}: {refusal}")

    def _meet_conflict(self, effect: UngatePod) -> None:
        """The charge is kept until the change is seen. A group with a member that is admitted stays so by that one."""
        pods = self.pods()
        seen = pods.get(effect.uid)
        if seen is None or seen.resource_version != effect.resource_version:
            return
        others = [pod for pod in pods.values() if seen.group and pod.group == seen.group and not pod.ended]
        if not any(pod.admission for pod in others):
            self.outdated[effect.uid] = effect

    def _done(self, effect: Effect) -> None:
        seen = self.pods().get(effect.uid) if isinstance(effect, UngatePod) else None
        if isinstance(effect, UngatePod) and seen is not None and seen.admission != effect.admission:
            self.unseen[effect.uid] = effect.admission
        self.driver.done(effect)

    # --- what this replica has been told ---

    def members(self) -> list[Pod]:
        """The pods as delivered, and the members of living groups that were seen to succeed before they went."""
        return [*self.pods().values(), *self.finished.values()]

    def pods(self) -> dict[PodUid, Pod]:
        """The pods as delivered."""
        return {uid: pod for uid, pod in self.streams["pod"].seen.items() if isinstance(pod, Pod)}

    def in_flight(self) -> dict[PodUid, dict[str, object]]:
        """The admissions that count though they are not seen yet, as plain JSON.

        They are being written, or written but not shown by the watch, or refused by a conflict with a change that the
        watch has not shown: their charge is kept until then.
        """
        before = {uid: effect.admission for uid, effect in self.outdated.items()} | self.unseen
        return {uid: json.loads(text) for uid, text in before.items()} | self.writing(zombies=True)

    def writing(self, *, zombies: bool) -> dict[PodUid, dict[str, object]]:
        """The admissions that are under way; of *zombies* nobody but their sender knows any more."""
        return {
            write.effect.uid: json.loads(write.effect.admission)
            for write in self.writes
            if isinstance(write.effect, UngatePod) and (zombies or not write.zombie)
        }


def _short(effect: Effect) -> str:
    name = getattr(effect, "name", "")
    version = getattr(effect, "resource_version", "")
    return f"{type(effect).__name__} {name} {version}".strip()


def _line(stream: Stream, key: object, record: object | None) -> object:
    """What a change must not overtake another change of: its object, or its workload."""
    pod = record or stream.seen.get(key) or next((coming for other, coming in stream.coming if other == key), None)
    return uid_of(pod) if isinstance(pod, Pod) else key


def _shown(key: object, record: object | None) -> str:
    if not isinstance(record, Pod):
        return f"{key}" + (" gone" if record is None else "")
    marks = [name for name in ("gated", "managed", "deleting", "admission", "node") if getattr(record, name)]
    return f"{record.uid} {record.name} {record.resource_version} {record.phase} {' '.join(marks)}"
