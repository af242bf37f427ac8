"""Requests as a real kube-scheduler and a real API server (1.36.3) sent them, kept byte for byte."""

import orjson
import pytest

from extender.model.questions import PlacementQuestion, PreemptionQuestion
from extender.model.verdicts import NodeScore
from extender.serve.extender import Extender
from extender.serve.review import read_review
from extender.serve.webhook import Webhook
from tests.serve.doubles import FakePlacement, FakeQueues, golden, patched, response
from tests.serve.guard_cases import WRITER

NODES = {"gpu-0", "gpu-1", "gpu-2"}


def test_a_real_filter_is_answered_with_its_own_nodes():
    placement = FakePlacement()
    reply = Extender(placement).filter(golden("captured-filter.request.json"))

    (question,) = placement.asked
    assert isinstance(question, PlacementQuestion)
    assert (question.pod.namespace, question.pod.name, len(question.pod.uid)) == ("default", "low-0", 36)
    assert set(question.nodes) == NODES
    assert orjson.loads(reply.body)["NodeNames"] == question.nodes


def test_a_real_prioritize_is_answered():
    placement = FakePlacement(scores=[NodeScore("gpu-0", 3)])

    reply = Extender(placement).prioritize(golden("captured-prioritize.request.json"))

    assert set(placement.asked[0].nodes) == NODES
    assert reply.body == b'[{"Host":"gpu-0","Score":3}]'


def test_a_real_preempt_is_answered_with_its_own_victims():
    placement = FakePlacement()
    body = golden("captured-preempt.request.json")

    reply = Extender(placement).preempt(body)

    (question,) = placement.asked
    assert isinstance(question, PreemptionQuestion)
    assert (question.pod.name, set(question.candidates)) == ("high", NODES)
    sent = orjson.loads(body)["NodeNameToMetaVictims"]
    assert orjson.loads(reply.body) == {"NodeNameToMetaVictims": sent}


def test_a_real_scheduler_in_nodes_mode_is_told_what_to_set():
    reply = Extender(FakePlacement()).filter(golden("captured-filter-nodes-mode.request.json"))

    assert "nodeCacheCapable: true" in orjson.loads(reply.body)["Error"]


def test_a_real_creation_is_marked():
    body = golden("captured-mutate-create.request.json")
    webhook = Webhook(FakeQueues(), writer=WRITER)

    reply = webhook.mutate(body)

    sent = orjson.loads(body)["request"]
    marked = patched(sent["object"], reply.body)
    assert response(reply.body)["uid"] == sent["uid"]
    assert marked["spec"]["schedulingGates"] == [{"name": "cohort-extender.io/admission"}]


@pytest.mark.parametrize(
    ("name", "operation"),
    [("captured-validate-create", "CREATE"), ("captured-validate-update", "UPDATE")],
)
def test_a_real_attack_on_our_marks_is_refused(name, operation):
    body = golden(f"{name}.request.json")
    reply = Webhook(FakeQueues(), writer=WRITER).validate(body)

    asked = read_review(body)
    assert asked.operation == operation
    assert (asked.old is None) is (operation == "CREATE")
    assert response(reply.body)["allowed"] is False
