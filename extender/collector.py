"""The garbage collector, tuned for a process that holds much for long and must answer within milliseconds.

Most things are freed by their last reference; the collector is there for rings. A full collection looks at all that is
held, which takes some 10 ms with 20,000 pods, so none does that here: each looks at what is new, once while it is young
and once when it is older, and what a full one leaves is never looked at again. Such objects are freed by their last
reference all the same; only a ring that was alive then and is dropped later stays, and those are few: a connection that
broke in that very moment, say.

What is freed goes back to the allocator, and from there to the system only if it is the end of the heap. Bodies of
requests come and go between things that stay, so the heap of a busy hour grows by holes; their pages are handed back.
"""

import ctypes
import gc

THRESHOLDS = (1_000, 2, 1)
"""Young objects are looked at in batches that take a fraction of a millisecond, older ones some thousands at a time."""
FULL_GENERATION = 2
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""glibc's; other C libraries have none, or need none."""


def quiet_the_collector() -> None:
    """Look once at all that was imported, before anybody waits for us, and then only at what is new."""
    gc.collect()
    keep_what_is_held()
    gc.collect()  # counts what is left, which is nothing: a fourth of that count must be new before the next full one
    gc.set_threshold(*THRESHOLDS)
    if _keep_what_is_left not in gc.callbacks:
        gc.callbacks.append(_keep_what_is_left)


def keep_what_is_held() -> None:
    """What is held now lives long: no collection looks at it any more. Cost: constant."""
    gc.freeze()


def _keep_what_is_left(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == FULL_GENERATION:
        keep_what_is_held()


def give_back() -> None:
    """Hand pages that are free to the system. Cost: a millisecond or two, more if much has become free."""
    if _TRIM is not None:
        _TRIM(ctypes.c_size_t(0))
