"""The list–watch machine, driven by hand: no network, no clock."""

import orjson
import pytest

from extender.kube.reflector import BACKOFF_MAX_S, OUTAGE_BACKOFF_MAX_S, Do, Reflector, Undecodable, facts_of, older
from extender.kube.resources import nodes, pods
from extender.model.errors import Conflict, ExtenderError, Gone, TooManyRequests, Unreachable, UserError
from extender.model.events import NodeGone, NodeSeen, PodGone, PodSeen
from tests.support.objects import node_json, pod_json


def line(kind, obj):
    return orjson.dumps({"type": kind, "object": obj})


def pod(name, *, uid="", version="1", **changes):
    return {**pod_json(name, uid=uid or f"uid-{name}", version=version), **changes}


def bookmark(version):
    return line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": version}})


def status(code, message="no"):
    return line("ERROR", {"kind": "Status", "status": "Failure", "code": code, "message": message})


def told(facts):
    """Facts in short: what, which."""
    short = []
    for fact in facts:
        match fact:
            case PodSeen(pod):
                short.append(("seen", pod.name))
            case PodGone(uid):
                short.append(("gone", uid))
            case NodeSeen(node):
                short.append(("seen", node.name))
            case NodeGone(name):
                short.append(("gone", name))
    return short


def listed(machine, objects, version="100"):
    machine.list_started()
    facts = [fact for obj in objects for fact in machine.listed(orjson.dumps(obj))]
    facts += [fact for key in machine.unlisted() for fact in machine.lost(key)]
    machine.list_ended(version)
    return facts


@pytest.fixture
def machine():
    return Reflector(pods().codec, randomness=lambda: 0.5)


@pytest.fixture
def watching(machine):
    """A machine that holds the pods a and b and has opened its watch at 0 s."""
    listed(machine, [pod("a", version="10"), pod("b", version="11")])
    machine.watch_opened(0.0)
    return machine


def test_it_starts_with_a_list_and_then_watches_from_the_lists_version(machine):
    assert (machine.todo, machine.delay_s, machine.synced) == (Do.LIST, 0.0, False)

    facts = listed(machine, [pod("a"), pod("b")], "57")

    assert told(facts) == [("seen", "a"), ("seen", "b")]
    assert (machine.todo, machine.version, machine.delay_s, machine.synced) == (Do.WATCH, "57", 0.0, True)


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        pytest.param([line("ADDED", pod("c", version="101"))], [("seen", "c")], id="a new pod"),
        pytest.param([line("MODIFIED", pod("a", version="101"))], [("seen", "a")], id="a changed pod"),
        pytest.param([line("MODIFIED", pod("a", version="10"))], [], id="the same version again"),
        pytest.param([line("MODIFIED", pod("a", version="9"))], [], id="older than what the list had"),
        pytest.param([line("DELETED", pod("a", version="101"))], [("gone", "uid-a")], id="a deleted pod"),
        pytest.param([line("DELETED", pod("c", version="101"))], [], id="deleted before we knew it"),
        pytest.param(
            [line("DELETED", pod("a", version="101")), line("ADDED", pod("a", uid="new", version="102"))],
            [("gone", "uid-a"), ("seen", "a")],
            id="deleted and made again",
        ),
        pytest.param(
            [line("ADDED", pod("a", uid="new", version="102"))],
            [("gone", "uid-a"), ("seen", "a")],
            id="made again, the deletion unseen",
        ),
        pytest.param(
            [line("ADDED", pod("a", uid="new", version="102")), line("DELETED", pod("a", version="101"))],
            [("gone", "uid-a"), ("seen", "a")],
            id="the deletion of the older one does not touch the newer",
        ),
        pytest.param(
            [
                line("DELETED", pod("a", version="101")),  # its labels do not match any more: the state before
                line("ADDED", pod("a", version="102")),
            ],
            [("gone", "uid-a"), ("seen", "a")],
            id="deselected and selected again",
        ),
        pytest.param([bookmark("300"), bookmark("301")], [], id="only bookmarks"),
    ],
)
def test_what_a_watch_line_means(watching, lines, want):
    assert told(facts_of(watching, lines)) == want


def test_a_pod_that_stops_naming_a_queue_is_gone_for_us(watching):
    stripped = pod("a", version="101")
    stripped["metadata"]["annotations"] = stripped["metadata"]["labels"] = None
    stripped["spec"]["schedulingGates"] = None

    assert told(watching.received(line("MODIFIED", stripped))) == [("gone", "uid-a")]
    assert len(watching) == 1


def test_a_heartbeat_of_a_node_is_no_fact():
    machine = Reflector(nodes().codec, randomness=lambda: 0.5)
    listed(machine, [node_json("n1", version="1")])
    beat = node_json("n1", version="2")
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-03-01T09:00:00Z"
    cordoned = node_json("n1", version="3")
    cordoned["spec"]["unschedulable"] = True

    assert machine.received(line("MODIFIED", beat)) == []
    assert told(machine.received(line("MODIFIED", cordoned))) == [("seen", "n1")]


def test_the_version_follows_events_and_bookmarks_and_never_goes_back(watching):
    seen = []
    for one in (
        line("ADDED", pod("c", version="101")),
        bookmark("150"),
        line("MODIFIED", pod("c", version="140")),
    ):
        watching.received(one)
        seen.append(watching.version)

    assert seen == ["101", "150", "150"]


def test_a_relist_tells_only_the_difference(watching):
    watching.failed(Gone("expired", status=410), 5.0)

    facts = listed(watching, [pod("b", version="11"), pod("c", version="120")], "200")

    assert told(facts) == [("seen", "c"), ("gone", "uid-a")]
    assert (watching.todo, watching.version) == (Do.WATCH, "200")


def test_a_name_made_again_between_two_lists_is_a_deletion_and_an_addition(watching):
    watching.failed(Gone("expired", status=410), 5.0)

    facts = listed(watching, [pod("a", uid="new", version="120"), pod("b", version="11")], "200")

    assert told(facts) == [("gone", "uid-a"), ("seen", "a")]


def test_a_version_that_expired_is_listed_again_at_once_and_is_no_failure(watching):
    with pytest.raises(Gone) as expired:
        watching.received(status(410, "too old resource version"))
    watching.failed(expired.value, 5.0)

    assert (watching.todo, watching.delay_s, watching.problem) == (Do.LIST, 0.0, "")
    assert (watching.counters.gone, watching.counters.errors) == (1, 0)


def test_a_server_that_calls_its_own_lists_expired_is_not_asked_in_a_busy_loop(watching):
    delays = []
    for _ in range(4):
        watching.failed(Gone("expired", status=410), 5.0)
        delays.append(watching.delay_s)
        listed(watching, [], "200")
        watching.watch_opened(5.0)

    assert delays == [0.0, 0.8, 1.6, 3.2]


def test_a_list_that_expired_between_its_pages_is_started_over_without_pages(machine):
    machine.list_started()
    machine.listed(orjson.dumps(pod("a")))
    machine.failed(Gone("continue is too old", status=410), 1.0)

    assert (machine.todo, machine.whole) == (Do.LIST, True)
    listed(machine, [pod("a")])
    assert not machine.whole


def test_a_stream_that_ends_is_resumed_at_once(watching):
    watching.received(bookmark("150"))
    watching.watch_ended(0.5)

    assert (watching.todo, watching.version, watching.delay_s) == (Do.WATCH, "150", 0.0)


def test_a_stream_that_ends_at_once_without_a_word_backs_off(watching):
    delays = []
    for _ in range(4):
        watching.watch_opened(10.0)
        watching.watch_ended(10.2)
        delays.append(watching.delay_s)

    assert delays == [0.8, 1.6, 3.2, 5.0]


def test_a_broken_stream_resumes_and_after_three_failures_without_progress_lists(watching):
    todo = []
    for _ in range(3):
        watching.failed(Unreachable("reset"), 1.0)
        todo.append(watching.todo)

    assert todo == [Do.WATCH, Do.WATCH, Do.LIST]


def test_progress_between_failures_keeps_the_watch(watching):
    for version in ("150", "151", "152", "153"):
        watching.watch_opened(1.0)
        watching.received(bookmark(version))
        watching.failed(Unreachable("reset"), 2.0)

    assert (watching.todo, watching.version) == (Do.WATCH, "153")


def test_another_error_event_drops_the_stream_and_resumes(watching):
    with pytest.raises(ExtenderError) as error:
        watching.received(status(500, "etcd leader changed"))
    watching.failed(error.value, 5.0)

    assert (watching.todo, watching.version) == (Do.WATCH, "100")
    assert watching.problem == "ERROR event: 500 etcd leader changed"


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(b'{"type":"ADDED","obj', id="a line cut within"),
        pytest.param(b"<html>502</html>", id="a page of a proxy"),
        pytest.param(b'{"type":"ADDED","object":{"kind":"Pod"}}', id="an object without a name"),
        pytest.param(b'{"type":"ADDED"}', id="no object"),
        pytest.param(b'{"type":"RENAMED","object":{"metadata":{"name":"a"}}}', id="an unknown type"),
        pytest.param(b'{"type":"BOOKMARK","object":{}}', id="a bookmark without a version"),
        pytest.param(b"[1]", id="no event at all"),
    ],
)
def test_a_line_that_cannot_be_read_is_never_skipped_but_listed_again(watching, bad):
    with pytest.raises(Undecodable) as error:
        watching.received(bad)
    watching.failed(error.value, 5.0)

    assert (watching.todo, watching.counters.undecodable) == (Do.LIST, 1)


@pytest.mark.parametrize(("random", "want"), [(0.0, 0.5), (0.5, 1.0), (1.0, 1.5)])
@pytest.mark.parametrize(
    ("error", "rising", "most"),
    [
        pytest.param(Unreachable("no route"), [0.8, 1.6, 3.2], OUTAGE_BACKOFF_MAX_S, id="an outage: to 5 s"),
        pytest.param(
            UserError("forbidden", status=403), [0.8, 1.6, 3.2, 6.4, 12.8, 25.6], BACKOFF_MAX_S, id="no right: to 30 s"
        ),
    ],
)
def test_the_back_off_doubles_with_jitter(error, rising, most, random, want):
    machine, delays = Reflector(pods().codec, randomness=lambda: random), []
    for _ in range(len(rising) + 2):
        machine.failed(error, 1.0)
        delays.append(round(machine.delay_s, 3))

    assert delays == [round(base * want, 3) for base in (*rising, most, most)]


def test_a_no_after_an_outage_is_asked_about_soon(machine):
    for _ in range(8):
        machine.failed(Unreachable("no route"), 1.0)
    machine.failed(UserError("RBAC: clusterrole not found", status=403), 1.0)

    assert machine.delay_s == 0.8


def test_a_stream_that_lived_a_minute_forgets_the_failures_before(watching):
    for _ in range(5):
        watching.failed(Unreachable("reset"), 1.0)
    watching.watch_opened(100.0)
    watching.received(bookmark("150"))
    watching.failed(Unreachable("reset"), 161.0)

    assert watching.delay_s == 0.8


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        pytest.param(7.0, 7.0, 10.5, id="what the server asks for, spread"),
        pytest.param(9999.0, BACKOFF_MAX_S, 1.5 * BACKOFF_MAX_S, id="but not for ever"),
        pytest.param(None, 0.4, 1.2, id="else the usual back-off"),
    ],
)
def test_too_many_requests(machine, asked, least, most):
    machine.failed(TooManyRequests("slow down", retry_after_s=asked), 1.0)

    assert least <= machine.delay_s <= most


def test_a_missing_crd_is_asked_for_until_it_is_there(machine):
    for _ in range(8):
        machine.failed(Gone("not found", status=404), 1.0)
    assert (machine.todo, machine.delay_s, machine.synced, machine.problem) == (Do.LIST, 30.0, False, "not found")

    listed(machine, [pod("a")])

    assert (machine.synced, machine.problem, machine.delay_s) == (True, "", 0.0)


def test_an_optional_kind_that_is_not_served_counts_as_empty():
    machine = Reflector(pods().codec, randomness=lambda: 0.5, optional=True)

    machine.failed(Gone("not found", status=404), 1.0)

    assert machine.synced


def test_a_failed_list_forgets_nothing(watching):
    watching.failed(Gone("expired", status=410), 1.0)
    watching.list_started()
    watching.listed(orjson.dumps(pod("b", version="11")))
    watching.failed(Unreachable("reset"), 2.0)

    assert len(watching) == 2
    assert told(listed(watching, [pod("a", version="10")])) == [("gone", "uid-b")]


def test_a_watch_that_is_forbidden_lists_next_so_that_the_reason_is_found(watching):
    watching.failed(UserError("forbidden", status=403), 1.0)

    assert (watching.todo, watching.problem) == (Do.LIST, "forbidden")


def test_a_problem_of_an_object_is_kept_until_it_is_mended(watching):
    bad = pod("c", version="101")
    bad["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-name"] = "gang"
    watching.received(line("ADDED", bad))
    before = dict(watching.item_problems)
    watching.received(line("MODIFIED", pod("c", version="102")))

    assert list(before) == ["research/c"]
    assert watching.item_problems == {}


@pytest.mark.parametrize(
    ("left", "right", "want"),
    [
        ("9", "10", True),
        ("10", "9", False),
        ("10", "10", False),
        ("99999999999999999998", "99999999999999999999", True),
        ("a", "b", False),
        ("", "1", False),
    ],
)
def test_versions_are_compared_as_numbers_of_any_length(left, right, want):
    assert older(left, right) is want


def test_counters_tell_what_happened(watching):
    watching.received(line("ADDED", pod("c", version="101")))
    watching.received(bookmark("102"))
    watching.failed(Conflict("what"), 1.0)

    counters = watching.counters
    assert (counters.lists, counters.watches, counters.events, counters.facts, counters.errors) == (1, 1, 2, 3, 1)
