"""Thin Prefect shells, and the plain packages that do the work."""

if __name__ != "capim.tasks":
    raise ImportError(
        f"{__name__!r} is imported as capim.tasks; a package of your own with this name needs an __init__.py"
    )
