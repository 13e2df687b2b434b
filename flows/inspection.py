"""The commands `list` and `check`, and the `store` commands that inspect and maintain a store."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

from capim.flows.config import RunConfig, run_config
from capim.flows.stored import corpus_in, open_store, wanted_rows
from capim.flows.terminal import Form, Row, Rows, refuse_unused, say
from capim.store import EmbeddingStore
from capim.store.errors import (
    MissingStoreError,
    RequestError,
    WorkError,
    did_you_mean,
    noted,
    plain,
    without_credentials,
)
from capim.store.forms import given_columns
from capim.store.schema import StoredCorpus
from capim.store.types import OF_OUTCOMES, EncoderSpec, Modality, is_fingerprint
from capim.tasks.references import encoder_name

if TYPE_CHECKING:
    from capim.tasks.encoders import CatalogEntry

Items: TypeAlias = Literal["image", "caption", "pair", "quadruple"]


def _encoders(workspace: str | None) -> Iterator[Row]:
    """Yield the models of the catalog, and after them others that the store has."""
    from capim.tasks.encoders import ADAPTERS, catalog
    from capim.tasks.reference.published import headline, published

    references, needs = published(), {name: entry.needs for name, entry in catalog().items()}
    specs = [entry.spec for entry in catalog().values()]
    with suppress(RequestError, WorkError):  # there is no store
        stored = {
            row.name: EncoderSpec.from_json(row.spec)
            for row in sorted(open_store(workspace).encoders(), key=lambda row: row.written)
        }
        specs += [spec for name, spec in sorted(stored.items()) if name not in needs]
    for spec in specs:
        adapter = ADAPTERS.get(spec.adapter)
        roles = adapter.roles if adapter else ()
        known = headline(spec, references)
        on_hub = spec.checkpoint != spec.adapter and not spec.checkpoint.startswith("package:")
        yield {
            "name": spec.name,
            "adapter": spec.adapter,
            "checkpoint": spec.checkpoint,
            "revision": spec.revision if spec.resolved else "unpinned" if on_hub else "",
            "pinned_by": spec.facts.get("pinned_by"),
            "vectors": spec.vectors,
            "dim": spec.facts.get("dim") if spec.adapter == OF_OUTCOMES else spec.dim,
            "precision": spec.precision,
            "storage": spec.storage,
            "roles": "query, document" if roles else "",
            "prompt": spec.options.get("caption_template", "the checkpoint's own" if roles else ""),
            "millions": spec.facts.get("parameters"),
            **{name: spec.facts.get(name) for name in ("memory_mb", "context")},
            "licence": spec.licence,
            **{name: spec.facts.get(name, "unknown") for name in ("released", "languages", "training", "trained_on")},
            "link": spec.facts.get("link"),
            "extra": adapter.extra if adapter else "",
            "published": known and f"{known.dataset} {known.protocol} {known.metric} {100 * known.value:.1f}",
            "source": known and known.source,
            "needs": needs.get(spec.name, "in the store"),
            "package": ADAPTERS.package(spec.adapter) if adapter else "",
        }


def _adapters(_: str | None) -> Iterator[Row]:
    from capim.tasks.encoders import ADAPTERS

    for name, adapter in ADAPTERS.items():
        missing = adapter.missing
        yield {
            "name": name,
            "loads": adapter.title,
            "installed": f"no: {adapter.install}" if missing else "yes",
            "needs": [library.replace("_", "-") for library in adapter.requires],
            "extra": adapter.extra,
            "options": list(adapter.options) if adapter.options is not None else "any",
            "package": ADAPTERS.package(name),
        }


def _corpora(_: str | None) -> Iterator[Row]:
    from capim.tasks.corpora.naming import list_corpora

    return iter(list_corpora())


def _protocols(_: str | None) -> Iterator[Row]:
    from capim.tasks.protocols import FAMILIES, PROTOCOLS

    takes = {"retrieval": "the captions of the reference language", "mean": "all: the planned results"}
    for of in (rule.protocol for rule in (*PROTOCOLS.values(), *FAMILIES)):
        several = "those of the language" if of.is_of_language else takes.get(of.kind, "")
        yield {"id": of.id, "direction": of.direction, "title": of.title, "several_languages": several}


def _metrics(_: str | None) -> Iterator[Row]:
    from capim.tasks.metrics import METRICS

    for metric in METRICS.values():
        yield {
            "name": metric.name,
            "directions": sorted(metric.directions),
            "reduce": getattr(metric.reduce, "__name__", metric.reduce),
            "unit": metric.unit,
            "bounds": metric.bounds,
            "lower_is_better": not metric.higher_is_better,
            "version": str(metric.version),
            "package": METRICS.package(metric.name),
        }


def _analyses(_: str | None) -> Iterator[Row]:
    from capim.tasks.analyses.table import ANALYSES

    for name, analysis in ANALYSES.items():
        yield {
            "name": name,
            "title": analysis.title,
            "runs": "when named" if analysis.on_request else "unnamed" if analysis.function else "by another command",
            "version": str(analysis.version),
            "package": ANALYSES.package(name),
        }


LISTS: dict[str, tuple[Callable[[str | None], Iterator[Row]], Sequence[str]]] = {
    "encoders": (_encoders, ("name", "millions", "licence", "needs", "published")),
    "corpora": (_corpora, ("name", "title", "licence", "needs")),
    "protocols": (_protocols, ()),
    "metrics": (_metrics, ()),
    "analyses": (_analyses, ("name", "title", "runs", "package")),
    "adapters": (_adapters, ("name", "loads", "installed")),
}
"""List -> what gives its rows in a workspace, and the columns that are shown first on a narrow terminal."""


def list_known(
    what: Literal["encoders", "corpora", "protocols", "metrics", "analyses", "adapters", "ids"],
    corpus: str | None = None,
    *,
    workspace: str | None,
    everything: Annotated[bool, "--all"] = False,
    modality: Items | None = None,
    quiet: bool,
) -> Rows:
    """List encoders, corpora, protocols, metrics, analyses, adapters (they load encoders), or the ids of a corpus.

    Each row names the package that it comes from: capim, or an installed package that adds rows (docs/own_model.md).
    Encoders are listed with a published result, and what is known about them; a model without a revision that a
    source states is "unpinned": the first run resolves its newest commit, and stores it.
    Models of the store that the catalog does not have, such as imported ones, follow with their facts.
    With --all, list the models of mteb that take images instead, with memory, licence and the packages they need that
    are not installed here; a suite uses one by a table with adapter = "mteb" and checkpoint = NAME.

    `capim list ids CORPUS` lists the ids of a corpus in corpus order, with their items; nothing is stored.
    `capim import` needs these ids next to the vectors, or the vectors in this order. A corpus that is not stored is
    read as a run would read it, without the images that cannot be decoded. For a corpus of ids and texts without image
    files, set ids_only = true in its TOML file (docs/embeddings.md).

    Example: capim list encoders --format json

    Example: capim list ids shapes --modality caption --format csv

    Args:
        what: what to list
        corpus: with ids: a stored corpus, or what `capim check` takes
        everything: with encoders: the models of mteb
        modality: with ids: kind of items (default: image)
    """
    given = {"CORPUS": corpus, "--modality": modality, "--all": everything}
    for name, value in given.items():
        kind = "ids" if name in ("CORPUS", "--modality") else "encoders"
        if value and what != kind:
            raise RequestError(f"{name} works with {kind} only: capim list {kind}")
    if what == "ids":
        if corpus is None:
            raise RequestError("name the corpus: capim list ids CORPUS (corpora: capim list corpora)")
        return _ids(corpus, workspace, modality or "image", quiet=quiet)
    if everything:
        from capim.tasks.encoders import of_mteb

        return Rows(rows=of_mteb.rows(), keep=("name", "memory_mb", "licence", "needs"), code=0)
    rows, first = LISTS[what]
    return Rows(rows=rows(workspace), keep=first, code=0)


def _ids(name: str, workspace: str | None, modality: Items, *, quiet: bool) -> Rows:
    """Return the ids of a corpus, stored or not."""
    from capim.tasks.corpora.description import open_corpus
    from capim.tasks.corpora.naming import corpus_items
    from capim.tasks.corpora.subset import index_images

    corpus = None
    with suppress(RequestError):  # there is no such corpus, or no store
        corpus = open_store(workspace).corpus(name)
    corpus = corpus or index_images(open_corpus(name), known={}, sink=lambda _: None)
    rows = corpus_items(corpus, modality)
    others = ", ".join(f"--modality {k}" for k in get_args(Items) if k != modality and corpus_items(corpus, k))
    if not quiet and others:
        say(f"{len(rows):,} ids of {modality}s of {corpus.name}; others: {others}")
    return Rows(rows=rows, code=0 if rows else 1)


_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
_OF_A_MODEL = {"config.json", "open_clip_config.json", "adapter_config.json", "modules.json"}  # files of its folder


def check(
    name: str,
    suite: str | None = None,
    *,
    config: Annotated[RunConfig, "precision", "trust_remote_code"],
    device: Annotated[str | None, "D"] = None,
    missing: Literal["error", "skip"] | None = None,
    form: Form,
    quiet: bool,
) -> int:
    """Check a model, or a corpus, before a long run; nothing is stored.

    A model is a name of `capim list encoders` or of a suite file; it is loaded and the conformance suite run on it:
    identity, weights, norms, batch independence, truncation, unusual images and captions, precision, a known answer and
    speed; what cannot be verified is skipped with the reason. Exit code 1 if a check fails.

    A corpus is a name of `capim list corpora`, a folder, a captions file or a TOML file; it is read as a run would, and
    everything that is wrong with it is printed, how a folder was recognised, and the command to type next. Exit code 2
    if a run would refuse it. The layouts that are recognised: docs/own_data.md.

    Options of a model: SUITE, --device, --precision, --trust-remote-code, --format, --columns, --wide.
    Options of a corpus: --missing; --columns ROLE=NAME,… says what the columns of a table hold (caption=title).

    Example: capim check tiny-clip

    Example: capim check ./photos

    Args:
        name: a model or a corpus
        suite: suite file (TOML) that describes the model
        device: device that runs the model (default: cpu)
        missing: skip leaves out images without a file and rows without a caption; shows the lines for corpus.toml
    """
    described = {encoder_name(each) for each in config.encoders}
    kind = _kind_of(name, described)
    of_model = {
        "SUITE": suite, "--device": device, "--precision": config.precision,
        "--trust-remote-code": config.trust_remote_code, "--format": form.format != Form().format,
        "--wide": form.wide,
    }  # fmt: skip
    refuse_unused(f"on a {kind}, which {name} is", **(of_model if kind == "corpus" else {"--missing": missing}))
    if not quiet:
        say(f"checking {name} as a {kind}")
    if kind == "corpus":
        from capim.tasks.corpora.check import check_corpus

        checked = check_corpus(name, missing=missing, columns=given_columns(form.columns))
        sys.stdout.writelines(f"{plain(line)}\n" for line in checked.lines())
        return 0 if checked.ok else 2
    from capim.tasks.encoders.catalog import catalog, recognised
    from capim.tasks.encoders.conformance import check_encoder
    from capim.tasks.encoders.device import choose_device

    if "/" not in name and name not in {*described, *catalog()}:
        name = f"./{name}"  # a folder
    if not quiet and (line := recognised(name)):
        say(line)
    spec = entry_for(name, config).spec
    spec = replace(spec, precision=config.precision or spec.precision)
    verdicts = []
    for verdict in check_encoder(spec, device=choose_device(device or "cpu"), trust_remote_code=config.trusts(name)):
        verdicts.append(verdict)
        if not quiet and form.table:
            sys.stderr.write(f"{verdict.result:5}{verdict.check}\n")
    Rows(rows=verdicts).print(form)
    return int(any(each.result == "fail" for each in verdicts))


def _kind_of(name: str, described: Collection[str]) -> Literal["model", "corpus"]:
    """Return what a name or a path is, a model or a corpus; ``described``: the encoders of a suite file.

    Raises:
        RequestError: It is neither, or a model that nothing describes.
    """
    from capim.tasks.corpora import CORPORA
    from capim.tasks.encoders import catalog

    if name in described or name in catalog():
        return "model"
    if name in CORPORA:
        return "corpus"
    path = Path(name).expanduser()
    is_model = any((path / each).exists() for each in _OF_A_MODEL) or (path.is_file() and path.suffix in _WEIGHTS)
    if path.exists() and not is_model:
        return "corpus"
    if path.is_file():
        raise RequestError(
            f"{name!r} has weights and no architecture: describe it as an [[encoder]] of a suite file "
            "(docs/own_model.md), then `capim check NAME FILE.toml`"
        )
    if is_model or name.startswith("hf-hub:") or (_HUB_ID.fullmatch(name) and not path.parent.exists()):
        return "model"
    raise RequestError(
        f"{name!r} is neither a model nor a corpus, and there is no such folder or file; models: "
        f"{did_you_mean(name, [*described, *catalog()])}`capim list encoders`; corpora: {did_you_mean(name, CORPORA)}"
        "`capim list corpora`"
    )


# --- `store`

SET_COLUMNS = (
    *("set_name", "encoder", "corpus", "modality", "storage", "state"),
    *("n_rows", "n_items", "n_bytes", "tag", "written_by"),
)


def info(*, workspace: str | None, form: Form) -> Rows:
    """List the embedding sets with rows, size, state and the machines that wrote them.

    Example: capim store info --format json
    """
    from capim.store.schema import FORMAT
    from capim.store.upkeep import inventory

    store = open_store(workspace)
    contents = inventory.info(store)
    if form.table:
        sys.stderr.write(
            f"{without_credentials(store.uri)}: format {FORMAT}, {contents.n_tables} tables, "
            f"{contents.n_bytes / 1e6:,.1f} MB\n"
        )
    first = [each for each in SET_COLUMNS if each not in ("set_name", "storage")]
    return Rows(rows=contents.sets, columns=SET_COLUMNS, keep=first, code=0)


def verify(
    *, workspace: str | None, form: Form, recompute: bool = False, drop: bool = False, imports: bool = False
) -> int:
    """Read all stored rows, compare them with their checksums, and report those that are incomplete, damaged or lost.

    With --drop, damaged rows are removed, and the same `capim run` makes them again: of embedding sets it encodes only
    the batches that lost rows. What no run makes again (imported vectors and outcomes, published results, the history
    of runs) is named with the command that restores it, and removed only with --imports. Exit code 1 if anything is
    damaged or lost, and was not removed. Incomplete rows are completed by the command that began them.

    With --recompute, also derive all current results, comparisons, rankings and analyses again in memory, and compare:
    this finds code that no longer gives the same values.

    Example: capim store verify

    Args:
        recompute: also derive everything again, which takes about as long as it did
        drop: remove damaged rows
        imports: with --drop, remove what no run makes again, too
    """
    from capim.store.upkeep import integrity

    if imports and not drop:
        raise RequestError("--imports goes with --drop: capim store verify --drop --imports")
    store = open_store(workspace)
    checks = [*integrity.verify(store)]
    if recompute:
        from capim.tasks import recompute as recomputing

        checks += recomputing.recompute(store)
    Rows(rows=[{"what": each.what, "state": each.state, "detail": each.detail} for each in checks]).print(form)
    left = [check.what for check in checks if check.state in ("damaged", "lost")]
    removed = integrity.drop_damaged(checks, imports=imports) if drop else []
    for what in removed:
        left.remove(what)
        say(f"{what}: damaged rows are removed")
    remedy = ""
    if not drop and any(check.state == "damaged" for check in checks):  # the detail of what is lost names its remedy
        found_by = " --recompute" if recompute else ""
        remedy = f": `capim store verify{found_by} --drop` removes what is damaged, and the same run makes it again"
    again = "; run the same commands again" if removed else ""
    sys.stderr.write(f"{len(checks)} parts checked, {len(left)} damaged or lost{remedy}{again}\n")
    return 1 if left else 0


def upgrade(*, workspace: str | None) -> None:
    """Bring a store that an earlier release wrote to the format of this one; nothing is encoded again.

    Vectors, corpora, outcomes and results stay. Columns that another program added are removed.

    Example: capim store upgrade
    """
    from capim.store.upkeep.inventory import upgrade_store

    line = ""
    for line in upgrade_store(run_config({"workspace": workspace}).store_uri):
        sys.stdout.write(f"{line}\n")
    done = "it can be read by every command, and nothing has to be made again" if line else "nothing to do"
    sys.stdout.write(f"the store has the format of this release: {done}\n")


def prune(*, workspace: str | None, form: Form, keep: Annotated[int, "N"] = 30, yes: bool = False) -> None:
    """List, and with --yes remove, what older runs left behind and no report shows: rows, embeddings and reports.

    The newest --keep runs and their reports are kept, and all results that a report of the store shows, and the
    baselines of watches. Embeddings of earlier revisions of an encoder, or of earlier states of a corpus, go with their
    results. What a run in progress may use stays until it has ended.

    Example: capim store prune --keep 30

    Args:
        keep: newest runs that are kept (default: 30)
        yes: remove it; without it, only list what would be removed
    """
    from capim.flows.execution import prune as flow
    from capim.flows.execution import start

    open_store(workspace)
    plan, reports, freed = start(flow, workspace, keep=keep, done=yes)
    gone = {table: chosen.total() for table, (_, chosen) in plan.rows.items()}
    listed = [{"what": what, "rows": gone.get(what)} for what in (*gone, *plan.tables, *reports)]
    Rows(rows=listed, none=lambda: "nothing to remove").print(form)
    hint = f"; {freed / 1e6:,.1f} MB of the store freed" if yes else "; nothing was changed: add --yes to remove them"
    if plan.running:
        verb = "is" if len(plan.running) == 1 else "are"
        sys.stderr.write(f"{', '.join(plan.running)} {verb} running: what may be in use stays until the next prune\n")
    sys.stderr.write(f"{sum(gone.values()):,} rows, {len(plan.tables)} tables, {len(reports)} reports{hint}\n")


def drop(
    workspace: str | None,
    *,
    encoder: str | None = None,
    corpus: str | None = None,
    modality: Modality | None = None,
    results: bool = False,
    yes: bool = False,
) -> None:
    """List the embedding sets of an encoder, of a corpus, or of both, and with --yes drop them; results are kept.

    With only --corpus, the corpus is dropped too; with only --encoder, its registration. A name means all of its
    revisions or states, a fingerprint one of them.

    With --results, outcomes, results and everything that was derived from them go, too: no test, ranking or page
    counts them any more. Comparisons and rankings of other encoders that they took part in are made again by the next
    run. Reports that were written stay as they are.

    Example: capim store drop --encoder tiny-clip-plain --results --yes

    Args:
        encoder: drop sets of this encoder (name or fingerprint)
        corpus: drop sets of this corpus (name, path or fingerprint)
        modality: drop only sets of images or of captions
        results: also drop results, and the rows derived from them
        yes: drop them; without it, only list the rows that would be dropped
    """
    from capim.store.upkeep import removal

    store = open_store(workspace)
    if corpus and corpus not in store.counts("results", "corpus"):  # of a corpus that was dropped, results may be left
        row = corpus_in(store, corpus)
        corpus = row.fingerprint if is_fingerprint(corpus) else row.name
    plan = removal.drop(store, encoder=encoder, corpus=corpus, modality=modality, results=results, dry_run=not yes)
    for table in plan.tables:
        sys.stdout.write(f"{table}\n")
    verb = "dropped" if yes else "would drop"
    hint = "" if yes else "; nothing was changed: add --yes to drop them"
    rows = ", ".join(f"{n:,} {table}" for table, n in plan.rows.items())
    going = f", and with its results {rows}" if results and rows else ""
    say(f"{verb} {len(plan.tables)} tables, {plan.n_rows:,} rows, {plan.n_bytes / 1e6:,.1f} MB{going}{hint}")
    if rows and plan.combined:
        say(f"these are results of {', '.join(plan.combined)}, too, combined from it")
    if rows and not results:
        say(f"{rows} stay: results, tests and reports go on counting them; --results drops them too")
    elif rows and yes:
        say("run `capim evaluate`, `capim compare` or the same `capim run` for tests and ranks of the rest")


# --- The names of a run, checked before its flow is imported: Prefect itself takes a second or more. The flows check
# the same again, and more: the content of the data, and the answers of a hub.


def check_names(config: RunConfig, flow: str) -> None:
    """Check the encoders, corpora, analyses and devices that a run of this flow names, and protocols with results.

    Raises:
        RequestError: Nobody has one of these names, or there is no store to read; all such faults together.
    """
    faults: list[str] = []
    if config.analyses:
        from capim.tasks.analyses.table import check_analyses

        with noted(faults):
            check_analyses(config.analyses)
    if flow == "watch":
        encoded, stored = watched_parts(config)
        if encoded:
            _check_new(encoded, faults)
        if stored:
            _check_stored(stored, "evaluate", faults)
    elif flow in ("benchmark", "embed"):  # others use stored vectors
        _check_new(config, faults)
    else:
        _check_stored(config, flow, faults)
    if faults := [*dict.fromkeys(faults), *device_faults(config)]:
        raise RequestError(faults)


def device_faults(config: RunConfig) -> list[str]:
    """Return the faults of a run's devices on this machine; shards run on other machines and are not checked."""
    wanted = {device for device in config.device.split(",") if device not in ("auto", "cpu")}
    faults: list[str] = []
    if wanted and config.shards == 1:
        from capim.tasks.encoders.device import check_device

        for device in sorted(wanted):
            with noted(faults):
                check_device(device)
    return faults


def _check_new(config: RunConfig, faults: list[str]) -> None:
    """Check that encoders are in the catalog or a table, and that corpora are known, stored, or a folder or file."""
    from capim.tasks.corpora.description import reader_call
    from capim.tasks.corpora.naming import corpus_to_read
    from capim.tasks.encoders.catalog import recognised

    try:
        register = EmbeddingStore.open(config.store_uri).corpora()
    except MissingStoreError:
        register = []
    for entry in config.encoders:
        with noted(faults):
            entry_for(entry, config)
            if isinstance(entry, str) and (line := recognised(entry)):
                say(line)
    for what in config.corpora:
        with noted(faults):
            reader_call(corpus_to_read(what, register, sample=config.sample, seed=config.seed).what)


def watched_parts(config: RunConfig) -> tuple[RunConfig | None, RunConfig | None]:
    """Return a watch of the encoders that are loaded, and one of those that are judged by their stored results.

    These are imported and combined ones; all where none is named.
    """
    from capim.tasks.encoders import catalog

    if not config.encoders:
        return None, config
    names = set[str]()
    with suppress(MissingStoreError):
        rows = EmbeddingStore.open(config.store_uri).encoders()
        names = {each for row in rows for each in (row.name, row.fingerprint)} - catalog().keys()
    stored = tuple(each for each in config.encoders if isinstance(each, str) and each in names)
    loaded = tuple(each for each in config.encoders if each not in stored)
    first, second = (replace(config, encoders=some) if some else None for some in (loaded, stored))
    return first, second


def entry_for(entry: str | Mapping[str, Any], config: RunConfig) -> CatalogEntry:
    """Return the entry of an encoder, given as in a run or by its stored name; or that of a model in the store.

    Raises:
        RequestError: As of ``entry_of``, and the store has no such model either, or one without a model to run.
    """
    from capim.tasks.encoders.catalog import entry_from, entry_of, row_of_spec

    if isinstance(entry, str):
        entry = {encoder_name(each): each for each in config.encoders}.get(entry, entry)
    try:
        return entry_of(entry)
    except RequestError:
        with suppress(RequestError, WorkError):
            if isinstance(entry, str) and "/" not in entry:
                return entry_from(entry, row_of_spec(EmbeddingStore.open(config.store_uri).encoder(entry)))
        raise


def _check_stored(config: RunConfig, flow: str, faults: list[str]) -> None:
    """Check that encoders and corpora are stored; unless they are evaluated now, that they have results."""
    from capim.tasks.corpora.naming import CorpusToRead, stored_corpora
    from capim.tasks.corpora.opened import change_since

    store = EmbeddingStore.open(config.store_uri)
    register = store.corpora()
    corpora: Sequence[StoredCorpus] = ()
    with noted(faults):
        found = stored_corpora(config.corpora, register, sample=config.sample, seed=config.seed, uri=store.uri)
        corpora = found or register
        given = [CorpusToRead(what, config.sample, config.seed) for what in config.corpora]
        say(*filter(None, map(partial(change_since, store), given, found)))
    names = [encoder_name(each) for each in config.encoders]
    if flow != "evaluate":
        with noted(faults):
            by_name = [name for name in map(store.fingerprint_of, names) if not is_fingerprint(name)]
            wanted_rows(store, "results", encoder=by_name, protocol=config.protocols)
        return
    for name in names:
        with noted(faults):
            store.encoder(name)
    if config.protocols:
        from capim.tasks.ranking.protocols import select_protocols

        with noted(faults):
            for row in corpora:
                select_protocols(store.corpus(row.name, row.fingerprint), config.protocols)
