"""From outcomes to stored rows: summaries, comparisons, RSUM, results over languages."""
