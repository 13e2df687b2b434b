"""Where the files of a model are, at which revision, and whether all of its weights were loaded."""
