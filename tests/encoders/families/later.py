"""``transformers``, imported when a class of it is first used: collecting the tests takes a second less."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import transformers

    return getattr(transformers, name)
