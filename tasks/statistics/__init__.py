"""Intervals, tests and ranks: functions of arrays, independent of the store and its tables."""

VERSION = 5
"""Raised when the same values get another interval, p-value or rank: stored ones are then computed again."""
