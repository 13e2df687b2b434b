"""One module per data set or form of data; `tasks.corpora.CORPORA` lists them."""
