"""Which stored corpus a name means: by location, by stored name, by the name that its reader would give."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from capim.store.errors import RequestError
from capim.store.schema import StoredCorpus
from capim.tasks.corpora import CORPORA, JUDGED_TASKS, named_elsewhere, pinned
from capim.tasks.corpora.description import open_corpus, reader_call
from capim.tasks.corpora.naming import (
    CorpusToRead,
    corpus_to_read,
    disambiguate,
    list_corpora,
    location_of,
    stored_corpora,
    stored_corpus,
)
from tests.corpora.own_data import refusal
from tests.documents import ROOT
from tests.random_store import row_of


def test_a_toml_file_describes_a_corpus_with_paths_from_its_own_folder(coco_folder: Path) -> None:
    description = coco_folder.parent / "my-photos.toml"
    description.write_text('reader = "coco-captions"\nroot = "three"\nlicence = "CC0"\n')
    corpus = open_corpus(description)
    assert (corpus.name, corpus.licence, corpus.images.num_rows) == ("my-photos", "CC0", 3)
    description.write_text('reader = "coco-captions"\nroot = "three"\nname = "other"\n')
    assert open_corpus(description, sample=2, seed=7).name == "other-sample2-seed7"
    (coco_folder / "corpus.toml").write_text('reader = "coco-captions"\nroot = "."\nname = "described"\n')
    assert open_corpus(coco_folder).name == "described"


def test_a_known_corpus_keeps_its_name_in_a_description_unless_given_another(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text('reader = "shapes"\nn_scenes = 3\n')
    assert open_corpus(tmp_path / "small.toml").name == "shapes"
    assert open_corpus({"reader": "shapes", "n_scenes": 3, "name": "mine"}).name == "mine"


def test_all_faults_of_a_description_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        'reader = "coco-captions"\nname = "a b"\ncaptions = 1\nimage = "photos"\nquux = 1\n'
    )
    message = refusal(tmp_path / "c.toml")
    for expected in (
        "name must be 1 to 120 ASCII letters, digits, '.', '_' or '-', the first a letter or digit, got 'a b'",
        "captions must be a path, got 1",
        "unknown option 'image' of reader 'coco-captions'; did you mean 'images'?",
        "unknown option 'quux' of reader 'coco-captions'; it takes name, root, images, captions",
        "missing option 'root'; reader 'coco-captions' needs root (the folder)",
    ):
        assert expected in message


XFLICKRCO = 'reader = "xflickrco"\nroot = "nowhere"\n'
TABLE = 'reader = "table"\nroot = "x.csv"\n'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('root = "."', "no reader is named; set reader to one of shapes"),
        ('reader = "csv"\nroot = "."', "reader 'csv' is unknown; set reader to one of shapes"),
        ("reader = ", "not TOML"),
        ('reader = "shapes"\nn_scenes = 0', "n_scenes must be greater than or equal to 1, got 0"),
        ('reader = "shapes-winoground"\nn_quadruples = 301', "n_quadruples must be less than or equal to 300, got 301"),
        (f'{XFLICKRCO}languages = "de"', "languages must be a list of texts, got 'de'"),
        (f'{XFLICKRCO}missing = "maybe"', "missing must be 'error' or 'skip', got 'maybe'"),
        (f"{XFLICKRCO}images = 3", "images must be a path or a list of paths, got 3"),
        (f"{XFLICKRCO}revision = 7", "revision must be text, got 7"),
        (f'{TABLE}ids_only = "yes"', "ids_only must be true or false, got 'yes'"),
        (f"{TABLE}columns = {{ image = 3 }}", "columns must be a table of texts, got {'image': 3}"),
    ],
)
def test_a_description_that_cannot_be_used_is_refused_before_anything_is_read(
    tmp_path: Path, content: str, expected: str
) -> None:
    (tmp_path / "c.toml").write_text(content)
    assert refusal(tmp_path / "c.toml").startswith(f"{tmp_path / 'c.toml'}: {expected}")


def test_unknown_names_and_paths_are_told_apart() -> None:
    assert "did you mean 'winoground'?" in refusal("winogroud")
    assert "or give a folder of images with captions, or a TOML file" in refusal("something")
    assert refusal("./nowhere").endswith(f"no such folder or file in {Path.cwd()}; check the path")
    assert "no such folder or file" in refusal("nowhere/c.toml")


def test_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("reader: shapes")
    assert "got .yaml" in refusal(tmp_path / "c.yaml")
    assert "no corpus found in it; looked for corpus.toml, captions.json" in refusal(tmp_path)


def test_the_list_names_for_every_corpus_what_it_is_and_what_it_needs() -> None:
    rows = {row["name"]: row for row in list_corpora()}
    assert list(rows) == list(CORPORA)
    assert rows["shapes"]["needs"] == "nothing"
    assert rows["coco-sm"]["languages"] == "21 languages"
    assert rows["table"]["languages"] == "any"
    assert all(all(row.values()) for row in rows.values())
    assert rows["winoground"]["revision"] == pinned("facebook/winoground")
    assert (rows["bivlc"]["revision"], rows["docci"]["revision"]) == ("unpinned", "not on the hub")
    assert rows["Vidore3FinanceEnRetrieval"]["domain"] == "documents: financial"
    assert rows["Vidore3FinanceEnRetrieval"]["size"] == "2,942 pages, 309 queries, each of 6 languages"
    assert rows["MIRACLVisionRetrieval-de"]["size"] == "6,302 pages, 128 queries"  # and one with the text of another
    assert rows["NanoViDoRe3"]["size"] == "no published counts"


def test_a_commit_of_a_corpus_has_a_source_and_no_source_stands_without_a_commit() -> None:
    for name, entry in CORPORA.items():
        assert bool(entry.revisions) == (entry.pinned_by != "nobody"), name
        assert re.fullmatch(r"mteb|nobody|github\.com/[\w.-]+/[\w.-]+, \S+", entry.pinned_by), name
        assert all(re.fullmatch(r"[0-9a-f]{40}", commit) for commit in entry.revisions.values()), name
    assert {name for name, entry in CORPORA.items() if entry.hub and not entry.revisions} == {
        *("coco-karpathy", "bivlc", "NanoViDoRe3")
    }


@pytest.mark.slow  # the import of mteb
def test_commits_and_facts_of_mtebs_tasks_are_those_of_the_installed_mteb() -> None:
    mteb = pytest.importorskip("mteb")
    every = mteb.get_tasks(exclude_superseded=False, exclude_private=False)
    tasks = {task.metadata.name: task.metadata for task in every}
    commits = {of.dataset["path"]: of.dataset["revision"] for of in tasks.values() if "path" in of.dataset}
    for name, entry in CORPORA.items():
        if entry.pinned_by == "mteb":
            assert entry.revisions == {path: commits[path] for path in entry.revisions}, name
    for name, task in JUDGED_TASKS.items():
        if (of := tasks.get(task.task)) is not None:
            assert task.licence == {"not specified": "unknown"}.get(of.license, of.license), name
            assert task.domain == ", ".join(of.domains).lower(), name
            assert task.citation == of.reference, name
    assert {task.task for task in JUDGED_TASKS.values()} - tasks.keys() == {"NanoViDoRe3"}


START = datetime(2026, 1, 1, tzinfo=UTC)


def row(name: str, *locations: str, age: int = 0, sample: int | None = None, n: int = 3, **others: Any) -> StoredCorpus:
    """A row of the register; a larger age was written later."""
    counts = {"sample": sample, "seed": None if sample is None else 0, "n_images": n, "n_captions": 2 * n}
    identity = {"name": name, "fingerprint": f"{age:016x}", "locations": list(locations)}
    return row_of(StoredCorpus, **{**identity, **counts, "written": START + timedelta(days=age), **others})


def test_a_path_means_what_was_last_read_from_it_however_it_is_written(
    coco_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = [row("three", str(coco_folder), age=1), row("three-old", str(coco_folder), age=0), row("x", "/x", age=2)]
    monkeypatch.chdir(coco_folder.parent)
    for written in (str(coco_folder), "./three", "three", "three/", f"{coco_folder}/../three"):
        assert stored_corpus(written, register).name == "three"
    described = {"reader": "coco-captions", "root": "three"}
    assert stored_corpus(described, register).name == "three"
    assert location_of("three") == str(coco_folder)
    assert str(coco_folder) in location_of(described)


def test_a_name_or_a_fingerprint_means_what_was_written_last_under_it() -> None:
    register = [row("ours", "/a", age=0), row("ours", "/b", age=1)]
    assert stored_corpus("ours", register).locations == ["/b"]
    assert stored_corpus(f"{0:016x}", register).locations == ["/a"]
    assert stored_corpus("/a", register).locations == ["/a"], "a location means its own contents"


def test_a_run_with_a_sample_means_the_sample() -> None:
    register = [row("shapes", "shapes", n=300), row("shapes-sample20", "shapes", sample=20, n=20, age=1)]
    assert stored_corpus("shapes", register).name == "shapes"
    assert stored_corpus("shapes", register, sample=20).name == "shapes-sample20"
    assert stored_corpus("shapes-sample20", register, sample=20).name == "shapes-sample20"
    assert stored_corpus("shapes", register, sample=400).name == "shapes", "no more images than that"
    with pytest.raises(RequestError, match="did you mean 'shapes-sample20'"):
        stored_corpus("shapes", register[1:])


def test_all_unknown_names_come_together_with_the_nearest(coco_folder: Path) -> None:
    with pytest.raises(RequestError) as caught:
        stored_corpora(["phtos", str(coco_folder)], [row("photos", "/a/photos")], uri="/s")
    assert len(caught.value.faults) == 2
    assert caught.value.faults[0] == "corpus 'phtos' is not in the store /s; did you mean 'photos'? it holds photos"
    assert f"it holds photos. Run `capim embed --corpora {coco_folder}`" in caught.value.faults[1]
    with pytest.raises(RequestError, match=r"it holds none\. Run `capim embed SUITE\.toml` with an encoder first"):
        stored_corpus({"reader": "coco-captions", "root": str(coco_folder), "name": "ours"}, [])


def test_a_stored_name_is_read_from_where_it_came(coco_folder: Path) -> None:
    described = '{"n_scenes":3,"name":"few","reader":"shapes"}'
    register = [row("three", "/gone", str(coco_folder)), row("few", described), row("s-sample5", "shapes", sample=5)]
    assert corpus_to_read("three", register) == CorpusToRead(str(coco_folder), None, 0)
    assert corpus_to_read("few", register) == CorpusToRead({"n_scenes": 3, "name": "few", "reader": "shapes"}, None, 0)
    assert corpus_to_read("s-sample5", register) == CorpusToRead("shapes", 5, 0)
    assert corpus_to_read("shapes", register, sample=2) == CorpusToRead("shapes", 2, 0)
    with pytest.raises(RequestError, match="'s-sample5' is a sample of 5 images"):
        corpus_to_read("s-sample5", register, sample=2)
    with pytest.raises(
        RequestError, match="5 images with seed 0; 5 cannot be drawn from it with seed 1: leave --sample"
    ):
        corpus_to_read("s-sample5", register, sample=5, seed=1)


def test_own_data_of_one_name_are_told_apart_until_a_name_is_free(coco_folder: Path) -> None:
    corpus = open_corpus(coco_folder)
    folder = coco_folder.parent.name
    taken = [row("three", "/a/three")]
    reading = CorpusToRead(str(coco_folder))
    assert disambiguate(corpus, reading, []).name == "three"
    assert disambiguate(corpus, reading, [row("three")]).name == "three", "from no known place"
    apart = disambiguate(corpus, reading, taken)
    assert apart.name.endswith("-three")
    assert apart.location == str(coco_folder)
    further = disambiguate(corpus, reading, [*taken, row(apart.name, "/b/three", age=1)])
    assert further.name.endswith(f"-{apart.name}")
    assert folder[:8] in apart.name
    again = disambiguate(corpus, reading, [*taken, row(apart.name, str(coco_folder), age=1)])
    assert again.name == apart.name
    sample = open_corpus(coco_folder, sample=2)
    drawn = disambiguate(sample, CorpusToRead(str(coco_folder), 2), taken)
    assert (drawn.name, drawn.draw) == (f"{apart.name}-sample2", (2, 0))


def test_known_corpora_and_explicit_names_keep_their_names(coco_folder: Path) -> None:
    taken = [row("shapes", "/a"), row("ours", "/a", age=1)]
    shapes = open_corpus({"reader": "shapes", "n_scenes": 2})
    assert disambiguate(shapes, CorpusToRead("shapes"), taken).name == "shapes"
    what = {"reader": "coco-captions", "root": str(coco_folder), "name": "ours"}
    assert disambiguate(open_corpus(what), CorpusToRead(what), taken).name == "ours"


def test_equal_contents_in_another_place_are_the_same_corpus(coco_folder: Path) -> None:
    corpus = open_corpus(coco_folder)
    other = dataclasses.replace(corpus, name="a-three")
    stored = row("a-three", "/moved/a/three", fingerprint=other.fingerprint, n_captions=6)
    register = [row("three", "/b/three", age=1), stored]
    assert disambiguate(corpus, CorpusToRead(str(coco_folder)), register).name == "a-three"


def test_names_of_other_tools_lead_to_a_corpus_and_say_what_differs() -> None:
    tasks = tomllib.loads((ROOT / "reports" / "exports" / "mteb_tasks.toml").read_text(encoding="utf-8"))
    names = [name for corpus, each in tasks.items() if corpus in CORPORA for name in each.get("tasks", {})]
    assert [name for name in names if name not in CORPORA and not named_elsewhere(name)] == []
    for entry in CORPORA.values():
        assert all(named_elsewhere(name) for name in (*entry.known_as, *filter(None, [entry.hub])))
    with pytest.raises(
        RequestError, match=r"vidore/docvqa_test_subsampled is VidoreDocVQARetrieval here: --corpora Vid"
    ):
        reader_call("vidore/docvqa_test_subsampled")
    with pytest.raises(RequestError, match=r"MSCOCOT2IRetrieval is coco-karpathy here \(mteb's tasks have 24,809"):
        reader_call("MSCOCOT2IRetrieval")
