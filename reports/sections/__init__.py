"""Parts of the report, a module per idea: a function of the data gives each, without blocks where there are no rows."""
