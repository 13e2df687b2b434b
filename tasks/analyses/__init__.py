"""Why an encoder fails and where: slices, errors, hubs, calibration, ablations."""
