"""The workspace that the report has to hold: ten encoders on five corpora, as people have them.

Nine encoders have vectors, drawn at random around the truth; the tenth is known by its answers alone. The figures are
made from them by the public steps, so that tests, intervals and slices are real; no model is run::

    PYTHONPATH=. python -m tests.reports.big_workspace FOLDER
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from capim.store import Corpus, EmbeddingStore, EncoderSpec
from capim.store.schema import StoredImage, texts
from capim.store.types import Modality
from capim.tasks.corpora.build import CaptionRow, ImageRow, QuadrupleRow, RelevanceRow, build_corpus
from capim.tasks.corpora.images.decode import image_sha
from tests.benchmarks.made import as_block, unit
from tests.command import command

DIM = 48  # of the truth
COLOURS = {"red": "rot", "blue": "blau", "green": "grün", "yellow": "gelb", "black": "schwarz", "orange": "orange"}
THINGS = {"circle": "Kreis", "square": "Quadrat", "bar": "Balken", "ring": "Ring"}
LANGUAGES = ("en", "de", "fr", "ja", "ar", "hi")


Picture: TypeAlias = tuple[str, tuple[str, str, str], bytes]
"""Hash, the words of what is to be seen (a colour, a thing, a second colour), and the file."""


class Model(NamedTuple):
    """How well a made-up model does: the noise of its vectors, and what languages and word order add to it."""

    dim: int
    noise: float
    foreign: float  # noise of languages that are not English; of German half of it
    binding: float  # how much of the difference of two captions in the same words it keeps


MODELS = {
    "inhouse-2026-10": Model(1024, 0.42, 0.05, 0.10),
    "jina-clip-v2": Model(1024, 0.422, 0.06, 0.12),
    "siglip2-so400m": Model(1152, 0.40, 0.25, 0.20),
    "metaclip2-h": Model(1024, 0.43, 0.15, 0.15),
    "dfn5b-h-378": Model(1024, 0.405, 0.9, 0.25),
    "laion-clip-h": Model(1024, 0.46, 1.2, 0.1),
    "openai-clip-l-336": Model(768, 0.52, 1.6, 0.05),
    "xlm-roberta-b32": Model(512, 0.58, 0.2, 0.0),
    "tiny-broken": Model(64, 6.0, 6.0, 0.0),
}
WITHOUT_VECTORS = "captioner-gpt"  # answers to the binding corpus alone


def make(workspace: Path, *, n_images: int = 1000, replicates: int = 1000) -> EmbeddingStore:
    """The workspace with corpora, vectors and answers, evaluated, compared and analysed; without a report.

    With fewer ``n_images`` and ``replicates`` it takes less time, and the page has as many figures.
    """
    store = EmbeddingStore.open(workspace / "store", create=True)
    rng = np.random.default_rng(0)
    pictures = [_picture(rng) for _ in range(n_images)]
    store.write_images(
        StoredImage(item=sha, sha=sha, width=160, height=120, thumbnail=drawn) for sha, _, drawn in pictures
    )
    made = (
        _captioned("photos", pictures, ["en"], 5),
        _captioned("shop-de", pictures[: n_images // 2], ["de"], 2),
        _captioned("six-languages", pictures[: n_images // 4], LANGUAGES, 1),
        _judged(pictures[: n_images // 4]),
        _binding(pictures[: 2 * (n_images // 5)]),
    )
    corpora = {corpus.name: (corpus, rng.normal(size=(corpus.images.num_rows, DIM))) for corpus in made}
    corpora["binding"][1][1::2] = corpora["binding"][1][::2] + 0.8 * rng.normal(size=(n_images // 5, DIM))
    for name, model in MODELS.items():
        spec = EncoderSpec(name=name, adapter="hf_dual", checkpoint=f"made-up/{name}", revision="a1", dim=model.dim)
        store.write_encoder(spec)
        for corpus, truth in corpora.values():
            store.write_corpus(corpus)
            _embed(store, spec, corpus, truth, model)
    answers = workspace / "answers.csv"
    answers.write_text(_answers(corpora["binding"][0], rng), encoding="utf-8")
    given = "--corpus binding --protocol winoground"
    command(f"import --outcomes {answers} --encoder {WITHOUT_VECTORS} {given}", workspace)
    for step in ("evaluate", f"compare --permutations {10 * replicates}", "analyse"):
        command(f"{step} --replicates {replicates}", workspace)
    return store


def _picture(rng: np.random.Generator) -> Picture:
    """A small photograph."""
    colour, second = (str(name) for name in rng.choice(list(COLOURS), 2, replace=False))
    thing = str(rng.choice(list(THINGS)))
    low = Image.fromarray(rng.integers(150, 255, (6, 8, 3), dtype=np.uint8)).resize(
        (160, 120), Image.Resampling.BICUBIC
    )
    pen, (x, y) = ImageDraw.Draw(low), rng.integers(10, 60, 2).tolist()
    box = (x, y, x + 50, y + 50) if thing != "bar" else (x, y, x + 90, y + 14)
    drawn = pen.rectangle if thing in ("square", "bar") else pen.ellipse
    drawn(box, fill=None if thing == "ring" else colour, outline=colour, width=8)
    pen.rectangle((120, 80, 150, 110), fill=second)
    pixels = np.asarray(low, dtype=np.int16) + rng.integers(-12, 12, (120, 160, 1), dtype=np.int16)
    target = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(target, "JPEG", quality=80)
    return image_sha(target.getvalue()), (colour, thing, second), target.getvalue()


def _images(pictures: Sequence[Picture]) -> list[ImageRow]:
    return [
        ImageRow(f"im{i:04d}", sha=sha, width=160, height=120, objects=sorted({words[1], f"{words[2]} box"}))
        for i, (sha, words, _) in enumerate(pictures)
    ]


def _captioned(name: str, pictures: Sequence[Picture], languages: Sequence[str], each: int) -> Corpus:
    forms = ("a {} {} and a {} box", "the {} {} is not far from a {} box", "two things: one {} {} and one {} box",
             "a {} {} on the left of a box that is {}", "there is a {} {}, behind it something {}")  # fmt: skip
    captions = []
    for i, (_, (colour, thing, second), _) in enumerate(pictures):
        for language in languages:
            for k in range(each):
                text = forms[k].format(colour, thing, second)
                if language != "en":
                    words = (COLOURS[colour], THINGS[thing], COLOURS[second])
                    text = "{} {}, dahinter ein Kasten in {}".format(*words) + (f" ({language})" * (language != "de"))
                    text += " im Angebot" * (k > 0)
                captions.append(CaptionRow(f"im{i:04d}-{language}-{k}", f"im{i:04d}", text, language=language))
    return build_corpus(name, _images(pictures), captions, source=None, licence="CC0-1.0")


def _judged(pictures: Sequence[Picture]) -> Corpus:
    """Every second page has a question, to which the page and the next one are relevant."""
    n = len(pictures) // 2
    captions = [CaptionRow(f"q{i:03d}", None, f"which page shows a {pictures[2 * i][1][0]} part?") for i in range(n)]
    grades = [("judged", "t2i", f"q{i:03d}", f"im{2 * i + more:04d}", 2 - more) for i in range(n) for more in (0, 1)]
    relevance = [RelevanceRow(*row) for row in grades]
    return build_corpus("manuals", _images(pictures), captions, source=None, relevance=relevance, licence="CC0-1.0")


def _binding(pictures: Sequence[Picture]) -> Corpus:
    captions, quadruples = [], []
    for i in range(0, len(pictures), 2):
        colour, thing, second = pictures[i][1]
        texts = (f"a {colour} {thing} and a {second} box", f"a {second} {thing} and a {colour} box")
        captions += [CaptionRow(f"c{i + k:04d}", f"im{i + k:04d}", text) for k, text in enumerate(texts)]
        ids = (f"im{i:04d}", f"im{i + 1:04d}", f"c{i:04d}", f"c{i + 1:04d}")
        quadruples.append(QuadrupleRow(f"b{i // 2:03d}", *ids, tags=[thing]))
    return build_corpus("binding", _images(pictures), captions, source=None, quadruples=quadruples, licence="CC0-1.0")


def _embed(store: EmbeddingStore, spec: EncoderSpec, corpus: Corpus, truth: NDArray[np.float64], model: Model) -> None:
    """The vectors of one model: the truth in a random basis of its own, with noise."""
    rng = np.random.default_rng([len(spec.name), model.dim, len(corpus.name)])
    basis = rng.normal(size=(DIM, model.dim)) / np.sqrt(DIM)
    place = {id_: i for i, id_ in enumerate(corpus.images["id"].to_pylist())}
    shared = np.random.default_rng(7)  # what is hard is hard for all
    if corpus.quadruples.num_rows:
        middle = (truth[::2] + truth[1::2]).repeat(2, axis=0) / 2
        truth = middle + (truth - middle) * (0.4 + model.binding)
    modalities: tuple[Modality, ...] = ("image", "caption")
    for modality in modalities:
        items = corpus.images if modality == "image" else corpus.captions
        ids = texts(items["id"])
        latent, scale = truth, np.full(len(ids), model.noise)
        if modality == "caption":
            own = items["image_id"].to_pylist()
            at = [place[image] if image is not None else 2 * i for i, image in enumerate(own)]
            far = {"en": 0.0, "de": 0.5}
            scale = scale + model.foreign * np.array([far.get(code, 1.0) for code in texts(items["language"])])
            latent = truth[at]
        hard = shared.gamma(4.0, 0.5, len(ids))[:, None] * shared.normal(size=latent.shape)
        noisy = latent + scale[:, None] * (0.8 * hard + rng.normal(size=latent.shape))
        values = unit(noisy @ basis).astype(np.float32)
        key = store.key(encoder=spec.fingerprint, corpus=corpus.fingerprint, modality=modality)
        store.put(key, spec, as_block(np.arange(len(ids), dtype=np.int32), values))
        store.seal(key)


def _answers(corpus: Corpus, rng: np.random.Generator) -> str:
    """Three of four answers to the quadruples are right, as CSV."""
    drawn = {id_: (rng.random(4) < 0.75).astype(int).tolist() for id_ in texts(corpus.quadruples["id"])}
    lines = [f"{id_},{','.join(map(str, of))}" for id_, of in drawn.items()]
    return "\n".join(["id,text_0,text_1,image_0,image_1", *lines, ""])


if __name__ == "__main__":
    make(Path(sys.argv[1]))
    print(command("report", Path(sys.argv[1])).page)
