"""The reference gate: is what we got what is published for the same model and protocol (``protocols.md`` §8)?

``published.csv`` beside this file is the table, with its sources; anyone may bring another of the same columns. It
holds the V28 seed's own table too, which is known to be off for SigLIP (padding), DFN5B, ColPali's image to text and
Winoground's exchanged columns: a seed row never makes a figure suspect, and :func:`seed_findings` says what the gate
would have said of the seed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from store.errors import RequestError

Verdict: TypeAlias = Literal["reproduced", "other protocol", "suspect", "no reference"]

SEED = "V28 seed"
EXCHANGED = 'printed there as "Image"'
N_IMAGES = {"coco-karpathy": 5000, "flickr30k-karpathy": 1000, "winoground": 800, "coco-sm": 4993}
"""Images of the data sets that figures are published for: a part of one is another, easier, data set."""

_COLUMNS = ("model", "dataset", "protocol", "metric", "value", "source", "note")
_TOLERANCE = 0.003
_TOLERANCES = {"jinaai/jina-clip-v1": 0.005, "winoground": 0.01, "coco-sm": 0.005}
_METRIC_NAMES = {"text": "winoground_text", "image": "winoground_image", "group": "winoground_group"}
_KIN = {
    # (here, published): what `here` may lie above `published`: the first caption is a biased draw, 2-3 points lower;
    # the ten sixth captions of COCO hardly matter
    ("t2i/first", "t2i/all"): (-0.035, -0.005),
    ("i2t/any5", "i2t/any"): (-0.005, 0.005),
}
_FLOAT_NOISE = 1e-9


class Published(NamedTuple):
    """One published figure; ``value`` is a fraction 0..1, ``model`` a checkpoint as its hub names it."""

    model: str
    dataset: str
    protocol: str
    metric: str
    value: float
    source: str
    note: str = ""


class Finding(NamedTuple):
    """What the gate says of one figure, and the published one that it was held against."""

    verdict: Verdict
    reference: Published | None = None
    remark: str = ""


def published(table: str | Path | None = None) -> list[Published]:
    """The published figures: capim's own table, or a CSV file of the same columns.

    Raises:
        RequestError: The file is not there, lacks a column, or has a value that is no number; all faults together.
    """
    source = files("tasks.reference").joinpath("published.csv") if table is None else Path(table)
    try:
        text = source.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"no table of published figures at {source}: {error.strerror}") from error
    reader = csv.DictReader(text.splitlines())
    missing = [name for name in _COLUMNS[:6] if name not in (reader.fieldnames or ())]
    if missing:
        raise RequestError(f"{source}: lacks the columns {', '.join(missing)}; expected {', '.join(_COLUMNS)}")
    rows, faults = [], []
    for line, row in enumerate(reader, start=2):
        try:
            value = float(row["value"])
        except (TypeError, ValueError):
            faults.append(f"{source}, line {line}: value {row['value']!r} is not a number")
            continue
        metric = _METRIC_NAMES.get(row["metric"], row["metric"])
        rows.append(
            Published(
                row["model"], row["dataset"], row["protocol"], metric, value, row["source"], row.get("note") or ""
            )
        )
    if faults:
        raise RequestError(faults)
    return rows


def judge_figure(
    value: float,
    *,
    checkpoint: str,
    corpus: str,
    protocol: str,
    metric: str,
    references: Sequence[Published],
) -> Finding:
    """Hold one figure against the published ones of its model.

    Args:
        value: A fraction.
        checkpoint: The model as its hub names it.
        corpus: Name of the whole data set.
        protocol: Of the figure.
        metric: Of the figure.
        references: From :func:`published`.

    Returns:
        ``reproduced``: within tolerance of a figure of the same protocol. ``suspect``: none of them is near (the
        nearest is shown), or the figure lies outside what a kindred protocol allows. ``other protocol``: published
        under another id only. ``no reference``: nothing, or only by the seed and not near, or with a known fault: a
        figure that reproduces a known fault is not reproduced.

    Examples:
        >>> table = [Published("m", "coco-karpathy", "t2i/all", "R@1", 0.5421, "a table")]
        >>> of = dict(checkpoint="m", corpus="coco-karpathy", metric="R@1", references=table)
        >>> [judge_figure(value, protocol="t2i/all", **of).verdict for value in (0.5440, 0.354)]
        ['reproduced', 'suspect']
        >>> [judge_figure(value, protocol="t2i/first", **of).verdict for value in (0.52, 0.354)]
        ['other protocol', 'suspect']
    """
    own = [r for r in references if r.model == checkpoint and r.dataset == corpus and r.metric == metric]
    tolerance = _TOLERANCES.get(checkpoint, _TOLERANCES.get(corpus, _TOLERANCE)) + _FLOAT_NOISE
    trusted = sorted((r for r in own if r.source != SEED), key=lambda r: abs(r.value - value))
    same = [r for r in trusted if r.protocol == protocol]
    if same:
        if abs(same[0].value - value) <= tolerance:
            return Finding("reproduced", same[0])
        return Finding("suspect", same[0], _exchanged(value, checkpoint, corpus, metric, references))
    for reference in trusted:
        if (protocol, reference.protocol) in _KIN:
            low, high = _KIN[protocol, reference.protocol]
            inside = low - _FLOAT_NOISE <= value - reference.value <= high + _FLOAT_NOISE
            remark = f"expected {100 * low:+.1f} to {100 * high:+.1f} points from {reference.protocol}"
            return Finding("other protocol" if inside else "suspect", reference, remark)
    if trusted:
        return Finding("other protocol", trusted[0])
    return _by_the_seed_alone(value, [r for r in own if r.protocol == protocol], tolerance)


def _by_the_seed_alone(value: float, seed_rows: Sequence[Published], tolerance: float) -> Finding:
    """``reproduced`` if the seed has the figure and no fault of it is known; else there is no reference."""
    if not seed_rows:
        return Finding("no reference")
    row = seed_rows[0]
    fault = "" if row.note.startswith(EXCHANGED) else row.note  # the table has the columns in their right places
    if not fault and abs(row.value - value) <= tolerance:
        return Finding("reproduced", row)
    return Finding("no reference", None, f"the seed has {row.value:.3f}" + (f" ({fault})" if fault else ""))


def seed_findings(references: Sequence[Published]) -> Iterator[tuple[Published, Finding]]:
    """What the gate says of the V28 seed's own table, its columns as they were printed there.

    Each row is judged by the others' figures alone; throughput is left out.
    """
    others = [r for r in references if r.source != SEED]
    for row in references:
        if row.source != SEED or row.protocol == "throughput":
            continue
        exchanged = row.note.startswith(EXCHANGED)
        printed = row._replace(metric="winoground_image") if exchanged else row
        finding = judge_figure(
            printed.value,
            checkpoint=printed.model,
            corpus=printed.dataset,
            protocol=printed.protocol,
            metric=printed.metric,
            references=others,
        )
        note = "" if finding.verdict == "reproduced" else row.note
        yield printed, finding._replace(remark="; ".join(filter(None, (finding.remark, note))))


def checkpoint_names(checkpoint: str) -> tuple[str, ...]:
    """The names under which a checkpoint may be published.

    Examples:
        >>> checkpoint_names("hf-hub:apple/DFN5B-CLIP-ViT-H-14-378")[0]
        'apple/DFN5B-CLIP-ViT-H-14-378'
        >>> checkpoint_names("xlm-roberta-base-ViT-B-32/laion5b_s13b_b90k")[1]
        'open_clip:xlm-roberta-base-ViT-B-32/laion5b_s13b_b90k'
    """
    plain = checkpoint.removeprefix("hf-hub:").removeprefix("open_clip:")
    return plain, f"open_clip:{plain}"


def published_name(checkpoint: str, references: Iterable[Published]) -> str:
    """The name of a checkpoint in the table; the checkpoint itself where the table does not have it."""
    known = {reference.model for reference in references}
    return next((name for name in checkpoint_names(checkpoint) if name in known), checkpoint)


def is_whole(corpus: str, n_images: int, *, sizes: Mapping[str, int] = N_IMAGES) -> bool:
    """Whether a corpus by the name of a data set has all of its images; True for names that have no known size."""
    return sizes.get(corpus, n_images) == n_images


def _exchanged(value: float, checkpoint: str, corpus: str, metric: str, references: Sequence[Published]) -> str:
    """Whether a Winoground figure fits the other column far better than its own."""
    other = {"winoground_text": "winoground_image", "winoground_image": "winoground_text"}.get(metric)
    distances = {
        name: min(
            (
                abs(r.value - value)
                for r in references
                if r.model == checkpoint and r.dataset == corpus and r.metric == name and r.source != SEED
            ),
            default=float("inf"),
        )
        for name in (metric, other)
    }
    if other is not None and 2 * distances[other] < distances[metric]:
        return f"nearer to {other}: are text and image exchanged?"
    return ""
