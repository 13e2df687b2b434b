"""Commands that read a workspace, the folder or URI that holds ``store/`` and ``reports/``: rows, files, pages.

The commands `results`, `choose`, `query`, `why`, `search`, `explain`, `serve` and `export`.
"""

from __future__ import annotations

import json
import re
import sys
import webbrowser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import isnan
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from capim.flows.config import Size, Texts, listed, run_config
from capim.flows.terminal import RESULT_COLUMNS, Form, Rows, link, refuse_unused, say
from capim.store import EmbeddingStore
from capim.store.current import FIGURE_OF_STATES, behind
from capim.store.errors import RequestError, did_you_mean, plain, unknown, without_credentials
from capim.store.row_types import columns_of
from capim.store.rows import names_with_rows
from capim.store.schema import Duplicate, Published, Result, Run, Slice, StoredCorpus, texts
from capim.store.types import Modality, is_fingerprint
from capim.tasks.references import encoder_name

if TYPE_CHECKING:
    from capim.reports.rows.report_data import ShownResult

_SHOWN = 12  # names in one line


def open_store(workspace: str | None) -> EmbeddingStore:
    """Return the store of a workspace (None: the default one), for reading.

    Raises:
        RequestError: There is no store; says how to make one.
    """
    return EmbeddingStore.open(run_config({"workspace": workspace}).store_uri)


def corpus_in(store: EmbeddingStore, what: str) -> StoredCorpus:
    """Return the row of the stored corpus that a name, a fingerprint or a path means.

    Raises:
        RequestError: There is none, with the nearest name.
    """
    from capim.tasks.corpora.naming import stored_corpus

    return stored_corpus(what, store.corpora(), uri=store.uri)


def wanted_rows(store: EmbeddingStore, table: str, **given: str | Sequence[str] | None) -> dict[str, list[str]]:
    """Return what ``EmbeddingStore.rows`` takes for rows with these names, patterns, fingerprints or corpus paths.

    Args:
        store: The store.
        table: The table of the rows.
        given: By column, ``encoder``, ``corpus``, ``protocol`` or ``metric``; None: any.

    Raises:
        RequestError: A name that no row has, with the nearest one that some row has.
    """
    wanted = {column: list(listed(names) or ()) for column, names in given.items() if names}
    if "encoder" in wanted:
        wanted["encoder"] = [*map(encoder_name, wanted["encoder"])]
    if any("@" in name for name in wanted.get("encoder", ())):
        current, having = store.states().encoders, store.counts(table, "encoder_fingerprint")
        meant = {name: current.get(name, store.fingerprint_of(name)) for name in wanted["encoder"]}
        if lacking := ",".join(name for name, of in meant.items() if "@" in name and of not in having):
            raise RequestError(f"{lacking}: no {table}; run `capim evaluate --encoders {lacking}` first")
        wanted["encoder"] = [*meant.values()]
    for column in ("encoder", "corpus"):
        names = wanted.get(column, [])
        fingerprints = [name for name in names if is_fingerprint(name)]
        if fingerprints and len(fingerprints) < len(names):
            raise RequestError(f"--{column}: give names or fingerprints, not both; got {', '.join(names)}")
        if fingerprints:
            wanted[f"{column}_fingerprint"] = wanted.pop(column)
    if "corpus" in wanted:
        dropped = {*store.counts(table, "corpus")} - {row.name for row in store.corpora()}
        wanted["corpus"] = [
            name if name in dropped or "*" in name else corpus_in(store, name).name for name in wanted["corpus"]
        ]
    try:
        return names_with_rows(store, table, **wanted)
    except RequestError as error:
        raise RequestError([*error.faults, *(_not_made(wanted) if "metric" in wanted else ())]) from None


def in_order(results: Iterable[Result]) -> list[ShownResult]:
    """Return results by corpus, protocol and metric, the best value first, those without a value last.

    ``against_chance`` compares each with chance, with one budget of errors for all of these main metrics.
    """
    from capim.reports.rows.standing import with_chance

    def place(row: Result) -> tuple[Any, ...]:
        value = row.value
        goodness = 0.0 if value is None else value if row.lower_is_better else -value
        return row.corpus, row.protocol, row.metric, value is None, goodness

    return with_chance(sorted(results, key=place))


def no_rows(store: EmbeddingStore, table: str, wanted: Mapping[str, Sequence[str]]) -> str:
    """Return why no row of a table has all of the wanted names: for each column, the names that go with the others."""
    if store.rows(table, **wanted).num_rows:
        return (
            "no current rows: `capim evaluate` makes those of a newer metric; earlier states are named by fingerprint"
        )
    lines = []
    for column in wanted:
        others = {name: list(names) for name, names in wanted.items() if name != column}
        found = sorted({*texts(store.rows(table, **others)[column].drop_null())})
        shown = ", ".join(found[:_SHOWN]) + (" …" if len(found) > _SHOWN else "")
        if found:
            lines.append(f"\n  - instead of {column} {', '.join(wanted[column])}: {shown}")
    lines += [f"\n  - {reason}" for reason in _not_made(wanted)]
    if not lines:
        return f"no rows: {without_credentials(store.uri)} has none of this kind; run `capim run` first"
    return f"no rows have all of these{''.join(lines)}"


def _not_made(wanted: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield why the wanted metrics are not computed under the wanted protocols, where that is a rule."""
    from capim.tasks.metrics import METRICS
    from capim.tasks.protocols import EVERY, Protocol
    from capim.tasks.results.combined import SUMMARISED

    of = [*map(Protocol.of, wanted.get("protocol", ()))]
    for metric in (METRICS[name] for name in wanted.get("metric", ()) if name in METRICS):
        if metric.several and not (of and all(protocol.is_combined for protocol in of)):
            yield f"{metric.name} is left out where every query has one right item: it says what MRR and R@k say"
        if metric.name not in SUMMARISED and any(protocol.language == EVERY for protocol in of):
            yield f"means over languages are made of {', '.join(SUMMARISED)}"


def unknown_texts(store: EmbeddingStore, statement: str) -> str:
    """Return why a statement may have no rows: its texts that name nothing in the store, each with the nearest name."""
    known = {row.name for row in store.encoders()} | {row.name for row in store.corpora()}
    known |= {name for column in FIGURE_OF_STATES for name in store.counts("results", column)}
    given = dict.fromkeys(re.findall(r"'((?:[^']|'')+)'", statement))
    hints = {text: did_you_mean(text, known) for text in given if text not in known}
    return "no rows" + "".join(
        f"\n  - no name in the store is {text!r}; {hint.strip()}" for text, hint in hints.items() if hint
    )


# --- `results`, `query`, `why`


def why(workspace: str | None, run: str = "last") -> Rows:
    """Show what a run computed and why (new input, another setting, newer code), and how much was already stored.

    Everything that is derived is compared with the newest earlier entry of the same corpus, encoder and result in the
    ledger (table derived). `capim run --dry-run` shows beforehand what a run would do.

    Example: capim why last

    Args:
        run: id of the run (table runs); last is the newest (default: last)
    """
    from capim.tasks.why import STORED, Reason, reasons

    store = open_store(workspace)
    runs = {row.run: row for row in sorted(store.all(Run), key=lambda row: row.started)}
    if run not in runs and (run != "last" or not runs):
        raise RequestError(unknown("run", run, [*reversed(runs)]))
    row = runs[run] if run in runs else [*runs.values()][-1]
    found = reasons(store, row.run)
    n_stored = sum(each.n for each in found if each.reason == STORED)
    n_made = sum(each.n for each in found) - n_stored
    say(f"{row.run}, {row.state}: {n_made:,} items computed, {n_stored:,} already stored")
    if row.uses is None and row.same_as is None:
        say("the run did not record the rows it used, because it failed or has not ended; those it reused are unknown")
    return Rows(rows=found, columns=Reason._fields, none=lambda: "it computed no results and used none", code=0)


def results(
    workspace: str | None,
    *,
    encoders: Annotated[Texts | None, "X,Y"] = None,
    corpora: Annotated[Texts | None, "A,B"] = None,
    protocols: Annotated[Texts | None, "P,Q"] = None,
    metrics: Annotated[Texts | None, "M,N"] = None,
    against: Literal["published"] | None = None,
    wide: bool = False,
) -> Rows:
    """Show current results: one row per encoder, corpus, protocol and metric.

    For a name, its newest state with results is shown; NAME@REVISION is another revision of an encoder. States of a
    corpus are named by their fingerprints (`capim store info --format json`).

    After `capim analyse`, a result of a model and corpus with a published one says how the two compare.

    The table shows the main columns; --format json and csv print all of them, among them the interval method, seed,
    replicates and sealed embedding sets of every result.

    With --against published, print how each result compares with the published one instead: reproduced, other
    protocol, suspect, not compared (a sample of the published data set), or no reference. Results that were imported
    (capim import --published) are next to them, each with its source and the differences of its protocol.
    Exit code 1 if there are no rows.

    Example: capim results --corpus shapes --protocol t2i/all --metric R@1 --format json

    Args:
        encoders: only these encoders (or shell patterns, fingerprints)
        corpora: only these corpora (or shell patterns, fingerprints)
        protocols: only these protocols (or shell patterns)
        metrics: only these metrics (or shell patterns)
        against: compare with published results

    Returns:
        A frame with the main columns, or with ``wide`` all of them.
    """
    from capim.reports.elements.words import against_published
    from capim.store.sets.importing import matched_by
    from capim.tasks.reference.published import ANALYSIS as REFERENCE

    store = open_store(workspace)
    wanted = wanted_rows(store, "results", encoder=encoders, corpus=corpora, protocol=protocols, metric=metrics)
    of_slices = {"analysis": [REFERENCE], **wanted}
    judged = store.current(Slice, **of_slices)
    if not against:
        said, key_of = matched_by(store), attrgetter(*FIGURE_OF_STATES)
        beside_ours = {key_of(row): against_published(row) for row in judged}
        rows = [
            {**vars(row), "matched": said(row), "published": beside_ours.get(key_of(row), "")}
            for row in in_order(store.current(Result, True, **wanted))
        ]
        states = [name for name in wanted if name.endswith("_fingerprint")]
        say(*[] if states else behind(store.all(Result, **wanted), store.states()))
        if "encoder_fingerprint" in states:
            states.insert(0, "revision")
            rows = [{**row, "revision": store.encoder(row["encoder_fingerprint"]).revision} for row in rows]
        more = [name for name in ("matched", "published") if any(row[name] for row in rows)]
        columns = (*RESULT_COLUMNS, *states, *more)
        return Rows(rows=rows, columns=None if wide else columns, none=lambda: no_rows(store, "results", wanted))
    from capim.tasks.published import PublishedBeside, beside

    compared = []
    for row in judged:
        figure = (row.encoder, row.corpus, row.protocol, row.metric, row.value)
        other = json.loads(row.detail or "{}")
        how = (other.get("published"), row.level_name, row.reason, other.get("source"))
        compared.append(PublishedBeside(*figure, *how))
    compared += beside(store.current(Result, **wanted), store.all(Published))
    compared.sort(key=lambda row: (row.verdict != "suspect", row.corpus, row.protocol, row.encoder))
    return Rows(rows=compared, none=lambda: no_rows(store, "slices", of_slices))


def choose(
    workspace: str | None,
    *,
    weights: Annotated[Texts, "A=70,B=30"],
    limits: Annotated[Texts | None, "bytes=1024,licence=free"] = None,
) -> Rows:
    """Rank encoders by a mean over tasks with your weights, within limits of cost and licence.

    The interval is that of the difference from the first, and holds for all pairs of a task together. Standard error
    says which limits rule an encoder out, and for which weights the first place stays the same. The page of a
    report does the same under "Weights". Exit code 1 if no encoder is left.

    Example: capim choose --weights shop-de:t2i/all=70,binding=30 --limits bytes=1024

    Args:
        weights: a corpus, corpus:protocol of a headline task, or corpus:t2i/de of a language, and its weight; weights
            are scaled to sum to 1
        limits: bytes is the most per image, dim the most components, parameters the most millions, rate the least
            images per second; licence is free or commercial-use; unseen: not trained on a corpus with a weight

    Returns:
        A frame with one row per encoder that is ranked, the first one first.
    """
    from capim.reports.rows import choice
    from capim.reports.rows.reading import read_report_data
    from capim.reports.rows.standing import not_counted

    data = read_report_data(open_store(workspace), gallery=False)
    wanted = choice.weights_of(data, listed(weights) or ()), choice.bounds_of(data, listed(limits) or ())
    made = choice.choose(data, *wanted)
    rows = [
        {"encoder": each.encoder, "mean": each.value, "difference": each.difference, "low": each.low, "high": each.high}
        | {"is": "not separated" if each.state == "open" else each.state}
        for each in made.order
    ]
    say(*data.states, *(f"not ranked: {name}: {why}" for name, why in made.out.items()))
    say(*not_counted([f"{task.corpus}, {task.title}" for task in made.uncounted]))
    for task, (low, high) in made.same.items():
        say(f"first stays first with {100 * low:.0f} to {100 * high:.0f} % of {task.corpus}, {task.title}")
    nobody = "no encoder keeps these limits, has all tasks and is above chance on one"
    return Rows(rows=rows, columns=choice.COLUMNS, none=lambda: nobody)


def query(
    workspace: str | None,
    sql: str,
    *,
    timeout: Annotated[float | None, "S"] = None,
    memory: Annotated[Size, "SIZE"] = None,
) -> Rows:
    """Query the store with SQL (DuckDB), read-only.

    Tables: encoders, corpora, images, captions, embeddings, sets, outcomes, results, comparisons, rankings, slices,
    batches, runs … Results, outcomes, captions and so on are those that reports show; all_results, all_outcomes,
    all_captions and so on are those of all runs, revisions and states. Views: items, embedded_items, query_outcomes …
    Columns with the same name are numbered: encoder, encoder_2. Exit code 1 if there are no rows.

    Example: capim query "SELECT encoder, protocol, value FROM results WHERE metric = 'R@1' ORDER BY value DESC"

    Args:
        sql: a SELECT statement
        timeout: time limit in seconds (default: none)
        memory: memory for the work and for the answer, such as 500MB (default: 4GiB)
    """
    if timeout is not None and not timeout > 0:
        raise RequestError(f"--timeout must be above 0 seconds, got {timeout:g}")
    store, most = open_store(workspace), run_config({"memory": memory}).memory
    return Rows(rows=store.sql(sql, seconds=timeout, memory=most), none=lambda: unknown_texts(store, sql))


# --- `search`, `explain`, `serve`


def search(
    workspace: str | None,
    text: str | None = None,
    *,
    image: Annotated[str | Path | bytes | None, "F"] = None,
    vector: Annotated[str | Path | NDArray[np.floating] | None, "F"] = None,
    modality: Modality | None = None,
    encoder: str,
    corpus: str,
    k: Annotated[int, "K", "-k"] = 10,
    device: str = "auto",
) -> Rows:
    """Find the images or captions nearest to a text, an image, both together, or a vector.

    Every item is compared. A text searches images, an image by itself searches captions; --modality chooses otherwise.

    Example: capim search "a red circle above a blue square" --encoder tiny-clip --corpus shapes -k 5

    Args:
        text: find the images nearest to this text
        image: find the captions nearest to this image; with a text, the images nearest to the normalised sum of both
            unit vectors
        vector: find the images nearest to this vector instead (.npy)
        modality: search these items instead
        encoder: name or fingerprint of an encoder in the store
        corpus: name, path or fingerprint of a corpus in the store
        k: number of results (default: 10)
        device: device that encodes the query (default: auto)

    Returns:
        A frame with one row per item, the nearest first. From Python, ``image`` may be a file or its bytes, and
        ``vector`` an array ``(dim,)``, of a multi-vector encoder ``(n, dim)``.
    """
    from capim.flows.searching import FOUND_COLUMNS, find

    among: dict[str, Any] = {"encoder": encoder, "corpus": corpus, "modality": modality, "k": k, "device": device}
    found = find(open_store(workspace), text, image=image, vector=vector, **among)
    return Rows(rows=found.rows, columns=FOUND_COLUMNS)


def duplicates(
    *,
    workspace: str | None,
    corpus: Annotated[tuple[str, ...], "X,Y"],
    encoder: str | None = None,
    threshold: Annotated[float, "C"] = 0.95,
    bits: Annotated[int | None, "N"] = None,
) -> Rows:
    """List images that are the same or nearly so, within corpora and between them: by bytes, names, pictures, vectors.

    Photographs that two corpora share make their results depend on each other; a training and a test part of one corpus
    should share none. File names are compared only between corpora. The score is the cosine.

    Example: capim duplicates --corpus shapes,shapes-winoground --encoder tiny-clip

    Args:
        corpus: names, paths or fingerprints of corpora in the store
        encoder: also compare the stored vectors of this encoder, one vector per image
        threshold: least cosine of near-duplicates (default: 0.95)
        bits: also compare perceptual hashes of the stored thumbnails: a distance of at most N of 64 bits (4 tolerates
            resizing and recompression)
    """
    from capim.tasks.analyses.duplicates import duplicates

    store = open_store(workspace)
    rows = [corpus_in(store, each) for each in corpus]
    corpora = [store.corpus(str(row.name), str(row.fingerprint)) for row in rows]
    found = list(duplicates(store, corpora, encoder=encoder, threshold=threshold, bits=bits))
    shared = {(row.corpus, row.image) for row in found} | {(row.other_corpus, row.other_image) for row in found}
    for each in corpora:
        n = sum(name == each.name for name, _ in shared)
        sys.stderr.write(f"{each.name}: {n:,} of {each.images.num_rows:,} images have a duplicate\n")
    return Rows(rows=found, columns=columns_of(Duplicate).names, code=0)


def explain(
    *,
    workspace: str | None,
    form: Form,
    encoder: Annotated[tuple[str, ...], "X,Y"],
    corpus: str,
    query: Annotated[str, "ID"],
    item: Annotated[str, "ID"],
    to: Annotated[str | None, "F"] = None,
) -> Rows | None:
    """Show how much each token adds to the score of a caption and an image, and where in the image it matches.

    The score of a late-interaction encoder is a sum over the tokens of the caption; the shares add up to it. --to
    writes a map over the image for every token, one encoder below the other.

    Example: capim explain --encoder tiny-colpali --corpus shapes --query scene-00000-0 --item scene-00000

    Args:
        encoder: late-interaction encoders in the store
        corpus: name, path or fingerprint of a corpus in the store
        query: id of a caption (capim list ids … --modality caption)
        item: id of an image (capim list ids …)
        to: write maps over the image: a picture (.png) or all values (.json)
    """
    from capim.reports.explanations import token_words, write_explanation
    from capim.tasks.analyses.vectors import explain_pair

    if to:
        form.refuse("with --to")
    store = open_store(workspace)
    fingerprint = corpus_in(store, corpus).fingerprint
    explained = [explain_pair(store, encoder=name, corpus=fingerprint, caption=query, image=item) for name in encoder]
    if to:
        picture = store.thumbnails([explained[0].sha]).get(explained[0].sha)
        sys.stdout.write(f"{link(str(write_explanation(Path(to), explained, picture)), sys.stdout)}\n")
        return None
    rows = []
    for each in explained:
        for token, share, box in zip(each.tokens, each.shares.tolist(), each.best_boxes().tolist(), strict=True):
            if isnan(box[0]):
                where = "a special token"
            else:
                left, top, right, bottom = (round(100 * edge) for edge in box)
                where = f"{left}-{right} % across, {top}-{bottom} % down"
            rows.append({"encoder": each.encoder, "token": token_words(token), "share": share, "best_match": where})
        rows.append({"encoder": each.encoder, "token": "all", "share": each.score, "best_match": None})
    return Rows(rows=rows)


def serve(
    *,
    workspace: str | None,
    port: Annotated[int, "N"] = 0,
    open: bool = False,  # noqa: A002 - the name of the option
) -> None:
    """Browse the store in a web UI: results, queries, two encoders side by side, search.

    Prints an address that works on this machine only; it carries a token, so that others on the machine cannot use it.
    The workspace keeps the token and the port (serve.json), so that saved addresses go on working. The pages read the
    store and never change it. Stop with Ctrl-C.

    Example: capim serve --workspace ./workspace --open

    Args:
        port: port (default: the last one used, else any that is free)
        open: open the first page in the browser
    """
    from capim.flows.searching import StoreServices
    from capim.reports.app.application import create_app
    from capim.reports.app.server import HOST, Address, listening, server_of

    store = open_store(workspace)
    folder = None if "://" in store.uri else Path(store.uri).parent
    known = Address.of(folder)
    judgements = folder and folder / "judgements.csv"
    app = create_app(store, token=known.token, services=StoreServices(store), judgements=judgements)
    with listening(port, kept=known.port) as listener:
        used = listener.getsockname()[1]
        if port or not known.port:
            known._replace(port=used).keep(folder)
        address = f"http://{HOST}:{used}/?token={known.token}"
        sys.stdout.write(f"{link(address, sys.stdout)}\n")
        sys.stdout.flush()
        if open:
            webbrowser.open(address)
        with suppress(KeyboardInterrupt):  # the way to stop it
            server_of(app).run(sockets=[listener])


# --- `export`: what the store holds, in the files of other programs.

Format: TypeAlias = Literal["csv", "json", "parquet", "latex", "v28", "coco-sm", "mteb", "model-index"]
What: TypeAlias = Literal[
    "results", "paper", "outcomes", "misses", "trec", "embeddings", "embedding-atlas", "mlflow", "wandb"
]
TAKEN_BY = {
    "format": {"results"},
    "modality": {"embeddings", "embedding-atlas"},
    "protocol": {*get_args(What)} - {"embeddings"},
    "sample": {"misses"},
}
"""Option that not every export takes -> those that take it."""


def export(
    what: Annotated[What, "WHAT"],
    *,
    workspace: str | None,
    to: Annotated[str, "F"],
    format: Format | None = None,  # noqa: A002 - the name of the option
    encoder: Annotated[tuple[str, ...], "X,Y"] = (),
    corpus: Annotated[tuple[str, ...], "A,B"] = (),
    protocol: Annotated[tuple[str, ...], "P,Q"] = (),
    modality: Modality | None = None,
    sample: Annotated[int | None, "N"] = None,
) -> None:
    """Export embeddings, outcomes or results to files for other programs (docs/exports.md).

    Exports:
      results          all results: CSV, JSON (with a schema), Parquet, LaTeX tables, MTEB results, V28 and
                       COCO-SM tables, the model-index of a model card (.yaml)
      paper            a folder for LaTeX: a table one column wide, charts, methods, an appendix, citations
      outcomes         one row per query: .parquet, .csv, .json
      misses           a random sample of what some encoders missed, to judge: .csv (docs/serve.md)
      trec             lists and relevant items of each query, for pytrec_eval, ranx …: a folder of runs and qrels
      embeddings       of one encoder: .npy (ids next to it), .npz, .parquet, .safetensors, .csv
      embedding-atlas  items of one encoder in two dimensions, with neighbours, thumbnails and hits: .parquet
      mlflow, wandb    results and the newest report as runs, one per encoder, if the library is installed

    Example: capim export results --to leaderboard.tex

    Args:
        what: what to export
        to: file to write; a folder for paper, coco-sm, mteb and trec, an address for mlflow, a project for wandb
        format: format of results (default: from the file suffix)
        encoder: only these encoders (embeddings: one)
        corpus: only these corpora (embeddings: one)
        protocol: only these protocols (embeddings have none)
        modality: modality of the embeddings or of the atlas
        sample: missed queries to judge (default: 300)
    """
    named = {"encoder": encoder, "corpus": corpus, "protocol": protocol}
    given = {"format": format, **named, "modality": modality, "sample": sample}
    unused = {f"--{name}": given[name] for name, exports in TAKEN_BY.items() if what not in exports}
    refuse_unused(f"on `capim export {what}`", **unused)
    store, path = open_store(workspace), Path(to)
    if what in ("embeddings", "embedding-atlas"):
        if missing := [f"--{name}" for name in ("encoder", "corpus", "modality") if not given[name]]:
            raise RequestError(f"export {what} needs {', '.join(missing)}")
        one = ("encoder", "corpus") if what == "embeddings" else ("corpus",)
        if several := [f"--{name} {','.join(named[name])}" for name in one if named[name][1:]]:
            raise RequestError(f"export {what} takes one {' and one '.join(one)}, got {' '.join(several)}")
        of: dict[str, Any] = {"corpus": corpus_in(store, corpus[0]).fingerprint, "modality": modality}
        if what == "embeddings":
            from capim.store.sets.embedding_files import export_embeddings

            count = export_embeddings(store, path, encoder=encoder[0], **of)
        else:
            from capim.tasks.results.exports import export_atlas

            of["protocols"] = wanted_rows(store, "outcomes", protocol=protocol).get("protocol", ())
            count = export_atlas(store, path, encoders=encoder, **of)
        say(f"{count:,} rows written to {to}")
    elif what == "misses":
        from capim.tasks.results.judged_misses import export_misses

        if sample is not None and sample < 1:
            raise RequestError(f"--sample must be at least 1, got {sample}")
        if not encoder or len(corpus) != 1 or len(protocol) > 1 or path.suffix != ".csv":
            raise RequestError("export misses needs --encoders, one --corpus and --to FILE.csv, at most one --protocol")
        of = {"encoders": encoder, "corpus": corpus_in(store, corpus[0]).name, "sample": sample or 300}
        count = export_misses(store, path, protocol="".join(protocol), **of)
        say(f"{count:,} missed queries written to {to}: fill in the column right, yes or no, from the top")
    elif what == "outcomes":
        from capim.store.files import write_row_file

        rows = store.current_outcomes(**wanted_rows(store, "outcomes", **named))
        write_row_file(path, rows)
        say(f"{rows.num_rows:,} rows written to {to}")
    else:
        sys.stdout.writelines(f"{line}\n" for line in _exported(store, what, to, format, named))


def _exported(
    store: EmbeddingStore, what: str, to: str, kind: str | None, named: Mapping[str, Sequence[str]]
) -> Sequence[str | Path]:
    """Export results or lists; return the files that were written, or what a tracker says."""
    wanted = wanted_rows(store, "outcomes" if what == "trec" else "results", **named)
    if what == "trec":
        from capim.tasks.results.exports import export_trec

        return export_trec(store, Path(to), wanted, note=say)
    if by_fingerprint := [name for name in wanted if name.endswith("_fingerprint")]:
        raise RequestError(f"{by_fingerprint[0].replace('_', ' ')}: results are exported by name; give the name")
    from capim.reports.rows.reading import read_report_data

    encoders, corpora, protocols = (wanted.get(name, []) for name in named)
    data = read_report_data(store, encoders=encoders, corpora=corpora, protocols=protocols)
    if what in ("results", "paper"):
        from capim.reports.exports import export_results

        more: Iterable[ShownResult] = ()
        if kind == "mteb":
            from capim.tasks.results.exports import ndcg_rows

            more = ndcg_rows(store, data.results)
        kind = "paper" if what == "paper" else kind
        return export_results(replace(data, results=(*data.results, *more)), to, kind=kind)
    from capim.reports.exports.tracking import TRACKERS

    pages = sorted(Path(store.uri).parent.glob("reports/*/report.html"))
    return [plain(line) for line in TRACKERS[what](data, to, pages[-1].parent if pages else None)]
