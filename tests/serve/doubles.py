"""Doubles of what the app gives to serve, and requests to build on."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import orjson

from extender.model.questions import PlacementQuestion, PreemptionQuestion
from extender.model.verdicts import FilterVerdict, NodeScore, NodeVictims

ENVELOPE = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
GOLDEN = Path(__file__).with_name("golden")


def golden(name: str) -> bytes:
    """A wire file, without its line end."""
    return (GOLDEN / name).read_bytes().rstrip(b"\n")


class FakePlacement:
    """Answers what it is told to, and remembers what it was asked."""

    def __init__(
        self,
        *,
        verdict: FilterVerdict | None = None,
        scores: list[NodeScore] | None = None,
        victims: dict[str, NodeVictims] | None = None,
        error: Exception | None = None,
    ) -> None:
        self.asked: list[PlacementQuestion | PreemptionQuestion] = []
        self._verdict = verdict
        self.scores = scores or []
        self._victims = victims
        self.error = error

    def _ask(self, question: PlacementQuestion | PreemptionQuestion) -> None:
        self.asked.append(question)
        if self.error is not None:
            raise self.error

    def filter(self, question: PlacementQuestion) -> FilterVerdict:
        self._ask(question)
        return self._verdict or FilterVerdict(question.nodes, {}, {})

    def prioritize(self, question: PlacementQuestion) -> list[NodeScore]:
        self._ask(question)
        return self.scores

    def preempt(self, question: PreemptionQuestion) -> dict[str, NodeVictims]:
        self._ask(question)
        return question.candidates if self._victims is None else self._victims


class FakeQueues:
    """Namespaces that have a default queue."""

    def __init__(self, *namespaces: str) -> None:
        self._namespaces = set(namespaces)

    def has_default_queue(self, namespace: str) -> bool:
        return namespace in self._namespaces


class FakeHealth:
    """Alive and ready, until told otherwise."""

    def __init__(self) -> None:
        self.dead = ""
        self.unready = ""

    def live(self) -> str:
        return self.dead

    def ready(self) -> str:
        return self.unready

    def dump(self) -> bytes:
        return b'{"queues":{}}'


def review(
    pod: dict[str, Any] | None,
    old: dict[str, Any] | None = None,
    *,
    user: str = "alice",
    operation: str | None = None,
    namespace: str = "icu",
    **request: Any,
) -> bytes:
    """An AdmissionReview: a creation of *pod*, or its update from *old*."""
    body = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": operation or ("UPDATE" if old is not None else "CREATE"),
        "namespace": namespace,
        "userInfo": {"username": user},
        "object": pod,
        "oldObject": old,
        **request,
    }
    return orjson.dumps({**ENVELOPE, "request": body})


def response(body: bytes) -> dict[str, Any]:
    """The response in the reply."""
    answer: dict[str, Any] = orjson.loads(body)["response"]
    return answer


def patched(pod: dict[str, Any], body: bytes) -> dict[str, Any]:
    """*pod* after the patch in the reply; only ``add`` is understood, and only where its parent exists."""
    result: dict[str, Any] = orjson.loads(orjson.dumps(pod))
    patch = response(body).get("patch")
    for operation in orjson.loads(b64decode(patch)) if patch else []:
        assert operation["op"] == "add"
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        parent: Any = result
        for part in path:
            parent = parent[int(part) if isinstance(parent, list) else part]
        if isinstance(parent, list):
            assert last == "-"
            parent.append(operation["value"])
        else:
            assert isinstance(parent, dict)
            parent[last] = operation["value"]
    return result
