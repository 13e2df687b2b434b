"""What outcomes mean: intervals, comparisons, slices, ablations. Plain NumPy and SciPy over stored rows."""
