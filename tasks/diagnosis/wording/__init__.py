"""What captions and images are about, from lexicons and annotations."""
