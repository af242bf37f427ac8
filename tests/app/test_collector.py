"""The garbage collector never looks twice at what is old."""

import gc
import os
import random
from collections.abc import Iterator

import pytest

from extender.collector import THRESHOLDS, give_back, keep_what_is_held, quiet_the_collector
from tests.bench._machine import rss_mb


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Put the collector of this process back."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    gc.unfreeze()


def test_what_a_full_collection_leaves_is_not_looked_at_again():
    quiet_the_collector()
    held = [[number] for number in range(5_000)]
    before = gc.get_freeze_count()
    gc.collect()

    assert gc.get_threshold() == THRESHOLDS
    assert gc.get_freeze_count() - before >= len(held)
    assert len(gc.get_objects()) < 1_000


def test_a_ring_is_found_all_the_same():
    quiet_the_collector()
    ring: list[object] = []
    ring.append(ring)
    del ring

    assert gc.collect() >= 1


def test_what_is_held_is_kept_without_a_look():
    held = [[number] for number in range(5_000)]
    keep_what_is_held()

    assert gc.get_freeze_count() >= len(held)


def test_to_quiet_it_twice_is_to_quiet_it_once():
    before = len(gc.callbacks)
    quiet_the_collector()
    quiet_the_collector()

    assert len(gc.callbacks) == before + 1


def test_pages_between_what_is_kept_go_back_to_the_system():
    lengths = random.Random(1)
    bodies = [bytes(lengths.randrange(4_096, 32_768)) for _ in range(4_000)]  # some 70 MB
    kept = bodies[::10]
    del bodies
    before_mb = rss_mb(os.getpid())

    give_back()

    assert before_mb - rss_mb(os.getpid()) > 20
    assert sum(map(len, kept)) > 6e6
