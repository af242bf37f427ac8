"""The metrics by the names under which operators find them."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.serve.metrics import Metrics
from extender.serve.series import LINES_MAX, Numbers, Times


def lines(metrics):
    """Series without times of creation and buckets."""
    text = metrics.text().decode().splitlines()
    return {line for line in text if line[0] != "#" and "_created" not in line and "_bucket" not in line}


@pytest.mark.parametrize(
    ("act", "want"),
    [
        pytest.param(
            lambda m: m.attempt(admitted=True, seconds=0.002),
            {'cohort_admission_attempts_total{result="success"} 1.0'},
            id="a cycle",
        ),
        pytest.param(
            lambda m: m.admitted("a", waited_s=3),
            {
                'cohort_admitted_workloads_total{cluster_queue="a"} 1.0',
                'cohort_admission_wait_time_seconds_sum{cluster_queue="a"} 3.0',
            },
            id="an admission",
        ),
        pytest.param(
            lambda m: m.evicted("a", reason="ClusterQueueStopped"),
            {'cohort_evicted_workloads_total{cluster_queue="a",reason="ClusterQueueStopped"} 1.0'},
            id="an eviction",
        ),
        pytest.param(
            lambda m: m.evicted("a", reason="InCohortFairSharing", preempting="b"),
            {
                'cohort_evicted_workloads_total{cluster_queue="a",reason="Preempted"} 1.0',
                'cohort_preempted_workloads_total{preempting_cluster_queue="b",reason="InCohortFairSharing"} 1.0',
            },
            id="a preemption",
        ),
        pytest.param(
            lambda m: m.pending("a", active=2, inadmissible=1),
            {
                'cohort_pending_workloads{cluster_queue="a",status="active"} 2.0',
                'cohort_pending_workloads{cluster_queue="a",status="inadmissible"} 1.0',
            },
            id="what waits",
        ),
        pytest.param(
            lambda m: m.usage("a", "f", "cpu", 1.5),
            {'cohort_cluster_queue_resource_usage{cluster_queue="a",flavor="f",resource="cpu"} 1.5'},
            id="what is used",
        ),
        pytest.param(lambda m: m.leading(True), {"cohort_leader 1.0"}, id="the leader"),
        pytest.param(
            lambda m: m.watch_loop(lag_s=lambda: 0.25, held_s=lambda: 0.125),
            {"cohort_event_loop_lag_seconds 0.25", "cohort_event_loop_held_seconds 0.125"},
            id="how long the loop was held up",
        ),
        pytest.param(
            lambda m: m.certificate(1.8e9),
            {"cohort_certificate_not_after_timestamp_seconds 1.8e+09"},
            id="the certificate's end",
        ),
        pytest.param(
            lambda m: m.violated("used<=allowed"),
            {'cohort_invariant_violations_total{invariant="used<=allowed"} 1.0'},
            id="a violated invariant",
        ),
        pytest.param(
            lambda m: m.calls("filter").count("answered", 0.001),
            {
                'cohort_http_requests_total{endpoint="filter",outcome="answered"} 1.0',
                'cohort_http_request_duration_seconds_sum{endpoint="filter"} 0.001',
            },
            id="a call",
        ),
    ],
)
def test_what_happened_is_counted(act, want):
    metrics = Metrics()

    act(metrics)

    assert want <= lines(metrics)


def test_a_deleted_queue_leaves_no_gauge_and_its_neighbour_stays():
    metrics = Metrics()
    for queue in ("a", "ab"):
        metrics.pending(queue, active=1, inadmissible=0)
        metrics.active(queue, 1)
        metrics.share(queue, 10)
        metrics.usage(queue, "f", "cpu", 1)
        metrics.usage(queue, "g", "cpu", 1)

    metrics.forget("a")

    left = {line for line in lines(metrics) if "cluster_queue=" in line}
    assert not [line for line in left if 'cluster_queue="a"' in line]
    assert len([line for line in left if 'cluster_queue="ab"' in line]) == 6


def test_two_processes_in_one_do_not_share_series():
    one, other = Metrics(), Metrics()

    one.leading(True)

    assert "cohort_leader 0.0" in lines(other)


def test_many_queues_are_written_in_many_parts_which_make_one_text():
    metrics, queues = Metrics(), [f"q{number}" for number in range(300)]
    for queue in queues:
        metrics.admitted(queue, waited_s=3)
        metrics.pending(queue, active=1, inadmissible=0)
    parts = list(metrics.parts())
    families = {family.name: family for family in text_string_to_metric_families(b"".join(parts).decode())}

    assert max(part.count(b"\n") for part in parts) <= LINES_MAX + 20  # a series is never divided
    assert len(families["cohort_pending_workloads"].samples) == 600
    assert {sample.labels["cluster_queue"] for sample in families["cohort_admission_wait_time_seconds"].samples} == {
        *queues
    }


def test_buckets_add_up():
    times = Times("t", "Some times.", ["of"], (1.0, 2.5))
    for seconds in (0.5, 1.0, 2.0, 9.0):
        times.observe("a", seconds=seconds)
    (family,) = text_string_to_metric_families("".join(times.parts()))

    assert family.type == "histogram"
    assert {(sample.name, sample.labels.get("le")): sample.value for sample in family.samples} == {
        ("t_bucket", "1.0"): 2,
        ("t_bucket", "2.5"): 3,
        ("t_bucket", "+Inf"): 4,
        ("t_count", None): 4,
        ("t_sum", None): 12.5,
    }


def test_any_name_can_be_read_back():
    name = 'a"b\\c\nd'
    numbers = Numbers("n", "Some numbers.", "gauge", ["of"])
    numbers.put(name, number=1)
    (family,) = text_string_to_metric_families("".join(numbers.parts()))

    assert family.samples[0].labels == {"of": name}


def test_a_series_that_goes_while_others_are_written_is_left_out():
    numbers = Numbers("n", "Some numbers.", "gauge", ["of"])
    for number in range(LINES_MAX):
        numbers.put(str(number), number=number)
    parts = numbers.parts()
    first = next(parts)
    numbers.forget(str(LINES_MAX - 1))

    assert first.count("\n") == LINES_MAX + 1  # help, type, and all series but the one that goes
    assert "".join(parts) == ""
