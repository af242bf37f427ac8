"""PodGroups and StatefulSets: the two facts that groups of pods need."""

import orjson
import pytest

from extender.kube.decode_owners import POD_GROUPS, STATEFUL_SETS
from extender.kube.reflector import Held
from extender.model.events import PodGroupGone, PodGroupSeen, StatefulSetGone, StatefulSetSeen
from extender.model.names import Namespace

META = {"namespace": "research", "name": "g", "uid": "u", "resourceVersion": "7"}
LAB = Namespace("research")


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"schedulingPolicy": {"gang": {"minCount": 4}}}, 4, id="a gang"),
        pytest.param({"schedulingPolicy": {"basic": {}}}, 0, id="no gang"),
        pytest.param({"schedulingPolicy": None}, 0, id="no policy"),
        pytest.param(None, 0, id="no spec"),
    ],
)
def test_a_pod_group_says_how_many_it_needs(spec, want):
    item = POD_GROUPS.item(orjson.dumps({"metadata": META, "spec": spec}))

    assert item.fact == PodGroupSeen(LAB, "g", want)


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"podManagementPolicy": "OrderedReady"}, True, id="one after the other"),
        pytest.param({"podManagementPolicy": "Parallel"}, False, id="all at once"),
        pytest.param({}, True, id="left out means one after the other"),
    ],
)
def test_a_stateful_set_says_how_it_makes_its_pods(spec, want):
    item = STATEFUL_SETS.item(orjson.dumps({"metadata": META, "spec": spec}))

    assert item.fact == StatefulSetSeen("u", "g", want)


def test_their_ends():
    held = Held(key="research/g", uid="u", version="7", fact=StatefulSetGone("u"))

    assert POD_GROUPS.gone(held) == PodGroupGone(LAB, "g")
    assert STATEFUL_SETS.gone(held) == StatefulSetGone("u")
