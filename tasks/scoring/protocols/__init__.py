"""Protocols: which a corpus supports, and the retrieval task that each poses."""
