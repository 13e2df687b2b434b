"""Thin Prefect shells, and the plain packages that do the work."""
