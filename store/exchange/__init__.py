"""Embeddings and rows from and to files of other programs."""
