"""Many imports at once: which files belong to which encoder and corpus."""

from __future__ import annotations

import pytest

from capim.store import RequestError
from capim.store.sets.embedding_files import ImportRow, read_manifest, rows_of_folder


def test_a_manifest_counts_paths_from_its_folder(tmp_path):
    (tmp_path / "own.toml").touch()
    file = tmp_path / "sets.toml"
    file.write_text(
        '[[set]]\nencoder = "a"\ncorpus = "toy"\nimages = "in/i.npy"\nrevision = "v1"\nnote = "x"\n'
        '[[set]]\nencoder = "b"\ncorpus = "own.toml"\ncaptions = "c.npy"\n'
    )
    assert read_manifest(file) == [
        ImportRow(encoder="a", corpus="toy", images=str(tmp_path / "in/i.npy"), revision="v1", note="x"),
        ImportRow(encoder="b", corpus=str(tmp_path / "own.toml"), captions=str(tmp_path / "c.npy")),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", "not valid TOML"),
        ("", r"expected at least one table \[\[set\]\] with encoder, corpus, images"),
        ('[[sets]]\nencoder = "a"\n', "unknown table or field 'sets'"),
        (
            '[[set]]\nencodr = "a"\ncorpus = 3\n',
            "set 1: field 'encodr' is unknown[^@]*encoder' is missing[^@]*'images', 'captions' or both[^@]*text, got 3",
        ),
    ],
)
def test_a_wrong_manifest_is_named_with_all_faults(tmp_path, text, message):
    (tmp_path / "sets.toml").write_text(text)
    with pytest.raises(RequestError, match=message):
        read_manifest(tmp_path / "sets.toml")


def test_a_folder_has_a_folder_per_encoder_and_corpus(tmp_path):
    for encoder, corpus in (("a", "toy"), ("b", "toy"), ("a", "second")):
        (tmp_path / encoder / corpus).mkdir(parents=True)
        (tmp_path / encoder / corpus / "images.npy").touch()
    (tmp_path / "a" / "toy" / "captions.csv").touch()
    (tmp_path / "README.md").touch()
    rows = rows_of_folder(tmp_path)
    assert [(row.encoder, row.corpus) for row in rows] == [("a", "second"), ("a", "toy"), ("b", "toy")]
    assert rows[1].captions == str(tmp_path / "a" / "toy" / "captions.csv")
    (tmp_path / "b" / "toy" / "images.npz").touch()
    (tmp_path / "b" / "empty").mkdir()
    with pytest.raises(RequestError, match=r"empty has no images or captions[^@]*several files of images: images\.np"):
        rows_of_folder(tmp_path)
    with pytest.raises(RequestError, match="is not a folder"):
        rows_of_folder(tmp_path / "none")
