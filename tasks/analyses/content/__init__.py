"""What captions ask for and images show, from lexicons and annotations."""
