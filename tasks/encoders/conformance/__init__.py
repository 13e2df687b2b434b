"""The conformance suite: whether a model was loaded correctly."""
