"""The scheduler's formula for what a pod asks for, case by case."""

import msgspec
import pytest

from extender.kube.requests import pod_requests
from extender.kube.wire import PodSpecWire
from extender.model.errors import UserError


def asks(**requests):
    return {"resources": {"requests": {name.replace("gpu", "nvidia.com/gpu"): text for name, text in requests.items()}}}


def sidecar(**requests):
    return {**asks(**requests), "restartPolicy": "Always"}


def requests_of(**spec):
    amounts = pod_requests(msgspec.json.decode(msgspec.json.encode(spec), type=PodSpecWire))
    return {name.replace("nvidia.com/gpu", "gpu"): amount for name, amount in amounts}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({}, {}, id="no containers ask for nothing"),
        pytest.param({"containers": [{"resources": None}, {}]}, {}, id="containers without requests"),
        pytest.param(
            {"containers": [asks(cpu="1", gpu="1"), asks(cpu="500m")]}, {"cpu": 1500, "gpu": 1}, id="containers add up"
        ),
        pytest.param(
            {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "2"}, "requests": {"cpu": "1"}}}]},
            {"cpu": 1000, "gpu": 1},
            id="what has a limit only is requested at its limit",
        ),
        pytest.param(
            {"containers": [asks(cpu="1")], "initContainers": [asks(cpu="3"), asks(cpu="2", memory="1Gi")]},
            {"cpu": 3000, "memory": 2**30},
            id="init containers run one after the other: the largest counts",
        ),
        pytest.param(
            {"containers": [asks(cpu="1")], "initContainers": [sidecar(cpu="1"), sidecar(cpu="500m")]},
            {"cpu": 2500},
            id="sidecars run beside the containers",
        ),
        pytest.param(
            {"containers": [asks(cpu="1")], "initContainers": [sidecar(cpu="1"), asks(cpu="4"), sidecar(cpu="1")]},
            {"cpu": 5000},
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            {"containers": [asks(cpu="1")], "initContainers": [asks(cpu="4"), sidecar(cpu="1")]},
            {"cpu": 4000},
            id="but not beside those after it",
        ),
        pytest.param(
            {"containers": [asks(cpu="1")], "initContainers": [sidecar(memory="2Gi"), asks(cpu="2")]},
            {"cpu": 2000, "memory": 2**31},
            id="each resource for itself",
        ),
        pytest.param(
            {
                "containers": [asks(cpu="4", gpu="2", memory="1Gi")],
                "resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "1"}},
            },
            {"cpu": 2000, "gpu": 2, "memory": 2**30},
            id="the pod's own requests replace cpu, memory and huge pages only",
        ),
        pytest.param(
            {
                "containers": [asks(cpu="1")],
                "resources": {"requests": {"hugepages-2Mi": "4Mi"}},
                "overhead": {"cpu": "250m", "memory": "120Mi"},
            },
            {"cpu": 1250, "hugepages-2Mi": 4 * 2**20, "memory": 120 * 2**20},
            id="overhead comes on top",
        ),
        pytest.param({"containers": [asks(cpu="100u")] * 3}, {"cpu": 1}, id="rounded up once, after the sum"),
        pytest.param({"containers": [asks(memory="1500m")]}, {"memory": 2}, id="bytes are rounded up"),
        pytest.param({"containers": [asks(cpu="0.5", memory="1e3")]}, {"cpu": 500, "memory": 1000}, id="old spellings"),
        pytest.param({"containers": [asks(cpu="0")]}, {"cpu": 0}, id="a zero is kept"),
        pytest.param({"containers": [asks(cpu="-1")]}, {"cpu": 0}, id="less than nothing is nothing"),
        pytest.param(
            {"containers": [asks(cpu="1"), {"resources": {"requests": {"cohort-extender.io/queued-pod": "1"}}}]},
            {"cpu": 1000},
            id="our marker is not a request",
        ),
        pytest.param({"containers": [asks(memory="16Ei")]}, {"memory": 2**63 - 1}, id="too much is all there is"),
    ],
)
def test_what_a_pod_asks_for(spec, want):
    assert requests_of(**spec) == want


def test_requests_are_sorted_by_name():
    assert list(requests_of(containers=[asks(memory="1", cpu="1", a="1")])) == ["a", "cpu", "memory"]


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"containers": [{}, asks(cpu="1x")]}, "spec.containers[1].resources.requests[cpu]: '1x' is not a quantity"),
        ({"initContainers": [asks(cpu="")]}, "spec.initContainers[0].resources.requests[cpu]: '' is not a quantity"),
        ({"overhead": {"cpu": "much"}}, "spec.overhead[cpu]: 'much' is not a quantity"),
        ({"resources": {"requests": {"cpu": "1ki"}}}, "spec.resources.requests[cpu]: '1ki' is not a quantity"),
    ],
)
def test_an_unreadable_quantity_is_named(spec, want):
    with pytest.raises(UserError) as error:
        requests_of(**spec)

    assert str(error.value).startswith(want)
