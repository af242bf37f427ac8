"""The validating webhook for Jobs, by the table it shares with the policy."""

from typing import Any

import orjson
import pytest

from extender.serve.guard_jobs import JobGuard
from tests.serve.doubles import ENVELOPE, response
from tests.serve.guard_cases import WRITER
from tests.serve.job_cases import CREATED, UPDATED, WAITING, JobCase, job

GUARD = JobGuard(writer=WRITER)
STARTED = WAITING | {"suspended": False}


def asked(new: dict[str, Any], old: dict[str, Any] | None, *, user: str = "alice", **more: Any) -> dict[str, Any]:
    request = {
        "uid": "r",
        "kind": {"group": "batch", "kind": "Job"},
        "operation": "UPDATE" if old else "CREATE",
        "userInfo": {"username": user},
        "object": new,
        "oldObject": old,
        **more,
    }
    return response(GUARD.validate(orjson.dumps({**ENVELOPE, "request": request})).body)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.says) for case in CREATED + UPDATED])
def test_the_webhook_guards_jobs(case: JobCase):
    answer = asked(case.new, case.old)

    assert answer["allowed"] is not bool(case.refusal), answer
    assert case.refusal in answer.get("status", {}).get("message", "")


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"user": WRITER}, id="we ourselves"),
        pytest.param({"subResource": "status"}, id="a status"),
        pytest.param({"operation": "DELETE"}, id="a deletion"),
        pytest.param({"kind": {"group": "jobset.x-k8s.io", "kind": "JobSet"}}, id="another kind"),
    ],
)
def test_what_is_none_of_its_business_passes(more: dict[str, Any]):
    assert asked(job(**STARTED), job(**WAITING), **more)["allowed"] is True


@pytest.mark.parametrize(
    "foreign",
    [
        pytest.param({"managedBy": "example.com/other"}, id="of another controller"),
        pytest.param({}, id="made by a controller"),
    ],
)
def test_a_job_of_somebody_else_is_left_alone(foreign: dict[str, str]):
    new = job(**STARTED, **foreign)
    if not foreign:
        new["metadata"]["ownerReferences"] = [{"kind": "Workflow", "name": "w", "uid": "1", "controller": True}]

    assert asked(new, job(**WAITING))["allowed"] is True


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"request": {"uid": "1"}}', b"\xff"])
def test_junk_is_refused(body: bytes):
    assert GUARD.validate(body).status == 400
