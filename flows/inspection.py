"""What there is, and whether it can be used: `list`, `check`, `corpora`; what a store holds and its care: `store`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from capim.flows.config import RunConfig, run_config
from capim.flows.stored import corpus_in, open_store
from capim.flows.terminal import Form, Rows, say
from capim.store import EmbeddingStore
from capim.store.errors import MissingStoreError, RequestError, noted, plain, without_credentials
from capim.store.rows import matching, names_with_rows
from capim.store.types import Modality, is_fingerprint
from capim.tasks.runtime.references import encoder_name

SHOWN_FIRST = {
    "encoders": ("name", "licence", "millions", "published", "reproduced", "needs"),
    "corpora": ("name", "title", "licence", "available"),
    "adapters": ("name", "loads", "installed"),
    "sets": ("encoder", "corpus", "modality", "state", "n_rows", "n_bytes"),
}
"""The columns of a list that find room first on a terminal."""
Items: TypeAlias = Literal["image", "caption", "pair", "quadruple"]


def _encoders() -> Iterator[dict[str, Any]]:
    from capim.tasks.encoders import ADAPTERS, catalog
    from capim.tasks.reference.certified import certified, headline
    from capim.tasks.reference.published import published

    references, stamps = published(), {row.encoder: row.stamp() for row in certified()}
    for name, entry in catalog().items():
        spec = entry.spec
        roles = ADAPTERS[spec.adapter].roles
        known = headline(spec.checkpoint, references)
        yield {
            "name": name,
            "adapter": spec.adapter,
            "checkpoint": spec.checkpoint,
            "vectors": spec.vectors,
            "dim": spec.dim,
            "precision": spec.precision,
            "storage": spec.storage,
            "roles": "query, document" if roles else "",
            "prompt": spec.options.get("caption_template", "the checkpoint's own" if roles else ""),
            "millions": entry.parameters,
            "licence": entry.licence,
            "extra": ADAPTERS[spec.adapter].extra,
            "published": known and f"{known.dataset} {known.protocol} {known.metric} {100 * known.value:.1f}",
            "source": known and known.source,
            "reproduced": stamps.get(name, ""),
            "needs": entry.needs,
            "package": ADAPTERS.package(spec.adapter),
        }


def _adapters() -> Iterator[dict[str, Any]]:
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


def _corpora() -> Iterator[dict[str, Any]]:
    from capim.tasks.corpora.naming import list_corpora

    return iter(list_corpora())


def _protocols() -> Iterator[dict[str, Any]]:
    from capim.tasks.protocols import MEANS, Protocol
    from capim.tasks.ranking.protocols import PROTOCOLS

    takes = {"retrieval": "the captions of the reference language", "mean": "all: the planned figures"}
    for of in (*(rule.protocol for rule in PROTOCOLS.values()), *map(Protocol.of, MEANS)):
        yield {"id": of.id, "direction": of.direction, "title": of.title, "several_languages": takes.get(of.kind, "")}


def _metrics() -> Iterator[dict[str, Any]]:
    from capim.tasks.metrics import METRICS

    for metric in METRICS.values():
        yield {
            "name": metric.name,
            "directions": sorted(metric.directions),
            "reduce": metric.reduce,
            "lower_is_better": not metric.higher_is_better,
            "version": str(metric.version),
            "package": METRICS.package(metric.name),
        }


LISTS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "encoders": _encoders,
    "corpora": _corpora,
    "protocols": _protocols,
    "metrics": _metrics,
    "adapters": _adapters,
}


def list_known(
    what: Literal["encoders", "corpora", "protocols", "metrics", "adapters"],
    *,
    pin: Annotated[str | None, "FILE"] = None,
    everything: Annotated[bool, "--all"] = False,
) -> Rows:
    """List encoders, corpora, protocols, metrics, or adapters, which load the encoders.

    Each row names the package that it comes from: capim, or an installed package that adds rows (docs/own_model.md).
    With --pin, also write a suite file in which the revision of every encoder is the current commit of its branch.
    Encoders are listed with a published figure, and with the stamp of who reproduced it (capim certify-model).
    With --all, list the models of mteb that take images instead, with memory, licence and what they need that is not
    installed here; a suite uses one by a table with adapter = "mteb" and checkpoint = NAME.

    Example: capim list encoders --format json

    Args:
        what: what to list
        pin: with encoders: write a suite file with every model at its current commit
        everything: with encoders: the models of mteb
    """
    if everything:
        if what != "encoders" or pin:
            raise RequestError("--all works with encoders only: `capim list encoders --all`")
        from capim.tasks.encoders import of_mteb

        return Rows(rows=of_mteb.rows(), keep=("name", "memory_mb", "licence", "needs"), code=0)
    if pin and what != "encoders":
        raise RequestError("--pin works with encoders only: `capim list encoders --pin FILE`")
    if pin:
        from capim.tasks.encoders import identity

        pins = identity.pin()
        Path(pin).write_text(identity.pinned_toml(pins), encoding="utf-8")
        n_pinned = sum(not isinstance(each, str) for each in pins.values())
        say(f"{n_pinned} of {len(pins)} encoders pinned in {pin}; the others are comments that say why they are not")
    return Rows(rows=LISTS[what](), keep=SHOWN_FIRST.get(what, ()), code=0)


def check(
    encoder: str,
    *,
    config: Annotated[RunConfig, "precision", "compile", "trust_remote_code"],
    suite: Annotated[str | None, "FILE"] = None,
    device: Annotated[str, "D"] = "cpu",
    form: Form,
    quiet: bool,
) -> int:
    """Load one model and run the conformance suite on it, before a long encode.

    Checks identity, weights, norms, batch independence, truncation, unusual images and captions, precision, a
    known answer and speed; what cannot be verified is skipped with the reason. Exit code 1 if a check fails.

    Example: capim check tiny-clip

    Args:
        encoder: encoder from `capim list encoders` or from the suite file
        suite: suite file (TOML) that describes the encoder
        device: device that runs the model (default: cpu)
    """
    from capim.tasks.encoders.catalog import entry_named
    from capim.tasks.encoders.device import check_device, choose_device

    described = run_config({"trust_remote_code": config.trust_remote_code or None}, suite)
    spec = entry_named(encoder, described.encoders).spec
    if device != "auto":
        check_device(device)
    from capim.tasks.encoders.conformance import check_encoder

    verdicts = []
    checks = check_encoder(
        replace(spec, precision=config.precision or spec.precision),
        device=choose_device(device),
        trust_remote_code=described.trusts(encoder),
        compiled=config.compile,
    )
    for verdict in checks:
        verdicts.append(verdict._asdict())
        if not quiet and form.table:
            sys.stderr.write(f"{verdict.result:5}{verdict.check}\n")
    Rows(rows=verdicts).print(form)
    return 1 if any(verdict["result"] == "fail" for verdict in verdicts) else 0


def certify_model(
    encoder: str,
    *,
    workspace: str | None,
    to: Annotated[str | None, "FILE"] = None,
    form: Form,
) -> int:
    """Compare the stored figures of a model with the published ones, and write down what was reproduced.

    Run it after `capim run` of a whole published corpus. With --to, what was reproduced is added to a table, with the
    date and the hardware; in a clone of capim, --to tasks/reference/certified.csv and a pull request put the stamp into
    `capim list encoders`. Exit code 1, and nothing is written, if a figure contradicts a published one.

    Example: capim certify-model laion-clip-h --to certified.csv

    Args:
        encoder: encoder from `capim list encoders`
        to: table (CSV) to which the rows are added
    """
    from importlib.metadata import version

    from capim.tasks.encoders import spec_of
    from capim.tasks.reference.certified import Certificate, append

    spec_of(encoder)
    store = open_store(workspace)
    rows = store.current("slices", analysis=["reference"], encoder=[encoder])
    compared = [row for row in rows if row["level_name"] in ("reproduced", "suspect") and row["detail"]]
    if not compared:
        raise RequestError(
            f"{encoder} has no figure here that is published for it; first: capim run --encoders {encoder} --corpora "
            "coco-karpathy (a whole corpus with published figures)"
        )
    batches = store.rows("batches", encoder=[encoder])
    hardware = ", ".join(sorted({str(device) for device in batches["device"].to_pylist()})) or "unknown"
    made = []
    for row in compared:
        of = json.loads(row["detail"])
        figure = {name: row[name] for name in ("encoder", "corpus", "protocol", "metric", "value")}
        about = {"published": of["published"], "source": of["source"], "date": f"{row['created']:%Y-%m-%d}"}
        fingerprint = row["encoder_fingerprint"]
        made.append(Certificate(**figure, **about, fingerprint=fingerprint, hardware=hardware, capim=version("capim")))
    verdicts = [row["level_name"] for row in compared]
    Rows(rows=[{**row._asdict(), "verdict": word} for row, word in zip(made, verdicts, strict=True)]).print(form)
    if "suspect" in verdicts:
        say(f"{verdicts.count('suspect')} figures contradict published ones; nothing is certified")
        return 1
    if to:
        append(Path(to), made)
        say(f"{len(made)} figures of {encoder} certified in {to}")
    return 0


def check_corpora(what: str, *, missing: Literal["error", "skip"] | None = None) -> int:
    """Read a corpus as a run would and print everything that is wrong with it; nothing is stored.

    Says how a folder was recognised, and ends with the command to type next. Exit code 2 if a run would refuse the
    corpus. The layouts that are recognised: docs/own_data.md.

    Example: capim corpora check ./photos

    Args:
        what: a folder, a captions file, a TOML file or a name (capim list corpora)
        missing: skip leaves out images without a file, and shows the lines to write into corpus.toml for it
    """
    from capim.tasks.corpora.check import check_corpus

    checked = check_corpus(what, missing=missing)
    sys.stdout.writelines(f"{plain(line)}\n" for line in checked.lines())
    return 0 if checked.ok else 2


def ids_of_corpus(
    what: str,
    *,
    workspace: str | None,
    modality: Items = "image",
    form: Form,
    quiet: bool,
) -> int:
    """List the ids of a corpus in corpus order, with the items they stand for; nothing is stored.

    `capim import` needs these ids beside the vectors, or the vectors in this order. A corpus that is not stored is read
    as a run would read it, without the images that cannot be decoded. For a corpus of ids and texts without image
    files, set ids_only = true in its TOML file (docs/embeddings.md).

    Example: capim corpora ids shapes --modality caption --format csv

    Args:
        what: a stored corpus, or what `capim corpora check` takes
        modality: kind of items (default: image)
    """
    from capim.tasks.corpora import open_corpus
    from capim.tasks.corpora.naming import corpus_items
    from capim.tasks.corpora.subset import index_images

    corpus = None
    with suppress(RequestError):  # there is no such corpus, or no store
        corpus = open_store(workspace).corpus(what)
    corpus = corpus or index_images(open_corpus(what), known={}, sink=lambda _: None)
    rows = corpus_items(corpus, modality)
    code = Rows(rows=rows).print(form)
    others = ", ".join(f"--modality {k}" for k in get_args(Items) if k != modality and corpus_items(corpus, k))
    if not quiet and others:
        say(f"{len(rows):,} ids of {modality}s of {corpus.name}; others: {others}")
    return code


# --- `store`

SET_COLUMNS = (
    *("set_name", "encoder", "corpus", "modality", "storage", "state"),
    *("n_rows", "n_items", "n_bytes", "tag", "written_by"),
)


def info(*, workspace: str | None, form: Form) -> Rows:
    """List the embedding sets with rows, size, state and the machines that wrote them.

    Example: capim store info --format json
    """
    from capim.store import inventory

    contents = inventory.info(open_store(workspace))
    if form.table:
        sys.stderr.write(
            f"{without_credentials(contents.uri)}: format {contents.format}, {contents.n_tables} tables, "
            f"{contents.n_bytes / 1e6:,.1f} MB\n"
        )
    return Rows(rows=contents.sets, columns=SET_COLUMNS, keep=SHOWN_FIRST["sets"], code=0)


def verify(
    *, workspace: str | None, form: Form, recompute: bool = False, drop: bool = False, imports: bool = False
) -> int:
    """Read everything that is stored, compare it with its checksums, and say what is incomplete, damaged or lost.

    With --drop, what is damaged is removed, and the same `capim run` makes it again: of embedding sets it encodes only
    the batches that lost rows. What no run makes again (imported vectors and outcomes, published figures, the history
    of runs) is named with the command that brings it back, and removed only with --imports. Exit code 1 if anything is
    damaged or lost, and was not removed. What is incomplete is completed by the command that began it.

    With --recompute, also derive all current figures, comparisons, rankings and analyses again in memory, and compare:
    this finds code that gives something else than it once gave.

    Example: capim store verify

    Args:
        recompute: also derive everything again, which takes about as long as it did
        drop: remove what is damaged
        imports: with --drop, remove what no run makes again, too
    """
    from capim.store import integrity

    if imports and not drop:
        raise RequestError("--imports goes with --drop: capim store verify --drop --imports")
    store = open_store(workspace)
    checks = [*integrity.verify(store)]
    if recompute:
        from capim.tasks.recompute import recompute as again

        checks += again(store)
    Rows(rows=[{"what": each.what, "state": each.state, "detail": each.detail} for each in checks]).print(form)
    left = [check.what for check in checks if check.state in ("damaged", "lost")]
    removed = integrity.drop_damaged(checks, imports=imports) if drop else []
    for what in removed:
        left.remove(what)
        say(f"{what}: what was damaged is removed")
    remedy = "" if drop or not left else ": `capim store verify --drop` removes it, and the same run makes it again"
    again = "; run the same commands again" if removed else ""
    sys.stderr.write(f"{len(checks)} parts checked, {len(left)} damaged or lost{remedy}{again}\n")
    return 1 if left else 0


def upgrade(*, workspace: str | None) -> None:
    """Bring a store that an earlier release wrote to the format of this one; nothing is encoded again.

    Vectors, corpora and outcomes stay. Figures whose tables have other columns now are removed, and the next run, or
    `capim evaluate`, `compare` and `analyse`, makes them again from what is stored.

    Example: capim store upgrade
    """
    from capim.store.inventory import upgrade_store

    done = False
    for each in upgrade_store(run_config({"workspace": workspace}).store_uri):
        sys.stdout.write(f"{each.table}: {each.done} ({', '.join(each.columns)}; {each.n_rows:,} rows)\n")
        done = True
    if not done:
        sys.stdout.write("the store has the format of this release: nothing to do\n")


def prune(
    *,
    workspace: str | None,
    form: Form,
    keep: Annotated[int, "N"] = 30,
    yes: bool = False,
) -> None:
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
    done = start(flow, run_config({"name": "prune", "workspace": workspace}), keep=keep, done=yes)
    rows = [{"what": table, "rows": n, "bytes_freed": done.freed.get(table)} for table, n in done.rows.items()]
    rows += [{"what": name, "rows": None, "bytes_freed": None} for name in (*done.tables, *done.reports)]
    Rows(rows=rows, none=lambda: "nothing to remove").print(form)
    freed = f"; {sum(done.freed.values()) / 1e6:,.1f} MB of the store freed" if yes else ""
    hint = "" if yes else "; nothing was changed: add --yes to remove them"
    n_rows = sum(done.rows.values())
    if done.running:
        verb = "is" if len(done.running) == 1 else "are"
        sys.stderr.write(f"{', '.join(done.running)} {verb} running: what may be in use stays until the next prune\n")
    sys.stderr.write(f"{n_rows:,} rows, {len(done.tables)} tables, {len(done.reports)} reports{freed}{hint}\n")


def drop(
    *,
    workspace: str | None,
    encoder: str | None = None,
    corpus: str | None = None,
    modality: Modality | None = None,
    yes: bool = False,
) -> None:
    """List the embedding sets of an encoder, of a corpus, or of both, and with --yes drop them; results are kept.

    With only --corpus, the corpus is dropped too; with only --encoder, its registration.

    Example: capim store drop --encoder tiny-clip-plain --yes

    Args:
        encoder: drop sets of this encoder (name or fingerprint)
        corpus: drop sets of this corpus (name, path or fingerprint)
        modality: drop only sets of images or of captions
        yes: drop them; without it, only list what would be dropped
    """
    from capim.store import removal

    store = open_store(workspace)
    fingerprint = str(corpus_in(store, corpus)["fingerprint"]) if corpus else None
    plan = removal.drop(store, encoder=encoder, corpus=fingerprint, modality=modality, dry_run=not yes)
    for table in plan.tables:
        sys.stdout.write(f"{table}\n")
    verb = "dropped" if plan.done else "would drop"
    hint = "" if plan.done else "; nothing was changed: add --yes to drop them"
    sys.stderr.write(f"{verb} {len(plan.tables)} tables, {plan.n_rows:,} rows, {plan.n_bytes / 1e6:,.1f} MB{hint}\n")


# --- The names of a run, checked before what runs it is imported: Prefect alone takes a second or more. The flows check
# the same again, and more: what stands in the data, and what a hub answers.

ENCODING = ("benchmark", "embed", "watch")  # flows that read corpora and load models; others use what is stored


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
    if flow in ENCODING:
        _check_new(config, faults)
    else:
        _check_stored(config, flow, faults)
    if faults := [*dict.fromkeys(faults), *device_faults(config)]:
        raise RequestError(faults)


def device_faults(config: RunConfig) -> list[str]:
    """Devices of a run that do not exist on this machine; shards run on machines of their own and are not checked."""
    wanted = {device for device in config.device.split(",") if device not in ("auto", "cpu")}
    faults: list[str] = []
    if wanted and config.shards == 1:
        from capim.tasks.encoders.device import check_device

        for device in sorted(wanted):
            with noted(faults):
                check_device(device)
    return faults


def _check_new(config: RunConfig, faults: list[str]) -> None:
    """Encoders are in the catalog or described by a table; corpora are known, stored, or a folder or file."""
    from capim.tasks.corpora.description import reader_call
    from capim.tasks.corpora.naming import corpus_to_read
    from capim.tasks.encoders.catalog import entry_of

    try:
        register = EmbeddingStore.open(config.store_uri).corpora().to_pylist()
    except MissingStoreError:
        register = []
    for entry in config.encoders:
        with noted(faults):
            entry_of(entry)
    for what in config.corpora:
        with noted(faults):
            reader_call(corpus_to_read(what, register, sample=config.sample, seed=config.seed).what)


def _check_stored(config: RunConfig, flow: str, faults: list[str]) -> None:
    """Encoders and corpora are in the store; of what is not evaluated now, encoders and protocols have results."""
    from capim.tasks.corpora.naming import CorpusToRead, stored_corpora
    from capim.tasks.runtime.open_corpora import change_since

    store = EmbeddingStore.open(config.store_uri)
    register = store.corpora().to_pylist()
    corpora: Sequence[Mapping[str, Any]] = ()
    with noted(faults):
        found = stored_corpora(config.corpora, register, sample=config.sample, seed=config.seed, uri=store.uri)
        corpora = found or register
        given = [CorpusToRead(what, config.sample, config.seed) for what in config.corpora]
        say(*filter(None, map(partial(change_since, store), given, found)))
    names = [encoder_name(each) for each in config.encoders]
    if flow != "evaluate":
        with noted(faults):
            by_name = [name for name in names if not is_fingerprint(name)]
            names_with_rows(store, "results", {"encoder": by_name, "protocol": config.protocols})
        return
    for name in names:
        with noted(faults):
            store.encoder(name)
    known = [*store.counts("results", "protocol")]
    if all(matching(name, known) for name in config.protocols):
        return  # without a look at the corpora
    from capim.tasks.ranking.protocols import select_protocols

    with noted(faults):
        for row in corpora:
            select_protocols(store.corpus(row["name"], row["fingerprint"]), config.protocols)
