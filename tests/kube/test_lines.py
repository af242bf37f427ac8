from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.kube.lines import Lines
from extender.model.errors import Unreachable


@pytest.mark.parametrize(
    ("chunks", "want"),
    [
        pytest.param([b"one\n"], [b"one"], id="a line in one chunk"),
        pytest.param([b"one\ntwo\n"], [b"one", b"two"], id="two lines in one chunk"),
        pytest.param([b"o", b"n", b"e\ntw", b"o\n"], [b"one", b"two"], id="lines across chunks"),
        pytest.param([b"one\ntw"], [b"one"], id="a line cut short is dropped"),
        pytest.param([b"\n\none\n\n"], [b"one"], id="empty lines are nothing"),
        pytest.param([b"one", b"", b"\n"], [b"one"], id="an empty chunk changes nothing"),
    ],
)
def test_lines(chunks, want):
    lines = Lines(100)

    assert [line for chunk in chunks for line in lines.feed(chunk)] == want


def test_a_line_may_be_longer_than_64_kib():
    lines, long = Lines(8 * 2**20), b"x" * 200_000

    assert lines.feed(long[:70_000]) == []
    assert lines.feed(long[70_000:] + b"\n") == [long]


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([b"x" * 11], id="in one chunk"),
        pytest.param([b"x" * 6, b"x" * 6], id="across chunks"),
        pytest.param([b"one\n" + b"x" * 6, b"x" * 6 + b"\n"], id="after another line"),
    ],
)
def test_a_line_beyond_the_limit_ends_the_stream(chunks):
    lines = Lines(10)
    *before, last = chunks
    for chunk in before:
        lines.feed(chunk)

    with pytest.raises(Unreachable):
        lines.feed(last)


@given(st.lists(st.binary(max_size=8)), st.lists(st.integers(0, 40)))
def test_how_a_stream_is_chopped_does_not_matter(lines, cuts):
    whole = b"".join(line.replace(b"\n", b"") + b"\n" for line in lines)
    want = [line.replace(b"\n", b"") for line in lines if line.replace(b"\n", b"")]
    edges = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    cutter = Lines(100)

    got = [line for start, end in pairwise(edges) for line in cutter.feed(whole[start:end])]

    assert got == want
