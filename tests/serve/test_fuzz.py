"""Anything may arrive: no input crashes a handler, hangs it, or gets an answer of the wrong shape."""

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.serve.extender import Extender
from extender.serve.webhook import Webhook
from tests.serve.doubles import FakePlacement, FakeQueues, golden, patched, response, review
from tests.serve.guard_cases import WRITER

KEYS = st.sampled_from(
    [
        "Pod", "NodeNames", "Nodes", "NodeNameToMetaVictims", "Pods", "UID", "NumPDBViolations", "metadata", "spec",
        "uid", "labels", "annotations", "nodeSelector", "request", "object", "oldObject", "operation", "userInfo",
        "containers", "schedulingGates", "resources", "limits", "kueue.x-k8s.io/queue-name",
        "cohort-extender.io/admission",
    ]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=6), inner, max_size=5),
    max_leaves=25,
)
LABELS = st.dictionaries(
    st.sampled_from(
        ["kueue.x-k8s.io/queue-name", "cohort-extender.io/managed", "kueue.x-k8s.io/pod-group-name", "app"]
    ),
    st.sampled_from(["", "a", "true", "A!"]),
    max_size=3,
)
AMOUNTS = st.none() | st.dictionaries(
    st.sampled_from(["cpu", "cohort-extender.io/queued-pod"]), st.just("1"), max_size=2
)
CONTAINER = st.fixed_dictionaries(
    {"name": st.just("c")},
    optional={"resources": st.none() | st.fixed_dictionaries({}, optional={"limits": AMOUNTS, "requests": AMOUNTS})},
)
GATES = st.lists(
    st.sampled_from(["cohort-extender.io/admission", "other.io/x"]).map(lambda name: {"name": name}),
    max_size=2,
    unique_by=lambda gate: gate["name"],
)
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {}, optional={"labels": st.none() | LABELS, "annotations": st.none() | LABELS, "name": st.text(max_size=4)}
        ),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(CONTAINER, min_size=1, max_size=2)},
            optional={"schedulingGates": st.none() | GATES, "nodeName": st.sampled_from(["", "n1"])},
        ),
    }
)

MUTATED = st.sampled_from(["filter", "prioritize", "preempt", "review-create"]).flatmap(
    lambda name: st.tuples(st.just(golden(f"{name}.request.json")), st.integers(0, 700), st.binary(max_size=6)).map(
        lambda found: found[0][: found[1]] + found[2] + found[0][found[1] + 1 :]
    )
)
BODIES = st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()) | MUTATED


def check_any_body(body):
    extender = Extender(FakePlacement())
    webhook = Webhook(FakeQueues("icu"), writer=WRITER)

    filtered = extender.filter(body)
    others = [extender.prioritize(body), extender.preempt(body), webhook.mutate(body), webhook.validate(body)]

    assert filtered.status == 200
    assert set(orjson.loads(filtered.body)) == {
        "Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error",
    }  # fmt: skip
    for reply in others:
        assert reply.status in (200, 400)
        assert reply.status == 400 or orjson.loads(reply.body) is not None


@settings(max_examples=1500, deadline=None)
@given(BODIES)
def test_any_body_gets_an_answer_of_the_right_shape(body):
    check_any_body(body)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=100_000, deadline=5_000)
@given(BODIES)
def test_a_hundred_thousand_bodies_get_an_answer_within_seconds(body):
    check_any_body(body)


@settings(max_examples=500, deadline=None)
@given(PODS, st.sampled_from(["icu", "ward"]))
def test_every_patch_applies_and_marking_is_idempotent(pod, namespace):
    webhook = Webhook(FakeQueues("icu"), writer=WRITER)

    marked = patched(pod, webhook.mutate(review(pod, namespace=namespace)).body)
    again = response(webhook.mutate(review(marked, namespace=namespace)).body)

    assert again["allowed"] is True
    assert "patch" not in again


@settings(max_examples=500, deadline=None)
@given(PODS, PODS)
def test_we_ourselves_are_never_called_forgers(pod, old):
    webhook = Webhook(FakeQueues(), writer=WRITER)

    answer = response(webhook.validate(review(pod, old, user=WRITER)).body)

    assert answer["allowed"] or answer["status"]["code"] == 422


@settings(max_examples=500, deadline=None)
@given(PODS)
def test_an_update_that_changes_nothing_is_allowed(pod):
    webhook = Webhook(FakeQueues(), writer=WRITER)

    answer = response(webhook.validate(review(pod, pod)).body)

    assert answer["allowed"]
