"""Corpora: images, captions and who belongs to whom. One file per reader, one row of ``CORPORA`` each.

A row's reader is a function of keyword options that returns a checked :class:`~store.types.Corpus`; it is imported
only when it is used, so this package costs nothing to import.
"""

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

    Attributes:
        title: One line for people.
        reader: ``module:function``, imported when used.
        languages: BCP-47 codes; empty where the user's files decide.
        licence: Of the captions and images, in a few words.
        size: Images and captions, in a few words.
        needs: What must be given or reached before it can be read.
        hub: The data set's id on the hub where it can be read from there.
        required: Options without which the reader cannot work (there is no hub copy).
    """

    title: str
    reader: str
    languages: tuple[str, ...] = ("en",)
    licence: str
    size: str
    needs: str = "nothing"
    hub: str | None = None
    required: tuple[str, ...] = ()


CORPORA: dict[str, CorpusEntry] = {
    "shapes": CorpusEntry(
        title="Rendered scenes of coloured shapes, five differently worded captions each",
        reader="tasks.corpora.readers.shapes:read_shapes",
        licence="Apache-2.0",
        size="300 images, 1,500 captions (any size)",
    ),
    "shapes-winoground": CorpusEntry(
        title="Pairs of scenes whose two captions use the same words",
        reader="tasks.corpora.readers.shapes:read_shapes_winoground",
        licence="Apache-2.0",
        size="300 quadruples, 600 images (any number)",
    ),
    "shapes-multilingual": CorpusEntry(
        title="Scenes captioned by templates in several languages, by two translators",
        reader="tasks.corpora.readers.shapes:read_shapes_multilingual",
        languages=("en", "de", "es", "fr", "it", "ru"),
        licence="Apache-2.0",
        size="200 images, one caption in each of 12 translations (any number)",
    ),
    "coco-karpathy": CorpusEntry(
        title="COCO, Karpathy's split, with CxC and ECCV Caption positives",
        reader="tasks.corpora.readers.coco_karpathy:read_coco_karpathy",
        licence="captions CC BY 4.0; images under their Flickr licences",
        size="test: 5,000 images, 25,010 captions; val: as large",
        needs="the hub and images.cocodataset.org; or root (captions file) and images (folder)",
        hub="yerevann/coco-karpathy",
    ),
    "flickr30k-karpathy": CorpusEntry(
        title="Flickr30k, Karpathy's split",
        reader="tasks.corpora.readers.flickr30k_karpathy:read_flickr30k_karpathy",
        licence="research only",
        size="test: 1,000 images, 5,000 captions",
        needs="the hub; or root (captions file) and images (folder)",
        hub="nlphuji/flickr_1k_test_image_text_retrieval",
    ),
    "winoground": CorpusEntry(
        title="Two images, two captions with the same words",
        reader="tasks.corpora.readers.winoground:read_winoground",
        licence="Winoground licence agreement (research)",
        size="400 quadruples, 800 images",
        needs="the hub, with its terms accepted at huggingface.co/datasets/facebook/winoground; or root (folder)",
        hub="facebook/winoground",
    ),
    "sugarcrepe": CorpusEntry(
        title="Captions against fluent hard negatives, seven categories",
        reader="tasks.corpora.readers.sugarcrepe:read_sugarcrepe",
        licence="MIT; images under their Flickr licences",
        size="7,511 pairs",
        needs="root (the seven files of github.com/RAIVNLab/sugar-crepe) and images (COCO val2017)",
        required=("root",),
    ),
    "aro": CorpusEntry(
        title="Attribution, relation and word order against a hard negative",
        reader="tasks.corpora.readers.aro:read_aro",
        licence="MIT; Visual Genome CC BY 4.0",
        size="relation 23,937 pairs, attribution 28,748; order: four per caption",
        needs="the hub; or root (folder) and images (Visual Genome)",
        hub="mteb/ARO-Visual-Relation",
    ),
    "crepe": CorpusEntry(
        title="Systematicity and productivity against several hard negatives",
        reader="tasks.corpora.readers.crepe:read_crepe",
        licence="MIT; Visual Genome CC BY 4.0",
        size="as many as the files given",
        needs="root (CSV files of github.com/RAIVNLab/CREPE) and images (Visual Genome)",
        required=("root",),
    ),
    "coco-sm": CorpusEntry(
        title="COCO's test captions in 21 languages by three translation systems",
        reader="tasks.corpora.readers.coco_sm:read_coco_sm",
        languages=(
            *("en", "ar", "de", "fr", "he", "hi", "hy", "id", "it", "ja", "ko"),
            *("fa", "pl", "pt", "ru", "es", "th", "tr", "uk", "vi", "zh"),
        ),
        licence="captions CC BY 4.0; images under their Flickr licences",
        size="4,993 images, 24,975 captions in each of 63 translations",
        needs="root (meta/ of github.com/unum-cloud/coco-sm) and images (COCO val2014)",
        required=("root",),
    ),
    "xflickrco": CorpusEntry(
        title="Human captions in 8 languages of Flickr30k and COCO images",
        reader="tasks.corpora.readers.xflickrco:read_xflickrco",
        languages=("en", "de", "es", "id", "ja", "ru", "tr", "zh"),
        licence="MIT; images under their Flickr licences",
        size="2,000 images, one caption in each language",
        needs="the hub; or root (jsonl files) and images (folders)",
        hub="mteb/xflickrco",
    ),
    "xtd10": CorpusEntry(
        title="Human captions in 11 languages of COCO images",
        reader="tasks.corpora.readers.xtd10:read_xtd10",
        languages=("en", "de", "es", "fr", "it", "ja", "ko", "pl", "ru", "tr", "zh"),
        licence="see the repository's LICENSE.md; images under their Flickr licences",
        size="1,000 images, one caption in each language",
        needs="root (github.com/adobe-research/Cross-lingual-Test-Dataset-XTD10) and images (COCO train2014)",
        required=("root",),
    ),
    "crossmodal3600": CorpusEntry(
        title="Photographs from around the world, human captions in 36 languages",
        reader="tasks.corpora.readers.crossmodal3600:read_crossmodal3600",
        languages=(
            *("en", "ar", "bn", "cs", "da", "de", "el", "es", "fa", "fi", "fil", "fr"),
            *("he", "hi", "hr", "hu", "id", "it", "ja", "ko", "mi", "nl", "no", "pl"),
            *("pt", "quz", "ro", "ru", "sv", "sw", "te", "th", "tr", "uk", "vi", "zh"),
        ),
        licence="captions CC BY 4.0; images CC BY 2.0",
        size="3,600 images, about two captions in each language",
        needs="the hub; or root (captions.jsonl and images/)",
        hub="mteb/xm3600",
    ),
    "multi30k": CorpusEntry(
        title="One Flickr30k caption per image with human German, French and Czech translations",
        reader="tasks.corpora.readers.multi30k:read_multi30k",
        languages=("en", "de", "fr", "cs"),
        licence="captions CC BY-NC-SA 4.0; images under their Flickr licences",
        size="1,000 images, one caption in each language",
        needs="root (github.com/multi30k/dataset) and images (Flickr30k)",
        required=("root",),
    ),
    "cc3m": CorpusEntry(
        title="Conceptual Captions, validation split: web images with their alternative text",
        reader="tasks.corpora.readers.cc3m:read_cc3m",
        licence="Google's terms for Conceptual Captions",
        size="about 13,000 images, one caption each",
        needs="the hub; or root (folder of webdataset shards)",
        hub="pixparse/cc3m-wds",
    ),
    "coco-captions": CorpusEntry(
        title="Own data: a folder of images with a COCO-format captions file",
        reader="tasks.corpora.readers.coco_captions:read_coco_captions",
        languages=(),
        licence="the user's",
        size="any",
        needs="root: the folder",
        required=("root",),
    ),
    "table": CorpusEntry(
        title="Own data: a CSV, TSV, JSONL or Parquet table of captions, pairs or quadruples",
        reader="tasks.corpora.readers.table:read_table",
        languages=(),
        licence="the user's",
        size="any",
        needs="root: the table or its folder",
        required=("root",),
    ),
    "webdataset": CorpusEntry(
        title="Own data: webdataset tar shards",
        reader="tasks.corpora.readers.webdataset:read_webdataset",
        languages=(),
        licence="the user's",
        size="any",
        needs="root: the folder of shards",
        required=("root",),
    ),
    "hub": CorpusEntry(
        title="Own data: any hub data set with named columns",
        reader="tasks.corpora.readers.hub_table:read_hub_table",
        languages=(),
        licence="the data set's",
        size="any",
        needs="dataset: its hub id (or a folder in the hub's layout)",
        required=("dataset",),
    ),
}


def open_corpus(
    what: str | Path | Mapping[str, object], *, sample: int | None = None, seed: int = 0, base: Path | None = None
) -> Corpus:
    """The corpus that is asked for, read and checked.

    Args:
        what: A name of ``CORPORA``; or a folder, captions file or TOML description; or what such a description
            holds: ``{"reader": "coco-captions", "root": "photos", "name": "mine"}``.
        sample: Only so many images, drawn with ``seed``, with all their captions.
        seed: Of the draw.
        base: Folder that relative paths in a mapping start from; the working folder unless given.

    Raises:
        RequestError: What is asked for is unknown, incomplete or faulty; lists every fault found.
    """
    from tasks.corpora.description import plan
    from tasks.corpora.subset import sample_corpus

    corpus = plan(what, base=base).read()
    return corpus if sample is None else sample_corpus(corpus, sample, seed=seed)
