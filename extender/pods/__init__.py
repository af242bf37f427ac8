"""The books of pods and nodes: which pods form a workload, what an admission means on a pod, what a node may take.

Pure, like the engine, and independent of it: facts about pods go in, facts about workloads come out; admissions go in,
writes to pods come out. Answers filter, prioritize and preempt.
"""
