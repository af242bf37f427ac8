"""Writes about Jobs and an API server that does not take them: what is tried again, how often, and what is told."""

import pytest

from extender.kube.writer import OutcomeKind
from extender.model.jobs import GrowJob, JobRef, ReleaseJob, ResetStart, StartJob, StopJob, SuspendJob
from extender.model.names import Namespace, WorkloadUid
from tests.support.fake_api import Fault

REF = JobRef("batch/v1", "Job", "jobs", Namespace("lab"), "train", "u1", ("spec", "suspend"))
UID = WorkloadUid("job:u1")
START = StartJob(UID, "u1", REF, "7", "given", annotated=True, was_evicted=False, templates=())
STOP = StopJob(UID, "u1", REF, "given", "{}")
GROW = GrowJob(WorkloadUid("growth:u1"), "u1", REF, "given", "more")
GUARDED = {
    "start": START,
    "hold": SuspendJob("u1", REF, "7", suspend_parent=True, labelled=True),
    "reset": ResetStart("u1", REF, "7"),
    "release": ReleaseJob("u1", REF, "7", (), label=False, templates=()),
}
ALL = {**GUARDED, "stop": STOP, "grow": GROW}
DONE = Fault(status=200)


def acts(found):
    return [pytest.param(act, id=name) for name, act in found.items()]


def answers(api, *faults):
    """The API server answers so, one after the other."""
    for fault in faults:
        api.fail("PATCH", "/jobs/train", fault)


@pytest.mark.parametrize("act", acts(ALL))
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(status=429, headers={"Retry-After": "1"}), id="too many requests"),
        pytest.param(Fault(status=503), id="unwell"),
        pytest.param(Fault(status=500), id="internal error"),
        pytest.param(Fault(cut=True), id="no answer"),
        pytest.param(
            Fault(status=403, message='User "x" cannot patch resource "jobs" in API group "batch"'), id="RBAC"
        ),
    ],
)
async def test_what_passes_is_waited_for(api, desk, act, fault):
    answers(api, fault, DONE)

    assert await desk.kind(act) is OutcomeKind.DONE
    assert api.count("PATCH", "/jobs/train") == 2


@pytest.mark.parametrize("act", acts({"stop": STOP, "grow": GROW}))
async def test_what_is_not_guarded_by_version_is_sent_again_after_a_conflict(api, desk, act):
    answers(api, Fault(status=409), Fault(status=409), DONE)

    assert await desk.kind(act) is OutcomeKind.DONE
    assert api.count("PATCH", "/jobs/train") == 3


@pytest.mark.parametrize("act", acts(GUARDED))
async def test_what_was_decided_on_another_version_is_decided_anew(api, desk, act):
    answers(api, Fault(status=409))

    assert await desk.kind(act) is OutcomeKind.CONFLICT
    assert api.count("PATCH", "/jobs/train") == 1


@pytest.mark.parametrize(
    ("act", "want"),
    [pytest.param(act, OutcomeKind.DONE if act is STOP else OutcomeKind.GONE, id=name) for name, act in ALL.items()],
)
async def test_a_job_that_is_gone_is_as_stopped_as_can_be(api, desk, act, want):
    answers(api, Fault(status=404))

    assert await desk.kind(act) is want


@pytest.mark.parametrize("act", acts(ALL))
@pytest.mark.parametrize("status", [403, 422])
async def test_what_is_not_accepted_is_told_at_once(api, desk, act, status):
    answers(api, Fault(status=status, message="not today"))

    assert await desk.kind(act) is OutcomeKind.INVALID
    assert api.count("PATCH", "/jobs/train") == 1


@pytest.mark.parametrize(
    ("act", "want"),
    [
        pytest.param(START, 8, id="a start: at 0, 0.5, 1.5, 3.5, 7.5, 15.5, 30.5 and 45.5 s of a minute"),
        pytest.param(STOP, 44, id="a stop: every 15 s of ten minutes in the end"),
    ],
)
async def test_an_api_server_that_stays_unwell_is_not_hammered(api, desk, act, want):
    api.fail("PATCH", "/jobs/train", Fault(status=503), times=1_000)

    assert await desk.kind(act) is OutcomeKind.EXPIRED
    assert api.count("PATCH", "/jobs/train") == want
