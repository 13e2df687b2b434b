"""Embedding sets: checked, written block by block, sealed and read."""
