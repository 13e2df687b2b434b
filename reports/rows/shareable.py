"""Text of a run as it may be shared: no absolute path of the machine, not its name, and no password."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from capim.store.errors import without_credentials

_PATH = re.compile(r"(?<![\w:/.~*…])/(?:[^\s\"'/,;=]+/)+([^\s\"'/,;=]*)")

OF_THE_MACHINE = ("host", "pid")
"""Columns of stored rows that reports leave out."""


def without_paths(text: str) -> str:
    """A text with every absolute path cut to its last part; addresses stay, without user and password.

    Examples:
        >>> without_paths("capim run --workspace /home/ada/work/ws --corpora ./photos")
        'capim run --workspace …/ws --corpora ./photos'
        >>> without_paths("s3://KEY:SECRET@bucket/store")
        's3://***@bucket/store'
        >>> without_paths("s3://bucket/store"), without_paths("t2i/all and i2t/any"), without_paths("/tmp/ws/")
        ('s3://bucket/store', 't2i/all and i2t/any', '…/ws/')
    """
    return _PATH.sub(_last_part, without_credentials(text))


def _last_part(found: re.Match[str]) -> str:
    return "…/" + (found[1] or f"{found[0].rstrip('/').rpartition('/')[2]}/")


def shareable(row: Mapping[str, Any]) -> dict[str, Any]:
    """A stored row of a run or a batch without its machine (name, process) and without absolute paths."""
    kept = {name: value for name, value in row.items() if name not in OF_THE_MACHINE}
    return {name: without_paths(value) if isinstance(value, str) else value for name, value in kept.items()}
