"""What one run is asked to do: one frozen value, read once at the edge and passed down.

A suite file is TOML with the fields of :class:`RunConfig`; a corpus or an encoder is a name of the tables
(``capim list``), a path, or a table of its own::

    name = "photographs"
    corpora = ["../shared/data/coco_photos"]
    encoders = ["tiny-clip", "openai-clip-l-336"]
    replicates = 2000

    [[encoder]]                       # a model of your own
    name = "my-clip"
    adapter = "hf_dual"
    checkpoint = "/models/my-clip"
    dim = 512

    [[corpus]]                        # data of your own
    name = "products"
    reader = "table"
    root = "/data/products"
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from store.errors import RequestError
from tasks.runtime.references import corpus_name, encoder_name
from tasks.statistics.resampling import ADJUSTMENTS, METHODS, Adjustment, IntervalMethod, Resampling

DEMO_CORPORA = ("shapes", "shapes-winoground", "shapes-multilingual")
DEMO_ENCODERS = ("tiny-clip", "tiny-clip-plain", "tiny-colpali")
WORKSPACE_VARIABLE = "CAPIM_WORKSPACE"
DEFAULT_WORKSPACE = "workspace"
PRECISIONS = ("float32", "bfloat16", "float16")

Named = str | dict[str, Any]
_NAMES = frozenset({"name", "reader", "adapter", "split", "language", "translator", "revision"})  # never paths


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run of the pipeline.

    Attributes:
        name: Shown in reports and run names.
        workspace: Folder or URI that holds ``store/`` and ``reports/``.
        corpora: Names of ``capim list corpora``, paths, or tables as in a suite file.
        encoders: Names of ``capim list encoders``, or tables with the fields of ``EncoderSpec``.
        protocols: Ids of ``capim list protocols``; empty: all that fit the corpus.
        sample: Images per corpus, drawn by ``seed``; None: all.
        batch_size: Items per forward pass; ``auto``: found by trying; None: the encoder's own, from its table or the
            catalog. A batch that does not fit into memory is halved in any case.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps``; several with commas.
        shards: Parts that every set is encoded in, side by side on the task runner or by a run each.
        precision: Of the forward pass; None: the encoder's own default.
        compile: Compile the forward passes with ``torch.compile`` first: worth it for long encodes.
        replicates: Bootstrap replicates per interval.
        seed: Of everything random.
        level: Of every interval.
        interval: ``percentile`` or ``bca``.
        adjustment: Of the p-values of all pairs of encoders: ``holm`` or ``benjamini-hochberg``.
        keep_replicates: Store every bootstrap draw of every metric too (table ``replicates``).
        analyses: Keys of the analyses that explain the results; empty: all, except those that run on request only
            (``resampled-gallery``).
        trust_remote_code: Consent to run a model repository's own code, at a resolved revision.
    """

    name: str = "run"
    workspace: str = DEFAULT_WORKSPACE
    corpora: tuple[Named, ...] = ()
    encoders: tuple[Named, ...] = ()
    protocols: tuple[str, ...] = ()
    sample: int | None = None
    batch_size: int | Literal["auto"] | None = None
    device: str = "auto"
    shards: int = 1
    precision: str | None = None
    compile: bool = False
    replicates: int = 10_000
    seed: int = 0
    level: float = 0.95
    interval: IntervalMethod = "percentile"
    adjustment: Adjustment = "holm"
    keep_replicates: bool = False
    analyses: tuple[str, ...] = ()
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        faults = []
        if self.sample is not None and self.sample < 1:
            faults.append(f"sample must be at least 1, got {self.sample}")
        batch: object = self.batch_size  # of a suite file: anything
        if batch not in (None, "auto") and not (isinstance(batch, int) and batch >= 1):
            faults.append(f"batch_size must be at least 1, or 'auto', got {batch!r}")
        if self.shards < 1:
            faults.append(f"shards must be at least 1, got {self.shards}")
        if self.replicates < 100:
            faults.append(f"replicates must be at least 100 for an interval to mean anything, got {self.replicates}")
        if not 0.5 <= self.level < 1:
            faults.append(f"level must be in [0.5, 1), got {self.level}")
        if self.interval not in METHODS:
            faults.append(f"interval must be {' or '.join(METHODS)}, got {self.interval!r}")
        if self.adjustment not in ADJUSTMENTS:
            faults.append(f"adjustment must be {' or '.join(ADJUSTMENTS)}, got {self.adjustment!r}")
        if self.precision not in (None, *PRECISIONS):
            faults.append(f"precision must be float32, bfloat16 or float16, got {self.precision!r}")
        if faults:
            raise RequestError(faults)

    @property
    def title(self) -> str:
        """What its runs are called: ``nightly: tiny-clip +2 on shapes +1``."""
        whats = ([encoder_name(e) for e in self.encoders], [corpus_name(c) for c in self.corpora])
        named = [names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "") for names in whats if names]
        return f"{self.name}: {' on '.join(named)}" if named else self.name

    def trusts(self, encoder: str) -> bool:
        """Whether an encoder's own code may run: by consent to all, or by ``remote_code = true`` in its table."""
        own = [entry for entry in self.encoders if not isinstance(entry, str) and entry.get("name") == encoder]
        return self.trust_remote_code or any(entry.get("remote_code") is True for entry in own)

    @property
    def resampling(self) -> Resampling:
        """How intervals and tests are drawn."""
        return Resampling(
            replicates=self.replicates,
            seed=self.seed,
            level=self.level,
            method=self.interval,
            adjustment=self.adjustment,
        )

    @property
    def store_uri(self) -> str:
        """Where the store is."""
        return f"{self.workspace.rstrip('/')}/store"

    @property
    def reports_uri(self) -> str:
        """Where reports go."""
        return f"{self.workspace.rstrip('/')}/reports"


def unnamed(config: RunConfig) -> list[str]:
    """What a run that encodes would have to name and does not, as faults."""
    return [
        f"no {label}: name some with --{label} or in a suite file (capim list {label})"
        for label in ("corpora", "encoders")
        if not getattr(config, label)
    ]


def default_workspace() -> str:
    """``$CAPIM_WORKSPACE``, else ``workspace`` in the current folder."""
    return os.environ.get(WORKSPACE_VARIABLE) or DEFAULT_WORKSPACE


def demo_config(workspace: str) -> RunConfig:
    """The embedded corpora and models."""
    return RunConfig(
        name="demo", workspace=workspace, corpora=DEMO_CORPORA, encoders=DEMO_ENCODERS, replicates=2000, device="cpu"
    )


def read_suite(path: str | Path) -> dict[str, Any]:
    """The fields of a suite file, ready for :func:`run_config`.

    Relative paths of corpora and checkpoints count from the suite file's folder.

    Raises:
        RequestError: The file is missing, is not TOML, or has fields that a run does not have.
    """
    path = Path(path)
    if not path.is_file():
        raise RequestError(f"suite file {path} does not exist")
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"suite file {path} is not valid TOML: {error}") from error
    corpora = [*fields.pop("corpora", []), *fields.pop("corpus", [])]
    encoders = [*fields.pop("encoders", []), *fields.pop("encoder", [])]
    known = {field.name for field in dataclasses.fields(RunConfig)}
    unknown = sorted(set(fields) - known)
    if unknown:
        names = ", ".join(sorted(known | {"corpus", "encoder"}))
        raise RequestError(f"suite file {path}: unknown fields {', '.join(unknown)}; known are {names}")
    fields["corpora"] = tuple(_beside(corpus, path.parent) for corpus in corpora)
    fields["encoders"] = tuple(_beside(encoder, path.parent) for encoder in encoders)
    return fields


def _beside(entry: Named, folder: Path) -> Named:
    """The entry with every path that exists beside the suite file made absolute; names stay names."""

    def located(value: object) -> object:
        if isinstance(value, str) and value and not Path(value).is_absolute() and (folder / value).exists():
            return str((folder / value).resolve())
        return value

    if isinstance(entry, Mapping):
        return {key: value if key in _NAMES else located(value) for key, value in entry.items()}
    return str(located(entry))


def run_config(suite: Mapping[str, Any], overrides: Mapping[str, Any]) -> RunConfig:
    """A run from a suite's fields, with what the command line said (not None) in front."""
    return RunConfig(**{**suite, **{key: value for key, value in overrides.items() if value is not None}})
