"""A package that adds an encoder, a corpus, a protocol, a metric, an analysis and a section; a model to copy."""

from __future__ import annotations

import io
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from PIL import Image

from capim.reports import format as show
from capim.reports.elements.page import Evidence, Section
from capim.tasks.analyses.analysis import part_slices
from capim.tasks.analyses.table import Analysis
from capim.tasks.corpora import CorpusEntry
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.encoders import Adapter
from capim.tasks.metrics import Metric
from capim.tasks.metrics.metric import RETRIEVAL, decided
from capim.tasks.protocols import Protocol, ProtocolRule
from capim.tasks.ranking.tasks import own_items

COLOURS = {"red": (220, 30, 30), "green": (30, 160, 50), "blue": (30, 60, 210), "gold": (230, 190, 20)}
ROW = {"dim": 4, "title": "Mean colour, and the colours that a caption names", "licence": "CC0-1.0", "parameters": 0}
ADAPTER = Adapter(title="models of the colour alone", options=("caption_template", "spread"), encoders={"swatch": ROW})
CORPUS = CorpusEntry(title="Plain colours, each with its name", size="4 images, 4 captions", licence="CC0-1.0")


class MeanColour:
    def __init__(self, spread: float) -> None:
        self.spread = spread  # of the fourth component, by which captions without a colour differ

    def encode_images(self, images: list[Image.Image]) -> np.ndarray:
        return np.array([[*np.asarray(image).mean(axis=(0, 1)) / 255, 0.1] for image in images])

    def encode_captions(self, texts: list[str]) -> np.ndarray:
        return np.array([[*self.named(text), 0.1 + self.spread * crc32(text.encode()) / 2**32] for text in texts])

    def named(self, text: str) -> np.ndarray:
        return np.mean([rgb for name, rgb in COLOURS.items() if name in text] or [(128,) * 3], axis=0) / 255


def load(spec, *, device: str, trust_remote_code: bool) -> MeanColour:
    """The model of an encoder; whatever it needs is imported here, so that `capim list` stays quick."""
    return MeanColour(float(spec.options.get("spread", 0.1)))


@dataclass(frozen=True)
class Painted:
    def read(self, key: str) -> bytes:
        if key not in COLOURS:
            raise FileNotFoundError(key)
        buffer = io.BytesIO()
        Image.new("RGB", (32, 24), COLOURS[key]).save(buffer, format="PNG")
        return buffer.getvalue()


def read_swatches():
    """One image of every colour.

    Raises:
        RequestError: Never; readers of files name the file here.
    """
    images, captions = (
        [ImageRow(name, name) for name in COLOURS],
        [CaptionRow(f"{n}#0", n, f"all {n}") for n in COLOURS],
    )
    return build_corpus("swatches", images, captions, source=Painted(), licence="CC0-1.0", origin="painted")


def warm_captions(layout, protocol):
    """The task of the captions that name a warm colour; they search all images."""
    task = own_items(layout, protocol)
    texts = layout.corpus.captions["text"].to_pylist()
    return task.of_queries(np.flatnonzero([any(w in texts[q] for w in ("red", "gold")) for q in task.query_ords]))


WARM = ProtocolRule(
    protocol=Protocol("t2i/warm", "t2i", "retrieval", "warm", description="Captions of warm colours search all images"),
    build=warm_captions,
    obstacle=lambda layout: None if layout.corpus.name == "swatches" else "its captions name no colours",
)


def left_behind(outcomes, ties):
    """One value per query: the share of the other items that the first relevant one leaves behind; 1 is best."""
    bounds = decided(outcomes, ties)  # with "expected", the middle between all ties lost and all ties won
    return 1 - ((bounds.rank_best + bounds.rank_worst) / 2 - 1) / (outcomes.n_gallery - 1)


LEFT_BEHIND = Metric(
    name="left_behind", title="items left behind", bounds=(0, 1), directions=RETRIEVAL, values=left_behind
)


def warmth(data):
    """The metric of the captions that name a warm colour, and of the others."""
    texts = data.corpus.captions["text"].take(data.queries.query_ords).to_pylist()
    warm = np.array([any(word in text for word in ("red", "gold")) for text in texts])
    return part_slices(data, "warmth", {("warm", ""): warm, ("cold", ""): ~warm}, metric=data.metric)


WARMTH = Analysis("warmth", warmth, {"warmth": "Warm and cold colours"}, directions=frozenset({"t2i"}), of_parts=True)


def section(data):
    """The metric in words; a section without blocks is not shown."""
    rows = [row for row in data.results if row.metric == "left_behind"]
    lines = tuple(f"{r.encoder} on {r.corpus}, {r.protocol}: {show.number(r.value, 2)}" for r in rows)
    return Section(
        id="left-behind", title="Items left behind", lead="1 is best.", blocks=(Evidence(lines=lines),) * bool(rows)
    )
