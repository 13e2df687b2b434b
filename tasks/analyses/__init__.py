"""Analyses of where and why an encoder fails: slices, errors, calibration, ablations."""
