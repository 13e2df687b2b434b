"""What it would cost to store, compute or compare vectors differently."""
