"""The verbs of kube-scheduler: golden requests and replies, and each verb's own way to refuse."""

import orjson
import pytest

from extender.model.errors import InvariantError, TransientError, UserError
from extender.model.names import NodeName
from extender.model.questions import PlacementQuestion, PodInQuestion, PreemptionQuestion
from extender.model.verdicts import FilterVerdict, NodeScore, NodeVictims
from extender.serve.extender import Extender
from tests.serve.doubles import FakePlacement, golden

OTHER = "node is not of the admitted flavor"


def test_filter_reads_what_the_scheduler_sends_and_writes_what_it_reads():
    placement = FakePlacement(
        verdict=FilterVerdict(
            ["gpu-a"],
            {"gpu-b": "flavor h100 is reserved by admitted workloads"},
            {"gpu-c": OTHER, "gpu-d": OTHER},
        )
    )
    uid = "6f0c2a4e-0a2b-4a38-9d6d-0c8f2b6d1a11"
    want = PlacementQuestion(
        PodInQuestion(
            uid=uid,
            namespace="icu",
            name="train-0",
            managed=True,
            queue="research",
            admission=f'{{"pod":"{uid}"}}',
            node_selector=(("pool", "a100"), ("zone", "b")),
        ),
        ["gpu-a", "gpu-b", "gpu-c", "gpu-d"],
    )

    reply = Extender(placement).filter(golden("filter.request.json"))

    assert placement.asked == [want]
    assert (reply.status, reply.body) == (200, golden("filter.reply.json"))


def test_prioritize_answers_a_bare_list():
    placement = FakePlacement(scores=[NodeScore(NodeName("gpu-a"), 10), NodeScore(NodeName("gpu-b"), 2)])

    reply = Extender(placement).prioritize(golden("prioritize.request.json"))

    assert (reply.status, reply.body) == (200, golden("prioritize.reply.json"))


def test_preempt_reads_victims_by_uid_and_keeps_their_order():
    placement = FakePlacement(victims={"gpu-a": NodeVictims(["22bb"], 0)})
    want = PreemptionQuestion(
        PodInQuestion(uid="c1", namespace="icu", name="infer-7"),
        {"gpu-a": NodeVictims(["11aa", "22bb"], 0), "gpu-b": NodeVictims(["33cc"], 1)},
    )

    reply = Extender(placement).preempt(golden("preempt.request.json"))

    assert placement.asked == [want]
    assert (reply.status, reply.body) == (200, golden("preempt.reply.json"))


@pytest.mark.parametrize(
    ("sent", "want"),
    [
        pytest.param({"a": {"Pods": [], "NumPDBViolations": 0}}, {"a": []}, id="a node that came in empty may go back"),
        pytest.param(
            {"a": {"Pods": None, "NumPDBViolations": 0}}, {"a": []}, id="null instead of a list is an empty one"
        ),
        pytest.param({"a": None}, {"a": []}, id="null instead of a node is an empty one"),
        pytest.param(
            {"a": {"Pods": [{"UID": "x"}], "NumPDBViolations": 0}}, {}, id="one that lost its victims is struck"
        ),
    ],
)
def test_preempt_never_writes_null_and_no_node_that_became_empty(sent, want):
    args = orjson.loads(golden("preempt.request.json")) | {"NodeNameToMetaVictims": sent}
    placement = FakePlacement(victims=dict.fromkeys(sent, NodeVictims([], 0)))

    reply = Extender(placement).preempt(orjson.dumps(args))

    victims = orjson.loads(reply.body)["NodeNameToMetaVictims"]
    assert {node: found["Pods"] for node, found in victims.items()} == want
    assert b"null" not in reply.body


@pytest.mark.parametrize("name", ["filter-nodes-mode", "preempt-pods-mode"])
def test_whole_nodes_are_refused_with_the_setting_that_helps(name):
    extender = Extender(FakePlacement())
    body = golden(f"{name}.request.json")

    reply = extender.filter(body) if name.startswith("filter") else extender.preempt(body)

    assert b"nodeCacheCapable: true" in reply.body
    assert reply.status == (200 if name.startswith("filter") else 400)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(TransientError("not synced yet"), id="while starting"),
        pytest.param(UserError("no such pod"), id="when the question makes no sense"),
    ],
)
def test_filter_refuses_by_its_error_field(error):
    reply = Extender(FakePlacement(error=error)).filter(golden("filter.request.json"))

    answer = orjson.loads(reply.body)
    assert (reply.status, answer["Error"], answer["NodeNames"], answer["Nodes"]) == (200, str(error), None, None)


@pytest.mark.parametrize("verb", ["prioritize", "preempt"])
@pytest.mark.parametrize(
    ("error", "want"),
    [
        pytest.param(TransientError("not synced yet"), 503, id="503 while starting"),
        pytest.param(UserError("no such pod"), 400, id="400 when the question makes no sense"),
    ],
)
def test_prioritize_and_preempt_refuse_by_status(verb, error, want):
    extender = Extender(FakePlacement(error=error))

    reply = getattr(extender, verb)(golden(f"{verb}.request.json"))

    assert (reply.status, reply.body) == (want, f"{error}\n".encode())


def test_our_own_fault_is_not_dressed_up_as_a_refusal():
    extender = Extender(FakePlacement(error=InvariantError("used > allowed")))

    with pytest.raises(InvariantError):
        extender.filter(golden("filter.request.json"))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[1,2]", id="a list"),
        pytest.param(b'{"Pod":null,"NodeNames":["a"]}', id="no pod"),
        pytest.param(b'{"Pod":{"metadata":{"uid":7},"spec":{}},"NodeNames":[]}', id="a uid that is a number"),
        pytest.param(b'{"Pod":{"metadata":{},"spec":{}},"NodeNames":[null]}', id="a node without a name"),
        pytest.param(b'{"Pod":{"metadata":{},"spec":{}},"NodeNames":["a"]', id="cut off"),
        pytest.param(b'{"Pod":{"metadata":{},"spec":{}},"NodeNames":["\xff\xfe"]}', id="not UTF-8"),
        pytest.param(b'{"Pod":{"metadata":{},"spec":{}},"NodeNames":["\\ud800"]}', id="half a surrogate pair"),
        pytest.param(b'{"Pod":' + b"[" * 100_000, id="nested deeply"),
        pytest.param(
            b'{"Pod":{"metadata":{"x":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}}}", id="nested and closed"
        ),
    ],
)
def test_junk_is_refused_and_never_reaches_the_verdict(body):
    placement = FakePlacement()
    extender = Extender(placement)

    assert orjson.loads(extender.filter(body).body)["Error"]
    assert extender.prioritize(body).status == 400
    assert extender.preempt(body).status == 400
    assert placement.asked == []


@pytest.mark.parametrize("violations", ["-1", "1e3", str(2**63), str(10**30)])
def test_a_number_of_violations_that_go_cannot_have_sent_is_refused(violations):
    victims = f'{{"n1":{{"Pods":[{{"UID":"v"}}],"NumPDBViolations":{violations}}}}}'
    body = f'{{"Pod":{{"metadata":{{"uid":"u"}},"spec":{{}}}},"NodeNameToMetaVictims":{victims}}}'

    assert Extender(FakePlacement()).preempt(body.encode()).status == 400


def test_an_empty_list_of_nodes_is_a_question_like_any_other():
    placement = FakePlacement()
    args = orjson.loads(golden("filter.request.json")) | {"NodeNames": []}

    reply = Extender(placement).filter(orjson.dumps(args))

    assert orjson.loads(reply.body)["NodeNames"] == []
    assert orjson.loads(reply.body)["Error"] == ""
