"""The checks of the conformance suite.

A check takes a loaded model and returns what it measured, in one line; it raises :class:`CheckFailed` or
:class:`CheckSkipped` with the reason. None of them depends on the family of the model.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from capim.store.types import Embeddings
from capim.store.vectors import Ragged
from capim.tasks.encoders.adapters.open_clip_tags import open_clip_tag
from capim.tasks.encoders.checkpoints.checkpoint import base_folder, folder_of, json_file, local_path
from capim.tasks.encoders.checkpoints.loaded_weights import digests_of_files, digests_of_model
from capim.tasks.encoders.conformance import inputs
from capim.tasks.encoders.encoder import Encoder, encode_captions, encode_images, service_of

NORM_TOLERANCE = 1e-3
PRECISION_COSINE = 0.999
# the same item in another batch: float32 differs by rounding alone, half precision by its own rounding
NEIGHBOUR_TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 4e-3}


def _tolerance(encoder: Encoder) -> float:
    """How far a vector may be from that of the same item in another batch; the precision of a service is unknown."""
    return NEIGHBOUR_TOLERANCE["bfloat16" if service_of(encoder) else encoder.spec.precision]


class CheckFailed(Exception):  # noqa: N818 - a result, not an error of the program
    """What is wrong with the model, in one line."""


class CheckSkipped(Exception):  # noqa: N818 - a result, not an error of the program
    """Why a check does not apply to this model, in one line."""


class SuiteEmbeddings(NamedTuple):
    """Embeddings of the suite's images and captions."""

    images: Embeddings
    captions: Embeddings


def suite_embeddings(encoder: Encoder) -> SuiteEmbeddings:
    """Embeddings of the six scenes, and of their captions and four others."""
    images, captions = inputs.six_scenes()
    return SuiteEmbeddings(encode_images(encoder, images), encode_captions(encoder, [*captions, *inputs.CAPTIONS]))


def weights_are_in_the_model(encoder: Encoder) -> str:
    """Every weight matrix of the checkpoint's files is found in the model, value by value."""
    if not encoder.modules:
        raise CheckSkipped("the adapter does not expose its weights")
    if open_clip_tag(encoder.spec) is not None or (local_path(encoder.spec.checkpoint) or Path()).suffix == ".py":
        raise CheckSkipped("the checkpoint is not a folder of weights")
    folder = folder_of(encoder.spec)
    folders = [folder, *filter(None, [base_folder(encoder.spec, folder)])]
    in_model = digests_of_model(encoder.modules)
    in_files: dict[str, str] = {}
    for each in folders:
        in_files |= digests_of_files(each, encoder.spec.adapter, encoder.spec.precision)
    missing = sorted(name for name, digest in in_files.items() if digest not in in_model)
    if missing:
        raise CheckFailed(
            f"{len(missing)} of {len(in_files)} weight matrices are not in the model: {', '.join(missing[:3])}"
        )
    return f"all {len(in_files)} weight matrices of the checkpoint"


def shapes_and_norms(encoder: Encoder) -> str:
    """Vectors are finite float32 of unit norm and the right dimension, one item per input, with their norms."""
    sample = suite_embeddings(encoder)
    for name, block, n in (("image", sample.images, 6), ("caption", sample.captions, 6 + len(inputs.CAPTIONS))):
        values = block.values
        if len(block) != n or values.shape[1] != encoder.spec.dim or values.dtype != np.float32:
            raise CheckFailed(
                f"{name}s: {len(block)} items, shape {values.shape}, {values.dtype}; expected {n} of float32"
            )
        if (block.offsets is None) != (encoder.spec.vectors == "single"):
            raise CheckFailed(
                f"{name}s: the spec has vectors = {encoder.spec.vectors!r}, the model gives the other kind"
            )
        off = np.abs(np.linalg.norm(values, axis=1) - 1)
        if not np.isfinite(values).all() or off.max() > NORM_TOLERANCE:
            raise CheckFailed(
                f"{name}s: {int((~(off <= NORM_TOLERANCE)).sum())} of {len(values)} vectors do not have unit norm"
            )
        if not (block.norms > 0).all() or block.counts.min() < 1:
            raise CheckFailed(f"{name}s: an item has no vector, or its original norm is not positive")
        if _highest_cosine(block) > 1 - 1e-6:
            raise CheckFailed(f"{name}s: two different {name}s have the same vectors")
    norms = f"norms before normalising {np.median(sample.images.norms):.3g} and {np.median(sample.captions.norms):.3g}"
    per_item = "" if sample.images.offsets is None else f", {sample.images.counts.max()} vectors per image"
    return f"dim {encoder.spec.dim}{per_item}, {norms} (images, captions)"


def repeated_calls_agree(encoder: Encoder) -> str:
    """Two calls with the same inputs give the same vectors: dropout is off and no state is kept."""
    first, second = suite_embeddings(encoder), suite_embeddings(encoder)
    for name, one, other in zip(("images", "captions"), first, second, strict=True):
        largest = _tolerance(encoder) if service_of(encoder) else 1e-6
        if one.values.shape != other.values.shape or float(np.abs(one.values - other.values).max()) > largest:
            raise CheckFailed(f"{name} change from one call to the next: is the model in evaluation mode?")
    return "identical"


def vectors_do_not_depend_on_the_batch(encoder: Encoder) -> str:
    """An item has the same vectors alone, in a batch, and in a batch with a long caption."""
    tolerance = _tolerance(encoder)
    images = [*inputs.six_scenes()[0][:2], inputs.noise_image(300, 90, 1), inputs.noise_image(64, 200, 2)]
    captions = [*inputs.CAPTIONS, " ".join([inputs.CAPTIONS[2]] * 2)]
    worst = 0.0
    for name, together, alone in (
        ("image", encode_images(encoder, images), [encode_images(encoder, [one]) for one in images]),
        ("caption", encode_captions(encoder, captions), [encode_captions(encoder, [one]) for one in captions]),
    ):
        for i, (inside, single) in enumerate(zip(_items(together), alone, strict=True)):
            if inside.shape != single.values.shape:
                raise CheckFailed(
                    f"{name} {i} has {len(single.values)} vectors alone and {len(inside)} in a batch: padding is kept"
                )
            worst = max(worst, float(np.abs(inside - single.values).max()))
        if worst > tolerance:
            raise CheckFailed(
                f"{name}s change by {worst:.2g} with the batch (at most {tolerance:g}): wrong padding or mask"
            )
    return f"largest change {worst:.1g}"


def resizing_is_as_declared(encoder: Encoder) -> str:
    """A model that should crop does not see the sides of a wide image; one that should squash does."""
    code = encoder.spec.checkpoint == encoder.spec.adapter
    declared = None if service_of(encoder) or code else declared_resize(encoder)
    if declared is None:
        raise CheckSkipped("the checkpoint does not declare it")
    first, second = _items(encode_images(encoder, list(inputs.wide_pair())))
    sees_sides = first.shape != second.shape or float(np.abs(first - second).max()) > 1e-4
    if sees_sides == (declared == "crop"):
        actual = "squashes or keeps" if sees_sides else "crops"
        raise CheckFailed(f"the checkpoint declares {declared!r}, but the adapter {actual} images")
    return declared


def declared_resize(encoder: Encoder) -> Literal["crop", "squash"] | None:
    """How the checkpoint's configuration treats the aspect ratio of images."""
    tag = open_clip_tag(encoder.spec)
    if tag is not None:
        return _open_clip_resize(dict(tag.preprocess))
    path = local_path(encoder.spec.checkpoint)
    if path is not None and path.is_file():
        return None
    folder = folder_of(encoder.spec)
    if (config := json_file(folder / "open_clip_config.json")) is not None:
        return _open_clip_resize(config.get("preprocess_cfg", {}))
    file = next(iter(sorted(folder.rglob("preprocessor_config.json"))), folder / "preprocessor_config.json")
    config = json_file(file) or (json_file(folder / "processor_config.json") or {}).get("image_processor")
    if config is None:
        return "crop" if encoder.spec.adapter == "uform" else None
    if "resize_mode" in config or config.get("do_center_crop"):
        return "crop" if config.get("do_center_crop") or config["resize_mode"] == "shortest" else "squash"
    size = config.get("size")
    return "squash" if isinstance(size, dict) and {"height", "width"} <= size.keys() else None


def truncation_is_counted(encoder: Encoder) -> str:
    """A caption that is too long is truncated and marked as such; a short one is not."""
    block = encode_captions(encoder, [inputs.LONG, inputs.SHORT])
    if not block.n_tokens.any() or (service_of(encoder) and not block.truncated.any()):
        raise CheckSkipped("the adapter does not count tokens, or the service does not say what it truncates")
    if not block.truncated[0] or block.truncated[1]:
        raise CheckFailed(
            f"a caption of {len(inputs.LONG.split())} words: truncated is {block.truncated.tolist()}, not [True, False]"
        )
    if block.n_tokens[1] >= block.n_tokens[0] or block.n_tokens[1] < 2:
        raise CheckFailed(f"token counts are {block.n_tokens.tolist()} for a very long and a very short caption")
    return f"captions are truncated at {int(block.n_tokens[0])} tokens"


def unusual_images_are_encoded(encoder: Encoder) -> str:
    """Images of every mode and size have finite vectors, those of any mode the vectors of the image in RGB."""
    images = inputs.unusual_images()
    for name, image in images.items():
        values = encode_images(encoder, [image]).values
        if not np.isfinite(values).all():
            raise CheckFailed(f"{name}: not finite")
        if "x" not in name:
            plain = encode_images(encoder, [image.convert("RGB")]).values
            if float(np.abs(values - plain).max()) > _tolerance(encoder):
                raise CheckFailed(f"mode {name} gives another vector than the same image in RGB")
    return ", ".join(images)


def unusual_captions_are_encoded(encoder: Encoder) -> str:
    """Empty, non-Latin and hostile captions have finite vectors and do not change those of their neighbours."""
    plain = encode_captions(encoder, [inputs.SHORT]).values
    for others in (inputs.UNUSUAL_CAPTIONS, (inputs.LONG,)):  # apart: all would be padded to the long one
        together = encode_captions(encoder, [inputs.SHORT, *others])
        if not np.isfinite(together.values).all():
            raise CheckFailed("the vector of a caption is not finite")
        beside = _items(together)[0]
        if beside.shape != plain.shape or np.abs(beside - plain).max() > _tolerance(encoder):
            raise CheckFailed("the vector of an ordinary caption changes in a batch with unusual ones")
    n = len(inputs.UNUSUAL_CAPTIONS) + 2
    return f"{n} captions: empty, six scripts, special tokens written out, {len(inputs.LONG.split())} words"


def no_items_give_no_vectors(encoder: Encoder) -> str:
    """No items give no vectors and no error."""
    for block in (encode_images(encoder, []), encode_captions(encoder, [])):
        if len(block) != 0 or block.values.shape != (0, encoder.spec.dim):
            raise CheckFailed(f"shape {block.values.shape} for no items")
    return "empty"


def matching_pairs_score_highest(encoder: Encoder) -> str:
    """On average, captions of the six scenes score higher with their own image than with the others."""
    scenes, captions = inputs.six_scenes()
    images, texts = encode_images(encoder, scenes), encode_captions(encoder, captions)
    # the sum over caption vectors of the best image vector; for single vectors, the cosine
    scores = np.asarray([[(text @ image.T).max(axis=1).sum() for image in _items(images)] for text in _items(texts)])
    own = float(np.diag(scores).mean())
    others = float(scores[~np.eye(len(scores), dtype=bool)].mean())
    first = int((scores.argmax(axis=1) == np.arange(len(scores))).sum())
    measured = f"mean score {own:.3f} with the own image, {others:.3f} with others; {first} of 6 captions rank it first"
    if own <= others or first < 3:
        raise CheckFailed(f"{measured} (chance: 1)")
    return measured


def speed_of_one_batch(encoder: Encoder) -> str:
    """Items per second of one prepared batch of 16, after a warm-up pass."""
    images = [inputs.noise_image(320, 240, seed) for seed in range(16)]
    prepared = encoder.prepare_images(images), encoder.prepare_captions([inputs.CAPTIONS[1]] * 16)
    rates = []
    for batch in prepared:
        encoder.embed(batch)
        start = time.perf_counter()
        encoder.embed(batch)
        rates.append(16 / (time.perf_counter() - start))
    service = service_of(encoder)
    where = service.address if service else f"{encoder.device}, {encoder.spec.precision}"
    return f"{rates[0]:.1f} images/s, {rates[1]:.1f} captions/s on {where}"


def lowest_cosine(a: SuiteEmbeddings, b: SuiteEmbeddings) -> float:
    """The lowest cosine of any item with itself in another run; for multi-vectors, the mean over an item's vectors."""
    return min(
        float((x * y).sum(axis=1).mean())
        for left, right in ((a.images, b.images), (a.captions, b.captions))
        for x, y in zip(_items(left), _items(right), strict=True)
    )


def _items(block: Embeddings) -> Ragged:
    """The vectors of each item, shape ``(count, dim)``."""
    return Ragged.from_counts(block.values, block.counts)


def _highest_cosine(block: Embeddings) -> float:
    """The highest cosine of two different items, by their mean vectors."""
    means = np.asarray([item.mean(axis=0) for item in _items(block)])
    unit = means / np.linalg.norm(means, axis=1, keepdims=True)
    return float((unit @ unit.T)[~np.eye(len(unit), dtype=bool)].max())


def _open_clip_resize(config: dict[str, Any]) -> Literal["crop", "squash"] | None:
    modes: dict[str, Literal["crop", "squash"]] = {"shortest": "crop", "squash": "squash"}
    return modes.get(config.get("resize_mode", "shortest"))
