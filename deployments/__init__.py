"""Registers, serves and scales out the flows. Telemetry of Prefect is off unless it is turned on."""

if __name__ != "capim.deployments":
    raise ImportError(
        f"{__name__!r} is imported as capim.deployments; a package of your own with this name needs an __init__.py"
    )
