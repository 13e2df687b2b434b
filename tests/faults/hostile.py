"""Captions and names of images by someone who means harm, or by nobody who looked: a folder, encoded and reported.

Text comes back as it was, and a report shows it as text. Malformed files of every command:
``tests/flows/test_malformed.py``; images: ``tests/corpora/test_images.py``; any bytes and any text: ``test_fuzz.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.faults.bad_texts import BAD_FILES, NAMES, TEXTS
from tests.faults.fault import Scene, expect, faults
from tests.faults.ground import refuse_damage


def write(folder: Path, texts: list[str]) -> Path:
    """A few scenes as PNG in a folder in COCO's form, with these captions in turn."""
    from capim.tasks.corpora.description import open_corpus

    corpus = open_corpus({"name": "plain", "reader": "shapes", "n_scenes": len(NAMES)})
    assert corpus.source is not None
    (folder / "images").mkdir(parents=True)
    for name, row in zip(NAMES, corpus.images.to_pylist(), strict=True):
        (folder / "images" / name).write_bytes(corpus.source.read(row["key"]))
    images = [{"id": number, "file_name": name} for number, name in enumerate(NAMES)]
    captions = [{"id": n, "image_id": n % len(NAMES), "caption": text} for n, text in enumerate(texts)]
    (folder / "captions.json").write_text(json.dumps({"images": images, "annotations": captions}))
    return folder


def hostile_texts(scene: Scene) -> str:
    """Texts come back as they were; neither the report nor the terminal does what they say."""
    scene.begin_from("whole")
    folder = write(scene.folder / "texts", TEXTS)
    to = ("--encoders", "tiny-clip", "--device", "cpu", "--quiet", "--workspace", scene.workspace)
    said = scene.capim("embed", "--corpora", str(folder), *to).must(0).err
    expect("items skipped" not in said, f"sound images were left out: {said[-600:]}")
    scene.capim("evaluate", "--corpora", folder.name, "--replicates", "200", *to).must(0)
    scene.run("report").must(0)
    refuse_damage(scene.capim, scene.workspace)
    query = "SELECT text FROM captions WHERE corpus = 'texts'"
    done = scene.capim("query", query, "--format", "json", "--workspace", scene.workspace).must(0)
    stored = sorted(row["text"] for row in json.loads(done.out))
    expect(stored == sorted(TEXTS), f"{len(set(TEXTS) - set(stored))} texts came back as others")
    shown = scene.capim("query", query, "--workspace", scene.workspace).must(0)
    expect(not any(ord(c) < 32 and c not in "\n\t" for c in shown.out), "control characters reached the terminal")
    newest = max(Path(scene.workspace, "reports").glob("*/report.html"), key=lambda path: path.stat().st_mtime)
    page = newest.read_text("utf-8")
    for code in ("<script>alert", "<img src=x", "<b onmouse"):
        expect(code not in page, f"{code} is part of the page's code")
    again = scene.capim("embed", "--corpora", str(folder), *to).must(0).err
    expect(": 0 items encoded" in again, "a second run encoded something again")
    return f"{len(TEXTS)} texts"


def refused(scene: Scene) -> str:
    """Folders that contradict themselves are refused with the reason, and the store stays as it was."""
    scene.begin_from("whole")
    for name, spoil in BAD_FILES.items():
        folder = write(scene.folder / name, TEXTS[-6:])
        spoil(folder / "captions.json")
        words = ("run", "--corpora", str(folder), "--encoders", "tiny-clip", "--workspace", scene.workspace)
        done = scene.capim(*words).must(2)
        expect(name in done.err, f"{name}: the message does not name the folder: {done.err[-500:]}")
        stored = scene.capim("query", "SELECT name FROM corpora", "--format", "json", "--workspace", scene.workspace)
        expect(name not in stored.must(0).out, f"{name} is in the store")
    return f"{len(BAD_FILES)} refused"


FAULTS = faults(
    "hostile inputs",
    {
        "captions and names that attack pages, terminals and SQL": hostile_texts,
        "folders that contradict themselves": refused,
    },
)
