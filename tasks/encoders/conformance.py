"""The conformance suite: checks that a model was loaded correctly, for tests and for ``capim check ENCODER``.

A check takes a loaded model and returns its measurement, in one line; it raises :class:`CheckFailed` or
:class:`CheckSkipped` with the reason. No check depends on the family of the model. The inputs are six images with
captions, unusual images and unusual captions.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from capim.store.errors import RequestError, WorkError
from capim.store.types import Embeddings, EncoderSpec, Precision
from capim.store.vectors import Ragged
from capim.tasks.encoders.adapters import adapter_named, adapter_of, is_own_code
from capim.tasks.encoders.checkpoint import folder_of, json_file, local_path, open_clip_tag
from capim.tasks.encoders.encoder import Encoder, encode_captions, encode_images, service_of
from capim.tasks.encoders.identity import identity_gap, resolve, roles_line
from capim.tasks.encoders.loading import load_encoder
from capim.tasks.encoders.weights import MissingWeightsError, lost_matrices, weights_of

NORM_TOLERANCE = 1e-3
PRECISION_COSINE = 0.999
# the same item in another batch: float32 differs only by rounding, half precision by its own rounding
NEIGHBOUR_TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 4e-3}
_OPEN_CLIP_RESIZE: dict[str, Literal["crop", "squash"]] = {"shortest": "crop", "squash": "squash"}
_COLOURS = {
    "red": (220, 40, 40), "green": (40, 170, 60), "blue": (50, 80, 220),
    "yellow": (235, 205, 40), "purple": (150, 60, 190), "orange": (245, 140, 30),
}  # fmt: skip
_SCENES = (
    ("red", "circle", "blue", "square"), ("green", "triangle", "yellow", "circle"),
    ("purple", "square", "orange", "triangle"), ("blue", "circle", "red", "triangle"),
    ("yellow", "square", "green", "circle"), ("orange", "circle", "purple", "triangle"),
)  # fmt: skip

SHORT = "a red bus"
CAPTIONS = (
    SHORT,
    "A yellow tram passes an old church.",
    "Two dogs, one brown and one white, play with a yellow ball on the grass behind a wooden fence.",
    "the",
)
UNUSUAL_CAPTIONS = (
    "",
    " ",
    "一只红色的公共汽车停在路边",
    "حافلة حمراء متوقفة على جانب الطريق",
    "รถบัสสีแดงจอดอยู่ข้างถนน",
    "красный автобус у дороги",
    "🚌🔴 naïve café — ½ price!!!",
    "line one\nline two\ttabbed\x00",
    "</s> <pad> [SEP] <image> <|endoftext|> <eos>",  # special tokens written out
)
LONG = "a small red bus and a large green tree stand beside each other " * 800


class CheckFailed(Exception):  # noqa: N818 - a result, not an error of the program
    """The error found in the model, in one line."""


class CheckSkipped(Exception):  # noqa: N818 - a result, not an error of the program
    """The reason why a check does not apply to this model, in one line."""


class CheckResult(NamedTuple):
    """One row of ``capim check``.

    Attributes:
        check: Name of the check.
        result: ``pass``, ``fail``, or ``skip`` if the check does not apply to this model or cannot decide.
        detail: The measurement, the error, or the unverified fact, in one line.
    """

    check: str
    result: Literal["pass", "fail", "skip"]
    detail: str


def weights_are_in_the_model(encoder: Encoder) -> str:
    """Check that every weight matrix of the checkpoint's files is in the model, value by value."""
    if not encoder.modules:
        raise CheckSkipped("the adapter does not expose its weights")
    if adapter_named(encoder.spec.adapter).unverified:
        raise CheckSkipped("the adapter does not say which files hold them")
    missing, of = lost_matrices(encoder.spec, encoder.modules)
    if missing:
        raise CheckFailed(f"{len(missing)} of {of} weight matrices are not in the model: {', '.join(missing[:3])}")
    return f"all {of} weight matrices of the checkpoint"


def shapes_and_norms(encoder: Encoder) -> str:
    """Check that vectors are finite float32 of unit norm and right dimension, one item per input, with their norms."""
    images, captions = suite_embeddings(encoder)
    for name, block, n in (("image", images, 6), ("caption", captions, 6 + len(CAPTIONS))):
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
    norms = f"norms before normalising {np.median(images.norms):.3g} and {np.median(captions.norms):.3g}"
    per_item = "" if images.offsets is None else f", {images.counts.max()} vectors per image"
    return f"dim {encoder.spec.dim}{per_item}, {norms} (images, captions)"


def repeated_calls_agree(encoder: Encoder) -> str:
    """Check that two calls with the same inputs give the same vectors: dropout is off and no state is kept."""
    first, second = suite_embeddings(encoder), suite_embeddings(encoder)
    for name, one, other in zip(("images", "captions"), first, second, strict=True):
        largest = _tolerance(encoder) if service_of(encoder) else 1e-6
        if _change(one.values, other.values) > largest:
            raise CheckFailed(f"{name} change from one call to the next: is the model in evaluation mode?")
    return "identical"


def vectors_do_not_depend_on_the_batch(encoder: Encoder) -> str:
    """Check that an item has the same vectors by itself, in a batch, and in a batch with a long caption."""
    tolerance = _tolerance(encoder)
    images = [*six_scenes()[0][:2], noise_image(300, 90, 1), noise_image(64, 200, 2)]
    captions = [*CAPTIONS, " ".join([CAPTIONS[2]] * 2)]
    worst = 0.0
    for name, together, alone in (
        ("image", encode_images(encoder, images), [encode_images(encoder, [one]) for one in images]),
        ("caption", encode_captions(encoder, captions), [encode_captions(encoder, [one]) for one in captions]),
    ):
        for i, (inside, single) in enumerate(zip(_items(together), alone, strict=True)):
            if inside.shape != single.values.shape:
                raise CheckFailed(
                    f"{name} {i} has {len(single.values)} vectors by itself, {len(inside)} in a batch: padding is kept"
                )
            worst = max(worst, _change(inside, single.values))
        if worst > tolerance:
            raise CheckFailed(
                f"{name}s change by {worst:.2g} with the batch (at most {tolerance:g}): wrong padding or mask"
            )
    return f"largest change {worst:.1g}"


def resizing_is_as_declared(encoder: Encoder) -> str:
    """Check that a model that should crop does not see the sides of a wide image, and one that should squash does."""
    code = encoder.spec.checkpoint == encoder.spec.adapter
    if service_of(encoder) or code or (declared := declared_resize(encoder)) is None:
        raise CheckSkipped("the checkpoint does not declare it")
    sees_sides = _change(*_items(encode_images(encoder, list(wide_pair())))) > 1e-4
    if sees_sides == (declared == "crop"):
        actual = "squashes or keeps" if sees_sides else "crops"
        raise CheckFailed(f"the checkpoint declares {declared!r}, but the adapter {actual} images")
    return declared


def declared_resize(encoder: Encoder) -> Literal["crop", "squash"] | None:
    """Return how the checkpoint's configuration treats the aspect ratio of images."""
    if tag := open_clip_tag(encoder.spec):
        return _OPEN_CLIP_RESIZE.get(tag.preprocess.get("resize_mode", "shortest"))
    if (path := local_path(encoder.spec.checkpoint)) and path.is_file():
        return None
    folder = folder_of(encoder.spec)
    if config := json_file(folder / "open_clip_config.json"):
        return _OPEN_CLIP_RESIZE.get(config.get("preprocess_cfg", {}).get("resize_mode", "shortest"))
    file = next(iter(sorted(folder.rglob("preprocessor_config.json"))), folder / "preprocessor_config.json")
    config = json_file(file) or json_file(folder / "processor_config.json").get("image_processor", {})
    if not config:
        return adapter_named(encoder.spec.adapter).resize
    if "resize_mode" in config or config.get("do_center_crop"):
        return "crop" if config.get("do_center_crop") or config["resize_mode"] == "shortest" else "squash"
    size = config.get("size")
    return "squash" if isinstance(size, dict) and {"height", "width"} <= size.keys() else None


def truncation_is_counted(encoder: Encoder) -> str:
    """Check that a caption that is too long is truncated and marked as such, and that a short one is not."""
    block = encode_captions(encoder, [LONG, SHORT])
    if not block.n_tokens.any() or (service_of(encoder) and not block.truncated.any()):
        raise CheckSkipped("the adapter does not count tokens, or the service does not say what it truncates")
    if not block.truncated[0] or block.truncated[1]:
        raise CheckFailed(
            f"a caption of {len(LONG.split())} words: truncated is {block.truncated.tolist()}, not [True, False]"
        )
    if block.n_tokens[1] >= block.n_tokens[0] or block.n_tokens[1] < 2:
        raise CheckFailed(f"token counts are {block.n_tokens.tolist()} for a very long and a very short caption")
    return f"captions are truncated at {int(block.n_tokens[0])} tokens"


def unusual_images_are_encoded(encoder: Encoder) -> str:
    """Check that images of every mode and size have finite vectors, in every mode those of the image in RGB."""
    images = unusual_images()
    for name, image in images.items():
        values = encode_images(encoder, [image]).values
        if not np.isfinite(values).all():
            raise CheckFailed(f"{name}: not finite")
        if image.mode != "RGB":
            plain = encode_images(encoder, [image.convert("RGB")]).values
            if _change(values, plain) > _tolerance(encoder):
                raise CheckFailed(f"mode {name} gives another vector than the same image in RGB")
    return ", ".join(images)


def unusual_captions_are_encoded(encoder: Encoder) -> str:
    """Check that empty, non-Latin and hostile captions have finite vectors and do not change their neighbours'."""
    plain = encode_captions(encoder, [SHORT]).values
    for others in (UNUSUAL_CAPTIONS, (LONG,)):  # separately: all would be padded to the long one
        together = encode_captions(encoder, [SHORT, *others])
        if not np.isfinite(together.values).all():
            raise CheckFailed("the vector of a caption is not finite")
        if _change(_items(together)[0], plain) > _tolerance(encoder):
            raise CheckFailed("the vector of an ordinary caption changes in a batch with unusual ones")
    n = len(UNUSUAL_CAPTIONS) + 2
    return f"{n} captions: empty, six scripts, special tokens written out, {len(LONG.split())} words"


def matching_pairs_score_highest(encoder: Encoder) -> str:
    """Check that captions of the six scenes score higher on average with their own image than with the others."""
    scenes, captions = six_scenes()
    images, texts = _items(encode_images(encoder, scenes)), _items(encode_captions(encoder, captions))
    # the sum over caption vectors of the best image vector; for single vectors, the cosine
    scores = np.asarray([[(text @ image.T).max(axis=1).sum() for image in images] for text in texts])
    own = float(np.diag(scores).mean())
    others = float(scores[~np.eye(len(scores), dtype=bool)].mean())
    first = int((scores.argmax(axis=1) == np.arange(len(scores))).sum())
    measured = f"mean score {own:.3f} with the own image, {others:.3f} with others; {first} of 6 captions rank it first"
    if own <= others or first < 3:
        raise CheckFailed(f"{measured} (chance: 1)")
    return measured


def speed_of_one_batch(encoder: Encoder) -> str:
    """Measure the items per second of one prepared batch of 16, after a warm-up pass."""
    images = [noise_image(320, 240, seed) for seed in range(16)]
    rates = []
    for batch in (encoder.prepare_images(images), encoder.prepare_captions([CAPTIONS[1]] * 16)):
        encoder.embed(batch)
        start = time.perf_counter()
        encoder.embed(batch)
        rates.append(16 / (time.perf_counter() - start))
    service = service_of(encoder)
    where = service.address if service else f"{encoder.device}, {encoder.spec.precision}"
    return f"{rates[0]:.1f} images/s, {rates[1]:.1f} captions/s on {where}"


def identity_is_whole(encoder: Encoder) -> str:
    """Report everything that changes a vector, in the form stored with the embeddings."""
    spec = encoder.spec
    if gap := identity_gap(spec):
        raise CheckSkipped(f"not verified: {gap}")
    if service_of(encoder):
        raise CheckSkipped(
            "not verified: the weights are with the service; each run compares its probe vectors with the first run"
        )
    options = "".join(f", {name} = {value}" for name, value in sorted(spec.options.items()))
    return f"{spec.fingerprint}: {spec.precision}{options}"


def roles_and_prompts(encoder: Encoder) -> str:
    """Report the roles and the surrounding texts with which captions and images are encoded."""
    return roles_line(encoder.spec) or "its family has none"


def no_weight_is_missing(encoder: Encoder) -> str:
    """Check that the loaded model has all its weights from the checkpoint."""
    if unverified := adapter_named(encoder.spec.adapter).unverified:
        raise CheckSkipped(f"not verified: {unverified}")
    held = weights_of(encoder)
    # made NaN when the model was loaded: see weights.py
    unused = [name for name, (_, tensor) in held.items() if tensor.is_floating_point() and tensor.isnan().all()]
    but = f", but for {len(unused)} that no vector needs: {', '.join(unused[:3])}" if unused else ""
    return f"all {len(held)} weights of the model are from the checkpoint{but}"


CHECKS: dict[str, Callable[[Encoder], str]] = {
    "identity": identity_is_whole,
    "roles and prompts": roles_and_prompts,
    "no missing weights": no_weight_is_missing,
    "weights in the model": weights_are_in_the_model,
    "shapes and norms": shapes_and_norms,
    "repeated calls": repeated_calls_agree,
    "independent of batch": vectors_do_not_depend_on_the_batch,
    "resizing as declared": resizing_is_as_declared,
    "truncation": truncation_is_counted,
    "unusual images": unusual_images_are_encoded,
    "unusual captions": unusual_captions_are_encoded,
    "matching pairs": matching_pairs_score_highest,
    "speed": speed_of_one_batch,
}


def check_encoder(spec: EncoderSpec, *, device: str = "cpu", trust_remote_code: bool = False) -> Iterator[CheckResult]:
    """Load one model and run all checks; results are yielded as they come.

    A model that does not load gives one failed result only.

    Raises:
        RequestError: If the adapter or device is unknown, or if a library or consent is missing.
    """
    adapter_of(spec)
    try:
        encoder, offline = _load(spec, device, trust_remote_code)
    except WorkError as error:
        what = "no missing weights" if isinstance(error, MissingWeightsError) else "loads"
        yield CheckResult(what, "fail", str(error))
        return
    yield offline
    yield from check_loaded(encoder)
    try:
        embeddings = suite_embeddings(encoder)
    except Exception:  # noqa: BLE001 - the checks above have reported it
        return
    del encoder
    gc.collect()
    yield _agreement(spec, embeddings, device, trust_remote_code)


def check_loaded(encoder: Encoder, which: Mapping[str, Callable[[Encoder], str]] = CHECKS) -> Iterator[CheckResult]:
    """Run checks on a loaded model."""
    for name, check in which.items():
        try:
            yield CheckResult(name, "pass", check(encoder))
        except CheckSkipped as reason:
            yield CheckResult(name, "skip", str(reason))
        except CheckFailed as fault:
            yield CheckResult(name, "fail", str(fault))
        except Exception as error:  # noqa: BLE001 - an error of the model's code is a result too
            yield CheckResult(name, "fail", f"{type(error).__name__}: {error}")


def _load(spec: EncoderSpec, device: str, trust_remote_code: bool) -> tuple[Encoder, CheckResult]:
    """Return the model, loaded without the hub if possible, and whether that was possible."""

    def load() -> Encoder:
        return load_encoder(resolve(spec), device=device, trust_remote_code=trust_remote_code)

    adapter = adapter_named(spec.adapter)
    if adapter.is_remote:
        detail = f"not verified: {spec.checkpoint} runs at {spec.options['url']}"
        return load(), CheckResult("loads offline", "skip", detail)
    try:
        with _hub_switched_off():
            encoder = load()
    except MissingWeightsError:
        raise
    except WorkError as error:
        encoder = load()
        return encoder, CheckResult("loads offline", "fail", f"only with the hub: {error}")
    loaded = f"{spec.checkpoint} at {encoder.spec.revision}"
    if adapter.is_file or is_own_code(spec.adapter):
        detail = f"not verified: a module may fetch files in any way; loaded {loaded} with the hub switched off"
        return encoder, CheckResult("loads offline", "skip", detail)
    return encoder, CheckResult("loads offline", "pass", loaded)


@contextlib.contextmanager
def _hub_switched_off() -> Iterator[None]:
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _agreement(spec: EncoderSpec, found: Sequence[Embeddings], device: str, trust_remote_code: bool) -> CheckResult:
    """Return whether another precision on the CPU gives nearly the same vectors."""
    adapter = adapter_named(spec.adapter)
    if adapter.is_remote or adapter.library:
        return CheckResult("agrees with another precision", "skip", "the service, or mteb's loader, chooses it")
    other: Precision = "float32" if spec.precision != "float32" else "bfloat16"
    name = f"agrees with {other} on the CPU"
    try:
        encoder = load_encoder(replace(resolve(spec), precision=other), trust_remote_code=trust_remote_code)
        pairs = zip(found, suite_embeddings(encoder), strict=True)
        items = (each for one, two in pairs for each in zip(_items(one), _items(two), strict=True))
        lowest = min(float((one * two).sum(axis=1).mean()) for one, two in items)  # for multi-vectors, their mean
    except (WorkError, RequestError, RuntimeError) as error:
        return CheckResult(name, "fail", f"{type(error).__name__}: {error}")
    detail = f"lowest cosine between {spec.precision} on {device} and {other} on cpu is {lowest:.5f}"
    return CheckResult(name, "pass" if lowest > PRECISION_COSINE else "fail", detail)


def suite_embeddings(encoder: Encoder) -> tuple[Embeddings, Embeddings]:
    """Return embeddings of the six scenes, and those of their captions and of four others."""
    images, captions = six_scenes()
    return encode_images(encoder, images), encode_captions(encoder, [*captions, *CAPTIONS])


def _items(block: Embeddings) -> Ragged:
    """Return the vectors of each item, shape ``(count, dim)``."""
    return Ragged.from_counts(block.values, block.counts)


def _change(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """Return the largest change of a component of an item's vectors; infinite if their number changes."""
    return float(np.abs(one - other).max()) if one.shape == other.shape else np.inf


def _highest_cosine(block: Embeddings) -> float:
    """Return the highest cosine of two different items, by their mean vectors."""
    means = np.asarray([item.mean(axis=0) for item in _items(block)])
    unit = means / np.linalg.norm(means, axis=1, keepdims=True)
    return float((unit @ unit.T)[~np.eye(len(unit), dtype=bool)].max())


def _tolerance(encoder: Encoder) -> float:
    """Return the allowed change of a vector between batches; a service's precision is unknown."""
    return NEIGHBOUR_TOLERANCE["bfloat16" if service_of(encoder) else encoder.spec.precision]


def six_scenes() -> tuple[list[Image.Image], list[str]]:
    """Return images of two shapes each, and a matching caption for each."""
    images, captions = [], []
    for left, first, right, second in _SCENES:
        image = Image.new("RGB", (256, 256), (240, 240, 240))
        draw = ImageDraw.Draw(image)
        for colour, shape, x in ((left, first, 68), (right, second, 188)):
            if shape == "triangle":
                draw.polygon([(x, 78), (x - 50, 178), (x + 50, 178)], fill=_COLOURS[colour])
            else:
                drawn = draw.ellipse if shape == "circle" else draw.rectangle
                drawn((x - 50, 78, x + 50, 178), fill=_COLOURS[colour])
        images.append(image)
        captions.append(f"a large {left} {first} left of a large {right} {second}")
    return images, captions


def noise_image(width: int, height: int, seed: int) -> Image.Image:
    """Return an image of coarse coloured noise, which survives resizing."""
    small = np.random.default_rng(seed).integers(0, 256, (max(1, height // 8), max(1, width // 8), 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def unusual_images() -> dict[str, Image.Image]:
    """Return images in every Pillow mode that a corpus may hold, and of extreme sizes, by name."""
    image = noise_image(96, 80, seed=5)
    modes = {mode: image.convert(mode) for mode in ("L", "LA", "RGBA", "P", "CMYK", "1", "YCbCr")}
    modes["I;16"] = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    sizes = {f"{w}x{h}": noise_image(w, h, seed=6) for w, h in ((1, 1), (3, 2), (700, 5), (5, 700), (1500, 1100))}
    return modes | sizes


def wide_pair() -> tuple[Image.Image, Image.Image]:
    """Return two wide images with equal centres and different sides: a centre crop makes them equal."""
    first, second = noise_image(720, 240, seed=7), noise_image(720, 240, seed=8)
    second.paste(first.crop((200, 0, 520, 240)), (200, 0))
    return first, second
