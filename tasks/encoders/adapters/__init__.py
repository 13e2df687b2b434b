"""One module per family of models; :mod:`tasks.encoders.adapters.table` lists them."""
