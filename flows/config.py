"""Configuration of one run: one frozen value, checked once at the edge and passed down.

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

import inspect
import os
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ByteSize, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as validated
from pydantic.fields import FieldInfo

from capim.store.errors import RequestError, WorkError, unknown
from capim.store.files import resolved_address
from capim.store.types import Precision, Storage
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.files import corpus_name
from capim.tasks.references import Named, Selection, encoder_name
from capim.tasks.statistics.draws import Resampling

if TYPE_CHECKING:
    from capim.tasks.metrics.custom import AnyMetric

# corpora and encoders of the demo's runs: each late-interaction model on data like its training data
DEMO: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("pages",), ("tiny-clip", "tiny-clip-plain", "tiny-colpali-pages")),
    (("shapes", "shapes-winoground", "shapes-multilingual"), ("tiny-clip", "tiny-clip-plain", "tiny-colpali")),
)
WORKSPACE_VARIABLE = "CAPIM_WORKSPACE"
DEFAULT_WORKSPACE = "workspace"

if TYPE_CHECKING:  # what callers may give: names may also be one text with commas, a size a number or a text
    Entries: TypeAlias = Sequence[Any]
    Texts: TypeAlias = Sequence[str]
    Size: TypeAlias = Any
else:
    Entries, Texts, AnyMetric = tuple[Named, ...], tuple[str, ...], str
    Size = Annotated[ByteSize, Field(gt=0)] | None


def _refuse_truth(value: object) -> object:
    """Return the value; true is not 1 in a suite, where pydantic takes it for 1."""
    if isinstance(value, bool):
        raise ValueError("a number")
    return value


# after the limits of a number, which are in the schema of Prefect's form only where they come first
NoTruth = BeforeValidator(_refuse_truth)
PLURALS = {"encoder": "encoders", "corpus": "corpora", "protocol": "protocols", "metric": "metrics"}
OTHER_NUMBER = PLURALS | {several: one for one, several in PLURALS.items()}
"""Name of an option for names -> its other spelling, which means the same."""
_TABLES = {"corpora": "corpus", "encoders": "encoder"}  # list of a suite -> its tables, [[corpus]] and [[encoder]]
_EXPECTED = {  # what a value should have been, by the first word of the type of pydantic's error; else pydantic's words
    "byte": "a size such as 2GiB",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a string",
    "dict": "a table",
    "tuple": "a list",
}


def default_workspace() -> str:
    """Return ``$CAPIM_WORKSPACE``, else ``workspace`` in the current folder."""
    return os.environ.get(WORKSPACE_VARIABLE) or DEFAULT_WORKSPACE


def described(documented: type | Callable[..., object]) -> dict[str, str]:
    """Return argument -> help, from ``Args`` in the docstring of a function, or of a class and its base classes."""
    found: dict[str, str] = {}
    for each in reversed(documented.__mro__) if isinstance(documented, type) else (documented,):
        section = inspect.cleandoc(each.__doc__ or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
        for line in re.split(r"^    (?=\w)", section, flags=re.MULTILINE)[1:]:
            name, _, text = line.partition(": ")
            found[name] = " ".join(text.split())
    return found


@dataclass(frozen=True, kw_only=True)
class Where:
    """Options that name corpora and encoders.

    Args:
        corpora: names of corpora (capim list corpora, capim store info), or their folders or files
        encoders: names of encoders (capim list encoders), hub ids, names of open_clip, or folders
    """

    corpora: Annotated[Entries, "A,B"] = ()
    encoders: Annotated[Entries, "X,Y"] = ()


@dataclass(frozen=True, kw_only=True)
class Protocols:
    """Options of commands that read or make results.

    Args:
        protocols: evaluation protocols (capim list protocols; default: all that fit the corpus)
    """

    protocols: Annotated[Texts, "P,Q"] = ()


@dataclass(frozen=True, kw_only=True)
class Device:
    """Options of everything that computes on a device.

    Args:
        device: auto, cpu, cuda, cuda:1 or mps; several separated by commas encode in parallel
    """

    device: Annotated[str, "D"] = "auto"


@dataclass(frozen=True, kw_only=True)
class Seed:
    """Options of everything that draws at random.

    Args:
        seed: random seed
    """

    seed: Annotated[int, Field(ge=0, le=2**63 - 1), NoTruth] = 0


@dataclass(frozen=True, kw_only=True)
class Encoding(Device):
    """Options of everything that encodes.

    Args:
        sample: use only N images of each corpus, drawn with the seed
        batch_size: items per forward pass, or auto to measure the fastest (default: the encoder's own)
        shards: encode every set in N shards, in parallel on Prefect's task runner
        precision: floating-point precision of the forward pass (default: the encoder's own)
        storage: type of the stored vectors; float16 halves their size and rounds (default: float32, float16 for
            multi-vectors, for imports that of the file)
        trust_remote_code: allow Python code from a model repository to run, at a fixed revision
    """

    sample: Annotated[int, Field(ge=1), NoTruth] | None = None
    batch_size: Annotated[int, Field(ge=1), NoTruth] | Literal["auto"] | None = None
    shards: Annotated[int, Field(ge=1), NoTruth] = 1
    precision: Precision | None = None
    storage: Storage | None = None
    trust_remote_code: Annotated[bool, Field(strict=True)] = False


@dataclass(frozen=True, kw_only=True)
class Statistics(Seed):
    """Options of commands that compute results.

    Args:
        replicates: bootstrap replicates per interval
        level: confidence level of the intervals
        interval: interval method; auto takes the one that suits each metric, percentile the bootstrap for all
    """

    replicates: Annotated[int, Field(ge=100), NoTruth] = 10_000
    level: Annotated[float, Field(ge=0.5, lt=1), NoTruth, "P"] = 0.95
    interval: Literal["auto", "percentile"] = "auto"


@dataclass(frozen=True, kw_only=True)
class Scoring(Statistics, Protocols, Device):
    """Options of everything that scores stored embeddings.

    Args:
        parts: score every gallery in N parts, in parallel on Prefect's task runner
        memory: memory for the vectors and scores of each part, such as 500MB (default: 2GiB)
        keep_replicates: store every bootstrap replicate of every metric (table replicates)
    """

    parts: Annotated[int, Field(ge=1), NoTruth] = 1
    memory: Annotated[Size, "SIZE"] = None
    keep_replicates: Annotated[bool, Field(strict=True)] = False


@dataclass(frozen=True, kw_only=True)
class Permutations:
    """Options of tests.

    Args:
        permutations: random sign flips per test, where there are too many to enumerate
    """

    permutations: Annotated[int, Field(ge=1000), NoTruth] = 10_000


@dataclass(frozen=True, kw_only=True)
class Analysing(Permutations, Statistics, Protocols):
    """Options of analyses.

    Args:
        analyses: diagnostic analyses (default: all but resampled-gallery, and compression without
            approximate search)
    """

    analyses: Annotated[Texts, "A,B"] = ()


@dataclass(frozen=True, kw_only=True)
class Comparing(Permutations, Statistics, Protocols):
    """Options of comparisons.

    Args:
        margin: points within which a difference counts as none: two encoders as equivalent, a drop as no regression
    """

    margin: Annotated[float, Field(gt=0, lt=100), NoTruth, "POINTS"] = 1.0


@dataclass(frozen=True, kw_only=True)
class Watching(Permutations, Scoring, Encoding):
    """Options of a watch, which adjusts over its own findings.

    Args:
        baseline: run to pin as the baseline of the watch (default: the pinned one, else the first watch)
    """

    baseline: Annotated[str | None, "RUN"] = None


def _describe(schema: dict[str, Any]) -> None:
    """Write the help of every option, and the names that are known, into the schema of Prefect's form.

    A run with another name than these is refused when it is created.
    """
    schema["description"] = schema["description"].partition("\n\n")[0]
    properties = schema["properties"]
    for name, text in described(RunConfig).items():
        properties[name]["description"] = text
    from capim.tasks.analyses.table import ANALYSES
    from capim.tasks.corpora import CORPORA
    from capim.tasks.encoders import catalog

    stored = _stored_names(os.environ.get(FORM_VARIABLE, ""))
    for side, names in (("corpora", [*CORPORA]), ("encoders", [*catalog()])):
        known = {"type": "string", "enum": list(dict.fromkeys([*names, *stored[side]]))}
        path = {"type": "string", "pattern": r"[/\\]|\.\w+$|^[0-9a-f]{16}$"}
        paths = [path] if side == "corpora" else []
        # Prefect's page makes a list to choose from of the first, and lines of JSON of the second
        properties[side]["anyOf"] = [
            {"title": "names", "type": "array", "items": known},
            {
                "title": "names, paths, tables" if paths else "names, tables",
                "type": "array",
                "items": {"anyOf": [known, *paths, {"type": "object"}]},
            },
        ]
        del properties[side]["items"], properties[side]["type"]
    properties["analyses"]["items"]["enum"] = [name for name, each in ANALYSES.items() if each.function is not None]
    properties["device"]["pattern"] = rf"^{_DEVICE}(,{_DEVICE})*$"


FORM_VARIABLE = "CAPIM_FORM_WORKSPACE"  # a deployment's form also offers the corpora and encoders of this workspace
_DEVICE = r"(auto|cpu|mps|cuda(:\d+)?)"


def _stored_names(workspace: str) -> dict[str, list[str]]:
    """Return the names of the corpora and encoders in the store of a workspace; none where there is no store."""
    from capim.store import EmbeddingStore

    with suppress(RequestError, WorkError):
        if workspace:
            store = EmbeddingStore.open(f"{workspace.rstrip('/')}/store")
            corpora, encoders = store.corpora(), store.encoders()
            return {"corpora": [row.name for row in corpora], "encoders": [row.name for row in encoders]}
    return {"corpora": [], "encoders": []}


@validated(
    frozen=True, kw_only=True, config=ConfigDict(extra="forbid", validate_default=True, json_schema_extra=_describe)
)
class RunConfig(Analysing, Comparing, Watching, Where):
    """Configuration of a run. In a run of a deployment, a field that is not given has the deployment's value.

    Args:
        name: name of the run, shown in reports
        workspace: folder or URI that holds store/ and reports/ (default: $CAPIM_WORKSPACE of the process that runs)
    """

    name: str = "run"
    workspace: Annotated[str, AfterValidator(resolved_address)] = field(default_factory=default_workspace)

    @property
    def title(self) -> str:
        """Return the name of its Prefect runs: ``nightly: tiny-clip +2 on shapes +1``."""
        lists = ([encoder_name(e) for e in self.encoders], [_title(c) for c in self.corpora])
        parts = [names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "") for names in lists if names]
        title = f"{self.name}: {' on '.join(parts)}" if parts else self.name
        return title if self.sample is None else f"{title}, sample of {self.sample}"

    def trusts(self, encoder: str) -> bool:
        """True if code of an encoder's repository may run: allowed for all, or ``remote_code = true`` in its table."""
        tables = [entry for entry in self.encoders if not isinstance(entry, str) and entry.get("name") == encoder]
        return self.trust_remote_code or any(table.get("remote_code") is True for table in tables)

    @property
    def selection(self) -> Selection:
        """Return the named parts of the store."""
        names = {"corpora": self.corpora, "encoders": self.encoders, "protocols": self.protocols}
        return Selection(store_uri=self.store_uri, **names, sample=self.sample, seed=self.seed)

    @property
    def resampling(self) -> Resampling:
        """Return the settings of all intervals and tests."""
        named = ("replicates", "seed", "level", "permutations", "margin")
        method = "wilson" if self.interval == "auto" else self.interval
        return Resampling(**{name: getattr(self, name) for name in named}, method=method)

    @property
    def store_uri(self) -> str:
        """Return the folder or URI of the store."""
        return f"{self.workspace.rstrip('/')}/store"

    @property
    def reports_uri(self) -> str:
        """Return the folder or URI of the reports."""
        return f"{self.workspace.rstrip('/')}/reports"


def _title(corpus: Named) -> str:
    return corpus_name(Path(corpus)) if isinstance(corpus, str) else str(corpus.get("name") or corpus.get("reader", ""))


FIELDS: dict[str, FieldInfo] = RunConfig.__pydantic_fields__  # type: ignore[attr-defined]


# --- The options of each step, from Python and on the command line: fields of a run, and a few of the step's own.


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The first argument of most steps.

    Args:
        suite: suite file (TOML); options replace its fields
    """

    suite: str | Path | None = field(default=None, kw_only=False)


@dataclass(frozen=True, kw_only=True)
class RunOptions(Analysing, Comparing, Scoring, Encoding, Where, Suite):
    """Options of `run`.

    Args:
        dry_run: only show stored and remaining work, step by step
    """

    dry_run: bool = False


@dataclass(frozen=True, kw_only=True)
class EmbedOptions(Seed, Encoding, Where, Suite):
    """Options of `embed`.

    Args:
        only: encode only the images or only the captions
    """

    only: Literal["images", "captions"] | None = None


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(Scoring, Where, Suite):
    """Options of `evaluate`.

    Args:
        own_metric: evaluate a metric of your own instead, compare and slice by it, and print its results
            (docs/own_metric.md)
        judgements: evaluate R@1 with additional right items, or corrected by judged misses, instead (docs/serve.md)
    """

    own_metric: Annotated[AnyMetric | None, "FILE.py:NAME"] = None
    judgements: Annotated[str | None, "FILE.csv"] = None


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Comparing, Where):
    """Options of `compare`; from Python, its first arguments are two encoders.

    Args:
        slice: compare on these queries only, and store nothing: COLUMN=VALUE of what the corpus declares
            (docs/own_data.md)
        languages: compare on captions of these languages only, and store nothing
        metrics: only these metrics (or shell patterns); of slices and languages the main one unless given
        own_metric: compare by a metric of your own instead, and slice it (docs/own_metric.md)
    """

    slice: Annotated[Texts, "C=V"] = ()
    languages: Annotated[Texts, "de,fr"] = ()
    metrics: Annotated[Texts, "M,N"] = ()
    a: str | None = field(default=None, kw_only=False)
    b: str | None = field(default=None, kw_only=False)
    own_metric: Annotated[AnyMetric | None, "FILE.py:NAME"] = None


@dataclass(frozen=True, kw_only=True)
class AnalyseOptions(Analysing, Where, Suite):
    """Options of `analyse`."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions(Protocols, Where, Suite):
    """Options of `report`."""


GONE = {
    "corpora": "`capim check ./photos`, or `capim list ids ./photos`",
    "certify": "docs/statistics.md has the table of what intervals and tests keep",
    "certify-model": "`capim results --against published`",
    "ann": "`capim analyse --analyses compression`",
    "store repair": "`capim store verify --drop`, then the same run again",
    "store compact": "`capim store prune --yes`",
    "store diff": "`capim why RUN` says what a run changed; docs/recipes.md compares two embedding sets",
    "--isolated": "run untrusted models and metrics in a container (docs/own_model.md)",
    "--bootstrap-iterations": "--replicates N",
    "--devices": "--device cuda:0,cuda:1",
    "--distractors": "a corpus that holds these images, too: without captions they are only in the gallery",
    "--compile": "an adapter of your own may compile its model (docs/own_model.md)",
    "evaluate --metric": "--own-metric FILE.py:NAME",
    "--plan": "--dry-run",
    "compare --analyses": "`capim analyse --analyses A,B`",
    "check --suite": "the suite file after the name: `capim check NAME FILE.toml`",
    "export --as": "--format FORMAT",
    "export --projection": "`capim export embeddings`, and a projection of your own; the atlas has two main directions",
    "import --manifest": "one `capim import` for each set; importing the same file again changes nothing",
    "import --folder": "one `capim import` for each set; importing the same file again changes nothing",
    "import --note": "--facts FILE.toml, --training TEXT, --link URL; of published values a column `source`",
    "list --pin": '`revision = "COMMIT"` in the table of an encoder in a suite; a run stores the commit of every model',
    "query --seconds": "--timeout S",
    "search --index": "`capim search`: it is exact",
    "search --html": '`capim serve`, and there "Save as one HTML file"',
}
"""Commands and options of earlier releases -> what to type now; a command or an option that exists is not in here."""


def gone(*names: str) -> str | None:
    """Return what to type instead of a command or an option of an earlier release; None: there was none."""
    return next((f"{name} is no longer there; instead: {GONE[name]}" for name in names if name in GONE), None)


_EVERYWHERE = ("name", "sample", "seed")  # fields of a suite file that every step uses; a sample has its own name
_LISTS = ("corpora", "encoders", "protocols", "analyses")


def step_config(
    step: str, used: Collection[str], options: Mapping[str, Any], suite: str | Path | None = None
) -> RunConfig:
    """Return the run of a step from its options (None: not given) and a suite file; name the file's unused fields.

    Names are a list, or one text with commas.

    Args:
        step: Name of the step.
        used: The options that it takes.
        options: Those that are given.
        suite: A file with the fields of a run.

    Raises:
        RequestError: Lists everything that is wrong with the options and with the suite file.
    """
    given = {name: listed(value) if name in _LISTS else value for name, value in options.items() if value is not None}
    faults = []
    for name in (each for each in given if each not in {*used, "workspace"}):
        option = f"--{name.replace('_', '-')}"
        faults.append(gone(f"{step} {option}", option) or unknown("option", name, sorted(used)))
    empty = [name for name in _LISTS if given.get(name) == ()]
    if faults := [*faults, *(f"{name}: no name is given; without {name} all are taken" for name in empty)]:
        raise RequestError(faults)
    if suite is not None:
        unused = [
            name for name in read_suite(suite) if name in FIELDS and name not in {*used, "workspace", *_EVERYWHERE}
        ]
        if unused:
            sys.stderr.write(f"{suite}: {', '.join(unused)}: without effect on `capim {step}`\n")
    return run_config({name: value for name, value in given.items() if name in FIELDS}, suite)


def split(text: str) -> tuple[str, ...]:
    """Return ``"a,b"`` as a tuple without blanks; a comma in parentheses, ``own:at(k=3, n=5)``, separates nothing."""
    return tuple(part.strip() for part in re.split(r",(?![^()]*\))", text) if part.strip())


def listed(given: Any) -> tuple[Any, ...] | None:
    """Return names as the command line takes them: a text is split at commas, paths become texts, a table is one name.

    Examples:
        >>> listed("a, b"), listed(["a", Path("b")]), listed(None)
        (('a', 'b'), ('a', 'b'), None)
    """
    if isinstance(given, str):
        return split(given)
    if isinstance(given, Path | Mapping):
        return listed([given])
    return given if given is None else tuple(str(name) if isinstance(name, Path) else name for name in given)


def missing_names(config: RunConfig) -> list[str]:
    """Return the missing options of a run that has to name corpora and encoders."""
    return [
        f"no {label}: give --{label} or list them in a suite file (known: `capim list {label}`)"
        for label in ("corpora", "encoders")
        if not getattr(config, label)
    ]


def run_config(options: Mapping[str, Any], suite: str | Path | None = None) -> RunConfig:
    """Return a checked run from options (None: not given) and a suite file; options replace its fields.

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
    """Return field -> fault: the value, the expected value, and the nearest name of an unknown field."""
    expected: dict[str, list[str]] = {}
    faults: dict[str, str] = {}
    for fault in error.errors():
        field = str(fault["loc"][0])
        if fault["type"] == "unexpected_keyword_argument":
            option = f"--{field.replace('_', '-')}"
            faults[field] = gone(option) or unknown("field", field, [*FIELDS, *_TABLES.values()])
            continue
        said = re.sub("^(Input should be|Value error,) ", "", fault["msg"]).replace(
            "greater than or equal to", "at least"
        )
        expected.setdefault(field, []).append(_EXPECTED.get(fault["type"].partition("_")[0], said))
        faults[field] = f"{field} must be {' or '.join(dict.fromkeys(expected[field]))}, got {fault['input']!r}"
    return faults


def read_suite(path: str | Path) -> dict[str, Any]:
    """Return the fields of a suite file, not yet checked; relative paths in it count from the suite file's folder.

    Raises:
        RequestError: The file is missing or is not TOML.
    """
    given, path = path, Path(path)
    if path.is_dir():
        raise RequestError(f"{given} is a folder, not a suite file; a folder is a corpus: --corpora {given}")
    if not path.is_file():
        raise RequestError(f"suite file {path} does not exist")
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RequestError(f"suite file {path} is not valid TOML: {error}") from error
    if isinstance(workspace := fields.get("workspace"), str):
        with suppress(ValueError):  # reported with the other faults
            fields["workspace"] = resolved_address(workspace, path.parent)
    for several, one in _TABLES.items():
        entries, tables = fields.get(several, []), fields.pop(one, [])
        if isinstance(entries, list) and isinstance(tables, list):
            named = [table.get("name") for table in tables if isinstance(table, Mapping)]
            # an encoder is a name, a table, or a path that begins like one, ./model
            own = [each for each in entries if isinstance(each, str) and not each.startswith(".")]
            names = named + (own if several == "encoders" else [])
            listed = [entry if entry in names else located(entry, path.parent) for entry in [*entries, *tables]]
            fields[several] = _described(listed, listed)
    return fields


def _described(entries: Sequence[Any], among: Sequence[Any]) -> tuple[Any, ...]:
    """Return the entries, each once; for a name, the table of the suite that describes it, if there is one."""
    tables = {entry.get("name"): entry for entry in among if isinstance(entry, Mapping)}
    found = [tables.get(entry, entry) if isinstance(entry, str) else entry for entry in entries]
    return tuple(entry for place, entry in enumerate(found) if entry not in found[:place])


def located(entry: object, folder: Path) -> object:
    """Return the entry with its paths, from a folder, made absolute: those of its fields that hold paths.

    A name of a corpus, a checkpoint or an adapter is a path if there is one.
    """

    def absolute(value: object) -> object:
        if isinstance(value, list | tuple):
            return [*map(absolute, value)]
        return str((folder / Path(value).expanduser()).resolve()) if isinstance(value, str) else value

    def if_there(value: object) -> object:
        there = isinstance(value, str) and value and os.path.exists(folder / value)  # noqa: PTH110 - long: False
        return absolute(value) if there else value

    if isinstance(entry, Mapping) and "reader" in entry:
        from capim.tasks.corpora.description import path_options

        paths = path_options(entry, folder)
        return {key: absolute(value) if key in paths else value for key, value in entry.items()}
    if isinstance(entry, Mapping):
        from capim.tasks.encoders.adapters import ADAPTERS

        adapter = str(entry.get("adapter"))
        remote = adapter in ADAPTERS and ADAPTERS[adapter].is_remote
        found = {key: if_there(value) if key == "checkpoint" and not remote else value for key, value in entry.items()}
        # a file of the user's, or a function in it
        file, dot, function = adapter.partition(".py")
        return {**found, "adapter": f"{if_there(file + dot)}{function}"} if dot else found
    return entry if isinstance(entry, str) and entry in CORPORA else if_there(entry)
