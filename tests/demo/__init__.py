"""``make demo``: the hospital story, told live."""
