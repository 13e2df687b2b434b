"""Published results, and whether capim's results agree with them (``docs/protocols.md``, reference gate).

The table with its sources is ``published.csv`` in this folder. It includes the table of the V28 seed, which has known
errors (SigLIP's padding, DFN5B, ColPali's image to text, exchanged Winoground columns): a difference from a seed row
is not enough to make a result suspect.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from importlib.resources import files
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

from capim.store.schema import OfProtocol, Result, Slice
from capim.store.types import HUB, EncoderSpec, canonical_json, digest16
from capim.tasks.metrics.compositional import WINOGROUND, WINOGROUND_GROUP
from capim.tasks.metrics.retrieval import NDCG_5, RECALLS
from capim.tasks.protocols import ALL_QUADRUPLES, I2T_ANY, I2T_ANY5, JUDGED_QUERIES, T2I_ALL, T2I_FIRST, language_id

Verdict: TypeAlias = Literal["reproduced", "other protocol", "suspect", "not compared", "no reference"]

ANALYSIS = "reference"
SEED = "V28 seed"
EXCHANGED = 'printed there as "Image"'
N_IMAGES = {
    "coco-karpathy": 5000,
    "flickr30k-karpathy": 1000,
    "winoground": 800,
    "coco-sm": 4993,
    "VidoreDocVQARetrieval": 500,
}
"""Number of images of the data sets with published results: a part of one is an easier data set of its own."""
SAMPLE = re.compile(r"(?P<of>.+)-sample\d+(-seed\d+)?")  # the name of a sample of a corpus (tasks.corpora.subset)

_TOLERANCE = 0.003
_TOLERANCES = {
    "jinaai/jina-clip-v1": 0.005,
    "winoground": 0.01,
    "coco-sm": 0.005,
    "VidoreDocVQARetrieval": 0.01,  # by mteb's loaders, which compute vectors that depend on the batch
}
_METRIC_NAMES = {metric.heading.removesuffix(" score"): metric.name for metric in WINOGROUND}
_RELATED = {
    # (ours, published): the range of ours minus published. The first caption is a biased draw, 2-3 points lower; the
    # ten sixth captions of COCO hardly matter
    (T2I_FIRST, T2I_ALL): (-0.035, -0.005),
    (I2T_ANY5, I2T_ANY): (-0.005, 0.005),
}
_FLOAT_NOISE = 1e-9
_R1 = RECALLS[0].name
_HEADLINES = (_R1, *(metric.name for metric in WINOGROUND))


_BEST_KNOWN = (
    ("coco-karpathy", T2I_ALL, _R1),
    ("flickr30k-karpathy", T2I_ALL, _R1),
    ("winoground", ALL_QUADRUPLES, WINOGROUND_GROUP.name),
    ("VidoreDocVQARetrieval", JUDGED_QUERIES, NDCG_5.name),
    ("coco-sm", language_id("t2i", "en", "google"), _R1),
)
"""Metrics by which a model is known, best known first: the list of models shows the first published one."""


class Published(NamedTuple):
    """One published result; ``value`` is a fraction 0..1, ``model`` a checkpoint by its name on its hub."""

    model: str
    dataset: str
    protocol: str
    metric: str
    value: float
    source: str
    note: str = ""


class ReferenceCheck(NamedTuple):
    """The verdict on one result, and the published result that it was compared with."""

    verdict: Verdict
    reference: Published | None = None
    remark: str = ""


def published() -> list[Published]:
    """Return the published results of capim's table."""
    text = files("capim.tasks.reference").joinpath("published.csv").read_text(encoding="utf-8")
    _, *lines = csv.reader(text.splitlines())
    return [
        Published(model, dataset, protocol, _METRIC_NAMES.get(metric, metric), float(value), source, note)
        for model, dataset, protocol, metric, value, source, note in lines
    ]


def judge_figure(
    value: float, *, checkpoint: str, corpus: str, protocol: str, metric: str, references: Sequence[Published]
) -> ReferenceCheck:
    """Compare one result, a fraction, with the published ones of its model on the complete data set ``corpus``.

    ``checkpoint`` is the model by its name in the table (:func:`published_name`).

    Returns:
        ``reproduced``: within tolerance of a result of the same protocol; several results share the tolerance.
        ``suspect``: outside the tolerance of all of them (the nearest is given), or outside the range that a related
        protocol allows. ``other protocol``: published only under another protocol. ``no reference``: not published, or
        only by the seed and not reproduced or with a known error.

    Examples:
        >>> table = [Published("m", "coco-karpathy", T2I_ALL, "R@1", 0.5421, "a table")]
        >>> of = dict(checkpoint="m", corpus="coco-karpathy", metric="R@1", references=table)
        >>> [judge_figure(value, protocol="t2i/all", **of).verdict for value in (0.5440, 0.354)]
        ['reproduced', 'suspect']
        >>> [judge_figure(value, protocol="t2i/first", **of).verdict for value in (0.52, 0.354)]
        ['other protocol', 'suspect']
    """
    same_figure = [r for r in references if r.model == checkpoint and r.dataset == corpus and r.metric == metric]
    tolerance = _TOLERANCES.get(checkpoint, _TOLERANCES.get(corpus, _TOLERANCE)) + _FLOAT_NOISE
    trusted = sorted((r for r in same_figure if r.source != SEED), key=lambda r: abs(r.value - value))
    if same_protocol := [r for r in trusted if r.protocol == protocol]:
        half = _half_width([r.value for r in same_protocol], tolerance)
        near = abs(same_protocol[0].value - value) <= half
        return ReferenceCheck("reproduced" if near else "suspect", same_protocol[0])
    if related := [r for r in trusted if (protocol, r.protocol) in _RELATED]:
        low, high = _RELATED[protocol, related[0].protocol]
        middle, half = (low + high) / 2, _half_width([r.value for r in related], (high - low) / 2)
        nearest = min(related, key=lambda r: abs(r.value + middle - value))
        inside = abs(nearest.value + middle - value) <= half + _FLOAT_NOISE
        span = f"{100 * (middle - half):+.1f} to {100 * (middle + half):+.1f}"
        remark = f"expected {span} points from {nearest.protocol}"
        return ReferenceCheck("other protocol" if inside else "suspect", nearest, remark)
    if trusted:
        return ReferenceCheck("other protocol", trusted[0])
    return _compare_with_seed(value, [r for r in same_figure if r.protocol == protocol], tolerance)


def _half_width(figures: Sequence[float], tolerance: float) -> float:
    """Return half the width of the range around each published result, so that all ranges cover ``2 * tolerance``.

    Otherwise each result would add a range of its own, and a wrong result would pass more easily the more often a model
    was published.

    Examples:
        >>> _half_width([0.5], 0.003), _half_width([0.5, 0.6], 0.003), round(_half_width([0.5, 0.502], 0.003), 6)
        (0.003, 0.0015, 0.002)
    """
    gaps = sorted(high - low for low, high in pairwise(sorted(figures)))  # the smallest gaps close first
    n = len(figures)
    return max((2 * tolerance - sum(gaps[:closed])) / (2 * (n - closed)) for closed in range(n))


def _compare_with_seed(value: float, seed_rows: Sequence[Published], tolerance: float) -> ReferenceCheck:
    """Return ``reproduced`` if the seed has the result without a known error; else ``no reference``."""
    if not seed_rows:
        return ReferenceCheck("no reference")
    row = seed_rows[0]
    fault = "" if row.note.startswith(EXCHANGED) else row.note  # the table has the columns in their right order
    if not fault and abs(row.value - value) <= tolerance:
        return ReferenceCheck("reproduced", row)
    return ReferenceCheck("no reference", None, f"the seed has {row.value:.3f}" + (f" ({fault})" if fault else ""))


def published_name(spec: EncoderSpec, references: Iterable[Published]) -> str:
    """Return the name of a model in the table: its checkpoint, or the repository of its card; else its checkpoint.

    Examples:
        >>> names = ("open_clip:ViT-B-32/laion400m", "laion/H-14")
        >>> table = [Published(name, "c", T2I_ALL, "R@1", 0.5, "a table") for name in names]
        >>> specs = [
        ...     EncoderSpec(name="x", adapter="a", checkpoint=name, dim=8)
        ...     for name in ("ViT-B-32/laion400m", "hf-hub:laion/H-14", "hf-hub:apple/DFN5B")
        ... ]
        >>> [published_name(spec, table) for spec in specs]
        ['open_clip:ViT-B-32/laion400m', 'laion/H-14', 'hf-hub:apple/DFN5B']
    """
    plain = spec.checkpoint.removeprefix("hf-hub:").removeprefix("open_clip:")
    names = [plain, f"open_clip:{plain}"]
    if spec.has_weights:
        names.append(str(spec.facts.get("link", "")).removeprefix(HUB))
    models = {reference.model for reference in references}
    return next((name for name in names if name in models), spec.checkpoint)


def headline(spec: EncoderSpec, references: Sequence[Published]) -> Published | None:
    """Return the best-known published result of a model; None if there is none."""
    name = published_name(spec, references)
    of_model = [r for r in references if r.model == name]
    for wanted in _BEST_KNOWN:
        found = [r for r in of_model if (r.dataset, r.protocol, r.metric) == wanted]
        if found:
            return min(found, key=lambda r: r.source == SEED)
    return None


def gated(row: Result) -> list[object]:
    """Return all facts about a result that a comparison with published results depends on."""
    of_sets = [row.encoder, row.encoder_fingerprint, row.corpus, row.corpus_fingerprint, row.protocol, row.metric]
    return [*of_sets, row.metric_version, row.value, row.ci_low, row.ci_high, row.n_queries, row.n_clusters]


def judge_results(
    results: Iterable[Result],
    *,
    specs: Mapping[str, EncoderSpec],
    n_images: Mapping[str, int],
    references: Sequence[Published],
) -> list[tuple[Result, ReferenceCheck]]:
    """Return every result with a reference, and the headline metrics of those without, with the verdict.

    Args:
        specs: Encoder fingerprint -> spec. Results of other encoders are left out.
        n_images: Corpus fingerprint -> number of images; a part of a data set in ``N_IMAGES`` is not compared.
        references: From ``tasks.reference.published.published``.
    """
    checked = []
    for row in results:
        spec = specs.get(row.encoder_fingerprint)
        if spec is None or row.value is None:
            continue
        check = _part_of(row.corpus, n_images[row.corpus_fingerprint])
        if check is None:
            check = judge_figure(
                row.value,
                checkpoint=published_name(spec, references),
                corpus=row.corpus,
                protocol=row.protocol,
                metric=row.metric,
                references=references,
            )
        if check.verdict != "no reference" or row.metric in _HEADLINES:
            checked.append((row, check))
    return checked


def _part_of(corpus: str, n_images: int) -> ReferenceCheck | None:
    """Return why a part of a data set with published results is not compared with them; None for any other corpus."""
    sample = SAMPLE.fullmatch(corpus)
    n_all = N_IMAGES.get(sample["of"] if sample else corpus, n_images)
    if n_images == n_all:
        return None
    what = "sample" if sample else "part"
    return ReferenceCheck("not compared", None, f"{what} of {n_images:,} of {n_all:,} images, not compared")


def gate_rows(checked: Iterable[tuple[Result, ReferenceCheck]], *, run: str) -> list[Slice]:
    """Return rows of table ``slices`` with analysis ``reference``; the verdict is the level's name.

    The detail holds ``published``, ``published_protocol``, ``source`` and ``note`` of the published result, if any.
    """
    rows = []
    for row, (verdict, reference, remark) in checked:
        detail = reference and {
            "published": reference.value,
            "published_protocol": reference.protocol,
            "source": reference.source,
            "note": reference.note,
        }
        subject = {each.name: getattr(row, each.name) for each in fields(OfProtocol)}
        of_slice = Slice(
            **subject,
            slice=digest16([ANALYSIS, *subject.values(), row.metric]),
            metric=row.metric,
            analysis=ANALYSIS,
            metric_version=row.metric_version,
            feature="published figure",
            level_name=verdict,
            value=row.value,
            ci_low=row.ci_low,
            ci_high=row.ci_high,
            n_queries=row.n_queries,
            n_clusters=row.n_clusters,
            reason=remark or None,
            detail=canonical_json(detail) if detail else None,
            run=run,
            created=datetime.now(UTC),
        )
        rows.append(of_slice)
    return rows
