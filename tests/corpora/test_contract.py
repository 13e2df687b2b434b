"""What holds of every row of CORPORA, tried on a small local copy in the published format."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import pytest

from capim.store.errors import RequestError
from capim.tasks.contract import check_corpus
from capim.tasks.corpora import CORPORA, JUDGED_TASKS
from capim.tasks.corpora.check import corpus_facts
from capim.tasks.corpora.description import description_model, load_reader, open_corpus
from capim.tasks.corpora.subset import index_images
from tests.corpora import local_copies


# of published document pages, readers/test_judged.py reads copies
@pytest.fixture(scope="module", params=[name for name in CORPORA if name not in JUDGED_TASKS])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """The copy of one corpus, and the corpus read from it."""
    root = tmp_path_factory.mktemp("copy") / "root"
    copy = local_copies.copy_of(request.param, root)
    if copy is None:
        pytest.skip(f"no copy in the published format: write a function {request.param!r} in local_copies.py")
    return copy, open_corpus(copy.description), root


@pytest.mark.parametrize("name", CORPORA)
def test_a_reader_says_what_it_raises_and_its_options_can_be_checked_and_have_right_defaults(name: str) -> None:
    reader, entry = load_reader(name), CORPORA[name]
    assert "Raises:" in (reader.__doc__ or "") or reader.__module__.endswith(("shapes", "pages"))
    parameters = inspect.signature(reader).parameters
    assert all(p.kind is p.KEYWORD_ONLY for p in list(parameters.values())[1:])
    model = description_model(reader)
    assert set(parameters) <= set(model.model_fields)
    for option, field in model.model_fields.items():
        if not field.is_required():
            model.__pydantic_validator__.validate_assignment(model.model_construct(), option, field.default)
    assert entry.title
    assert entry.licence


def test_counts_and_first_and_last_rows_are_those_of_the_files(case) -> None:
    copy, corpus, _ = case
    assert (corpus.images.num_rows, corpus.captions.num_rows) == (copy.n_images, copy.n_captions)
    assert (corpus.pairs.num_rows, corpus.quadruples.num_rows) == (copy.n_pairs, copy.n_quadruples)
    rows = corpus.captions.to_pylist()
    assert (rows[0]["id"], rows[0]["text"]) == copy.first
    assert (rows[-1]["id"], rows[-1]["text"]) == copy.last


def test_it_keeps_the_rules_that_packages_check_and_reads_images_through_a_pickled_source(case) -> None:
    copy, corpus, _ = case
    assert check_corpus(lambda: open_corpus(copy.description)).fingerprint == corpus.fingerprint
    key = corpus.images["key"][0].as_py()
    source = pickle.loads(pickle.dumps(corpus.source))
    assert source.read(key) == corpus.source.read(key)
    unknown = [] if copy.description["reader"].startswith("shapes") else [f"{key}-gone"]  # renders what a key spells
    for wrong in ("/etc/passwd", *unknown):
        with pytest.raises(OSError):
            source.read(wrong)


def test_ordinals_count_from_zero_within_image_language_and_translator(case) -> None:
    _, corpus, _ = case
    seen: dict[tuple[str, str, str], list[int]] = {}
    for row in corpus.captions.to_pylist():
        if row["image_id"] is not None:
            seen.setdefault((row["image_id"], row["language"], row["translator"]), []).append(row["ordinal"])
    assert all(ordinals == list(range(len(ordinals))) for ordinals in seen.values())


def test_languages_are_those_of_the_table(case) -> None:
    copy, corpus, _ = case
    entry = CORPORA[copy.description["reader"]]
    if entry.languages:
        assert set(corpus.captions["language"].unique().to_pylist()) == set(entry.languages)


def test_a_sample_holds_together_and_indexing_keeps_every_image(case) -> None:
    copy, corpus, _ = case
    drawn = open_corpus(copy.description, sample=2, seed=1)
    assert drawn.images.num_rows == 2
    assert set(drawn.captions["image_id"].drop_null().to_pylist()) <= set(drawn.images["id"].to_pylist())
    assert index_images(corpus, known={}, sink=lambda _: None).fingerprint == corpus.fingerprint
    facts = corpus_facts(corpus)
    assert facts["images"] == copy.n_images
    assert sum(facts["captions per image"].values()) == copy.n_images - facts["undescribed"]


def test_a_folder_that_is_not_there_is_refused_by_name(case, tmp_path: Path) -> None:
    copy, _, _ = case
    if "root" not in copy.description:
        pytest.skip("has no folder")
    with pytest.raises(RequestError, match="nowhere"):
        open_corpus({**copy.description, "root": str(tmp_path / "nowhere")})
