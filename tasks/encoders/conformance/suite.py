"""The conformance suite: whether a model was loaded correctly, for tests and for ``capim check ENCODER``."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

from capim.store.errors import RequestError, WorkError
from capim.store.types import EncoderSpec, Precision
from capim.tasks.encoders.adapters.own_code import is_own_code
from capim.tasks.encoders.adapters.table import adapter_named, adapter_of
from capim.tasks.encoders.checkpoints.loaded_weights import weights_of
from capim.tasks.encoders.checkpoints.module_files import identity_gap
from capim.tasks.encoders.checkpoints.prompts import roles_line
from capim.tasks.encoders.checkpoints.resolving import resolve
from capim.tasks.encoders.checkpoints.weights import MissingWeightsError
from capim.tasks.encoders.conformance import checks
from capim.tasks.encoders.conformance.checks import CheckFailed, CheckSkipped
from capim.tasks.encoders.encoder import Encoder
from capim.tasks.encoders.loading import load_encoder

CHECKS: dict[str, Callable[[Encoder], str]] = {
    "weights in the model": checks.weights_are_in_the_model,
    "shapes and norms": checks.shapes_and_norms,
    "repeated calls": checks.repeated_calls_agree,
    "independent of batch": checks.vectors_do_not_depend_on_the_batch,
    "resizing as declared": checks.resizing_is_as_declared,
    "truncation": checks.truncation_is_counted,
    "unusual images": checks.unusual_images_are_encoded,
    "unusual captions": checks.unusual_captions_are_encoded,
    "empty input": checks.no_items_give_no_vectors,
    "matching pairs": checks.matching_pairs_score_highest,
    "speed": checks.speed_of_one_batch,
}


class CheckResult(NamedTuple):
    """One row of ``capim check``.

    Attributes:
        check: Name of the check.
        result: ``pass``, ``fail``, or ``skip`` where the check does not apply to this model or cannot know.
        detail: What was measured, is wrong or was not verified, in one line.
    """

    check: str
    result: Literal["pass", "fail", "skip"]
    detail: str


def check_encoder(
    spec: EncoderSpec, *, device: str = "cpu", trust_remote_code: bool = False, compiled: bool = False
) -> Iterator[CheckResult]:
    """Load one model and run all checks; results are yielded as they come.

    A model that does not load gives one failed result only.

    Raises:
        RequestError: The adapter or device is unknown, or a library or consent is missing.
    """
    adapter_of(spec)
    try:
        encoder, offline = _load(spec, device, trust_remote_code, compiled)
    except WorkError as error:
        what = "no missing weights" if isinstance(error, MissingWeightsError) else "loads"
        yield CheckResult(what, "fail", str(error))
        return
    yield offline
    yield from check_loaded(encoder, {"identity": _identity})
    if roles := roles_line(encoder.spec):
        yield CheckResult("roles and prompts", "pass", roles)
    yield from check_loaded(encoder, {"no missing weights": _no_missing_weights, **CHECKS})
    try:
        embeddings = checks.suite_embeddings(encoder)
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


def _load(spec: EncoderSpec, device: str, trust_remote_code: bool, compiled: bool) -> tuple[Encoder, CheckResult]:
    """The model, loaded without the hub if possible, and whether that was possible."""

    def load() -> Encoder:
        return load_encoder(resolve(spec), device=device, trust_remote_code=trust_remote_code, compiled=compiled)

    if adapter_named(spec.adapter).endpoint:
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
    if spec.adapter == "module" or is_own_code(spec.adapter):
        detail = f"not verified: a module may fetch files in any way; loaded {loaded} with the hub switched off"
        return encoder, CheckResult("loads offline", "skip", detail)
    return encoder, CheckResult("loads offline", "pass", loaded)


def _identity(encoder: Encoder) -> str:
    """Everything that changes a vector, as it is stored with the embeddings."""
    spec = encoder.spec
    if gap := identity_gap(spec):
        raise CheckSkipped(f"not verified: {gap}")
    if adapter_named(spec.adapter).endpoint:
        raise CheckSkipped(
            "not verified: the weights are with the service; each run compares its probe vectors with the first run"
        )
    options = "".join(f", {name} = {value}" for name, value in sorted(spec.options.items()))
    return f"{spec.fingerprint}: {spec.precision}{options}"


def _no_missing_weights(encoder: Encoder) -> str:
    """Whether the model, which was loaded, has all its weights from the checkpoint."""
    if unverified := adapter_named(encoder.spec.adapter).unverified:
        raise CheckSkipped(f"not verified: {unverified}")
    held = weights_of(encoder)
    # made NaN when the model was loaded: see loaded_weights
    unused = [name for name, (_, tensor) in held.items() if tensor.is_floating_point() and tensor.isnan().all()]
    but = f", but for {len(unused)} that no vector needs: {', '.join(unused[:3])}" if unused else ""
    return f"all {len(held)} weights of the model are from the checkpoint{but}"


@contextlib.contextmanager
def _hub_switched_off() -> Iterator[None]:
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _agreement(
    spec: EncoderSpec, embeddings: checks.SuiteEmbeddings, device: str, trust_remote_code: bool
) -> CheckResult:
    """Whether another precision on the CPU gives nearly the same vectors."""
    if adapter_named(spec.adapter).endpoint:
        return CheckResult("agrees with another precision", "skip", "the service chooses it")
    other: Precision = "float32" if spec.precision != "float32" else "bfloat16"
    name = f"agrees with {other} on the CPU"
    try:
        encoder = load_encoder(replace(resolve(spec), precision=other), trust_remote_code=trust_remote_code)
        lowest = checks.lowest_cosine(embeddings, checks.suite_embeddings(encoder))
    except (WorkError, RequestError, RuntimeError) as error:
        return CheckResult(name, "fail", f"{type(error).__name__}: {error}")
    detail = f"lowest cosine between {spec.precision} on {device} and {other} on cpu is {lowest:.5f}"
    return CheckResult(name, "pass" if lowest > checks.PRECISION_COSINE else "fail", detail)
