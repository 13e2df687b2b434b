"""Scores and ranks from stored embeddings: protocols, dense products, late interaction, outcomes per query.

``protocols``, ``judgements``, ``layout``, ``asking`` and ``outcomes`` need no torch; importing this package imports
none of them.
"""
