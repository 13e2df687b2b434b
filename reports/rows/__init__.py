"""Data of a report: stored rows, read once and looked up by encoder, corpus, protocol and metric."""
