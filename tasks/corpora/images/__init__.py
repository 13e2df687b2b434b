"""Image bytes: where they come from, how they are decoded, what is known of each."""
