"""Stored outcomes and embeddings in the files of other programs."""
