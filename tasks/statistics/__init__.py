"""Intervals, tests and ranks: arrays in, numbers out. Knows no rows and no store."""
