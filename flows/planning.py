"""`capim run --dry-run`: the rows a run would find stored or make, with the reasons; the store is not changed.

The steps query the ledger for the derivations of the run, with the functions that its tasks call
(``tasks.derive.Work``), and for the reasons as `capim why` does afterwards (``tasks.why``). Work that is not known
before the run, such as the outcomes of vectors that are not encoded yet, counts as to do.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import Literal, TypeAlias

import numpy as np

from capim.flows.config import RunConfig
from capim.flows.embed import check_request
from capim.reports.destination import has_file
from capim.store import EmbeddingStore, SealedSet
from capim.store.errors import MissingStoreError, RequestError, noted
from capim.store.schema import Batch
from capim.store.types import MODALITIES, Corpus, EncoderSpec, Modality, SetKey
from capim.store.upkeep.inventory import bytes_of_rows
from capim.tasks.compare import combined, comparisons, ranking
from capim.tasks.corpora.check import encodable, import_advice
from capim.tasks.corpora.naming import corpus_to_read
from capim.tasks.corpora.opened import OpenCorpora
from capim.tasks.derive import Derivation, Work
from capim.tasks.encoders.checkpoint import downloads_of
from capim.tasks.evaluate import OfEvaluation, evaluated_rows, newest_evaluations
from capim.tasks.hub import disk, size
from capim.tasks.ranking.protocols import select_protocols
from capim.tasks.references import EvaluationRef, Missing, SetsRef, by_corpus, this_host
from capim.tasks.report import analyses_of, devices_of, gate_of, page_of
from capim.tasks.results.figures import Figures
from capim.tasks.results.scoring import ScoredSets, incomplete, scored_sets, stored_evaluations
from capim.tasks.why import NEW_INPUT, Earlier, name_in

DOWNLOADS = "files to download"
Step: TypeAlias = Literal["embed", "evaluate", "compare", "rank", "analyse", "report"]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a step: items of one kind, of one corpus and encoder where it has one.

    Attributes:
        seconds: That the items to do take at the rates that the store has of earlier ones; None: it has none.
        n_bytes: Of the vectors to encode, or of the files to download; None: not known, or of something else.
        reason: Why items are to be made, as `capim why` says it afterwards.
    """

    step: Step
    what: str
    corpus: str = ""
    encoder: str = ""
    stored: int = 0
    to_do: int = 0
    seconds: float | None = None
    n_bytes: int | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The parts of a run in its order, and the encoders that no hub answered for."""

    parts: tuple[Part, ...]
    missing: tuple[Missing, ...]

    @property
    def summary(self) -> str:
        """Return the remaining work as one line."""
        todo = defaultdict[str, int](int)
        for part in self.parts:
            todo[part.what] += part.to_do
        counts = ", ".join(f"{what} {n:,}" for what, n in todo.items() if n)
        if not counts:
            return f"nothing to do: all {sum(part.stored for part in self.parts):,} items are stored"
        seconds = {part: part.seconds for part in self.parts if part.to_do}
        known = [each for each in seconds.values() if each is not None]
        open_ = dict.fromkeys(part.what for part, each in seconds.items() if each is None)
        rest = f", without {' and '.join(open_)}" if open_ else ""
        about = f"; about {sum(known):,.0f} s at the rates of earlier runs{rest}" if known else ""
        if n_bytes := sum(part.n_bytes or 0 for part in self.parts if part.what == DOWNLOADS):
            cache, free = disk()
            about = f"; {size(n_bytes)} to download into {cache}, where {size(free)} are free{about}"
        return f"to do: {counts}{about}; nothing was changed"


def plan_run(config: RunConfig) -> Plan:
    """Return what :func:`capim.flows.benchmark.benchmark` would do now.

    Raises:
        RequestError: The run would be refused, for the same reasons.
    """
    opened = OpenCorpora()
    request = check_request(config, opened)
    with _store_of(config) as store:
        plan = _Planning(config=config, store=store)
        register = store.corpora()
        for what in config.corpora:
            reading = corpus_to_read(what, register, sample=config.sample, seed=config.seed)
            corpus = opened.index(store, reading, write=False)
            plan.corpora[corpus.fingerprint] = corpus
        own = plan.embed(request.encoders)
        evaluations = plan.evaluate(own)
        plan.compare(evaluations)
        plan.analyse(evaluations)
        plan.report()
    return Plan(parts=tuple(plan.parts), missing=request.missing)


@contextmanager
def _store_of(config: RunConfig) -> Iterator[EmbeddingStore]:
    """Open the store of a run, or an empty one where there is none yet."""
    try:
        found = EmbeddingStore.open(config.store_uri)
    except MissingStoreError:
        with TemporaryDirectory() as folder:
            yield EmbeddingStore.open(f"{folder}/store", create=True)
    else:
        yield found


@dataclass(frozen=True, kw_only=True)
class _Planning:
    """The parts of a run's steps, collected step by step.

    Attributes:
        corpora: Fingerprint -> corpus, as the run registers it.
        keys: Of everything that the run asks the ledger for.
        encoding: Names of corpora with something to encode.
        scoring: Fingerprints of corpora with results to compute.
    """

    config: RunConfig
    store: EmbeddingStore
    parts: list[Part] = field(default_factory=list)
    corpora: dict[str, Corpus] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    encoding: set[str] = field(default_factory=set)
    scoring: set[str] = field(default_factory=set)

    def embed(self, encoders: Sequence[EncoderSpec]) -> list[ScoredSets]:
        """Add items by modality; return the pairs of sets that can be evaluated then.

        Raises:
            RequestError: None can.
        """
        pairs, advice = [], []
        for spec in encoders:
            n_before = len(self.parts)
            for corpus in self.corpora.values():
                sealed: dict[Modality, SealedSet] = {}
                lacking = []
                for modality in MODALITIES:
                    key = SetKey.of(spec, corpus.name, corpus.fingerprint, modality)
                    found = self.store.sealed(key)
                    if modality not in encodable(corpus):
                        lacking += [] if found else [import_advice(spec.name, corpus.name, modality)]
                    elif self._encode(spec, corpus, key) or not self.store.intact(key):
                        continue
                    if found is not None:
                        sealed[modality] = found
                if lacking:
                    advice += lacking[:1]
                    continue
                with noted(advice):
                    protocols = select_protocols(corpus, self.config.protocols, vectors=spec.vectors)
                    pairs.append(scored_sets(self.store, SetsRef.of(key), corpus, protocols, sealed, spec.vectors))
            to_do = any(part.to_do for part in self.parts[n_before:])
            if to_do and (files := downloads_of(spec)):
                n_bytes = sum(files.values())
                self.parts.append(
                    Part(step="embed", what=DOWNLOADS, encoder=spec.name, to_do=len(files), n_bytes=n_bytes)
                )
        if advice and not pairs:
            raise RequestError(advice)
        return pairs

    def _encode(self, spec: EncoderSpec, corpus: Corpus, key: SetKey) -> int:
        """Add the part of one set; return how many of its items are to be encoded."""
        n_items = n = len(corpus.items(key.modality))
        if corpus.fingerprint in self._registered:
            n = 0 if self.store.intact(key) else len(self.store.missing(key))
        part = Part(step="embed", what=f"{key.modality}s", corpus=corpus.name, encoder=spec.name, stored=n_items - n)
        if n:
            self.encoding.add(corpus.name)
            n_bytes = bytes_of_rows(spec, n) if spec.vectors == "single" else None
            part = replace(part, to_do=n, n_bytes=n_bytes, seconds=self._encoding_seconds(key, n), reason=NEW_INPUT)
        else:
            part = replace(part, n_bytes=0, seconds=0.0)
        self.parts.append(part)
        return n

    def _encoding_seconds(self, key: SetKey, n_items: int) -> float | None:
        """Return the time at the rate of this encoder's earlier batches, if possible on this host, without warm-up."""
        rows = self.store.all(Batch, encoder_fingerprint=key.encoder_fingerprint, modality=key.modality)
        rows = [row for row in rows if row.host == this_host()] or rows
        rows = [row for row in rows if not row.warmup] or rows
        seconds = sum(row.seconds for row in rows)
        return n_items * seconds / sum(row.n_items for row in rows) if rows else None

    def evaluate(self, own: Sequence[ScoredSets]) -> tuple[EvaluationRef, ...]:
        """Add outcomes and results of these sets, and results of others on their corpora; return all evaluations."""
        new: list[OfEvaluation] = []
        for scored in own:
            n = len(incomplete(scored, scored.protocols, scored.stored()))
            corpus, encoder = scored.sets.corpus, scored.sets.encoder
            part = Part(step="evaluate", what="outcomes", corpus=corpus, encoder=encoder, to_do=n)
            seconds, reason = (None, NEW_INPUT) if n else (0.0, "")
            self.parts.append(replace(part, stored=len(scored.protocols) - n, seconds=seconds, reason=reason))
            todo = {each.subject.protocol for each in self._figures(scored)}
            new += [
                OfEvaluation(**asdict(scored.sets), protocol=protocol, evaluation=evaluation)
                for protocol, evaluation in scored.evaluations.items()
                if protocol in todo
            ]
        corpora = list(dict.fromkeys(scored.sets.corpus for scored in own))
        rows = evaluated_rows(self.store, corpus=corpora, corpus_fingerprint=self._registered)
        evaluations = newest_evaluations([*rows, *new], corpus=corpora, encoder=())
        known = {scored.sets for scored in own}
        for each in evaluations:
            if each.sets not in known:
                self._figures(stored_evaluations(self.store, each, self.config.protocols))
        return evaluations

    def _figures(self, scored: ScoredSets) -> list[Derivation]:
        """Add the results of one encoder on one corpus; return those to do."""
        keep, names = self.config.keep_replicates, (scored.sets.corpus, scored.sets.encoder)
        *figures, replicates = Figures(scored=scored, resampling=self.config.resampling, keep_replicates=keep).works()
        todo = self._ask("evaluate", "figures", figures, *names)
        if replicates.wanted:
            self._ask("evaluate", "replicates", [replicates], *names)
        if todo:
            self.scoring.add(scored.corpus.fingerprint)
        return todo

    def compare(self, evaluations: tuple[EvaluationRef, ...]) -> None:
        """Add comparisons by corpus, and the ranking over corpora."""
        groups, resampling = by_corpus(evaluations), self.config.resampling
        for group in groups:
            corpus = self._corpus(group)
            protocols = sorted({protocol for each in group for protocol in each.evaluations})
            how = (self.store, corpus, group)
            works = [comparisons(*how, protocols, resampling), combined(*how, resampling)]
            self._ask("compare", "comparisons", works, corpus.name)
        if (over_corpora := ranking(self.store, evaluations, resampling)).wanted:
            self._ask("rank", "rankings", [over_corpora])

    def analyse(self, evaluations: tuple[EvaluationRef, ...]) -> None:
        """Add analyses by corpus; the comparison with published results and the speed of devices count as one each."""
        resampling = self.config.resampling
        for group in by_corpus(evaluations):
            corpus = self._corpus(group)
            gate, devices = gate_of(self.store, corpus, group, (), resampling), devices_of(self.store, corpus)
            unknown = [*gate.wanted] if corpus.fingerprint in self.scoring else []
            unknown += devices.wanted if corpus.name in self.encoding else []
            works = [analyses_of(self.store, corpus, group, self.config.analyses, resampling), gate, devices]
            self._ask("analyse", "analyses", works, corpus.name, unknown=unknown)

    def report(self) -> None:
        """Add the page, which counts as stored only if it shows everything that is stored."""
        todo = any(part.to_do for part in self.parts)
        page = "" if todo else f"{self.config.reports_uri}/{page_of(self.store, self.keys)}/report.html"
        stored = int(bool(page) and has_file(page))
        self.parts.append(
            Part(step="report", what="pages", stored=stored, to_do=1 - stored, seconds=0.0 if stored else None)
        )

    def _corpus(self, group: Sequence[EvaluationRef]) -> Corpus:
        sets = group[0].sets
        return self.corpora.get(sets.corpus_fingerprint) or self.store.corpus(sets.corpus, sets.corpus_fingerprint)

    def _ask(
        self,
        step: Step,
        what: str,
        works: Sequence[Work],
        corpus: str = "",
        encoder: str = "",
        unknown: Sequence[Derivation] = (),
    ) -> list[Derivation]:
        """Add a part of derivations; return those to do: ``unknown`` depend on rows to be made before them."""
        todo = []
        for work in works:
            stored = self.store.stored_rows([each.key for each in work.wanted])
            todo += [each for each in work.wanted if each.key not in stored or each in unknown]
            self.keys.update(each.key for each in work.wanted)
        n_stored = sum(len(work.wanted) for work in works) - len(todo)
        part = Part(step=step, what=what, corpus=corpus, encoder=encoder, stored=n_stored, to_do=len(todo))
        self.parts.append(replace(part, seconds=self._seconds(todo), reason=self._earlier.why(todo)))
        return todo

    def _seconds(self, todo: Sequence[Derivation]) -> float | None:
        """Return the time at the mean rates of the same kind and metric or analysis, or of the same kind."""
        rates = self._rates
        found = [rates.get((each.kind, name_in(each.subject))) or rates.get((each.kind, "")) for each in todo]
        return None if None in found else float(sum(filter(None, found)))

    @cached_property
    def _registered(self) -> list[str]:
        """Return the fingerprints of the stored corpora."""
        return [row.fingerprint for row in self.store.corpora()]

    @cached_property
    def _earlier(self) -> Earlier:
        """Return what everything was made of the last time."""
        earlier = Earlier(self.store)
        for entry in earlier.entries:
            earlier.take(json.loads(entry.identity))
        return earlier

    @cached_property
    def _rates(self) -> dict[tuple[str, str], float]:
        """Return kind and metric or analysis (empty: any) -> mean seconds of one derivation."""
        measured = defaultdict[tuple[str, str], list[float]](list)
        for row in self._earlier.entries:
            measured[row.kind, name_in(row.subject)].append(row.seconds)
            measured[row.kind, ""].append(row.seconds)
        return {kind: float(np.mean(seconds)) for kind, seconds in measured.items()}
