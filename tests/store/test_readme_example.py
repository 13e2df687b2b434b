"""The notebook example of the README runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

from store import EmbeddingStore

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_example_over_stored_embeddings_runs(tmp_path, monkeypatch, make_corpus, make_spec, fill):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    examples = [block for block in blocks if "from store import" in block]
    assert examples, "the README shows how to ask stored embeddings a new question"
    store = EmbeddingStore.open(tmp_path / "workspace" / "store", create=True)
    corpus, spec = make_corpus(30, name="shapes"), make_spec(name="tiny-clip")
    fill(store, corpus, spec, "image", step=30)
    fill(store, corpus, spec, "caption", step=60)
    monkeypatch.chdir(tmp_path)
    for example in examples:
        names: dict[str, object] = {}
        exec(compile(example, "README.md", "exec"), names)
        assert names["scores"].shape == (60, 30)
