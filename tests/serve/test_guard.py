"""The validating webhook, by the table it shares with the policy."""

import pytest

from extender.serve.webhook import Webhook
from tests.serve.doubles import FakeQueues, response, review
from tests.serve.guard_cases import ADMITTED, CREATIONS, UPDATES, WRITER, Case, pod


@pytest.mark.parametrize("case", [pytest.param(case, id=case.says) for case in CREATIONS + UPDATES])
def test_the_webhook_guards_our_marks(case: Case):
    webhook = Webhook(FakeQueues(), writer=WRITER)

    answer = response(webhook.validate(review(case.new, case.old, user=case.user)).body)

    assert answer["allowed"] is not bool(case.refusal)
    assert case.refusal in answer.get("status", {}).get("message", "")
    assert "patch" not in answer


def test_a_finished_pod_may_change_its_queue():
    webhook = Webhook(FakeQueues(), writer=WRITER)
    new = pod(**ADMITTED | {"queue": "b"}) | {"status": {"phase": "Succeeded"}}

    answer = response(webhook.validate(review(new, pod(**ADMITTED))).body)

    assert answer["allowed"] is True


def test_a_static_pod_may_name_a_queue_and_a_node():
    webhook = Webhook(FakeQueues(), writer=WRITER)
    mirror = pod(queue="a", node="n1", annotations={"kubernetes.io/config.mirror": "abc"})

    answer = response(webhook.validate(review(mirror)).body)

    assert answer["allowed"] is True


def test_forgery_is_forbidden_and_a_bad_word_is_invalid():
    webhook = Webhook(FakeQueues(), writer=WRITER)

    forged = response(webhook.validate(review(pod(admission="{}"))).body)["status"]
    bad = response(webhook.validate(review(pod(queue="A!"))).body)["status"]

    assert (forged["code"], forged["reason"]) == (403, "Forbidden")
    assert (bad["code"], bad["reason"]) == (422, "Invalid")


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"operation": "DELETE"}, id="a deletion"),
        pytest.param({"operation": "CONNECT"}, id="an exec"),
        pytest.param({"subResource": "status"}, id="a status"),
        pytest.param({"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}}, id="another kind"),
    ],
)
def test_what_is_not_a_pod_being_written_passes(request_):
    webhook = Webhook(FakeQueues(), writer=WRITER)

    answer = response(webhook.validate(review(pod(admission="{}"), **request_)).body)

    assert answer["allowed"] is True
