"""Questions to a store: SQL, and nearest-neighbour search."""
