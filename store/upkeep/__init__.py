"""Maintenance of the whole store: its contents, its integrity, and removals."""
