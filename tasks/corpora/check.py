"""The check of a corpus: its facts, its faults, what of it can be encoded, and what changed since it was stored."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capim.store.errors import RequestError, some
from capim.store.forms import NO_COLUMNS, Columns
from capim.store.schema import CORPUS_PARTS, JUDGED, LABEL, texts
from capim.store.sets.columns_read import language_code, told
from capim.store.tables import is_image_name
from capim.store.types import MODALITIES, Corpus, Modality
from capim.tasks.corpora.description import Missing, reader_call
from capim.tasks.corpora.layouts import Recognised, toml_lines
from capim.tasks.corpora.subset import index_images
from capim.tasks.protocols import MAIN, Protocol
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.decision import unequal_weights

_SHOWN = 20  # images that are left out
_SHOWN_CHANGES = 3
_NOTHING = pa.array(["", "nan", "none", "null"])
_JUDGED = ("judgements", "fewest relevant per query", "most relevant per query")
_CODE = re.compile(r"n?[0-9]+(\.0)?")
_LACKS = {"image": "its images have no files", "caption": "its captions have no texts"}


def corpus_facts(corpus: Corpus) -> dict[str, Any]:
    """Return counts over one corpus: label -> number, or label -> value -> number.

    * ``negatives``: captions that describe no image of the corpus, which ``captions`` counts too;
    * ``skipped``: images and queries that were left out; ``Corpus.skipped`` has the reasons;
    * ``captions per image``: number of captions within one language and translator -> images that have it;
    * ``undescribed``: images without a caption: distractors;
    * ``duplicate images``: images beyond the first with the same bytes;
    * ``duplicate captions``: captions with the same text, language and translator as an earlier caption of any image;
      as queries or items they tie exactly. Negatives are not counted;
    * ``empty captions``: captions that are empty or white space, or the word nan, none or null;
    * ``annotated``: images with annotated objects; ``without bytes``: images given by id only;
    * ``pairs``: category -> wrong captions, each against every right caption of its image;
    * ``quadruples``: Winoground-form examples;
    * ``positives``: ground truth and direction -> queries that have a positive;
    * ``classes`` and ``labels``: of labelled images;
    * ``judged``: of judged documents the judgements, and the fewest and most relevant documents of a query.

    Examples:
        >>> from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
        >>> facts = corpus_facts(build_corpus("c", [ImageRow("a"), ImageRow("b")], [CaptionRow("1", "a", "red"),
        ...     CaptionRow("2", "a", "blue"), CaptionRow("3", "b", "red")], source=None))
        >>> facts["captions per image"], facts["duplicate captions"], facts["without bytes"]
        ({1: 1, 2: 1}, 1, 2)
    """
    images, captions = corpus.images, corpus.captions
    own = captions.filter(pc.is_valid(captions["image_id"]))
    per_part = own.group_by(["image_id", "language", "translator"], use_threads=False).aggregate([([], "count_all")])
    most = per_part.group_by("image_id", use_threads=False).aggregate([("count_all", "max")])
    said = own.filter(pc.is_valid(own["text"])).select(["text", "language", "translator"])
    blank = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(captions["text"])), _NOTHING)
    positives = corpus.relevance.filter(pc.field("grade") > 0)
    queries = (
        positives.group_by(["ground_truth", "direction", "query_id"], use_threads=False)
        .aggregate([([], "count_all")])
        .to_pylist()
    )
    judged, labels = {}, corpus.relevance.filter(pc.field("ground_truth") == LABEL)
    if n_judged := corpus.relevance.filter(pc.field("ground_truth") == JUDGED).num_rows:
        relevant = [row["count_all"] for row in queries if row["ground_truth"] == JUDGED]
        judged = dict(zip(_JUDGED, (n_judged, min(relevant, default=0), max(relevant, default=0)), strict=True))
    return {
        "images": images.num_rows,
        "captions": captions.num_rows,
        "negatives": 0 if judged or labels.num_rows else captions["image_id"].null_count,
        "skipped": corpus.skipped.num_rows,
        "captions per image": _counts(most["count_all_max"].to_pylist()),
        "languages": _counts(captions["language"].to_pylist()),
        "translators": _counts(captions["translator"].to_pylist()),
        "undescribed": images.num_rows - most.num_rows,
        "duplicate images": images.num_rows - images["sha"].null_count - pc.count_distinct(images["sha"]).as_py(),
        "duplicate captions": _n_repeated(said),
        "empty captions": captions.filter(blank).num_rows,
        "annotated": images.num_rows - images["objects"].null_count,
        "without bytes": images["sha"].null_count,
        "pairs": _counts(
            corpus.pairs.group_by(["category", "negative_id"], use_threads=False).aggregate([])["category"].to_pylist()
        ),
        "quadruples": corpus.quadruples.num_rows,
        "positives": _counts(f"{row['ground_truth']} {row['direction']}" for row in queries),
        "judged": judged,
        "classes": len(captions["query_group"].unique()) if labels.num_rows else 0,
        "labels": labels.num_rows,
    }


def _n_repeated(rows: pa.Table) -> int:
    """Return how many rows are equal to an earlier one."""
    return int(rows.num_rows - rows.group_by(rows.column_names, use_threads=False).aggregate([]).num_rows)


def _counts(values: Iterable[Any]) -> dict[Any, int]:
    return dict(sorted(Counter(values).items()))


@dataclass(frozen=True, kw_only=True)
class CorpusCheck:
    """The result of a check.

    Attributes:
        name: Name of the corpus; empty if it could not be read.
        fingerprint: Fingerprint of the corpus that a run would use; empty if it could not be read.
        facts: Counts of :func:`corpus_facts`; empty if it could not be read.
        faults: Reasons for which a run would refuse the corpus.
        warnings: Facts that matter for the interpretation of a run's results.
        recognised: What a folder or file was recognised as; empty for a name or a description.
        origin: Where the corpus was read from, and which split of it; empty if it could not be read.
        columns: Which columns of its tables were read, and warnings of others, as lines.
        description: Lines of a ``corpus.toml`` that says the same, to which options can be added.
        next_command: What to type next; empty if the corpus cannot be read, or has no path or name.
    """

    name: str = ""
    fingerprint: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    recognised: str = ""
    origin: str = ""
    columns: tuple[str, ...] = ()
    description: tuple[str, ...] = ()
    next_command: str = ""

    @property
    def ok(self) -> bool:
        """True if a run would accept the corpus."""
        return not self.faults

    def lines(self) -> list[str]:
        """Return the result as lines of text: faults, then warnings, then facts, and the command to type next."""
        lines = [f"{label}: {of}" for label, of in (("recognised", self.recognised), ("source", self.origin)) if of]
        lines += [f"fault: {fault}" for fault in self.faults]
        if any(" = " in fault for fault in self.faults) or (self.ok and not self.next_command):  # lines to write
            lines += self.description
        lines += [*self.columns, *(f"warning: {warning}" for warning in self.warnings)]
        for label, value in self.facts.items():
            by_value = isinstance(value, Mapping)
            shown = ", ".join(f"{key}: {n:,}" for key, n in value.items()) if by_value else f"{value:,}"
            if value:
                lines.append(f"{label}: {shown}")
        if self.ok:
            lines.append(f"{self.name} ({self.fingerprint}) can be run")
        if self.next_command:
            lines.append(f"next: {self.next_command}")
        return lines


def check_corpus(
    what: str | Path | Mapping[str, object], *, missing: Missing | None = None, columns: Columns = NO_COLUMNS
) -> CorpusCheck:
    """Read a corpus and decode its images as a run would, and collect its faults and warnings; stores nothing.

    Args:
        what: As for :func:`tasks.corpora.description.open_corpus`: usually a TOML description or a folder.
        missing: Overrides ``missing`` of the description.
        columns: Role -> column; overrides ``columns`` of the description.
    """
    recognised = ""
    description: tuple[str, ...] = ()
    try:
        call = reader_call(what, columns).with_option("missing", missing)
        if call.recognised is not None:
            recognised, description = call.recognised.how, _description(call.recognised, what, missing)
        with told() as lines:
            complete = call.read()
        corpus = index_images(complete, known={}, sink=lambda _: None)
    except RequestError as error:
        return CorpusCheck(faults=error.faults, recognised=recognised, description=description)
    facts = corpus_facts(corpus)
    return CorpusCheck(
        name=corpus.name,
        fingerprint=corpus.fingerprint,
        facts=facts,
        warnings=tuple(_warnings(complete, corpus, facts)),
        recognised=recognised,
        origin=corpus.origin,
        columns=tuple(lines),
        description=description,
        next_command="" if isinstance(what, Mapping) or missing or columns else _next_command(str(what), facts),
    )


def _description(found: Recognised, what: object, missing: Missing | None) -> tuple[str, ...]:
    path = Path(str(what)).expanduser().absolute()
    folder = path if path.is_dir() else path.parent
    content = found.content | ({"missing": missing} if missing else {})
    lines = (f"  {line}" for line in toml_lines(content, folder))
    return (f"options are lines of {folder / 'corpus.toml'}, below these:", *lines)


def _next_command(what: str, facts: Mapping[str, Any]) -> str:
    what = shlex.quote(what)
    if facts["without bytes"]:
        return f"capim import --corpus {what} --encoder NAME --images FILE --captions FILE (docs/embeddings.md)"
    return f"capim run --corpora {what} --encoders NAME (names: capim list encoders)"


def _warnings(complete: Corpus, usable: Corpus, facts: Mapping[str, Any]) -> list[str]:
    skipped = usable.skipped.to_pylist()
    lines = [f"{row['modality']} {row['item_id']} is left out: {row['reason']}" for row in skipped[:_SHOWN]]
    nfc = partial(unicodedata.normalize, "NFC")
    renamed = [
        (identifier, key)
        for identifier, key in zip(
            *(map(nfc, usable.images[column].to_pylist()) for column in ("id", "key")), strict=True
        )
        if is_image_name(identifier)
        and is_image_name(key)
        and not identifier.endswith(key)
        and not key.endswith(identifier)
    ]
    if len(skipped) > _SHOWN:
        lines.append(f"… and {len(skipped) - _SHOWN:,} more are left out")
    tie = "they tie in every ranking"
    for count, text in (
        (complete.captions.num_rows - usable.captions.num_rows, "captions are left out with their images"),
        (facts["duplicate images"], f"images have the same bytes as another image: {tie}"),
        (facts["duplicate captions"], f"captions repeat another caption of the same language: {tie}"),
        (
            _n_repeated(complete.captions.select(["text", "language"])) if facts["judged"] else 0,
            "queries have the text of an earlier query",
        ),
        (facts["empty captions"], "captions are empty, or nan, none or null"),
        (_n_without_answer(complete), "pairs or quadruples have one text, or image, on both sides: no model is right"),
        (
            0 if facts["quadruples"] or facts["undescribed"] == facts["images"] else facts["undescribed"],
            "images have no caption: they are distractors in the gallery",
        ),
        (facts["without bytes"], "images are ids without files: only imported embeddings can be evaluated"),
    ):
        if count:
            lines.append(f"{count:,} {text}")
    if facts["labels"] and (codes := _codes(complete)):
        names = ", ".join(f'"{label}" = "…"' for label, _ in codes[:2])
        lines.append(
            f"{len(codes)} classes are called by a number, the first in {codes[0][1]!r}; name them with classes = "
            f"{{ {names} }} (docs/labels.md)"
        )
    sizes = np.repeat([*facts["captions per image"]], [*facts["captions per image"].values()])
    if sizes.size and not facts["judged"]:
        images = Clusters.of(np.arange(sizes.size), weights=sizes)
        lines += filter(None, [unequal_weights(images.n_occupied, images.n_effective, images.largest_share)])
    if renamed:
        name, file = renamed[0]
        lines.append(f"{len(renamed):,} images are files with another name, the first {name!r}: {file!r}")
    lines += _language_warnings(complete)
    if usable.languages_reference not in facts["languages"] and len(facts["languages"]) > 1:
        lines.append(f"no captions in the reference language {usable.languages_reference!r}: no cross-lingual metrics")
    if (n_languages := len({language for language, _ in usable.parts})) > 1:
        main = Protocol.of(MAIN[0]).on(usable).captions
        takes = f"{', '.join(MAIN)} and RSUM take the {main}" if main else f"there is no {', '.join(MAIN)} and RSUM"
        lines.append(f"captions in {n_languages} languages: planned are the means, t2i/*/* and i2t/*/*; {takes}")
    return lines


_SCRIPTS = {  # of ISO 15924 -> first words of the names of its letters in Unicode
    "Latn": ("LATIN",), "Cyrl": ("CYRILLIC",), "Grek": ("GREEK",), "Arab": ("ARABIC",), "Hebr": ("HEBREW",),
    "Deva": ("DEVANAGARI",), "Beng": ("BENGALI",), "Thai": ("THAI",), "Hans": ("CJK",), "Hant": ("CJK",),
    "Jpan": ("CJK", "HIRAGANA", "KATAKANA"), "Kore": ("HANGUL", "CJK"),
}  # fmt: skip
_LOOKED_AT = 200  # captions per language in which letters are counted


def _language_warnings(corpus: Corpus) -> list[str]:
    """Return warnings of languages that are no code, and of captions in letters of another script than theirs."""
    from langcodes import Language

    lines = []
    for language in sorted({*texts(corpus.captions["language"])}):
        code = language_code(language)
        if code is None or code != language:
            meant = f"{code!r}, under which other corpora have it" if code else "one of BCP 47, such as 'de'"
            lines.append(f"language {language!r} is not a usual code; write {meant}")
        script = Language.get(code).maximize().script if code else None
        own = corpus.captions.filter(pc.field("language") == language)["text"].drop_null()[:_LOOKED_AT]
        letters = Counter(unicodedata.name(c, "").partition(" ")[0] for c in "".join(texts(own)) if c.isalpha())
        if script in _SCRIPTS and letters and 2 * sum(letters[name] for name in _SCRIPTS[script]) < letters.total():
            most = letters.most_common(1)[0][0].title().replace("Cjk", "CJK")
            lines.append(
                f"captions in {language!r} are written in {most} letters: give their "
                'language in a column, or with language = "…"'
            )
    return lines


def _n_without_answer(corpus: Corpus) -> int:
    """Return the number of pairs and quadruples in which two texts, or two images, are the same."""
    if not corpus.pairs.num_rows + corpus.quadruples.num_rows:
        return 0
    text_of = dict(zip(*(corpus.captions[column].to_pylist() for column in ("id", "text")), strict=True))
    sides = [(row["caption_id"], row["negative_id"]) for row in corpus.pairs.to_pylist()]
    rows = corpus.quadruples.to_pylist()
    one_image = sum(row["image_0"] == row["image_1"] for row in rows)
    sides += [(row["caption_0"], row["caption_1"]) for row in rows if row["image_0"] != row["image_1"]]
    one_text = sum(text_of[one] is not None and text_of[one] == text_of[other] for one, other in sides)
    return int(one_image + one_text)


def _codes(corpus: Corpus) -> list[tuple[str, str]]:
    """Return labels and first prompts of the classes that are called by a number or a synset of WordNet."""
    first = corpus.captions.filter(pc.field("ordinal") == 0)
    rows = zip(first["query_group"].to_pylist(), first["text"].to_pylist(), strict=True)
    return [(label, text) for label, text in rows if label and text and _CODE.fullmatch(label) and label in text]


def encodable(corpus: Corpus) -> tuple[Modality, ...]:
    """Return the modalities that can be encoded: images if all have files, captions if all have texts.

    A corpus may have ids in place of image files, or of caption texts, for embeddings that were made elsewhere.
    """
    without = {"image": corpus.images["sha"].null_count, "caption": corpus.captions["text"].null_count}
    return tuple(modality for modality in MODALITIES if not without[modality])


def import_advice(encoder: str, corpus: str, lacking: Modality) -> str:
    """Return one line of advice on evaluating a corpus when one modality cannot be encoded.

    Embeddings pair only under one encoder, so the vectors encoded here are exported and imported with the rest.
    """
    have: Modality = "caption" if lacking == "image" else "image"
    return (
        f"corpus {corpus!r}: {_LACKS[lacking]}, so only its {have}s can be encoded. To evaluate them with {lacking} "
        f"embeddings of the same model, import both under one name: `capim export embeddings --encoder {encoder} "
        f"--corpus {corpus} --modality {have} --to {have}s.npz`, then `capim import --encoder {encoder}-imported "
        f"--corpus {corpus} --{lacking}s FILE --{have}s {have}s.npz`"
    )


def encoding_fault(corpus: Corpus, modalities: Sequence[Modality], *, given: object = "") -> str | None:
    """Return why none of these modalities of a corpus can be encoded; None if one can.

    ``given`` is what the user gave for the corpus: a name, a path or the table of a suite.
    """
    if set(modalities) & set(encodable(corpus)):
        return None
    lacks = " and ".join(_LACKS[modality] for modality in modalities)
    files = " ".join(f"--{modality}s FILE" for modality in modalities)
    source = shlex.quote(given) if given and isinstance(given, str) else corpus.name
    return (
        f"corpus {corpus.name!r}: {lacks}, so they cannot be encoded; import embeddings made elsewhere: `capim import "
        f"--corpus {source} --encoder NAME {files}`, with the ids that `capim list ids {source}` lists"
    )


_CALLED = {"sha": "contents", "image_id": "image", "relevance": "positives", "skipped": "skipped items"}
_NAMING = ("id", "ground_truth", "direction", "query_id", "item_id")  # columns by which a row is named


def describe_change(stored: Corpus, opened: Corpus) -> list[str]:
    """Return one line for each kind of change from ``stored`` to ``opened``; empty if the fingerprints are equal.

    Args:
        stored: The corpus in the store.
        opened: The corpus as it has just been read.

    Examples:
        >>> from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
        >>> def corpus(text): return build_corpus("c", [ImageRow("a")], [CaptionRow("a#0", "a", text)], source=None)
        >>> describe_change(corpus("red"), corpus("blue"))
        ["captions with other text: 'a#0'"]
    """
    if stored.fingerprint == opened.fingerprint:
        return []
    changes: defaultdict[str, list[str]] = defaultdict(list)
    for part in CORPUS_PARTS:
        before, after = (_by_id(getattr(each, part)) for each in (stored, opened))
        what = _CALLED.get(part, part)
        for key in dict.fromkeys([*before, *after]):
            old, new = before.get(key), after.get(key)
            if old is None or new is None:
                changes[f"{'new' if old is None else 'removed'} {what}"].append(key)
            elif others := [_CALLED.get(column, column) for column in old if old[column] != new[column]]:
                changes[f"{what} with other {' and '.join(others)}"].append(key)
    lines = [f"{kind}: {some(keys, _SHOWN_CHANGES)}" for kind, keys in changes.items()]
    return lines or ["another order of the items"]


def _by_id(table: pa.Table) -> dict[str, Mapping[str, Any]]:
    """Return the rows of a part of a corpus by what names them, without the files of images, which may move."""
    rows = table.select([name for name in table.column_names if name != "key"]).to_pylist()
    return {" ".join(repr(row[name]) for name in _NAMING if name in row): row for row in rows}
