"""One module per page; each has a function ``page(request)`` that gives the response."""
