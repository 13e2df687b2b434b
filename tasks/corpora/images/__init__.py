"""Image files and bytes: sources, decoding, and the image index."""
