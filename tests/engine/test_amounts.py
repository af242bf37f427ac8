"""Exact amounts and Kubernetes quantities."""

from fractions import Fraction

import pytest

from extender.model.amounts import (
    NOTHING,
    UNLIMITED,
    add,
    format_amount,
    parse_quantity,
    quota_amount,
    request_amount,
    subtract,
    times,
)
from extender.model.errors import UserError
from extender.model.names import CPU, ResourceName

MEMORY, GPU = ResourceName("memory"), ResourceName("nvidia.com/gpu")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("4", Fraction(4)),
        ("500m", Fraction(1, 2)),
        ("100u", Fraction(1, 10_000)),
        ("-1.5", Fraction(-3, 2)),
        ("+.5", Fraction(1, 2)),
        ("12Gi", Fraction(12 * 2**30)),
        ("2E", Fraction(2 * 10**18)),
        ("2Ei", Fraction(2 * 2**60)),
        ("1e3", Fraction(1000)),
        ("1E-3", Fraction(1, 1000)),
    ],
)
def test_quantities_are_exact(text, want):
    assert parse_quantity(text) == want


@pytest.mark.parametrize("text", ["", "four", "1e41", "1e-41", "1 Gi", "1" * 65, "٣"])
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(UserError):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "resource", "want"),
    [
        ("1500m", CPU, 1500),
        ("100u", CPU, 1),
        ("1500m", MEMORY, 2),
        ("9223372036854775", CPU, UNLIMITED),
        ("9223372036854774", CPU, 9223372036854774000),
        ("10E", MEMORY, UNLIMITED),
    ],
)
def test_quota_is_rounded_up_and_may_be_unlimited(text, resource, want):
    assert quota_amount(text, resource) == want


def test_requests_are_from_nothing_to_the_largest():
    assert request_amount(Fraction(-1), CPU) == 0
    assert request_amount(Fraction(10**30), MEMORY) == UNLIMITED
    assert request_amount(Fraction(1, 3), CPU) == 334
    assert times(UNLIMITED, 3) == UNLIMITED
    assert times(2, 3) == 6


@pytest.mark.parametrize(
    ("left", "right", "plus", "minus"),
    [
        (2, 3, 5, -1),
        (UNLIMITED, 3, UNLIMITED, UNLIMITED),
        (3, UNLIMITED, UNLIMITED, NOTHING),
        (UNLIMITED, UNLIMITED, UNLIMITED, 0),
        (UNLIMITED - 1, 5, UNLIMITED, UNLIMITED - 6),
        (NOTHING, -5, NOTHING, NOTHING + 5),
        (NOTHING, 5, NOTHING + 5, NOTHING),
    ],
)
def test_unlimited_swallows_everything(left, right, plus, minus):
    assert (add(left, right), subtract(left, right)) == (plus, minus)


@pytest.mark.parametrize(
    ("amount", "resource", "want"),
    [
        (1500, CPU, "1500m"),
        (2000, CPU, "2"),
        (12 * 2**30, MEMORY, "12Gi"),
        (1000, MEMORY, "1000"),
        (0, MEMORY, "0"),
        (4 * 2**20, ResourceName("hugepages-2Mi"), "4Mi"),
        (2048, GPU, "2048"),
        (UNLIMITED, GPU, "unlimited"),
    ],
)
def test_amounts_are_written_as_people_do(amount, resource, want):
    assert format_amount(amount, resource) == want


def test_an_error_says_where():
    assert str(UserError("bad").inside("spec").inside("ClusterQueue q")) == "ClusterQueue q: spec: bad"
