"""The tokenizers are the same bytes in every run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tiny_models.curriculum import page_vocabulary, vocabulary
from tests.tiny_models.word_tokenizers import clip_tokenizer, words_of, write_gemma_tokenizer

CHECKPOINTS = Path(__file__).parents[2] / "tasks" / "encoders" / "tiny"


@pytest.mark.parametrize("model", ["clip", "clip-plain", "colpali", "colpali-pages"])
def test_the_committed_tokenizer_is_what_the_script_makes(tmp_path: Path, model: str) -> None:
    words = words_of(page_vocabulary() if model == "colpali-pages" else vocabulary())
    if model.startswith("clip"):
        clip_tokenizer(words, max_length=32).save_pretrained(tmp_path)
    else:
        write_gemma_tokenizer(words, tmp_path)
    made, committed = (json.loads((f / "tokenizer.json").read_text())["model"] for f in (tmp_path, CHECKPOINTS / model))
    assert json.dumps(made, sort_keys=True) == json.dumps(committed, sort_keys=True)
