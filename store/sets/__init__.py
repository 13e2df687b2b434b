"""Embedding sets: written block by block, checked, sealed, read back."""
