"""The annotations of a Job are read back as they were written; whatever else stands there counts as nothing."""

import msgspec
import pytest

from extender.jobs.admission import (
    JobAdmission,
    Requeue,
    read_job_admission,
    read_requeue,
    read_unit_admission,
    write_job_admission,
    write_requeue,
    write_unit_admission,
)
from tests.jobs.build import admission

JOB = "u1"
GIVEN = JobAdmission("a1", admission(), parallelism=4)
WRITTEN = write_job_admission(JOB, GIVEN)
UNIT = write_unit_admission(JOB, GIVEN, GIVEN.admission.assignments[0])
DEEP = ',"more":' + "[" * 20_000 + "]" * 20_000 + "}"
LATE = msgspec.structs.replace(GIVEN, admission=admission(at_ms=10**15))


def test_what_is_written_is_read_back():
    assert read_job_admission(JOB, WRITTEN) == GIVEN
    assert read_requeue(write_requeue(Requeue(2, "Preempted", 5_000))) == Requeue(2, "Preempted", 5_000)
    unit = read_unit_admission(UNIT)

    assert unit is not None
    assert (unit.job, unit.id, unit.at_ms) == (JOB, "a1", 5_000)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(WRITTEN[:-1] + DEEP, id="nested deeper than anybody reads"),
        pytest.param(WRITTEN.replace('"example.com/gpu":4', f'"example.com/gpu":{2**63}'), id="an amount beyond quota"),
        pytest.param(WRITTEN.replace('"example.com/gpu":4', '"example.com/gpu":-4'), id="a negative amount"),
        pytest.param(WRITTEN.replace('"count":4', f'"count":{10**30}'), id="a count beyond quota"),
        pytest.param(WRITTEN.replace('"parallelism":4', '"parallelism":-4'), id="a negative parallelism"),
        pytest.param(write_job_admission(JOB, LATE), id="a time beyond the calendar"),
    ],
)
def test_an_annotation_that_we_did_not_write_is_no_admission(text):
    assert text != WRITTEN
    assert read_job_admission(JOB, text) is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"count":1' + DEEP, id="nested deeper than anybody reads"),
        pytest.param('{"count":-1}', id="a negative count"),
        pytest.param(write_requeue(Requeue(1, "PodsReadyTimeout", 10**15)), id="a time beyond the calendar"),
    ],
)
def test_a_history_that_we_did_not_write_is_none(text):
    assert read_requeue(text) == Requeue()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(UNIT[:-1] + DEEP, id="nested deeper than anybody reads"),
        pytest.param(write_unit_admission(JOB, LATE, LATE.admission.assignments[0]), id="a time beyond the calendar"),
    ],
)
def test_a_pods_share_that_we_did_not_write_is_none(text):
    assert read_unit_admission(text) is None
