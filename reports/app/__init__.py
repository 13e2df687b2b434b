"""The pages of ``capim serve``: one store, read-only, on this machine."""
