"""Laws of decisions: quota is kept, a preemptor gets what it preempted for, and a quiet system comes to rest."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from extender.model.effects import Evict
from extender.model.names import WorkloadUid
from extender.model.policy import Policy
from extender.model.quota import ResourceFlavor
from extender.model.workload import Workload
from tests.laws.build import FLAVORS, LAW, Asked, World, asked, policies, workload, worlds
from tests.laws.drive import Lab
from tests.laws.test_history import Step, live, steps
from tests.sim.plain import choices

ROUNDS_MAX = 200


@LAW
@given(worlds(), policies, steps)
def test_usage_never_exceeds_what_is_allowed_with_victims_counted_until_they_are_gone(
    world: World, policy: Policy, history: list[Step]
) -> None:
    lab = Lab(world, policy)
    for number, step in enumerate(history):
        live(lab, [step], first=number)
        lab.decide()

        assert lab.plain().excess() == {}, f"after {step}"


@LAW
@given(worlds(), policies, steps)
def test_nobody_is_evicted_twice_and_only_what_runs_is_evicted(
    world: World, policy: Policy, history: list[Step]
) -> None:
    lab = Lab(world, policy)
    for number, step in enumerate(history):
        live(lab, [step], first=number)
        for effect in lab.decide():
            if isinstance(effect, Evict):
                assert effect.uid in lab.running()
    uids = [uid for uid, _ in lab.evictions]

    assert len(uids) == len(set(uids))


@LAW
@given(worlds(), policies, st.lists(asked, min_size=1, max_size=10), asked)
def test_a_preemptor_gets_in_when_its_victims_have_left(
    world: World, policy: Policy, running: list[Asked], late: Asked
) -> None:
    """Nothing else happens meanwhile; whoever preempted and was not preempted in turn runs at the end.

    To be preempted in turn is no eviction if it happens in the pass that let the workload in: it is taken back.
    """
    lab = Lab(world, policy)
    for number, one in enumerate(running):
        lab.see(workload(world, number, one))
        lab.until_quiet()
    lab.see(workload(world, 100, late))
    for _ in range(ROUNDS_MAX):
        lab.until_quiet()
        if not lab.leaving:
            break
        for uid in list(lab.leaving):
            lab.gone(uid)
    victims = {uid for uid, _ in lab.evictions}
    preemptors = {preemptor for _, preemptor in lab.evictions} - victims - lab.taken_back

    assert preemptors <= set(lab.running()), f"evictions: {lab.evictions}"


@LAW
@given(worlds(), policies, steps)
def test_what_is_left_of_an_eviction_makes_room_for_its_preemptor(
    world: World, policy: Policy, history: list[Step]
) -> None:
    lab = Lab(world, policy)
    for number, step in enumerate(history):
        live(lab, [step], first=number)
        for effect in lab.decide():
            if isinstance(effect, Evict) and effect.preemptor is not None:
                assert fits(lab, lab.workloads[effect.preemptor]), f"{effect.preemptor} does not fit after {effect}"


def fits(lab: Lab, preemptor: Workload) -> bool:
    """Whether some choice of flavors has room once all that were told to leave have left."""
    quota = lab.plain(without=lab.leaving)
    queue = next(queue for queue in lab.world.queues if str(queue.name) == preemptor.queue.name)
    flavors = {name: ResourceFlavor(name) for name in FLAVORS}
    return any(quota.fits(queue.name, amounts) for amounts in choices(queue, preemptor.pod_sets, flavors))


@LAW
@given(worlds(), policies, steps)
def test_victims_replaced_by_new_workloads_do_not_keep_the_system_busy(
    world: World, policy: Policy, history: list[Step]
) -> None:
    lab = Lab(world, policy)
    live(lab, history)
    family = settle(lab, same=False)
    nobody_evicts_each_other(lab, family)


@LAW
@given(worlds(), policies, steps)
def test_victims_that_queue_again_do_not_keep_the_system_busy(
    world: World, policy: Policy, history: list[Step]
) -> None:
    lab = Lab(world, policy)
    live(lab, history)
    family = settle(lab, same=True)
    nobody_evicts_each_other(lab, family)


def settle(lab: Lab, *, same: bool) -> dict[WorkloadUid, WorkloadUid]:
    """Only victims leave and come back, as they were or as new workloads of the same needs, until nothing is decided.

    Answers the first of each line of replacements. Evictions are bounded by the square of the workloads.
    """
    lab.evictions.clear()
    family = {uid: uid for uid in lab.workloads}
    bound = max(1, len(lab.workloads)) ** 2
    for number in range(ROUNDS_MAX):
        lab.until_quiet()
        if not lab.leaving:
            return family
        assert len(lab.evictions) <= bound, f"more than {bound} evictions: {lab.evictions}"
        for place, uid in enumerate(list(lab.leaving)):
            if same:
                lab.leaving.pop(uid)
                lab.see(msgspec.structs.replace(lab.workloads[uid], admission=None))
            else:
                gone = lab.gone(uid)
                again = msgspec.structs.replace(
                    gone, uid=WorkloadUid(f"r{number}-{place}"), created_ms=lab.now_ms, admission=None
                )
                family[again.uid] = family[uid]
                lab.see(again)
    raise AssertionError(f"not at rest after {ROUNDS_MAX} rounds: {lab.evictions[-8:]}")


def nobody_evicts_each_other(lab: Lab, family: dict[WorkloadUid, WorkloadUid]) -> None:
    """No two lines of workloads have each evicted one of the other."""
    pairs = {(family[preemptor], family[uid]) for uid, preemptor in lab.evictions if preemptor is not None}
    mutual = [pair for pair in pairs if pair[::-1] in pairs]

    assert mutual == []
