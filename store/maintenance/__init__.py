"""Looking after a store: what it holds, whether it is damaged, repairing, comparing, dropping and compacting."""
