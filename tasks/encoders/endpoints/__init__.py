"""Models behind an HTTP address: their options, the requests, and the vectors that stand for their weights."""
