"""Bytes to question, verdict to bytes: the extender's verbs, the webhooks, health and metrics."""
