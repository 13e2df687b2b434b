"""What a report reads: stored rows, read once and looked up by encoder, corpus, protocol and metric."""
