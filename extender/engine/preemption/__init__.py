"""Who has to go so that a workload fits: candidates, then victims, by the classical or the fair-sharing rules."""
