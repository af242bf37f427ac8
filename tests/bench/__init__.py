"""Benchmarks: each prints what it measured and, with ``--json FILE``, writes it."""
