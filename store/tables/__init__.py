"""Every other table: their columns, how they are opened, written and read."""
