"""Where the real data for tests and benchmarks lie: photographs, captions and hit lists beside the checkout."""

from __future__ import annotations

from pathlib import Path

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
