"""One module per part of the report: `section(data)` gives it, or None if the store has nothing for it."""
