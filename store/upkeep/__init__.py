"""Work on the whole store: what it holds, whether it is intact, and what may go."""
