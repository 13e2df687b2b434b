"""From blocks of scores to ranks, ties and top lists."""
