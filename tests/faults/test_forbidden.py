"""A policy of somebody else forbids one kind of our writes: it is tried now and then, and carried out in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.faults.auditor import Auditor
from tests.faults.lab import LEFT, RIGHT, TOTAL, Lab, Object, pod
from tests.faults.proxy import Call, Point
from tests.faults.scenes import is_admission, is_eviction, job, running

pytestmark = [pytest.mark.rig, pytest.mark.slow, pytest.mark.timeout(420)]

POLICIES = "/apis/admissionregistration.k8s.io/v1"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
WATCHED_S = 15.0
TRIES_MAX = 12
"""In that time, for one object: a back-off of 1, 2, 4 … s leaves room for five."""
Begin = Callable[[Lab], Any]


def is_stop(call: Call) -> bool:
    """Whether *call* is the PATCH that stops a Job."""
    return call.method == "PATCH" and call.path.endswith("/jobs/job") and b'"/spec/suspend"' in call.body


def is_growth(call: Call) -> bool:
    """Whether *call* is the PATCH that lets a Job have more pods."""
    of_job = call.method == "PATCH" and call.path.endswith("/jobs/job")
    return of_job and b"cohort-extender.io~1admission" in call.body and b'"/spec/suspend"' not in call.body


@dataclass(frozen=True)
class Case:
    """What is forbidden, what leads to it, and where the pods run once it is allowed."""

    rule: Object
    is_it: Callable[[Call], bool]
    prepare: Begin
    begin: Begin
    namespace: str
    count: int


async def nothing(lab: Lab) -> None:
    """Nothing is there before."""


async def one_pod(lab: Lab) -> None:
    """A pod comes."""
    await lab.submit(RIGHT, pod("p"))


async def one_job(lab: Lab) -> None:
    """A Job comes."""
    await lab.rig.api.create(JOBS.format(RIGHT), job("job", 1))


async def pods_borrow_all(lab: Lab) -> None:
    """Left runs eight pods."""
    await lab.submit(LEFT, *(pod(f"v{index}") for index in range(TOTAL)))
    await lab.pods_are(LEFT, lambda pods: len(running(pods)) == TOTAL, "all is borrowed")


async def a_job_borrows_all(lab: Lab) -> None:
    """Left runs a Job of eight pods."""
    await lab.rig.api.create(JOBS.format(LEFT), job("job", TOTAL))
    await lab.pods_are(LEFT, lambda pods: len(running(pods)) == TOTAL, "all is borrowed")


async def a_job_runs_two(lab: Lab) -> None:
    """Right runs two of the four pods that a Job is to have in all."""
    made = job("job", 4)
    made["spec"]["parallelism"] = 2
    await lab.rig.api.create(JOBS.format(RIGHT), made)
    await lab.pods_are(RIGHT, lambda pods: len(running(pods)) == 2, "two run")


async def it_grows(lab: Lab) -> None:
    """Its owner wants the other two at the same time."""
    await lab.rig.api.patch(f"{JOBS.format(RIGHT)}/job", {"spec": {"parallelism": 4}})


PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}
EVICTIONS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
UPDATES = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["jobs"]}
CASES = [
    pytest.param(Case(PODS, is_admission, nothing, one_pod, RIGHT, 1), id="to admit a pod"),
    pytest.param(Case(EVICTIONS, is_eviction, pods_borrow_all, one_pod, RIGHT, 1), id="to evict a pod"),
    pytest.param(Case(UPDATES, is_admission, nothing, one_job, RIGHT, 1), id="to start a Job"),
    pytest.param(Case(UPDATES, is_stop, a_job_borrows_all, one_pod, RIGHT, 1), id="to stop a Job"),
    pytest.param(Case(UPDATES, is_growth, a_job_runs_two, it_grows, RIGHT, 4), id="to let a Job grow"),
]


@asynccontextmanager
async def forbidden(lab: Lab, rule: Object) -> AsyncIterator[None]:
    """Our account may not do what *rule* selects."""
    name = "somebody-says-no"
    ours = "request.userInfo.username == 'system:serviceaccount:cohort-system:cohort-extender'"
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "by-cohort-extender", "expression": ours}],
            "validations": [{"expression": "false", "reason": "Forbidden", "message": "not today"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    await lab.rig.api.create(f"{POLICIES}/validatingadmissionpolicies", policy)
    await lab.rig.api.create(f"{POLICIES}/validatingadmissionpolicybindings", binding)
    await asyncio.sleep(2)  # until the API server has compiled it
    try:
        yield
    finally:
        await lab.rig.api.delete(f"{POLICIES}/validatingadmissionpolicybindings/{name}")
        await lab.rig.api.delete(f"{POLICIES}/validatingadmissionpolicies/{name}")


@pytest.mark.parametrize("case", CASES)
async def test_what_a_policy_forbids_is_tried_now_and_then(faulty: Lab, auditor: Auditor, case: Case):
    leader = await faulty.leader()
    await case.prepare(faulty)
    async with forbidden(faulty, case.rule):
        hook = faulty.proxy(leader).catch(case.is_it, Point.AFTER)
        await case.begin(faulty)
        await hook.first()
        hook.pass_on()
        before = len(faulty.proxy(leader).calls)
        await asyncio.sleep(WATCHED_S)
        tries = [call for call in faulty.proxy(leader).calls[before:] if case.is_it(call)]
        writes = [call for call in faulty.proxy(leader).calls[before:] if call.is_write]
    await faulty.pods_are(case.namespace, lambda pods: len(running(pods)) == case.count, "it is carried out")

    most = max((sum(one.path == call.path for one in tries) for call in tries), default=0)
    assert hook.caught[0].status in (403, 422)
    assert most <= TRIES_MAX
    assert len(writes) <= 10 * TRIES_MAX
    assert auditor.violations == []
