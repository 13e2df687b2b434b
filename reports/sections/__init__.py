"""One module per part of the report: `section(data)` gives it, without blocks if the store has no rows for it."""
