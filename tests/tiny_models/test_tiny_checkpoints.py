"""The committed checkpoints score what README.md says, and can be made again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from safetensors import safe_open

from capim.tasks.corpora.readers.pages import LANGUAGES
from tests.tiny_models.curriculum import Recipe, page_vocabulary, vocabulary
from tests.tiny_models.exam import PARTS, examine
from tests.tiny_models.word_tokenizers import clip_tokenizer, words_of, write_gemma_tokenizer

TINY = Path(__file__).parents[2] / "tasks" / "encoders" / "tiny"
MODELS = ("clip", "clip-plain", "colpali", "colpali-pages")
SLACK = 0.02  # another CPU rounds differently


def promised() -> dict[str, dict[str, float]]:
    """The figures of README.md's table: model -> figure -> share."""
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in (TINY / "README.md").read_text().splitlines()
        if line.startswith("|") and not re.match(r"\|[-| ]+$", line)
    ]
    header = next(row for row in rows if row[1:] == list(MODELS))
    figures = rows[rows.index(header) + 1 :]
    return {
        model: {
            row[0]: float(row[column]) / 100
            for row in figures
            if row[0].startswith(("t2i", "i2t", "winoground")) and row[column] != "–"
        }
        for column, model in enumerate(MODELS, start=1)
    }


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_checkpoint_scores_what_its_readme_says(model: str) -> None:
    figures = examine(TINY / model, ["pages"] if model == "colpali-pages" else PARTS)
    for name, share in promised()[model].items():
        assert figures[name] == pytest.approx(share, abs=SLACK), name


def test_swap_negatives_cure_the_bag_of_words() -> None:
    figures = promised()
    strong, plain = figures["clip"], figures["clip-plain"]
    assert strong["winoground/object winoground_group"] > plain["winoground/object winoground_group"] + 0.2
    assert plain["winoground/object winoground_group"] < plain["winoground/attribute winoground_group"]
    assert strong["t2i/all R@1"] > 10 / 300


def test_the_model_of_pages_reads_them_and_the_others_do_not() -> None:
    figures = promised()
    for language in LANGUAGES:
        pages, *others = (figures[model][f"t2i/judged/{language} nDCG@10"] for model in reversed(MODELS))
        assert pages > 0.5
        assert max(others) < 0.1  # chance: 0.04


@pytest.mark.parametrize("model", MODELS)
def test_a_checkpoint_is_small_and_holds_float16_safetensors_only(model: str) -> None:
    files = [file for file in (TINY / model).rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 2_000_000
    assert {file.suffix for file in files} == {".json", ".safetensors"}
    with safe_open(TINY / model / "model.safetensors", "pt") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"F16"}  # noqa: SIM118


@pytest.mark.slow
@pytest.mark.parametrize("model", ["clip", "colpali", "colpali-pages"])
def test_the_script_still_makes_such_a_model(model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from tests.tiny_models.train import MODELS as TRAINED
    from tests.tiny_models.train import save

    steps, batch, warm_up = {"clip": (150, 64, 40), "colpali": (50, 32, 12), "colpali-pages": (20, 96, 5)}[model]
    with caplog.at_level("INFO", logger="tests.tiny_models.train"):
        save(*TRAINED[model][0](Recipe(steps=steps, batch=batch, warm_up=warm_up), tmp_path), tmp_path)
    first, *_, last = (float(record.getMessage().rpartition(" ")[2]) for record in caplog.records)
    assert last < first
    figures = examine(tmp_path, ["scenes"], n=100 if model == "clip" else 50)
    assert model == "colpali-pages" or figures["t2i/all R@5"] > 0.2  # chance: 0.05, with 50 scenes 0.1
    assert model != "clip" or figures["t2i/all R@1"] > 0.05  # chance: 0.01


@pytest.mark.parametrize("model", MODELS)
def test_the_committed_tokenizer_is_what_the_script_makes(tmp_path: Path, model: str) -> None:
    words = words_of(page_vocabulary() if model == "colpali-pages" else vocabulary())
    if model.startswith("clip"):
        clip_tokenizer(words, max_length=32).save_pretrained(tmp_path)
    else:
        write_gemma_tokenizer(words, tmp_path)
    made, committed = (
        json.loads((folder / "tokenizer.json").read_text())["model"] for folder in (tmp_path, TINY / model)
    )
    assert json.dumps(made, sort_keys=True) == json.dumps(committed, sort_keys=True)
