"""The shipped product with two replicas on a real control plane, in which everything may break."""
