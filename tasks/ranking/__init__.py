"""Scores, ranks and outcomes per query, from stored embeddings.

``protocols`` and ``outcomes`` need no torch; importing this package imports none of its modules.
"""
