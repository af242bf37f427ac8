"""No JSON value makes a decoder raise anything but ``Undecodable``, and that only without an identity."""

import contextlib
import copy
import json

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extender.kube.reflector import Item, Line, Undecodable
from extender.kube.resources import everything, jobs
from tests.jobs.build import KINDS, job_json
from tests.support.objects import node_json, pod_json

CODECS = {resource.name: resource.codec for resource in (*everything(), *jobs(KINDS))}
QUEUE = {
    "metadata": {"name": "q", "uid": "u", "resourceVersion": "1", "labels": {"a": "b"}},
    "value": 3,
    "spec": {
        "cohortName": "lab",
        "parentName": "lab",
        "clusterQueue": "q",
        "stopPolicy": "Hold",
        "queueingStrategy": "StrictFIFO",
        "nodeLabels": {"a": "b"},
        "nodeTaints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],
        "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 3, "effect": "NoExecute"}],
        "namespaceSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
        "flavorFungibility": {"whenCanBorrow": "TryNextFlavor"},
        "preemption": {"borrowWithinCohort": {"maxPriorityThreshold": 3}},
        "admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["f"]}]},
        "fairSharing": {"weight": "1"},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1, "borrowingLimit": "2"}]}],
            }
        ],
    },
}
JOB = job_json(
    spec__completionMode="Indexed",
    spec__template__spec__tolerations=[{"key": "a", "operator": "Exists", "tolerationSeconds": 3}],
    spec__template__spec__schedulingGates=[{"name": "a"}],
    spec__template__spec__priorityClassName="high",
    status__active=3,
    status__completedIndexes="0,2-3",
    metadata__ownerReferences=[{"kind": "CronJob", "name": "nightly", "uid": "c", "controller": True}],
)
JOB_SET = {
    "metadata": JOB["metadata"],
    "spec": {"suspend": True, "replicatedJobs": [{"name": "a", "replicas": 2, "template": {"spec": JOB["spec"]}}]},
    "status": {"conditions": JOB["status"]["conditions"], "replicatedJobsStatus": [{"name": "a", "active": 1}]},
}
SAMPLES = [QUEUE, pod_json(), node_json(), JOB, JOB_SET]
ODD = (None, True, -1, 0.5, 10**40, "x", "9" * 70, [], [None], ["x"], [{}], {}, {"x": {}}, {"x": ["x"]})
"""One of every kind of JSON value, and of those that look like something else."""
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["1e400", "1e-99", "-1", "Ki", "9" * 70, "\x00", "٣", "a" * 300])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=6), inner), max_leaves=8
)


def spots(value, path=()):
    """Every place within *value*."""
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from spots(child, (*path, key))


@st.composite
def bent(draw):
    """A sound object with up to three parts replaced by anything."""
    obj = copy.deepcopy(draw(st.sampled_from(SAMPLES)))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from([path for path in spots(obj) if path]))
        holder = obj
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = draw(values)
    return obj


def dumped(value) -> bytes:
    return json.dumps(value).encode()  # unlike orjson it writes integers of any length


def answer(codec, obj):
    """What the codec says about *obj*, both as an item and as a line."""
    try:
        item = codec.item(dumped(obj))
        line = codec.line(b'{"type":"MODIFIED","object":' + dumped(obj) + b"}")
    except Undecodable:
        return None
    assert isinstance(item, Item)
    assert isinstance(line, Line)
    assert line.item == item
    return item


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(obj=bent())
def test_a_bent_object_is_answered_for(name, obj):
    answer(CODECS[name], obj)


@pytest.mark.parametrize("name", CODECS)
def test_an_object_with_one_odd_spot_is_answered_for(name):
    for sample in SAMPLES:
        for *parents, last in [path for path in spots(sample) if path]:
            obj = copy.deepcopy(sample)
            holder = obj
            for key in parents:
                holder = holder[key]
            for value in ODD:
                holder[last] = value
                text = dumped(obj)
                with contextlib.suppress(Undecodable):
                    assert isinstance(CODECS[name].item(text), Item)


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(spec=values, value=values, status=values)
def test_an_object_with_a_sound_identity_is_never_undecodable(name, spec, value, status):
    meta = {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "1"}

    item = answer(CODECS[name], {"metadata": meta, "spec": spec, "value": value, "status": status})

    assert item is not None
    assert (item.key, item.uid, item.version) == ("ns/x", "u", "1")


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=25, deadline=None)
@given(line=st.binary(max_size=60) | values.map(dumped))
def test_any_bytes_are_a_line_or_undecodable(name, line):
    with contextlib.suppress(Undecodable):
        assert isinstance(CODECS[name].line(line), Line)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("within", ["spec", "status", "value", "metadata", "other"])
def test_deep_nesting_does_no_harm(name, within):
    deep = b"[" * 100_000 + b"]" * 100_000
    obj = b'{"metadata":{"name":"x","annotations":%s},"%s":%s}'
    inner = b"null" if within != "metadata" else deep
    outer = deep if within != "metadata" else b"null"
    text = obj % (inner, b"annotations2" if within == "metadata" else within.encode(), outer)

    try:
        item = CODECS[name].item(text)
    except Undecodable:
        return
    assert item.key == "x"


def test_the_samples_are_sound():
    assert orjson.loads(orjson.dumps(SAMPLES)) == SAMPLES
