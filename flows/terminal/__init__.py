"""The terminal: words of a command line parsed, rows and progress printed."""
