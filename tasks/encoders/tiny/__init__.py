"""Tiny models of the shapes world: their checkpoints, and the scripts that make them (see README.md)."""
