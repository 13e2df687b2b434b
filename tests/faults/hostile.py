"""Images and captions by someone who means harm, or by nobody who looked: a folder of the reader's own, encoded.

What cannot be decoded is left out and listed, and all else is as if it had never been there; text comes back as it
was, and a report shows it as text. Malformed files of every command: ``tests/flows/test_malformed.py``; any bytes and
any text: ``test_fuzz.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.faults.bad_files import BAD_IMAGES, ODD_IMAGES, SAME_IMAGES
from tests.faults.bad_texts import BAD_FILES, TEXTS
from tests.faults.fault import Scene, expect, faults
from tests.faults.ground import refuse_damage

N_SCENES = 6


def pictures() -> dict[str, bytes]:
    """A few scenes as PNG."""
    from capim.tasks.corpora.description import open_corpus

    corpus = open_corpus({"name": "plain", "reader": "shapes", "n_scenes": N_SCENES})
    assert corpus.source is not None
    rows = corpus.images.to_pylist()
    return {f"{row['id']}.png": corpus.source.read(row["key"]) for row in rows}


def write(folder: Path, images: dict[str, bytes], texts: dict[str, list[str]] | None = None) -> Path:
    """A folder in COCO's form; without texts two captions for every image."""
    (folder / "images").mkdir(parents=True)
    annotations: list[dict[str, Any]] = []
    for number, (name, data) in enumerate(images.items()):
        (folder / "images" / name).write_bytes(data)
        for text in (texts or {}).get(name, [f"a picture, number {number}", f"number {number} again"]):
            annotations.append({"id": len(annotations), "image_id": number, "caption": text})
    listed = [{"id": number, "file_name": name} for number, name in enumerate(images)]
    (folder / "captions.json").write_text(json.dumps({"images": listed, "annotations": annotations}))
    return folder


def run(scene: Scene, folder: Path, *, report: bool = False) -> str:
    """Encode and score a folder in the workspace, beside the suite's corpora; what the encode said."""
    to = ("--device", "cpu", "--quiet", "--workspace", scene.workspace)
    said = scene.capim("embed", "--corpora", str(folder), "--encoders", "tiny-clip", *to).must(0).err
    whose = ("--corpora", folder.name, "--encoders", "tiny-clip", "--replicates", "200")
    scene.capim("evaluate", *whose, *to).must(0)
    if report:
        scene.capim("report", "--quiet", "--workspace", scene.workspace).must(0)
    return said


def rows(scene: Scene, folder: Path) -> dict[tuple[str, str], tuple[object, ...]]:
    """Value and interval by protocol and metric."""
    words = ("results", "--workspace", scene.workspace, "--format", "json", "--corpus", folder.name)
    found = json.loads(scene.capim(*words).must(0).out)
    return {(row["protocol"], row["metric"]): (row["value"], row["ci_low"], row["ci_high"]) for row in found}


def beside(scene: Scene, good: dict[str, bytes], others: dict[str, bytes]) -> str:
    """Both folders give the same figures; what the encode of the others said."""
    scene.begin_from("whole")
    plain, other = write(scene.folder / "plain", good), write(scene.folder / "other", others)
    run(scene, plain)
    said = run(scene, other)
    expect(rows(scene, plain) == rows(scene, other) != {}, "the others have other figures")
    return said


def bad_images(scene: Scene) -> str:
    """Undecodable images are left out and counted; the figures are those of a folder without them."""
    good = pictures()
    said = beside(scene, good, {**good, **{name: make() for name, make in BAD_IMAGES.items()}})
    expect(f"{len(BAD_IMAGES)} items skipped" in said, f"not all were left out: {said[-600:]}")
    return f"{len(BAD_IMAGES)} left out and listed"


def same_images(scene: Scene) -> str:
    """The same pixels in other clothes give the same figures: formats, palettes, rotations, names."""
    good = pictures()
    kinds = zip(SAME_IMAGES.items(), good.values(), strict=True)
    said = beside(scene, good, {odd_name: clothe(data) for (odd_name, clothe), data in kinds})
    expect("items skipped" not in said, f"sound images were left out: {said[-600:]}")
    return f"{len(SAME_IMAGES)} kinds"


def odd_images(scene: Scene) -> str:
    """Odd but sound images are encoded."""
    scene.begin_from("whole")
    odd = write(scene.folder / "odd", {name: make() for name, make in ODD_IMAGES.items()})
    said = run(scene, odd)
    expect("items skipped" not in said, f"sound images were left out: {said[-600:]}")
    refuse_damage(scene.capim, scene.workspace)
    return f"{len(ODD_IMAGES)} encoded"


def hostile_texts(scene: Scene) -> str:
    """Texts come back as they were; neither the report nor the terminal does what they say."""
    scene.begin_from("whole")
    images = pictures()
    texts = {name: TEXTS[number :: len(images)] for number, name in enumerate(images)}
    folder = write(scene.folder / "texts", images, texts)
    run(scene, folder, report=True)
    refuse_damage(scene.capim, scene.workspace)
    query = "SELECT text FROM captions WHERE corpus = 'texts'"
    done = scene.capim("query", query, "--format", "json", "--workspace", scene.workspace).must(0)
    stored = sorted(row["text"] for row in json.loads(done.out))
    expect(stored == sorted(TEXTS), f"{len(set(TEXTS) - set(stored))} texts came back as others")
    shown = scene.capim("query", query, "--workspace", scene.workspace).must(0)
    expect(not any(ord(c) < 32 and c not in "\n\t" for c in shown.out), "control characters reached the terminal")
    newest = max(Path(scene.workspace, "reports").glob("*/report.html"), key=lambda path: path.stat().st_mtime)
    page = newest.read_text("utf-8")
    expect("<script>alert" not in page and "<img src=x" not in page, "a caption is part of the page's code")
    expect(": 0 items encoded" in run(scene, folder), "a second run encoded something again")
    return f"{len(TEXTS)} texts"


def refused(scene: Scene) -> str:
    """Folders that contradict themselves are refused with the reason, and the store stays as it was."""
    scene.begin_from("whole")
    for name, spoil in BAD_FILES.items():
        folder = write(scene.folder / name, pictures())
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
        "images that cannot be decoded": bad_images,
        "the same pixels in other formats, turned, under odd names": same_images,
        "CMYK, 16 bits, animated, one pixel": odd_images,
        "captions that attack pages, terminals and SQL": hostile_texts,
        "folders that contradict themselves": refused,
    },
)
