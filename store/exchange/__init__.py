"""Importing and exporting: embeddings and rows in files of other programs."""
