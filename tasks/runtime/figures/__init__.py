"""Figures into the store: the results of the table's metrics, and all rows of a user's metric."""
