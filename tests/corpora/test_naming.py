"""Which stored corpus a name means: by location, by stored name, by the name that its reader would give."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from capim.store.errors import RequestError
from capim.tasks.corpora import open_corpus
from capim.tasks.corpora.naming import Reading, location_of, named_apart, reading_of, stored_corpora, stored_corpus

START = datetime(2026, 1, 1, tzinfo=UTC)


def row(name: str, *locations: str, age: int = 0, sample: int | None = None, n: int = 3) -> dict[str, Any]:
    """A row of the register; a larger age was written later."""
    return {
        "name": name,
        "fingerprint": f"{age:016x}",
        "locations": list(locations),
        "sample": sample,
        "seed": None if sample is None else 0,
        "n_images": n,
        "n_captions": 2 * n,
        "written": START + timedelta(days=age),
    }


def test_a_path_means_what_was_last_read_from_it_however_it_is_written(
    coco_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = [row("three", str(coco_folder), age=1), row("three-old", str(coco_folder), age=0), row("x", "/x", age=2)]
    monkeypatch.chdir(coco_folder.parent)
    for written in (str(coco_folder), "./three", "three", "three/", f"{coco_folder}/../three"):
        assert stored_corpus(written, register)["name"] == "three"
    assert stored_corpus({"reader": "coco-captions", "root": "three"}, register)["name"] == "three"


def test_a_name_or_a_fingerprint_means_what_was_written_last_under_it() -> None:
    register = [row("ours", "/a", age=0), row("ours", "/b", age=1)]
    assert stored_corpus("ours", register)["locations"] == ["/b"]
    assert stored_corpus(f"{0:016x}", register)["locations"] == ["/a"]
    assert stored_corpus("/a", register)["locations"] == ["/a"], "a location means its own contents"


def test_a_run_with_a_sample_means_the_sample() -> None:
    register = [row("shapes", "shapes", n=300), row("shapes-sample20", "shapes", sample=20, n=20, age=1)]
    assert stored_corpus("shapes", register)["name"] == "shapes"
    assert stored_corpus("shapes", register, sample=20)["name"] == "shapes-sample20"
    assert stored_corpus("shapes-sample20", register, sample=20)["name"] == "shapes-sample20"
    assert stored_corpus("shapes", register, sample=400)["name"] == "shapes", "no more images than that"
    with pytest.raises(RequestError, match="did you mean 'shapes-sample20'"):
        stored_corpus("shapes", register[1:])


def test_all_unknown_names_come_together_with_the_nearest(coco_folder: Path) -> None:
    with pytest.raises(RequestError) as caught:
        stored_corpora(["phtos", str(coco_folder)], [row("photos", "/a/photos")], uri="/s")
    assert len(caught.value.faults) == 2
    assert caught.value.faults[0] == "corpus 'phtos' is not in the store /s; did you mean 'photos'? it holds photos"
    assert f"it holds photos. Run `capim embed --corpora {coco_folder}`" in caught.value.faults[1]


def test_a_stored_name_is_read_from_where_it_came(coco_folder: Path) -> None:
    described = '{"n_scenes":3,"name":"few","reader":"shapes"}'
    register = [row("three", "/gone", str(coco_folder)), row("few", described), row("s-sample5", "shapes", sample=5)]
    assert reading_of("three", register) == Reading(str(coco_folder), None, 0)
    assert reading_of("few", register) == Reading({"n_scenes": 3, "name": "few", "reader": "shapes"}, None, 0)
    assert reading_of("s-sample5", register) == Reading("shapes", 5, 0)
    assert reading_of("shapes", register, sample=2) == Reading("shapes", 2, 0)
    with pytest.raises(RequestError, match="'s-sample5' is a sample of 5 images"):
        reading_of("s-sample5", register, sample=2)


def test_own_data_of_one_name_are_told_apart_until_a_name_is_free(coco_folder: Path) -> None:
    corpus = open_corpus(coco_folder)
    folder = coco_folder.parent.name
    taken = [row("three", "/a/three")]
    reading = Reading(str(coco_folder))
    assert named_apart(corpus, reading, []).name == "three"
    assert named_apart(corpus, reading, [row("three")]).name == "three", "from no known place"
    apart = named_apart(corpus, reading, taken)
    assert apart.name.endswith("-three")
    assert apart.location == str(coco_folder)
    further = named_apart(corpus, reading, [*taken, row(apart.name, "/b/three", age=1)])
    assert further.name.endswith(f"-{apart.name}")
    assert folder[:8] in apart.name
    again = named_apart(corpus, reading, [*taken, row(apart.name, str(coco_folder), age=1)])
    assert again.name == apart.name
    sample = open_corpus(coco_folder, sample=2)
    drawn = named_apart(sample, Reading(str(coco_folder), 2), taken)
    assert (drawn.name, drawn.draw) == (f"{apart.name}-sample2", (2, 0))


def test_known_corpora_and_explicit_names_keep_their_names(coco_folder: Path) -> None:
    taken = [row("shapes", "/a"), row("ours", "/a", age=1)]
    shapes = open_corpus({"reader": "shapes", "n_scenes": 2})
    assert named_apart(shapes, Reading("shapes"), taken).name == "shapes"
    what = {"reader": "coco-captions", "root": str(coco_folder), "name": "ours"}
    assert named_apart(open_corpus(what), Reading(what), taken).name == "ours"


def test_equal_contents_in_another_place_are_the_same_corpus(coco_folder: Path) -> None:
    corpus = open_corpus(coco_folder)
    other = dataclasses.replace(corpus, name="a-three")
    stored = row("a-three", "/moved/a/three") | {"fingerprint": other.fingerprint, "n_captions": 6}
    assert named_apart(corpus, Reading(str(coco_folder)), [row("three", "/b/three", age=1), stored]).name == "a-three"


def test_a_location_is_absolute_and_a_description_has_absolute_paths(
    coco_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(coco_folder.parent)
    assert location_of("three") == str(coco_folder)
    assert str(coco_folder) in location_of({"reader": "coco-captions", "root": "three"})
