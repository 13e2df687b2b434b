"""The table of corpora, and :func:`open_corpus`, which reads one of them or a corpus of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store.types import Corpus


@dataclass(frozen=True, kw_only=True)
class CorpusEntry:
    """One row of the table of corpora.

    The reader of corpus ``a-b`` is the function ``read_a_b`` in ``readers/a_b.py``; it takes keyword options and
    returns a checked :class:`~store.types.Corpus`. Its module is imported only when the corpus is read.

    Attributes:
        title: One line that describes the corpus.
        size: Number of images and captions, in words.
        languages: BCP-47 codes of the captions; empty if the user's files decide.
        licence: Licence of the captions and images.
        needs: What the user has to provide before the corpus can be read.
        hub: Id of the data set on the Hugging Face hub; empty if it cannot be read from there.
        module: Name of the reader's module in ``readers/`` where it is not that of the corpus.
    """

    title: str
    size: str = "any"
    languages: tuple[str, ...] = ("en",)
    licence: str = "the user's"
    needs: str = "nothing"
    hub: str = ""
    module: str = ""


CORPORA: dict[str, CorpusEntry] = {
    "shapes": CorpusEntry(
        title="Rendered scenes of coloured shapes, five differently worded captions each",
        size="300 images, 1,500 captions (any size)",
        licence="Apache-2.0",
    ),
    "shapes-winoground": CorpusEntry(
        title="Pairs of scenes whose two captions use the same words",
        size="300 quadruples, 600 images (any number)",
        licence="Apache-2.0",
        module="shapes",
    ),
    "shapes-multilingual": CorpusEntry(
        title="Scenes captioned by templates in several languages, by two translators",
        size="200 images, one caption in each of 12 translations (any number)",
        languages=("en", "de", "es", "fr", "it", "ru"),
        licence="Apache-2.0",
        module="shapes",
    ),
    "coco-karpathy": CorpusEntry(
        title="COCO, Karpathy's split, with CxC and ECCV Caption positives",
        size="test: 5,000 images, 25,010 captions; val: as large",
        licence="captions CC BY 4.0; images under their Flickr licences",
        needs="the hub and images.cocodataset.org; or root (captions file) and images (folder)",
        hub="yerevann/coco-karpathy",
    ),
    "flickr30k-karpathy": CorpusEntry(
        title="Flickr30k, Karpathy's split",
        size="test: 1,000 images, 5,000 captions",
        licence="research only: https://shannon.cs.illinois.edu/DenotationGraph/",
        needs="the hub; or root (captions file) and images (folder)",
        hub="nlphuji/flickr_1k_test_image_text_retrieval",
    ),
    "winoground": CorpusEntry(
        title="Two images, two captions with the same words",
        size="400 quadruples, 800 images",
        licence="Winoground licence agreement (research; images Getty Images)",
        needs="the hub, with its terms accepted at huggingface.co/datasets/facebook/winoground; or root (folder)",
        hub="facebook/winoground",
    ),
    "sugarcrepe": CorpusEntry(
        title="Captions against fluent hard negatives, seven categories",
        size="7,511 pairs",
        licence="MIT; images under their Flickr licences",
        needs="root (the seven files of github.com/RAIVNLab/sugar-crepe) and images (COCO val2017)",
    ),
    "aro": CorpusEntry(
        title="Attribution, relation and word order against a hard negative",
        size="relation 23,937 pairs, attribution 28,748; order: four per caption",
        licence="MIT; Visual Genome CC BY 4.0",
        needs="the hub; or root (folder) and images (Visual Genome)",
        hub="mteb/ARO-Visual-Relation",
    ),
    "crepe": CorpusEntry(
        title="Systematicity and productivity against several hard negatives",
        size="as many as the files given",
        licence="MIT; Visual Genome CC BY 4.0",
        needs="root (CSV files of github.com/RAIVNLab/CREPE) and images (Visual Genome)",
    ),
    "coco-sm": CorpusEntry(
        title="COCO's test captions in 21 languages by three translation systems",
        size="4,993 images, 24,975 captions in each of 63 translations",
        languages=(
            *("en", "ar", "de", "fr", "he", "hi", "hy", "id", "it", "ja", "ko"),
            *("fa", "pl", "pt", "ru", "es", "th", "tr", "uk", "vi", "zh"),
        ),
        licence="captions CC BY 4.0; images under their Flickr licences",
        needs="root (meta/ of github.com/unum-cloud/coco-sm) and images (COCO val2014)",
    ),
    "xflickrco": CorpusEntry(
        title="Human captions in 8 languages of Flickr30k and COCO images",
        size="2,000 images, one caption in each language",
        languages=("en", "de", "es", "id", "ja", "ru", "tr", "zh"),
        licence="MIT; images under their Flickr licences",
        needs="the hub; or root (jsonl files) and images (folders)",
        hub="mteb/xflickrco",
    ),
    "xtd10": CorpusEntry(
        title="Human captions in 11 languages of COCO images",
        size="1,000 images, one caption in each language",
        languages=("en", "de", "es", "fr", "it", "ja", "ko", "pl", "ru", "tr", "zh"),
        licence="captions as in the repository's LICENSE.md; images under their Flickr licences",
        needs="root (github.com/adobe-research/Cross-lingual-Test-Dataset-XTD10) and images (COCO train2014)",
    ),
    "crossmodal3600": CorpusEntry(
        title="Photographs from around the world, human captions in 36 languages",
        size="3,600 images, about two captions in each language",
        languages=(
            *("en", "ar", "bn", "cs", "da", "de", "el", "es", "fa", "fi", "fil", "fr"),
            *("he", "hi", "hr", "hu", "id", "it", "ja", "ko", "mi", "nl", "no", "pl"),
            *("pt", "quz", "ro", "ru", "sv", "sw", "te", "th", "tr", "uk", "vi", "zh"),
        ),
        licence="captions CC BY 4.0; images CC BY 2.0",
        needs="the hub; or root (captions.jsonl and images/)",
        hub="mteb/xm3600",
    ),
    "multi30k": CorpusEntry(
        title="One Flickr30k caption per image with human German, French and Czech translations",
        size="1,000 images, one caption in each language",
        languages=("en", "de", "fr", "cs"),
        licence="captions CC BY-NC-SA 4.0; images under their Flickr licences",
        needs="root (github.com/multi30k/dataset) and images (Flickr30k)",
    ),
    "cc3m": CorpusEntry(
        title="Conceptual Captions, validation split: web images with their alternative text",
        size="about 13,000 images, one caption each",
        licence="captions: Google's terms for Conceptual Captions; images under their owners' licences",
        needs="the hub; or root (folder of webdataset shards)",
        hub="pixparse/cc3m-wds",
    ),
    "coco-captions": CorpusEntry(
        title="Own data: a folder of images with a COCO-format captions file",
        languages=(),
        needs="root (the folder)",
    ),
    "table": CorpusEntry(
        title="Own data: a CSV, TSV, JSONL or Parquet table of captions, pairs or quadruples",
        languages=(),
        needs="root (the table or its folder)",
    ),
    "webdataset": CorpusEntry(
        title="Own data: webdataset tar shards",
        languages=(),
        needs="root (the folder of shards)",
    ),
    "hub": CorpusEntry(
        title="Own data: any hub data set with named columns",
        languages=(),
        licence="the data set's",
        needs="dataset (its hub id, or a folder in the hub's layout)",
        module="hub_table",
    ),
}


def open_corpus(
    what: str | Path | Mapping[str, object], *, sample: int | None = None, seed: int = 0, base: Path | None = None
) -> Corpus:
    """Read and check one corpus.

    Args:
        what: A name of ``CORPORA``; or the path of a folder, captions file or TOML description; or the contents of
            such a description: ``{"reader": "coco-captions", "root": "photos", "name": "holidays"}``.
        sample: Number of images to draw, with all their captions; all images unless given.
        seed: Random seed of the draw.
        base: Folder that relative paths start from; the working folder unless given.

    Raises:
        RequestError: The corpus is unknown, incomplete or faulty; lists every fault found.
    """
    from tasks.corpora.description import reader_call
    from tasks.corpora.subset import sample_corpus

    corpus = reader_call(what, base=base).read()
    return corpus if sample is None else sample_corpus(corpus, sample, seed=seed)
