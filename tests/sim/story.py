"""One story: two replicas, a cluster and its administrators, faults, and what must hold after every step.

All chance comes from the seed. A story ends with ``heal``: faults stop, nothing ends and nobody submits any more; then
what fits must get in, every group must run whole or hold nothing, and the system must come to rest.
"""

from collections.abc import Callable
from contextlib import suppress
from random import Random

from extender.model.effects import Admit, Evict, SetPodCondition, UngatePod
from extender.model.names import CohortName, LocalQueueKey, LocalQueueName
from extender.model.policy import DEFAULT_STRATEGIES, FairSharingStrategy, Policy
from extender.model.quota import LocalQueue, StopPolicy
from tests.sim import checks
from tests.sim.api import KINDS, Api, Refused
from tests.sim.cluster import ANY, NAMESPACE, Cluster
from tests.sim.replica import Replica, Write

STEPS = 300
ROUNDS_MAX = 400
"""How many rounds a healed system may take to come to rest."""
OWNERS_MAX = 20
"""How many Jobs there are at most: beyond that, somebody gives up first."""
GRACES_MS = (0, 100, 2_000, 30_000)
POLICIES = (
    Policy(),
    Policy(fair_sharing=DEFAULT_STRATEGIES),
    Policy(fair_sharing=(FairSharingStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,)),
    Policy(fair_sharing=(FairSharingStrategy.LESS_THAN_INITIAL_SHARE,)),
)


class Story:
    """Everything that happens, from one seed. ``tell`` is given a line for each thing that happens."""

    def __init__(
        self, seed: int, *, tell: Callable[[str], None] = lambda _: None, make: type[Replica] = Replica
    ) -> None:
        self.seed = seed
        self.tell = tell
        self.rng = Random(seed)
        self.now_ms = 1_700_000_000_000
        self.api = Api()
        self.cluster = Cluster(self.api, self.rng)
        self.cluster.build()
        self.policy = POLICIES[self.rng.choice((0, 0, 1, 1, 2, 3))]
        self.replicas = [
            make(name, api=self.api, policy=self.policy, rng=self.rng, clock=lambda: self.now_ms) for name in "AB"
        ]
        for replica in self.replicas:
            self._listen(replica)
        self.leader: Replica | None = self.replicas[0]
        self.heir: Replica | None = None
        self.heir_is_blind = False
        self.tolerated = checks.Tolerance()
        self.faults = True
        self.evictions = 0
        self.audit: checks.Audit | None = None
        self.leader.take_over()

    def _listen(self, replica: Replica) -> None:
        replica.on_admit = lambda admit: self._admitted(replica, admit)
        replica.on_evict = lambda evict: self._evicted(replica, evict)
        replica.tell = self.tell

    # --- what is decided ---

    def _admitted(self, replica: Replica, admit: Admit) -> None:
        self.tell(f"{replica.name} admits {admit.uid} to {admit.admission.cluster_queue}: {_amounts(admit)}")
        assert self.audit is not None, "an admission outside of a pass"
        self.audit.admit(admit)

    def _evicted(self, replica: Replica, evict: Evict) -> None:
        self.tell(f"{replica.name} evicts {evict.uid} for {evict.preemptor}: {evict.reason}")
        self.evictions += 1
        assert self.audit is not None, "an eviction outside of a pass"
        self.audit.evict(evict, replica)

    def turn(self, replica: Replica) -> None:
        """Let a leading replica decide, and audit what it decides."""
        self.audit = checks.Audit(replica)
        replica.driver.turn()
        self.audit.close()
        self.audit = None

    # --- one step ---

    def step(self) -> None:
        """Something happens, some of it is seen, some of it is decided, some of it is written."""
        rng = self.rng
        self.now_ms += rng.choice((0, 1, 20, 200, 200, 500, 500, 1_000, 3_000))
        self._happen()
        self.cluster.reconcile(self.now_ms)
        self._deliver()
        self._succeed()
        if self.leader is not None and rng.random() < 0.7:
            self.turn(self.leader)
            self._check_decisions(self.leader)
        self._write()
        self._schedule()
        self.cluster.live(self.now_ms)
        self.check()

    def _happen(self) -> None:
        happening = self.rng.choices(
            (
                self._submit,
                self.cluster.touch,
                self._delete_somebody,
                self._edit_queue,
                self._edit_cohort,
                self._stop_something,
                self._flavor_comes_or_goes,
                self._lose_watch,
                self._restart,
                self._change_leader,
                self._tamper,
                lambda: None,
            ),
            weights=(36, 6, 3, 1, 1, 1, 0.5, 3, 1, 1, 1, 20),
        )[0]
        happening()

    def _submit(self) -> None:
        if len(self.cluster.owners) < OWNERS_MAX:
            self.cluster.submit()
        else:
            self._delete_somebody()

    def _delete_somebody(self) -> None:
        owners = sorted(self.cluster.owners)
        if owners and self.rng.random() < 0.3:
            owner = self.cluster.owners.pop(self.rng.choice(owners))
            self.tell(f"{owner.name} is deleted")
            for pod in self.cluster.pods_of(owner.name):
                self.api.delete_pod(pod.uid, gone_at_ms=self.now_ms + self.rng.choice(GRACES_MS))
        elif self.api.pods:
            pod = self.rng.choice(list(self.api.pods.values()))
            self.tell(f"pod {pod.name} is deleted")
            self.api.delete_pod(pod.uid, gone_at_ms=self.now_ms + self.rng.choice(GRACES_MS))

    def _edit_queue(self) -> None:
        name = self.rng.choice(self.cluster.queues)
        self.tell(f"ClusterQueue {name} is written anew")
        self.cluster.put_queue(name)

    def _edit_cohort(self) -> None:
        if not self.cluster.cohorts:
            return
        name = self.rng.choice(self.cluster.cohorts)
        if self.rng.random() < 0.2:
            self.tell(f"Cohort {name} is deleted")
            self.api.delete("cohort", name)
            return
        parent: CohortName | None = self.rng.choice([None, *self.cluster.cohorts])
        self.tell(f"Cohort {name} is written anew under {parent}")
        self.cluster.put_cohort(name, parent=parent)

    def _stop_something(self) -> None:
        name = self.rng.choice(self.cluster.queues)
        stop = self.rng.choice((StopPolicy.NONE, StopPolicy.NONE, StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN))
        if self.rng.random() < 0.6:
            queue = self.cluster.queue(name)
            if queue is not None:
                self.tell(f"ClusterQueue {name}: stopPolicy {stop}")
                self.api.put("queue", name, checks.replace(queue, stop_policy=stop))
        else:
            self.tell(f"LocalQueue {name}: stopPolicy {stop}")
            local = LocalQueue(NAMESPACE, LocalQueueName(name), name, stop_policy=stop)
            self.api.put("local", LocalQueueKey(NAMESPACE, local.name), local)

    def _flavor_comes_or_goes(self) -> None:
        missing = [flavor for flavor in [*self.cluster.flavors, ANY] if flavor not in self.api.objects["flavor"]]
        flavor = self.rng.choice(missing or [*self.cluster.flavors, ANY])
        if flavor in self.api.objects["flavor"]:
            self.tell(f"flavor {flavor} is deleted")
            self.api.delete("flavor", flavor)
        else:
            self.tell(f"flavor {flavor} is created")
            self.cluster.put_flavor(flavor)

    def _tamper(self) -> None:
        """Somebody takes our gate away by hand."""
        gated = [pod for pod in self.api.pods.values() if pod.gated]
        if gated:
            pod = self.rng.choice(gated)
            self.tell(f"the gate of {pod.name} is removed by hand")
            self.api.change(pod, gates=())

    # --- watches ---

    def _lose_watch(self) -> None:
        replica = self.rng.choice(self.replicas)
        kind = self.rng.choice((*KINDS, "pod", "pod"))
        self.tell(f"{replica.name} loses its watch of {kind}")
        replica.streams[kind].broken = True
        replica.streams[kind].coming.clear()

    def _deliver(self) -> None:
        for replica in self.replicas:
            for kind in KINDS:
                if kind == "pod" and replica is self.heir and self.heir_is_blind:
                    continue
                stream = replica.streams[kind]
                if stream.broken and self.rng.random() < 0.3:
                    replica.relist(kind)
                if stream.coming:
                    for _ in range(self.rng.choice((0, 1, 3, 100))):
                        replica.deliver(kind, faults=True)

    # --- leaders ---

    def _restart(self) -> None:
        """A replica dies and comes back with what a list shows. What it was writing happens, or never does."""
        replica = self.rng.choice(self.replicas)
        self.tell(f"{replica.name} restarts")
        for write in replica.writes:
            if self.rng.random() < 0.5:
                with suppress(Refused):
                    replica.apply(write, grace_ms=0)
        replica.writes.clear()
        replica.start()
        self._listen(replica)
        if replica is self.leader:
            replica.take_over()

    def _change_leader(self) -> None:
        """The lease changes hands: the old leader stops; its successor begins when nothing can arrive late."""
        if self.leader is None:
            return
        old = self.leader
        self.tell(f"{old.name} loses the lease")
        old.driver.lead(False)
        self.leader = None
        self.heir = self.rng.choice(self.replicas)
        self.heir_is_blind = self.rng.random() < 0.5  # its watch shows nothing until it leads
        for write in old.writes:
            write.zombie = isinstance(write.effect, UngatePod) and self.rng.random() < 0.05

    def _succeed(self) -> None:
        """The lease is only taken when the old leader's writes have ended, and with a view that shows them."""
        if self.heir is None or any(not write.zombie for replica in self.replicas for write in replica.writes):
            return
        self.leader, self.heir = self.heir, None
        self.leader.take_over()
        self.tell(f"{self.leader.name} leads")

    # --- writes ---

    def _write(self) -> None:
        for replica in self.replicas:
            met: set[str] = set()
            for write in list(replica.writes):
                uid = str(write.effect.uid)  # every write here is about a pod
                if uid not in met and write.due_ms <= self.now_ms:
                    self._attempt(replica, write)
                met.add(uid)  # two writes about one pod are never in flight together

    def _attempt(self, replica: Replica, write: Write) -> None:
        rng = self.rng
        if replica is not self.leader and isinstance(write.effect, SetPodCondition):
            replica.writes.remove(write)
            return
        fate = rng.random() if self.faults else 1.0
        grace_ms = rng.choice(GRACES_MS) if self.faults else 0
        if fate < 0.1:  # slow
            write.due_ms = self.now_ms + rng.choice((100, 3_000))
        elif fate < 0.15:  # 500, or no answer, and nothing was done
            write.due_ms = self.now_ms + 500
        elif fate < 0.2:  # no answer, but it was done
            with suppress(Refused):
                replica.apply(write, grace_ms=grace_ms)
            write.due_ms = self.now_ms + 500
        elif fate < 0.23 and not write.zombie:  # 403, 422, 429: certainly not done, unless an earlier attempt was
            replica.answer(write, Refused(422, "refused by the server"))
        else:
            late = write.zombie and self.leader is not None
            replica.attempt(write, grace_ms=grace_ms)
            if late:
                self.tell(f"a late write of {replica.name} arrives")
                self.tolerated.late = True
            return

    # --- scheduler ---

    def _schedule(self) -> None:
        for pod in self.cluster.waiting_for_node():
            if self.rng.random() < 0.6 or not self.faults:
                replica = self.rng.choice(self.replicas)
                node = self.cluster.schedule(pod, replica.placement, self.now_ms)
                if node is not None:
                    checks.runs_where_admitted(self.api, replica, pod, node)

    # --- what must hold ---

    def check(self) -> None:
        """The invariants of the design, against the API server's truth."""
        checks.nothing_runs_without_admission(self.api)
        self.tolerated.check(self)
        for replica in self.replicas:
            checks.engine_is_sound(replica)

    def _check_decisions(self, leader: Replica) -> None:
        """The same right after a pass."""
        self.tolerated.check(self)
        checks.engine_is_sound(leader)
        checks.every_waiting_workload_has_a_reason(leader)

    # --- the end ---

    def heal(self) -> None:
        """Faults stop and the world holds still; once more after a restart, which must not shake what runs for long."""
        self.tell("--- healing")
        self.faults = False
        self._come_to_rest()
        self.tell("--- a restart of the quiet system")
        leader = self.leader
        assert leader is not None
        leader.start()
        self._listen(leader)
        leader.take_over()
        self._come_to_rest()

    def _come_to_rest(self) -> None:
        for _ in range(ROUNDS_MAX):
            before = self._picture()
            self._calm_round()
            busy = any(replica.writes or replica.engine.has_work for replica in self.replicas if replica is self.leader)
            if self._picture() == before and not busy:
                break
        else:
            raise AssertionError(f"the system did not come to rest in {ROUNDS_MAX} rounds")
        assert self.leader is not None
        checks.groups_are_whole(self.api)
        checks.nothing_that_fits_waits(self.api, self.leader)

    def _calm_round(self) -> None:
        self.now_ms += 31_000
        self.cluster.live(self.now_ms, ending=False)
        self.cluster.reconcile(self.now_ms)
        for replica in self.replicas:
            replica.catch_up()
        self._write()
        for replica in self.replicas:
            replica.catch_up()
        if self.leader is None and self.heir is None:
            self.heir = self.replicas[0]
        self._succeed()
        if self.leader is not None:
            self.turn(self.leader)
        self._write()
        self._schedule()
        self.check()

    def _picture(self) -> object:
        return sorted((pod.uid, pod.resource_version) for pod in self.api.pods.values())


def run(
    seed: int, *, steps: int = STEPS, tell: Callable[[str], None] = lambda _: None, make: type[Replica] = Replica
) -> Story:
    """Live through the story of *seed*. Raises: AssertionError, when something did not hold."""
    story = Story(seed, tell=tell, make=make)
    for number in range(steps):
        story.tell(f"--- step {number}")
        story.step()
    story.heal()
    return story


def _amounts(admit: Admit) -> str:
    return ", ".join(
        f"{amount} {resource} of {dict(given.flavors)[resource]}"
        for given in admit.admission.assignments
        for resource, amount in given.usage
    )
