"""Analyses of where and why an encoder fails: slices, errors, hubs, calibration, ablations."""
