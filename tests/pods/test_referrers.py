"""Who refers to what: only they are looked at when it changes."""

from extender.model.events import PodSeen, PriorityClassSeen
from extender.pods.books import Books
from extender.pods.referrers import Referrers, owner, pod_group, priority_class
from tests.pods.build import pod


def test_each_pod_is_found_by_what_it_names_as_long_as_it_does():
    known = Referrers()
    a, b = pod("a", priority_class="high"), pod("b", priority_class="high", pod_group="g")
    for each in (a, b):
        known.replace(each.uid, None, each)
    before = known.of(priority_class("high")), known.of(pod_group(b.namespace, "g")), known.of(owner("uid-of-set"))
    known.replace(b.uid, b, pod("b", priority_class="low"))
    known.replace(a.uid, a, None)

    assert before == ([a.uid, b.uid], [b.uid], [])
    assert known.of(priority_class("low")) == [b.uid]
    assert known._pods.keys() == {priority_class("low")}


def test_news_of_a_class_costs_its_pods_alone(monkeypatch):
    books, seen = Books(), []
    for number in range(100):
        books.apply(PodSeen(pod(f"p{number}", priority_class="high" if number == 7 else "")))
    look = Books._pod_seen
    monkeypatch.setattr(Books, "_pod_seen", lambda self, one: seen.append(one.name) or look(self, one))
    (told,) = books.apply(PriorityClassSeen("high", 5))

    assert seen == ["p7"]
    assert told.workload.priority == 5
