"""What surrounds an import: what is looked up before it, and the messages after it."""
