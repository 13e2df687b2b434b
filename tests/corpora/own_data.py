"""Words that the tests of own data share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora import open_corpus

Put = Callable[..., Path]

TWO = [("a.png", "red"), ("b.png", "blue")]
JSONL = '{"file_name": "a.png", "text": "red"}\n{"file_name": "b.png", "text": "blue"}\n'


def texts(corpus: Corpus) -> list[tuple[Any, Any]]:
    """Image and text of every caption, in corpus order."""
    return list(zip(corpus.captions["image_id"].to_pylist(), corpus.captions["text"].to_pylist(), strict=True))


def files(corpus: Corpus) -> list[Any]:
    """The file of every image, in corpus order."""
    return corpus.images["key"].to_pylist()


def refusal(what: Any, **options: Any) -> str:
    with pytest.raises(RequestError) as caught:
        open_corpus(what, **options)
    return str(caught.value)
