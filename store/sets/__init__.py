"""Embedding sets: their rows, checked and written block by block, sealed, read, searched; files of other programs."""
