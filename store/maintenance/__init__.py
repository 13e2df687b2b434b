"""Keeping a store in order: what it holds, whether it is sound, what can be removed, compacted or repaired."""
