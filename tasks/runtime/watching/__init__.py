"""The regression watch: fresh vectors beside stored ones, and figures beside those of the pinned run."""
