"""Who must not be tried now, and why: a back-off that time ends, or a stop that only an owner ends.

A hold has a key: the workload's UID, or ``owner:`` with the UID of a controller. The second kind concerns the pods that
the controller made after it, since the pod that it is about is gone for good.
"""

from collections.abc import Iterator

import msgspec

from extender.model.pods import Pod
from extender.model.reasons import Reason

HOLDS_MAX = 10_000
OWNER_PREFIX = "owner:"


class Hold(msgspec.Struct, frozen=True):
    """A hold on all pods of a key that were created at *after_ms* or later; ``endless``: no time ends it."""

    why: Reason
    after_ms: int = 0
    endless: bool = False


class Holds:
    """All holds, at most ``HOLDS_MAX``: beyond that the oldest is dropped, which only means an attempt too early."""

    def __init__(self) -> None:
        self._holds: dict[str, Hold] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._holds

    def __iter__(self) -> Iterator[str]:
        return iter(self._holds)

    def put(self, key: str, hold: Hold) -> None:
        """Hold back *key*; a newer hold replaces the older."""
        self._holds.pop(key, None)
        self._holds[key] = hold
        if len(self._holds) > HOLDS_MAX:
            del self._holds[next(iter(self._holds))]

    def drop(self, key: str) -> bool:
        """Hold it back no longer; whether it was."""
        return self._holds.pop(key, None) is not None

    def get(self, key: str) -> Hold | None:
        """The hold of *key*."""
        return self._holds.get(key)

    def of(self, workload: str, pod: Pod) -> Reason | None:
        """Why a workload must not be tried, of which *pod* is the first pod."""
        if not self._holds:
            return None
        keys = [workload] if pod.owner is None else [workload, OWNER_PREFIX + pod.owner.uid]
        for key in keys:
            hold = self._holds.get(key)
            # Creation times have whole seconds.
            if hold is not None and pod.created_ms >= hold.after_ms // 1000 * 1000:
                return hold.why
        return None


def lineage(workload: str, pod: Pod, *, whole: bool) -> str:
    """The key under which what comes after *pod* is known: a *whole* workload, else its controller, else itself."""
    if whole or pod.owner is None:
        return workload
    return OWNER_PREFIX + pod.owner.uid
