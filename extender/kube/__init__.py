"""Moves bytes between API server and core: list-watch, decoding, writing, leadership. Knows nothing of quota."""
