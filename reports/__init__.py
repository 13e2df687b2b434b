"""Reports and exports, made only from stored rows: no model is needed."""

if __name__ != "capim.reports":
    raise ImportError(
        f"{__name__!r} is imported as capim.reports; a package of your own with this name needs an __init__.py"
    )
