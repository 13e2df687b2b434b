"""From outcomes to stored rows: summaries, comparisons, RSUM, figures over languages."""
