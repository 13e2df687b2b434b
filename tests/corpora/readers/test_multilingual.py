"""COCO-SM, xFlickr&CO, XTD10, Crossmodal-3600, Multi30K."""

from __future__ import annotations

import collections
import json
import shutil
from pathlib import Path

import pytest

from capim.store.errors import RequestError
from capim.tasks.corpora import CORPORA, open_corpus
from capim.tasks.corpora.check import corpus_facts
from capim.tasks.corpora.readers.published import table_reader
from capim.tasks.corpora.readers.translations import TRANSLATORS, read_coco_sm, read_multi30k, read_xtd10


def test_xflickrco_has_2000_images_with_one_caption_in_each_of_8_languages(shared_data: Path) -> None:
    corpus = open_corpus(shared_data / "xflickrco")
    facts = corpus_facts(corpus)
    assert (facts.n_images, facts.n_captions, facts.captions_per_image) == (2000, 16_000, {1: 2000})
    assert facts.languages == dict.fromkeys(("de", "en", "es", "id", "ja", "ru", "tr", "zh"), 2000)
    assert facts.empty_captions == 2  # one German, one Indonesian, as published
    rows = {row["id"]: row["text"] for row in corpus.captions.to_pylist()}
    assert rows["1007129816#en-0"] == "The man with pierced ears is wearing glasses and an orange hat."
    assert rows["1007129816#de-0"] == "Der Mann trägt eine orange Wollmütze."
    assert rows["369771#en-0"] == "Arrows show what to do with the bowls of food."


def test_xflickrco_runs_on_the_photographs_that_are_there(shared_data: Path) -> None:
    corpus = table_reader("xflickrco")(
        shared_data / "xflickrco", images=[shared_data / "coco_photos" / "images"], missing="skip"
    )
    assert (corpus.images.num_rows, corpus.captions.num_rows, corpus.skipped.num_rows) == (4, 32, 1996)
    assert corpus.images["sha"].null_count == 0


def test_languages_that_list_other_images_are_refused(shared_data: Path, tmp_path: Path) -> None:
    for language in ("en", "de"):
        shutil.copy(shared_data / "xflickrco" / f"{language}.jsonl", tmp_path)
    lines = (tmp_path / "de.jsonl").read_text().splitlines()
    (tmp_path / "de.jsonl").write_text("\n".join([lines[1], lines[0], *lines[2:]]))
    with pytest.raises(RequestError, match=r"de.jsonl: line 1: expected image .* as in en, got image 1009434119"):
        table_reader("xflickrco")(tmp_path, languages=["en", "de"])
    (tmp_path / "de.jsonl").write_text("\n".join(lines[:-1]))
    with pytest.raises(RequestError, match="de: expected 2000 images as in en, got 1999"):
        table_reader("xflickrco")(tmp_path, languages=["en", "de"])
    with pytest.raises(RequestError, match=r"no ja.jsonl in it"):
        table_reader("xflickrco")(tmp_path, languages=["en", "ja"])
    with pytest.raises(RequestError, match=r"languages must be a list of 'en', 'de', .* got \['xx'\]"):
        open_corpus({"reader": "xflickrco", "root": str(tmp_path), "languages": ["xx"]})


@pytest.fixture
def coco_sm(shared_data: Path, tmp_path: Path) -> Path:
    """The real image list, id mapping and exclusions of COCO-SM, with stand-ins for two translations.

    The places of the ten images with six captions in ``id_mapping.json`` are those that they have by file name.
    """
    excluded = set((shared_data / "coco_sm" / "excluded.txt").read_text().split())
    entries = json.loads((shared_data / "coco_karpathy" / "test_5k.json").read_text())
    named = [(Path(entry["file_name"]).name, entry["captions"]) for entry in entries]
    kept = sorted((name, captions) for name, captions in named if name not in excluded)
    for system in ("google", "bing"):
        meta = {
            language: [
                {"filename": name, "captions": captions if language == "en" else [f"{language} {c}" for c in captions]}
                for name, captions in kept
            ]
            for language in ("en", "de")
        }
        (tmp_path / f"{system}.json").write_text(json.dumps(meta))
    for name in ("excluded.txt", "id_mapping.json"):
        shutil.copy(shared_data / "coco_sm" / name, tmp_path)
    return tmp_path


def read(folder: Path):
    return read_coco_sm(folder, languages=["en", "de"], translators=["google", "bing"])


def test_coco_sm_is_the_test_split_without_the_7_excluded_images(coco_sm: Path) -> None:
    corpus = read(coco_sm)
    assert (corpus.images.num_rows, corpus.captions.num_rows) == (4993, 4 * 24_975)
    assert corpus_facts(corpus).captions_per_image == {5: 4983, 6: 10}
    parts = collections.Counter(
        zip(corpus.captions["language"].to_pylist(), corpus.captions["translator"].to_pylist(), strict=True)
    )
    assert parts == dict.fromkeys([("en", "google"), ("de", "google"), ("en", "bing"), ("de", "bing")], 24_975)
    assert (len(CORPORA["coco-sm"].languages), len(TRANSLATORS)) == (21, 3)


def test_coco_sm_is_held_against_its_exclusions_and_id_mapping(coco_sm: Path) -> None:
    for system in ("google", "bing"):
        meta = json.loads((coco_sm / f"{system}.json").read_text())
        for entries in meta.values():
            entries[3]["filename"] = "COCO_val2014_000000457900.jpg"
        meta["de"][5]["captions"].pop()
        (coco_sm / f"{system}.json").write_text(json.dumps(meta))
    with pytest.raises(RequestError) as caught:
        read(coco_sm)
    assert "lists COCO_val2014_000000457900.jpg, which excluded.txt leaves out" in str(caught.value)
    assert "as in id_mapping.json, got 4 in de by google" in str(caught.value)


def test_coco_sm_files_that_disagree_or_are_missing_are_refused(coco_sm: Path) -> None:
    meta = json.loads((coco_sm / "bing.json").read_text())
    meta["de"].reverse()
    (coco_sm / "bing.json").write_text(json.dumps(meta))
    with pytest.raises(RequestError, match=r"bing.json: de: expected 'COCO_val2014_000000000042.jpg' as image 0, got"):
        read(coco_sm)
    with pytest.raises(RequestError, match=r"no nllb.json in it; download from github.com/unum-cloud/coco-sm"):
        read_coco_sm(coco_sm)


def test_xtd10_spells_japanese_as_bcp_47_does_and_counts_lines(tmp_path: Path) -> None:
    (tmp_path / "test_image_names.txt").write_text("COCO_train2014_000000000005.jpg\n")
    (tmp_path / "test_1kcaptions_jp.txt").write_text("猫\n", encoding="utf-8")
    assert read_xtd10(tmp_path, languages=["ja"]).captions["language"].to_pylist() == ["ja"]
    (tmp_path / "test_1kcaptions_de.txt").write_text("eins\nzwei\n")
    with pytest.raises(RequestError, match=r"expected 1 captions in 'de', got 2"):
        read_xtd10(tmp_path, languages=["de"])
    with pytest.raises(RequestError, match=r"no test_1kcaptions_fr.txt or .* in it"):
        read_xtd10(tmp_path, languages=["fr"])


def test_multi30k_names_a_split_or_language_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "image_splits").mkdir()
    (tmp_path / "raw").mkdir()
    (tmp_path / "image_splits" / "val.txt").write_text("17.jpg\n")
    with pytest.raises(RequestError, match=r"no image_splits/test_2016_flickr.txt"):
        read_multi30k(tmp_path)
    with pytest.raises(RequestError, match=r"no raw/val.cs.gz or .* in it; or leave 'cs' out of languages"):
        read_multi30k(tmp_path, split="val", languages=["cs"])
    (tmp_path / "raw" / "val.en.gz").write_bytes(b"not gzip")
    with pytest.raises(RequestError, match=r"val.en.gz: cannot be read"):
        read_multi30k(tmp_path, split="val", languages=["en"])


def test_a_corpus_without_its_reference_language_is_warned_of(shared_data: Path) -> None:
    from capim.tasks.corpora.check import check_corpus

    checked = check_corpus({"reader": "xflickrco", "root": str(shared_data / "xflickrco"), "languages": ["de", "ja"]})
    assert "no captions in the reference language 'en': no cross-lingual metrics" in checked.warnings
