"""Elements of a page: the frozen page values, table cells, pictures and charts."""
