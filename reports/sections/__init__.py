"""One module per part of the report: `section(evidence)` gives it, or None if the store has nothing for it."""
