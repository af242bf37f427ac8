"""The annotation is read back as it was written, and counts for the pod it was written for only."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.model.names import PodUid
from extender.pods.admission import read_admission, write_admission
from tests.pods.build import admission

UID = PodUid("uid-1")


def test_what_is_written_is_read_back():
    given_admission = admission(count=3)

    read = read_admission(UID, write_admission(UID, "main", given_admission))

    assert read is not None
    assert read.admission == given_admission
    assert read.assignment == given_admission.assignments[0]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="none"),
        pytest.param("", id="empty"),
        pytest.param("yes", id="not JSON"),
        pytest.param("[]", id="not an object"),
        pytest.param('{"pod":"uid-1"}', id="fields missing"),
        pytest.param(write_admission(PodUid("uid-2"), "main", admission()), id="written for another pod"),
        pytest.param(write_admission(UID, "other", admission()), id="a pod set that was not admitted"),
        pytest.param(
            write_admission(UID, "main", admission()).replace('"nvidia.com/gpu":1', '"nvidia.com/gpu":-1'),
            id="a negative amount",
        ),
        pytest.param(write_admission(UID, "main", admission()) + " " * 70_000, id="longer than anything that we write"),
        pytest.param(
            write_admission(UID, "main", admission())[:-1] + ',"more":' + "[" * 20_000 + "]" * 20_000 + "}",
            id="nested deeper than anybody reads",
        ),
        pytest.param(
            write_admission(UID, "main", admission()).replace('"nvidia.com/gpu":1', f'"nvidia.com/gpu":{2**63}'),
            id="an amount that no quota can hold",
        ),
        pytest.param(
            write_admission(UID, "main", admission()).replace('"count":1', f'"count":{10**30}'),
            id="a count that no quota can hold",
        ),
        pytest.param(
            write_admission(UID, "main", msgspec.structs.replace(admission(), at_ms=10**15)),
            id="a time beyond the calendar",
        ),
        pytest.param(
            write_admission(UID, "main", msgspec.structs.replace(admission(), at_ms=-1)), id="a time before all times"
        ),
    ],
)
def test_a_forged_or_broken_annotation_is_no_admission(text):
    assert read_admission(UID, text) is None


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(repr))
def test_no_text_makes_reading_fail(text):
    assert read_admission(UID, text) is None
