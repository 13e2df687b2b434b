"""What a page is made of: the frozen page values, table cells, pictures and charts."""
