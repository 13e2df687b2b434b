"""The ambiguous misses of a report, from the slices that the diagnosis stored (``docs/protocols.md`` §5b)."""

from __future__ import annotations

LEADING = "R@1"
WITHOUT = "R@1 without ambiguous misses"
