"""The rendered document pages that the demo and the tiny late-interaction model use."""
