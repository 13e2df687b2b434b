"""Arrays of an ``.npz`` file, whose shapes are checked before anything is expanded."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

_SMALL = 256 << 20  # bytes that are expanded whatever they were compressed to
_MOST_TIMES = 50  # vectors compress to 4/5; only arrays that repeat one value shrink to less


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays by name.

    Raises:
        ValueError: An array has another size than its shape says, or the file expands to more than 50 times its size.
    """
    with zipfile.ZipFile(path) as archive:
        expanded = sum(_expanded(archive, member) for member in archive.infolist())
    size = path.stat().st_size
    if expanded > max(_SMALL, _MOST_TIMES * size):
        raise ValueError(f"{size:,} bytes would expand to {expanded:,}; save it without compression (numpy.savez)")
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _expanded(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """The bytes of one array, from its header."""
    with archive.open(member) as file:
        read = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        n_bytes = math.prod(shape) * dtype.itemsize
        if not dtype.hasobject and n_bytes != member.file_size - file.tell():
            raise ValueError(f"array {member.filename!r} holds other than the {n_bytes:,} bytes of its shape {shape}")
    return n_bytes
