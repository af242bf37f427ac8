"""Certificates of the webhook and the extender: a CA of our own, or files that somebody else keeps."""
