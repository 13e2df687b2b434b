"""Is this model loaded right? One suite over every encoder, for tests and for ``capim check ENCODER``.

A point is a function that looks at a loaded model and returns what it found, or raises :class:`Unfit` with what is
wrong. None of them needs to know the family: what must not matter (batch, neighbours, order, padding) is varied, what
must hold (norms, shapes, counts) is measured, and what the checkpoint says of itself is compared with what happens.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from store.errors import RequestError, WorkError
from store.types import EncoderSpec, Precision
from tasks.encoders.adapters.table import adapter_of
from tasks.encoders.checkpoints.resolving import resolve
from tasks.encoders.checkpoints.weights import MissingWeightsError
from tasks.encoders.conformance import points
from tasks.encoders.conformance.points import NotApplicable, Unfit
from tasks.encoders.encoder import Encoder
from tasks.encoders.loading import load_encoder

POINTS: dict[str, Callable[[Encoder], str]] = {
    "weights in the model": points.weights_are_in_the_model,
    "shapes and norms": points.shapes_and_norms,
    "same twice": points.same_twice,
    "batch and neighbours": points.batch_and_neighbours_do_not_matter,
    "resize as declared": points.resizes_as_declared,
    "truncation is counted": points.truncation_is_counted,
    "awkward pictures": points.awkward_pictures_embed,
    "awkward captions": points.awkward_captions_embed,
    "empty input": points.empty_input_gives_an_empty_block,
    "known answer": points.matching_pairs_score_above_others,
    "speed": points.speed_of_one_batch,
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One row of ``capim check``.

    Attributes:
        point: What was looked at.
        result: ``pass``, ``fail``, or ``skip`` where the point makes no sense for this model.
        detail: What was found, in one line.
    """

    point: str
    result: Literal["pass", "fail", "skip"]
    detail: str


def check_encoder(
    spec: EncoderSpec, *, device: str = "cpu", trust_remote_code: bool = False, compiled: bool = False
) -> Iterator[Verdict]:
    """Load one model and look at every point; verdicts come as they are found.

    A model that does not load gives one failed verdict and no further ones.

    Raises:
        RequestError: The spec itself is wrong: unknown adapter or device, a missing package, missing consent.
    """
    adapter_of(spec.adapter)
    try:
        encoder, offline = _load(spec, device, trust_remote_code, compiled)
    except MissingWeightsError as error:
        yield Verdict(point="no missing weights", result="fail", detail=str(error))
        return
    except WorkError as error:
        yield Verdict(point="loads", result="fail", detail=str(error))
        return
    yield offline
    yield Verdict(point="no missing weights", result="pass", detail="every weight of the architecture was loaded")
    yield from check_loaded(encoder)
    try:
        vectors = points.sample_vectors(encoder)
    except Exception:  # noqa: BLE001 - the points above have said what is wrong
        return
    del encoder
    gc.collect()
    yield _agreement(spec, vectors, device, trust_remote_code)


def check_loaded(encoder: Encoder, which: Mapping[str, Callable[[Encoder], str]] = POINTS) -> Iterator[Verdict]:
    """The verdicts on a model that is loaded already."""
    for name, look in which.items():
        try:
            yield Verdict(point=name, result="pass", detail=look(encoder))
        except NotApplicable as reason:
            yield Verdict(point=name, result="skip", detail=str(reason))
        except Unfit as fault:
            yield Verdict(point=name, result="fail", detail=str(fault))
        except Exception as error:  # noqa: BLE001 - whatever a model's code raises is what this suite is to report
            yield Verdict(point=name, result="fail", detail=f"{type(error).__name__}: {error}")


def _load(spec: EncoderSpec, device: str, trust_remote_code: bool, compiled: bool) -> tuple[Encoder, Verdict]:
    """The model, and whether it loads without the hub; if it does not, the hub is asked."""

    def load() -> Encoder:
        return load_encoder(resolve(spec), device=device, trust_remote_code=trust_remote_code, compiled=compiled)

    try:
        with _hub_switched_off():
            encoder = load()
    except (WorkError, RequestError) as error:
        if isinstance(error, MissingWeightsError | RequestError):
            raise
        encoder = load()
        return encoder, Verdict(point="loads offline", result="fail", detail=f"only with the hub: {error}")
    return encoder, Verdict(
        point="loads offline", result="pass", detail=f"{spec.checkpoint} at {encoder.spec.revision}"
    )


@contextlib.contextmanager
def _hub_switched_off() -> Iterator[None]:
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _agreement(spec: EncoderSpec, vectors: points.Sample, device: str, trust_remote_code: bool) -> Verdict:
    """Whether another precision, on the CPU, gives nearly the same vectors."""
    other: Precision = "float32" if spec.precision != "float32" else "bfloat16"
    point = f"agrees with {other} on the CPU"
    try:
        encoder = load_encoder(replace(resolve(spec), precision=other), trust_remote_code=trust_remote_code)
        lowest = points.lowest_cosine(vectors, points.sample_vectors(encoder))
    except (WorkError, RequestError, RuntimeError) as error:
        return Verdict(point=point, result="fail", detail=f"{type(error).__name__}: {error}")
    detail = f"lowest cosine between {spec.precision} on {device} and {other} on cpu is {lowest:.5f}"
    return Verdict(point=point, result="pass" if lowest > points.PRECISION_COSINE else "fail", detail=detail)
