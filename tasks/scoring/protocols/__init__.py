"""Protocols: which of them fit a corpus, and the task that each sets."""
