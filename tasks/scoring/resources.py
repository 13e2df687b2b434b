"""What computing scores may take: the outcomes depend on neither the device nor the memory."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_MEMORY_BYTES = 2 << 30


@dataclass(frozen=True)
class Resources:
    """A device, and memory on it.

    Attributes:
        device: As torch names it.
        memory_bytes: For vectors and scores together (of late interaction: beyond the captions' vectors); None: 2 GiB,
            for single vectors on a CUDA device a quarter of its free memory where that is more.
    """

    device: str = "cpu"
    memory_bytes: int | None = None

    @property
    def budget(self) -> int:
        """Bytes of memory, where the device has no say."""
        return self.memory_bytes or DEFAULT_MEMORY_BYTES


ON_CPU = Resources()
