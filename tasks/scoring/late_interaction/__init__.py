"""Late interaction: MaxSim over multi-vectors, and the outcomes from it."""
