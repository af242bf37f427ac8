"""Cohort-extender: Kueue's quota objects for the stock kube-scheduler.

``model`` holds the values, ``engine`` decides on quota, ``pods`` keeps the books of pods and nodes; these three
are pure. ``kube`` and ``serve`` move bytes; ``driver`` sets the pace; ``app`` wires it all.
"""
