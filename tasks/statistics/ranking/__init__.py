"""Ranks that the data leave open: within one metric, and over several corpora."""
