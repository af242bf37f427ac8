"""The shipped product on a real control plane, from the shipped manifests."""
