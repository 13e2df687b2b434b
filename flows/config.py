"""What one run does: one frozen value, checked once at the edge and passed down.

A suite file is TOML with the fields of :class:`RunConfig`; a corpus or an encoder is a name (``capim list``), a path or
a table::

    name = "photographs"
    corpora = ["./photos"]
    encoders = ["tiny-clip", "openai-clip-l-336"]
    [[encoder]]                       # a model that is not in the catalog
    name = "my-clip"
    adapter = "hf_dual"
    checkpoint = "/models/my-clip"
    dim = 512
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ByteSize, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from capim.store.errors import RequestError, unknown
from capim.store.types import Precision, Storage
from capim.tasks.corpora.files import corpus_name
from capim.tasks.runtime.references import encoder_name
from capim.tasks.statistics.draws import Adjustment, IntervalMethod, Resampling

# corpora and encoders of the demo's runs: each late-interaction model on what it was trained for
DEMO: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("pages",), ("tiny-clip", "tiny-clip-plain", "tiny-colpali-pages")),
    (("shapes", "shapes-winoground", "shapes-multilingual"), ("tiny-clip", "tiny-clip-plain", "tiny-colpali")),
)
WORKSPACE_VARIABLE = "CAPIM_WORKSPACE"
DEFAULT_WORKSPACE = "workspace"

Named = str | dict[str, Any]


def _refuse_truth(value: object) -> object:
    """The value; true is not 1 in a suite, where pydantic takes it for 1."""
    if isinstance(value, bool):
        raise ValueError("a number")
    return value


# after the limits of a number, which are in the schema of Prefect's form only where they come first
NoTruth = BeforeValidator(_refuse_truth)
_NAMES = frozenset({"name", "reader", "adapter", "split", "language", "translator", "revision"})  # never paths
_TABLES = {"corpora": "corpus", "encoders": "encoder"}  # list of a suite -> its tables, [[corpus]] and [[encoder]]
_EXPECTED = {  # what a value should have been, by the type of pydantic's error
    "byte_size": "a size such as 2GiB",
    "byte_size_unit": "a size such as 2GiB",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "literal_error": "{expected}",
    "value_error": "{error}",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a string",
    "dict_type": "a table",
    "tuple_type": "a list",
}


def default_workspace() -> str:
    """``$CAPIM_WORKSPACE``, else ``workspace`` in the current folder."""
    return os.environ.get(WORKSPACE_VARIABLE) or DEFAULT_WORKSPACE


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class RunConfig:
    """What a run does. In a run of a deployment, a field that is not given is that of the deployment."""

    name: Annotated[str, Field(description="name of the run, shown in reports")] = "run"
    workspace: str = Field(
        default_factory=default_workspace,
        description="folder or URI that holds store/ and reports/ (default: $CAPIM_WORKSPACE of the process that runs)",
    )
    corpora: Annotated[
        tuple[Named, ...],
        Field(
            description="corpora: names (capim list corpora), folders, files or names in the store (capim store info)"
        ),
    ] = ()
    encoders: Annotated[tuple[Named, ...], Field(description="encoders: names (capim list encoders)")] = ()
    protocols: Annotated[
        tuple[str, ...],
        Field(description="evaluation protocols (capim list protocols; default: all that fit the corpus)"),
    ] = ()
    sample: Annotated[
        Annotated[int, Field(ge=1), NoTruth] | None,
        Field(description="use only N images of each corpus, drawn with the seed"),
    ] = None
    batch_size: Annotated[
        Annotated[int, Field(ge=1), NoTruth] | Literal["auto"] | None,
        Field(description="items per forward pass, or auto to measure the fastest (default: the encoder's own)"),
    ] = None
    device: Annotated[
        str, Field(description="auto, cpu, cuda, cuda:1 or mps; several separated by commas encode in parallel")
    ] = "auto"
    shards: Annotated[
        int, Field(ge=1, description="encode every set in N shards, in parallel on Prefect's task runner"), NoTruth
    ] = 1
    precision: Annotated[
        Precision | None,
        Field(description="floating-point precision of the forward pass (default: the encoder's own)"),
    ] = None
    storage: Annotated[
        Storage | None,
        Field(
            description="type of the stored vectors; float16 halves their size and rounds (default: float32, "
            "float16 for multi-vectors, for imports that of the file)"
        ),
    ] = None
    compile: Annotated[
        bool, Field(strict=True, description="compile the model with torch.compile first; pays in long encodes")
    ] = False
    parts: Annotated[
        int, Field(ge=1, description="score every gallery in N parts, in parallel on Prefect's task runner"), NoTruth
    ] = 1
    memory: Annotated[
        ByteSize | None,
        Field(description="memory for the vectors and scores of each part, such as 500MB (default: 2GiB)"),
    ] = None
    distractors: Annotated[
        tuple[str, ...], Field(description="stored corpora of which images are added to every gallery, as a curve")
    ] = ()
    replicates: Annotated[int, Field(ge=100, description="bootstrap replicates per interval"), NoTruth] = 10_000
    seed: Annotated[int, Field(ge=0, le=2**63 - 1, description="random seed"), NoTruth] = 0
    level: Annotated[float, Field(ge=0.5, lt=1, description="confidence level of the intervals"), NoTruth] = 0.95
    interval: Annotated[
        IntervalMethod,
        Field(description="interval of shares of hits; of other figures percentile, or bca if bca is chosen"),
    ] = "wilson"
    adjustment: Annotated[Adjustment, Field(description="adjustment of p-values for multiple comparisons")] = "max-t"
    permutations: Annotated[
        int,
        Field(ge=1000, description="random sign flips of the tests, where not all of them can be enumerated"),
        NoTruth,
    ] = 10_000
    margin: Annotated[
        float, Field(gt=0, lt=100, description="points within which two encoders count as equivalent"), NoTruth
    ] = 1.0
    keep_replicates: Annotated[
        bool, Field(strict=True, description="store every bootstrap replicate of every metric (table replicates)")
    ] = False
    analyses: Annotated[
        tuple[str, ...], Field(description="diagnostic analyses (default: all except resampled-gallery)")
    ] = ()
    baseline: Annotated[
        str | None,
        Field(description="run that a watch pins as its baseline (default: the pinned one, else the first watch)"),
    ] = None
    trust_remote_code: Annotated[
        bool, Field(strict=True, description="allow Python code from a model repository to run, at a fixed revision")
    ] = False

    @property
    def title(self) -> str:
        """The name of its Prefect runs: ``nightly: tiny-clip +2 on shapes +1``."""
        lists = ([encoder_name(e) for e in self.encoders], [_title(c) for c in self.corpora])
        parts = [names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "") for names in lists if names]
        return f"{self.name}: {' on '.join(parts)}" if parts else self.name

    def trusts(self, encoder: str) -> bool:
        """Whether code of an encoder's repository may run: allowed for all, or ``remote_code = true`` in its table."""
        tables = [entry for entry in self.encoders if not isinstance(entry, str) and entry.get("name") == encoder]
        return self.trust_remote_code or any(table.get("remote_code") is True for table in tables)

    @property
    def resampling(self) -> Resampling:
        """Settings of all intervals and tests."""
        return Resampling(
            replicates=self.replicates,
            seed=self.seed,
            level=self.level,
            method=self.interval,
            adjustment=self.adjustment,
            permutations=self.permutations,
            margin=self.margin,
        )

    @property
    def store_uri(self) -> str:
        """Folder or URI of the store."""
        return f"{self.workspace.rstrip('/')}/store"

    @property
    def reports_uri(self) -> str:
        """Folder or URI of the reports."""
        return f"{self.workspace.rstrip('/')}/reports"


def _title(corpus: Named) -> str:
    return corpus_name(Path(corpus)) if isinstance(corpus, str) else str(corpus.get("name") or corpus.get("reader", ""))


FIELDS: dict[str, FieldInfo] = RunConfig.__pydantic_fields__  # type: ignore[attr-defined]


def missing_names(config: RunConfig) -> list[str]:
    """Faults of a run that must name corpora and encoders and does not."""
    return [
        f"no {label}: give --{label} or list them in a suite file (known: `capim list {label}`)"
        for label in ("corpora", "encoders")
        if not getattr(config, label)
    ]


def run_config(options: Mapping[str, Any], suite: str | Path | None = None) -> RunConfig:
    """A checked run from options (None: not given) and a suite file; options replace its fields.

    Raises:
        RequestError: Lists everything that is wrong with the options and with the suite file.
    """
    fields = {} if suite is None else read_suite(suite)
    given = {name: value for name, value in options.items() if value is not None}
    given |= {name: _described(given[name], fields[name]) for name in _TABLES.keys() & given.keys() & fields.keys()}
    try:
        return RunConfig(**{**fields, **given})
    except ValidationError as error:
        faults = _faults(error).items()
        raise RequestError(
            [fault if name in given or suite is None else f"suite file {suite}: {fault}" for name, fault in faults]
        ) from None


def _faults(error: ValidationError) -> dict[str, str]:
    """Field -> what is wrong with it: the value, what was expected, and the nearest name of an unknown field."""
    expected: dict[str, list[str]] = {}
    faults: dict[str, str] = {}
    for fault in error.errors():
        field = str(fault["loc"][0])
        if fault["type"] == "unexpected_keyword_argument":
            faults[field] = unknown("field", field, [*FIELDS, "corpus", "encoder"])
            continue
        wanted = _EXPECTED.get(fault["type"], fault["msg"]).format(**fault.get("ctx", {}))
        expected.setdefault(field, []).append(wanted)
        faults[field] = f"{field} must be {' or '.join(dict.fromkeys(expected[field]))}, got {fault['input']!r}"
    return faults


def read_suite(path: str | Path) -> dict[str, Any]:
    """The fields of a suite file, not yet checked; relative paths in it count from the suite file's folder.

    Raises:
        RequestError: The file is missing or is not TOML.
    """
    path = Path(path)
    if not path.is_file():
        raise RequestError(f"suite file {path} does not exist")
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RequestError(f"suite file {path} is not valid TOML: {error}") from error
    workspace = fields.get("workspace")
    if isinstance(workspace, str) and "://" not in workspace:
        fields["workspace"] = str(path.parent / workspace)
    for several, one in _TABLES.items():
        entries, tables = fields.get(several, []), fields.pop(one, [])
        if isinstance(entries, list) and isinstance(tables, list):
            listed = [located(entry, path.parent) for entry in [*entries, *tables]]
            fields[several] = _described(listed, listed)
    return fields


def _described(entries: Sequence[Any], among: Sequence[Any]) -> tuple[Any, ...]:
    """The entries, each once; for a name, the table of the suite that describes it, if there is one."""
    tables = {entry.get("name"): entry for entry in among if isinstance(entry, Mapping)}
    found = [tables.get(entry, entry) if isinstance(entry, str) else entry for entry in entries]
    return tuple(entry for place, entry in enumerate(found) if entry not in found[:place])


def located(entry: object, folder: Path) -> object:
    """The entry with every path that exists in a folder made absolute; names stay names."""

    def beside(value: object) -> object:
        if isinstance(value, str) and value and not Path(value).is_absolute() and (folder / value).exists():
            return str((folder / value).resolve())
        return value

    if isinstance(entry, Mapping):
        names = _NAMES | ({"checkpoint"} if entry.get("adapter") == "http" else frozenset())  # a model of a service
        found = {key: value if key in names else beside(value) for key, value in entry.items()}
        # a file of the user's, or a function in it
        file, dot, function = str(entry.get("adapter", "")).partition(".py")
        return {**found, "adapter": f"{beside(file + dot)}{function}"} if dot else found
    return beside(entry)
