"""The rendered scenes of coloured shapes that the demo and the tiny models use."""
