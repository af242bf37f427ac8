"""Command lines for people: the service's own and the kubectl plugin."""
