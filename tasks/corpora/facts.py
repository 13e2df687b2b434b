"""Counts that describe a corpus: items, languages, duplicates, annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from capim.store.schema import JUDGED
from capim.store.types import Corpus


@dataclass(frozen=True, kw_only=True)
class CorpusFacts:
    """Counts over one corpus.

    Attributes:
        n_images: Images in the gallery.
        n_captions: Captions of all languages, negatives included.
        n_negatives: Captions that describe no image of the corpus.
        n_skipped: Images and queries that were left out; ``Corpus.skipped`` has the reasons.
        captions_per_image: Number of captions (within one language and translator) -> number of images that have it.
        languages: Language -> captions.
        translators: Translator -> captions.
        n_undescribed: Images without a caption: distractors.
        duplicate_images: Images beyond the first with the same bytes.
        duplicate_captions: Captions with the same text, language and translator as an earlier caption of any image;
            as queries or items they tie exactly. Negatives are not counted.
        empty_captions: Captions that are empty or white space.
        n_annotated: Images with annotated objects.
        n_without_bytes: Images of which only the id is given.
        pairs: Category -> pairs.
        n_quadruples: Winoground-form examples.
        positives: ``ground truth direction`` -> queries that have a positive.
        judged: Of judged documents: number of judgements, and the fewest and most relevant documents of a query.
    """

    n_images: int
    n_captions: int
    n_negatives: int
    n_skipped: int
    captions_per_image: Mapping[int, int]
    languages: Mapping[str, int]
    translators: Mapping[str, int]
    n_undescribed: int
    duplicate_images: int
    duplicate_captions: int
    empty_captions: int
    n_annotated: int
    n_without_bytes: int
    pairs: Mapping[str, int]
    n_quadruples: int
    positives: Mapping[str, int]
    judged: Mapping[str, int]

    def rows(self) -> Iterator[tuple[str, str]]:
        """Label and value of every fact that is not zero or empty, as text."""
        for each in fields(self):
            value = getattr(self, each.name)
            label = each.name.removeprefix("n_").replace("_", " ")
            if isinstance(value, Mapping) and value:
                yield label, ", ".join(f"{key}: {count:,}" for key, count in value.items())
            elif isinstance(value, int) and value:
                yield label, f"{value:,}"


def corpus_facts(corpus: Corpus) -> CorpusFacts:
    """The facts of a corpus.

    Examples:
        >>> from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
        >>> facts = corpus_facts(build_corpus("c", [ImageRow("a"), ImageRow("b")], [CaptionRow("1", "a", "red"),
        ...     CaptionRow("2", "a", "blue"), CaptionRow("3", "b", "red")], source=None))
        >>> facts.captions_per_image, facts.duplicate_captions, facts.n_without_bytes
        ({1: 1, 2: 1}, 1, 2)
    """
    images, captions = corpus.images, corpus.captions
    own = captions.filter(pc.is_valid(captions["image_id"]))
    per_part = own.group_by(["image_id", "language", "translator"]).aggregate([([], "count_all")])
    most = per_part.group_by("image_id").aggregate([("count_all", "max")])
    texts = own.filter(pc.is_valid(own["text"])).select(["text", "language", "translator"])
    blank = pc.equal(pc.utf8_trim_whitespace(captions["text"]), pa.scalar(""))
    judged = judged_facts(corpus)
    queries = (
        corpus.relevance.filter(pc.field("grade") > 0).group_by(["ground_truth", "direction", "query_id"]).aggregate([])
    )
    return CorpusFacts(
        n_images=images.num_rows,
        n_captions=captions.num_rows,
        n_negatives=0 if judged else captions["image_id"].null_count,
        n_skipped=corpus.skipped.num_rows,
        captions_per_image=_counts(most["count_all_max"].to_pylist()),
        languages=_counts(captions["language"].to_pylist()),
        translators=_counts(captions["translator"].to_pylist()),
        n_undescribed=images.num_rows - most.num_rows,
        duplicate_images=images.num_rows - images["sha"].null_count - pc.count_distinct(images["sha"]).as_py(),
        duplicate_captions=texts.num_rows - texts.group_by(texts.column_names).aggregate([]).num_rows,
        empty_captions=captions.filter(blank).num_rows,
        n_annotated=images.num_rows - images["objects"].null_count,
        n_without_bytes=images["sha"].null_count,
        pairs=_counts(corpus.pairs["category"].to_pylist()),
        n_quadruples=corpus.quadruples.num_rows,
        positives=_counts(f"{row['ground_truth']} {row['direction']}" for row in queries.to_pylist()),
        judged=judged,
    )


def judged_facts(corpus: Corpus) -> dict[str, int]:
    """Number of judgements, fewest and most relevant documents of a query; empty without judgements."""
    rows = corpus.relevance.filter(pc.field("ground_truth") == JUDGED)
    if not rows.num_rows:
        return {}
    relevant = rows.filter(pc.field("grade") > 0).group_by("query_id").aggregate([([], "count_all")])["count_all"]
    fewest, most = (int(value.as_py()) for value in pc.min_max(relevant).values())
    return {"judgements": rows.num_rows, "fewest relevant per query": fewest, "most relevant per query": most}


def _counts(values: Iterable[Any]) -> dict[Any, int]:
    return dict(sorted(Counter(values).items()))
