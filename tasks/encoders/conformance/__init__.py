"""Whether a model was loaded correctly: one suite for every encoder."""
