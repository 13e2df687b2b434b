"""The points of the conformance suite; see :mod:`tasks.encoders.conformance.suite`."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from store.types import Embeddings
from tasks.encoders.adapters.open_clip_tags import open_clip_tag
from tasks.encoders.checkpoints.checkpoint import base_folder, folder_of, local_path
from tasks.encoders.checkpoints.tensor_digests import digests_of_files, digests_of_model
from tasks.encoders.conformance import probes
from tasks.encoders.encoder import Encoder, encode_captions, encode_images

NORM_TOLERANCE = 1e-3
PRECISION_COSINE = 0.999
# the same item in another batch: float32 differs by rounding alone, half precision by its own rounding
NEIGHBOUR_TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 4e-3}


class Unfit(Exception):  # noqa: N818 - a finding, not a fault of the program
    """What is wrong with the model, in one line."""


class NotApplicable(Exception):  # noqa: N818 - a finding, not a fault of the program
    """Why a point makes no sense for this model, in one line."""


@dataclass(frozen=True)
class Sample:
    """What a model gives for a few pictures and captions."""

    images: Embeddings
    captions: Embeddings


def sample_vectors(encoder: Encoder) -> Sample:
    """Embeddings of the suite's pictures and captions."""
    pictures, captions = probes.six_pictures()
    return Sample(encode_images(encoder, pictures), encode_captions(encoder, [*captions, *probes.CAPTIONS]))


def weights_are_in_the_model(encoder: Encoder) -> str:
    """Every weight matrix of the checkpoint's files is found in the model, value by value."""
    if not encoder.modules:
        raise NotApplicable("the adapter does not show its weights")
    tag = open_clip_tag(encoder.spec.checkpoint) if encoder.spec.adapter == "openclip" else None
    if tag is not None or (local_path(encoder.spec.checkpoint) or Path()).suffix == ".py":
        raise NotApplicable("the checkpoint is not a folder of weights")
    folder = folder_of(encoder.spec)
    folders = [folder, *filter(None, [base_folder(encoder.spec, folder)])]
    held = digests_of_model(encoder.modules)
    files = {
        name: digest
        for part in folders
        for name, digest in digests_of_files(part, encoder.spec.adapter, encoder.spec.precision).items()
    }
    lost = sorted(name for name, digest in files.items() if digest not in held)
    if lost:
        raise Unfit(f"{len(lost)} of {len(files)} weight matrices are not in the model: {', '.join(lost[:3])}")
    return f"all {len(files)} weight matrices of the checkpoint"


def shapes_and_norms(encoder: Encoder) -> str:
    """float32, finite, unit norm, right dimension, one item for each input, norms kept."""
    sample = sample_vectors(encoder)
    for name, block, n in (("image", sample.images, 6), ("caption", sample.captions, 6 + len(probes.CAPTIONS))):
        values = block.values
        if len(block) != n or values.shape[1] != encoder.spec.dim or values.dtype != np.float32:
            raise Unfit(f"{name}s: {len(block)} items, shape {values.shape}, {values.dtype}; expected {n} of float32")
        if (block.offsets is None) != (encoder.spec.vectors == "single"):
            raise Unfit(f"{name}s: the spec says {encoder.spec.vectors} vectors per item, the model gives the other")
        off = np.abs(np.linalg.norm(values, axis=1) - 1)
        if not np.isfinite(values).all() or off.max() > NORM_TOLERANCE:
            raise Unfit(f"{name}s: {int((~(off <= NORM_TOLERANCE)).sum())} of {len(values)} vectors have no unit norm")
        if not (block.norms > 0).all() or block.counts.min() < 1:
            raise Unfit(f"{name}s: an item has no vector, or its original norm is not positive")
        alike = _pairwise(block)
        if alike > 1 - 1e-6:
            raise Unfit(f"{name}s: two different {name}s have the same vectors")
    ratio = f"norms before normalising {np.median(sample.images.norms):.3g} and {np.median(sample.captions.norms):.3g}"
    per_item = "" if sample.images.offsets is None else f", {sample.images.counts.max()} vectors per image"
    return f"dim {encoder.spec.dim}{per_item}, {ratio} (images, captions)"


def same_twice(encoder: Encoder) -> str:
    """The same input gives the same vectors: dropout is off, no state is kept."""
    first, second = sample_vectors(encoder), sample_vectors(encoder)
    for name in ("images", "captions"):
        a, b = getattr(first, name).values, getattr(second, name).values
        if a.shape != b.shape or float(np.abs(a - b).max()) > 1e-6:
            raise Unfit(f"{name} change from one call to the next: is the model in evaluation mode?")
    return "identical"


def batch_and_neighbours_do_not_matter(encoder: Encoder) -> str:
    """Alone, together, in another order, beside a long caption: always the same vectors."""
    tolerance = NEIGHBOUR_TOLERANCE[encoder.spec.precision]
    pictures = [*probes.six_pictures()[0][:2], probes.noise(300, 90, 1), probes.noise(64, 200, 2)]
    captions = [*probes.CAPTIONS, " ".join([probes.CAPTIONS[2]] * 2)]
    worst = 0.0
    for name, together, alone in (
        ("image", encode_images(encoder, pictures), [encode_images(encoder, [p]) for p in pictures]),
        ("caption", encode_captions(encoder, captions), [encode_captions(encoder, [c]) for c in captions]),
    ):
        for i, (inside, single) in enumerate(zip(_items(together), alone, strict=True)):
            if inside.shape != single.values.shape:
                raise Unfit(
                    f"{name} {i} has {len(single)} vectors alone and {len(inside)} beside others: padding is kept"
                )
            worst = max(worst, float(np.abs(inside - single.values).max()))
        if worst > tolerance:
            raise Unfit(
                f"{name}s change by {worst:.2g} with their neighbours (at most {tolerance:g}): wrong padding or mask"
            )
    return f"largest change {worst:.1g}"


def resizes_as_declared(encoder: Encoder) -> str:
    """A checkpoint that crops does not see the sides of a wide picture; one that squashes does."""
    declared = declared_resize(encoder)
    if declared is None:
        raise NotApplicable("the checkpoint does not say")
    first, second = _items(encode_images(encoder, list(probes.wide_pair())))
    sees_sides = first.shape != second.shape or float(np.abs(first - second).max()) > 1e-4
    if sees_sides == (declared == "crop"):
        did = "squashes or keeps" if sees_sides else "crops"
        raise Unfit(f"the checkpoint says {declared}, the adapter {did} pictures")
    return declared


def declared_resize(encoder: Encoder) -> Literal["crop", "squash"] | None:
    """What the checkpoint's own configuration says about the proportions of pictures."""
    tag = open_clip_tag(encoder.spec.checkpoint) if encoder.spec.adapter == "openclip" else None
    if tag is not None:
        return _open_clip_resize(dict(tag.preprocess))
    path = local_path(encoder.spec.checkpoint)
    if path is not None and path.is_file():
        return None
    folder = folder_of(encoder.spec)
    if (config := _json(folder / "open_clip_config.json")) is not None:
        return _open_clip_resize(config.get("preprocess_cfg", {}))
    file = next(iter(sorted(folder.rglob("preprocessor_config.json"))), folder / "preprocessor_config.json")
    config = _json(file) or (_json(folder / "processor_config.json") or {}).get("image_processor")
    if config is None:
        return "crop" if encoder.spec.adapter == "uform" else None
    if "resize_mode" in config or config.get("do_center_crop"):
        return "crop" if config.get("do_center_crop") or config["resize_mode"] == "shortest" else "squash"
    size = config.get("size")
    return "squash" if isinstance(size, dict) and {"height", "width"} <= size.keys() else None


def truncation_is_counted(encoder: Encoder) -> str:
    """A caption that is too long is cut and marked; others are neither."""
    block = encode_captions(encoder, [probes.LONG, probes.SHORT])
    if not block.n_tokens.any():
        raise NotApplicable("the adapter does not count tokens")
    if not block.truncated[0] or block.truncated[1]:
        raise Unfit(
            f"a caption of {len(probes.LONG.split())} words: truncated is {block.truncated.tolist()}, not [True, False]"
        )
    if block.n_tokens[1] >= block.n_tokens[0] or block.n_tokens[1] < 2:
        raise Unfit(f"token counts are {block.n_tokens.tolist()} for a very long and a very short caption")
    return f"captions are cut at {int(block.n_tokens[0])} tokens"


def awkward_pictures_embed(encoder: Encoder) -> str:
    """Every mode and size gives a vector, and modes the same vector as the picture in RGB."""
    pictures = probes.awkward_pictures()
    for name, picture in pictures.items():
        values = encode_images(encoder, [picture]).values
        if not np.isfinite(values).all():
            raise Unfit(f"{name}: not finite")
        if "x" not in name:
            plain = encode_images(encoder, [picture.convert("RGB")]).values
            if float(np.abs(values - plain).max()) > NEIGHBOUR_TOLERANCE[encoder.spec.precision]:
                raise Unfit(f"mode {name} gives another vector than the same picture in RGB")
    return ", ".join(pictures)


def awkward_captions_embed(encoder: Encoder) -> str:
    """Empty, non-Latin and hostile captions give vectors and leave their neighbours alone."""
    captions = [probes.SHORT, *probes.AWKWARD_CAPTIONS, probes.LONG]
    together = encode_captions(encoder, captions)
    if not np.isfinite(together.values).all():
        raise Unfit("a caption gives no finite vector")
    plain = encode_captions(encoder, [probes.SHORT]).values
    beside = next(iter(_items(together)))
    if beside.shape != plain.shape or np.abs(beside - plain).max() > NEIGHBOUR_TOLERANCE[encoder.spec.precision]:
        raise Unfit("a plain caption changes beside awkward ones")
    return f"{len(captions)} captions: empty, six scripts, special tokens spelt out, {len(probes.LONG.split())} words"


def empty_input_gives_an_empty_block(encoder: Encoder) -> str:
    """No items, no vectors, no error."""
    for block in (encode_images(encoder, []), encode_captions(encoder, [])):
        if len(block) != 0 or block.values.shape != (0, encoder.spec.dim):
            raise Unfit(f"shape {block.values.shape} for no items")
    return "empty"


def matching_pairs_score_above_others(encoder: Encoder) -> str:
    """On six built-in pictures, captions score higher with their own picture than with the others, on average."""
    pictures, captions = probes.six_pictures()
    images, texts = encode_images(encoder, pictures), encode_captions(encoder, captions)
    scores = np.asarray([[_late_interaction(text, image) for image in _items(images)] for text in _items(texts)])
    own = float(np.diag(scores).mean())
    others = float(scores[~np.eye(len(scores), dtype=bool)].mean())
    first = int((scores.argmax(axis=1) == np.arange(len(scores))).sum())
    if own <= others or first < 3:
        raise Unfit(
            f"own pictures {own:.3f}, others {others:.3f}, {first} of 6 captions find their picture (chance: 1)"
        )
    return f"own pictures {own:.3f}, others {others:.3f}, {first} of 6 captions find their picture"


def speed_of_one_batch(encoder: Encoder) -> str:
    """Items per second of one warm batch of 16, prepared beforehand."""
    pictures = [probes.noise(320, 240, seed) for seed in range(16)]
    prepared = encoder.prepare_images(pictures), encoder.prepare_captions([probes.CAPTIONS[1]] * 16)
    rates = []
    for batch in prepared:
        encoder.embed(batch)
        start = time.perf_counter()
        encoder.embed(batch)
        rates.append(16 / (time.perf_counter() - start))
    return f"{rates[0]:.1f} images/s, {rates[1]:.1f} captions/s on {encoder.device}, {encoder.spec.precision}"


def lowest_cosine(a: Sample, b: Sample) -> float:
    """Of all items of two samples; for many vectors, the mean over an item's vectors."""
    return min(
        float((x * y).sum(axis=1).mean())
        for left, right in ((a.images, b.images), (a.captions, b.captions))
        for x, y in zip(_items(left), _items(right), strict=True)
    )


def _items(block: Embeddings) -> list[NDArray[np.float32]]:
    """The vectors of each item, shape ``(count, dim)``."""
    return np.split(block.values, np.cumsum(block.counts)[:-1])


def _late_interaction(caption: NDArray[np.float32], image: NDArray[np.float32]) -> float:
    """Sum over caption vectors of the best image vector; for single vectors, the cosine."""
    return float((caption @ image.T).max(axis=1).sum())


def _pairwise(block: Embeddings) -> float:
    """The highest cosine of two different items, by their mean vectors."""
    means = np.asarray([item.mean(axis=0) for item in _items(block)])
    unit = means / np.linalg.norm(means, axis=1, keepdims=True)
    return float((unit @ unit.T)[~np.eye(len(unit), dtype=bool)].max())


def _open_clip_resize(config: dict[str, Any]) -> Literal["crop", "squash"] | None:
    modes: dict[str, Literal["crop", "squash"]] = {"shortest": "crop", "squash": "squash"}
    return modes.get(config.get("resize_mode", "shortest"))


def _json(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    contents: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return contents
