"""Intervals, tests and ranks: functions of arrays, independent of the store and its tables."""
