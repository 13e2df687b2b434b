"""The files of a model: where they are, at which revision, and whether all weights were loaded."""
