"""Decides on quota: facts in, admissions and victims out. Pure: no clock, no randomness, no waiting."""
