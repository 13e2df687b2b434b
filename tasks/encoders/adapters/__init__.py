"""One module per model family; `tasks.encoders.adapters.table` lists them."""
