"""The table of protocols: one row says all about one, from its id to the function that builds its task.

To add one: a row of ``_ROWS``, and a function in ``tasks.ranking.tasks`` where no other protocol has such a task.
A package of your own names a :class:`ProtocolRule` in an entry point ``capim.protocols`` (``docs/own_model.md``).
The meaning of an id is read from its row, only here. ``docs/protocols.md`` has the definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from capim.store.plugins import OWN, Plugin, PluginTable
from capim.store.schema import COMPOSED, JUDGED, LABEL, REVISITED, SIMILARITY, SUBSET
from capim.store.types import SIDES

if TYPE_CHECKING:
    from capim.store.types import Corpus, Modality

Direction: TypeAlias = Literal["t2i", "i2t", "i2i", "t2t", "pairs", "quadruples", "both"]
Kind: TypeAlias = Literal["retrieval", "judged", "labels", "images", "pairs", "quadruples", "sum", "mean"]

DIRECTION_TITLES: Mapping[Direction, str] = {
    "t2i": "text to image",
    "i2t": "image to text",
    "i2i": "image to image",
    "t2t": "text to text",
    "quadruples": "two images, two captions",
    "pairs": "caption or hard negative",
    "both": "both directions",
}
PER_TOKEN, IMAGE_AS_QUERY = "transposed-per-token", "image-as-query"
"""Orientations of late interaction for an image as query, other than ``transposed``: text to image, by column."""

EVERY = "*"  # in place of a language or translator: all of them
MAIN = T2I_ALL, I2T_ANY = "t2i/all", "i2t/any"
"""The two protocols of the literature."""
T2I_FIRST, I2T_ANY5 = "t2i/first", "i2t/any5"
JUDGED_QUERIES = f"t2i/{JUDGED}"
TREC_EVAL = f"{JUDGED_QUERIES}@trec_eval"
"""The protocol of imported runs in trec_eval's order; only where it is named."""
TEXT_TO_IMAGE = (T2I_ALL, JUDGED_QUERIES)
"""Captions of images, and judged documents: a corpus has one of these."""
ALL_QUADRUPLES = "winoground"
MACRO, MICRO, ALL_NEGATIVES = "macro", "micro", "all-negatives"  # instead of a category: all of them
CLASS, BALANCED = "class", "class-balanced"
"""Names of the protocols of labels; ``balanced``: the mean over classes."""
MAIN_OF_JUDGED = "nDCG@10"
"""The main metric of judged documents, of a corpus that names no other."""

_HEADLINES: Mapping[Kind, int] = {"quadruples": 2, "pairs": 4, "judged": 7, "retrieval": 11, "images": 15}
"""Kind -> ``Protocol.headline`` of the protocols with no other in their row."""
LANGUAGES_FIRST = 8
"""``Protocol.headline`` of captions of one language, where a corpus has several languages."""
NO_HEADLINE = 99
_LAST = 9


@dataclass(frozen=True)
class Protocol:
    """One protocol of ``docs/protocols.md``: its queries, its gallery and the relevant items.

    Made from its id by :meth:`of`. A package's own protocol is made with whatever it has.

    Attributes:
        id: The id in every stored result.
        direction: ``t2i``: captions search images; ``i2t``: the reverse; ``pairs``, ``quadruples``: compositional;
            ``both``: a sum over two directions.
        kind: What its outcomes are, and with it which metrics apply; ``sum`` and ``mean`` are of results only.
        name: What follows the direction or the family: ``all``, ``cxc``, a category, a tag.
        language: Of the queries or captions; empty for all together, ``*`` for a mean over languages.
        translator: Who wrote the captions; empty or ``*`` as for the language.
        orientation: Of late interaction; empty for ``transposed``.
        weights: Of a mean over languages: ``speakers``, ``without-en``, ``speakers-without-en``; empty for equal ones.
        main_metric: The headline, where it is no other protocol's of the kind; of judged documents that of the corpus.
        description: One line for readers.
        metrics: The only ones that it has, the headline first; empty: all of its kind.
        captions: In words the captions that it takes of a corpus with several languages or translators (:meth:`on`);
            empty for all.
        heading: Its name on pages; ``{of.name}`` is replaced by an attribute. Empty: its direction and its name.
        headline: Of the protocols of a corpus those with the lowest number are its headline; 0: the number of its kind.
        order: Pages show the lowest number first, equal ones by id.
    """

    id: str
    direction: Direction
    kind: Kind
    name: str = ""
    language: str = ""
    translator: str = ""
    orientation: str = ""
    weights: str = ""
    main_metric: str = ""
    description: str = ""
    metrics: tuple[str, ...] = ()
    captions: str = ""
    heading: str = ""
    headline: int = 0
    order: int = _LAST

    @staticmethod
    def of(id_: str, main_metric: str = "") -> Protocol:
        """Return the protocol with this id.

        Examples:
            >>> Protocol.of("t2i/de/google").language, Protocol.of("i2t/any@image-as-query").orientation
            ('de', 'image-as-query')
            >>> [Protocol.of(id_).kind for id_ in ("t2i/all", "t2i/judged/fr", "winoground/Object", "aro/vg_relation")]
            ['retrieval', 'judged', 'quadruples', 'pairs']
            >>> [Protocol.of(id_).kind for id_ in ("t2i/all+i2t/any", "i2t/*/*@without-en")]
            ['sum', 'mean']
        """
        protocol = _parsed(id_)
        return replace(protocol, main_metric=main_metric) if main_metric and protocol.kind == "judged" else protocol

    def on(self, corpus: Corpus) -> Protocol:
        """Return it as this corpus has it: its headline, and which captions a protocol without a language takes."""
        if self.kind == "judged":
            return replace(self, main_metric=self.main_metric or corpus.main_metric)
        one = self.kind in ("retrieval", "sum") and not self.translator and PROTOCOLS.package(self.id) == OWN
        if not one or len(corpus.parts) < 2 or corpus.main_part is None:
            return self
        language, translator = corpus.main_part
        by = f" by {translator}" * (sum(part[0] == language for part in corpus.parts) > 1)
        return replace(self, captions=f"{language_name(language)} captions{by}")

    @property
    def is_retrieval(self) -> bool:
        """True if queries search a gallery, judged documents included."""
        return self.direction in SIDES and not self.is_combined

    @property
    def is_combined(self) -> bool:
        """True if it is of results over several protocols, and has no outcomes."""
        return self.kind in ("sum", "mean")

    @property
    def is_of_language(self) -> bool:
        """True if it is of the captions of one language by one translator."""
        return self.kind == "retrieval" and bool(self.translator)

    @property
    def part(self) -> tuple[str, str]:
        """Language and translator of its captions; empty texts for the main part of the corpus."""
        return self.language, self.translator

    @property
    def spoken(self) -> str:
        """Return the English name of its language."""
        return language_name(self.language)

    @property
    def mean_over_languages(self) -> Protocol:
        """Return the mean over the languages and translators of this direction."""
        return Protocol.of(language_id(self.direction))

    @property
    def family(self) -> str:
        """Return the published set of hard negatives that a category is of."""
        return self.id.removesuffix(f"/{self.name}")

    @property
    def without_orientation(self) -> Protocol:
        """Return the protocol in the orientation ``transposed``."""
        return Protocol.of(self.id.partition("@")[0], self.main_metric) if self.orientation else self

    @property
    def shares_items(self) -> bool:
        """True if its queries are items of the gallery, or share right ones; tests take them for independent."""
        return self.kind == "judged" or self.direction in ("i2i", "t2t")

    @property
    def is_main(self) -> bool:
        """True if it is one of the literature's two protocols with recalls that add up to RSUM."""
        return self.id in MAIN

    @property
    def is_all_quadruples(self) -> bool:
        """True if it is of all quadruples, not of those with one tag."""
        return self.kind == "quadruples" and not self.name

    @property
    def sides(self) -> tuple[Modality, Modality]:
        """Return the modalities of queries and gallery: captions and images, the reverse, or images only."""
        return SIDES.get(self.direction, SIDES["i2t"])

    @property
    def queries(self) -> str:
        """Return the kind of query: ``image`` or ``caption`` in retrieval, otherwise ``quadruples`` or ``pairs``."""
        return SIDES[self.direction][0] if self.direction in SIDES else self.direction

    @cached_property
    def title(self) -> str:
        """Return its subject in plain words; for a protocol :meth:`on` a corpus, also the captions it takes.

        Examples:
            >>> [Protocol.of(id_).title for id_ in ("t2i/all", "winoground/object", "t2i/all+i2t/any")]
            ['text to image', 'binding, object', 'both directions']
            >>> [Protocol.of(id_).title for id_ in ("t2i/de/google", "i2t/any@image-as-query", "t2i/*/*")]
            ['text to image, German by google', 'image to text, image as query', 'text to image, mean over languages']
            >>> [Protocol.of(id_).title for id_ in ("aro/vg_relation", "t2i/judged/de")]
            ['hard negatives, aro/vg_relation', 'judged queries in German']
        """
        heading = self.heading.format(of=self) if self.heading else f"{DIRECTION_TITLES[self.direction]}, {self.name}"
        last = (self.orientation or self.weights).replace("-", " ")
        return ", ".join(filter(None, (heading, self.captions, last)))

    @property
    def titled(self) -> str:
        """Return the title with the id behind it.

        Examples:
            >>> Protocol.of("t2i/all").titled, Protocol.of("aro/vg_relation").titled
            ('text to image (t2i/all)', 'hard negatives, aro/vg_relation')
        """
        return self.title if self.id in self.title else f"{self.title} ({self.id})"

    @property
    def place(self) -> tuple[int, str]:
        """Return its sort key among the protocols of a corpus on a page."""
        return self.order, self.id

    @property
    def headline_place(self) -> int:
        """Return the number that :attr:`headline` says, or that of its kind."""
        return self.headline or _HEADLINES.get(self.kind, NO_HEADLINE)


@dataclass(frozen=True, kw_only=True)
class ProtocolRule:
    """A row: a protocol, the corpora that it fits, and the task that it sets; a package adds one by an entry point.

    Attributes:
        protocol: All that pages and statistics need of it; for a family, the id has ``{…}`` in place of its members'
            attributes.
        build: Makes the task of a corpus (``CorpusLayout``) and the protocol: queries, galleries and relevant items. Of
            capim's rows the name of a function of ``tasks.ranking.tasks``; empty: an evaluation of it is never
            requested, because its results are made of others, or of the outcomes of another row.
        options: Further arguments of ``build``.
        needs: What a corpus needs: a key of ``tasks.ranking.protocols.NEEDS``; empty: nothing.
        members: Which members of the family a corpus has: a key of ``tasks.ranking.protocols.MEMBERS``.
        obstacle: Gives the reason why a corpus does not fit, as the end of a sentence; None if it fits.
        on_request: Evaluated only when its id is named.
    """

    protocol: Protocol
    build: Callable[..., Any] | str
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    members: str = ""
    obstacle: Callable[[Any], str | None] = lambda _: None
    on_request: bool = False


def _row(
    id_: str,
    heading: str,
    description: str,
    build: str = "",
    needs: str = "",
    *,
    options: Mapping[str, Any] | None = None,
    members: str = "",
    on_request: bool = False,
    **facts: Any,
) -> ProtocolRule:
    """Return a row of retrieval, with direction and name from its id; ``facts`` override the defaults."""
    direction, _, rest = id_.partition("/")
    known = {"direction": direction, "kind": "retrieval", "name": rest.partition("@")[0], "heading": heading}
    open_ = {part[1:-1]: part for part in rest.split("/") if part.startswith("{")}
    protocol = Protocol(id_, **{**known, **open_, "description": description, **facts})
    return ProtocolRule(
        protocol=protocol, build=build, needs=needs, options=options or {}, members=members, on_request=on_request
    )


_TO_FIVE = {"below": 5}  # COCO's captions 0 to 4 of an image: some have a sixth, which its later annotators did not see
_FOLDS = "Mean of five folds of 1,000 images"
_CXC = "Also right: what Crisscrossed Captions judged to match"
_ECCV = "Also right: what ECCV Caption judged to match"
_TRUTH = "Judged by a ground truth that came with the corpus"
_MEAN = "Mean of the results in every language"
_LANDMARKS = "Images of landmarks search all others; right are those judged"
_CLASSES = "image to text, zero-shot classification"
_FUSED = "A text that changes an image searches all images by its own vector, in which a model may have fused the image"
_DIVIDED = "scores divided by the caption's number of tokens, so that length does not win"
_PAIRS = "hard negatives, {of.id}"

_HITS = ("R@1", "R@5", "R@10")
_composed = partial(_row, build="composed", kind="images", metrics=(*_HITS, "R@50", "AP@5", "AP@10", "AP@25", "AP@50"))
_landmarks = partial(_row, build="landmarks", needs=REVISITED, kind="images", metrics=("AP by trapezoids", *_HITS))
_truth = partial(_row, build="ground_truth", needs="captions", members="ground truths")
_of_language = partial(_row, build="own_items", members="languages", name="", headline=10)
_mean = partial(_row, description=_MEAN, kind="mean", name="", language=EVERY)
_quadruples = partial(_row, build="quadruples", needs="quadruples", direction="quadruples", kind="quadruples")
_pairs = partial(_row, build="pairs", members="categories", direction="pairs", kind="pairs")

# id, heading, description, function that builds its task, what a corpus needs
_ROWS = (
    _row(T2I_ALL, "text to image", "Every caption searches all images", "own_items", "captions", headline=9, order=2),
    _row(I2T_ANY, "image to text", "Every image searches all captions; any of its own counts", "own_items", "captions",
         headline=9, order=4),
    _row(T2I_FIRST, "text to image, first captions", "Caption 0 of every image searches all images: a biased sample",
         "own_items", "several captions", options={"below": 1}),
    _row(I2T_ANY5, "image to text, captions 0 to 4", "Every image searches captions 0 to 4 of every image",
         "own_items", "five captions", options=_TO_FIVE),
    _row("i2t/symmetric-first", "image to text, first captions", "Every image searches caption 0 of every image",
         "own_items", "several captions", options={"below": 1}),
    _row("t2i/ordinal-mean", "text to image, mean over positions", "Mean over captions 0 to 4 of searching all images",
         "own_items", "five captions", options=_TO_FIVE),
    _row("i2t/symmetric-mean", "image to text, mean over positions",
         "Mean over ordinals 0 to 4 of searching that caption of every image", "images_to_each_ordinal",
         "five captions"),
    _row("t2i/1k", "text to image, 1,000 images", _FOLDS, "in_folds", "folds"),
    _row("i2t/1k", "image to text, 1,000 images", _FOLDS, "in_folds", "folds"),
    _truth("t2i/cxc", "text to image, CxC", _CXC),
    _truth("i2t/cxc", "image to text, CxC", _CXC, options=_TO_FIVE),
    _truth("t2i/eccv", "text to image, ECCV", _ECCV),
    _truth("i2t/eccv", "image to text, ECCV", _ECCV, options=_TO_FIVE),
    _row(f"{I2T_ANY}@{PER_TOKEN}", "image to text", f"As {I2T_ANY}; {_DIVIDED}", orientation=PER_TOKEN),
    _row(f"{I2T_ANY}@{IMAGE_AS_QUERY}", "image to text", f"As {I2T_ANY}; sum over patches of the best token",
         orientation=IMAGE_AS_QUERY),
    _row(JUDGED_QUERIES, "judged queries", "Every query searches all documents; graded judgements", "judged", JUDGED,
         kind="judged", order=0),
    _row(TREC_EVAL, "judged queries", f"As {JUDGED_QUERIES}, in trec_eval's order of an imported run", kind="judged",
         orientation="trec_eval", on_request=True),
    _quadruples(ALL_QUADRUPLES, "binding", "Two images and the caption of each", headline=1, order=5),
    _row(f"i2t/{CLASS}", _CLASSES, "Every image gets the nearest class, a class being the mean of its prompts",
         "classes", "labels", kind="labels", main_metric="R@1", headline=13),
    _row(f"i2t/{BALANCED}", f"{_CLASSES}, mean over classes",
         "Every image gets the nearest class; classes weigh the same", "classes", "one label",
         options={"balanced": True}, kind="labels", main_metric="R@1", headline=12),
    _row(f"t2i/{CLASS}", "text to image, classes", "Every class, the mean of its prompts, searches all images",
         "classes", "several labels", kind="judged", main_metric="AP"),
    _row(f"i2i/{LABEL}", "image to image, same label",
         "Every image searches all others; right are those that share a label with it", "sharing_labels",
         "shared labels", kind="labels"),
    _landmarks("i2i/easy", "image to image, landmarks, easy", f"{_LANDMARKS} easy", options={"right": (2,)}),
    _landmarks("i2i/medium", "image to image, landmarks, medium", f"{_LANDMARKS} easy or hard",
               options={"right": (1, 2)}, headline=14),
    _landmarks("i2i/hard", "image to image, landmarks, hard", f"{_LANDMARKS} hard", options={"right": (1,)}),
    _composed(f"t2i/{COMPOSED}", "text to image, image and text",
              "An image and a text that changes it, added, search all images", needs=COMPOSED),
    _composed(f"t2i/{COMPOSED}-alone", "text to image, the text's own vector", _FUSED, needs=COMPOSED,
              options={"text_weight": 1.0}, on_request=True),
    _composed(f"t2i/{COMPOSED}-{SUBSET}", "text to image, image and text, hard subset",
              "An image and a text search a few images that are hard to tell apart", needs=SUBSET,
              options={"in_subset": True}, metrics=("R@1", "R@2", "R@3")),
    _row(f"i2i/{SIMILARITY}", "image to image, rated pairs",
         "Cosines of pairs of images, compared with how alike people found them", "rated_pairs", SIMILARITY,
         kind="images", metrics=("Spearman",)),
    _row("t2t/own", "text to text, same image", "Every caption searches all others; right are those of the same image",
         "sharing_images", "several captions", on_request=True, headline=NO_HEADLINE),
    _row("+".join(MAIN), "both directions", "The sum of the results in both directions", direction="both", kind="sum",
         name=""),
    _mean("t2i/*/*", "text to image, mean over languages", translator=EVERY, order=1),
    _mean("i2t/*/*", "image to text, mean over languages", translator=EVERY, order=3),

    # families; of several that an id fits, the last one is meant
    _pairs("{family}/{name}", _PAIRS, "Caption or hard negative, of one category"),
    _pairs(f"{{family}}/{MACRO}", _PAIRS, "Mean over the categories", headline=3),
    _pairs(f"{{family}}/{MICRO}", _PAIRS, "Mean over all items", options={"macro": False}, headline=6),
    _pairs(f"{{family}}/{ALL_NEGATIVES}", _PAIRS, "Caption against all its hard negatives",
           options={"macro": False, "together": "caption_id"}, headline=5),
    _quadruples(f"{ALL_QUADRUPLES}/{{name}}", "binding, {of.name}", "Two images, two captions, of one tag",
                members="tags"),
    _of_language("t2i/{language}/{translator}", "text to image, {of.spoken} by {of.translator}",
                 "Every caption of one language by one translator searches all images"),
    _of_language("i2t/{language}/{translator}", "image to text, {of.spoken} by {of.translator}",
                 "Every image searches all captions of one language by one translator"),
    _truth("t2i/{name}", "text to image, {of.name}", _TRUTH),
    _truth("i2t/{name}", "image to text, {of.name}", _TRUTH),
    _truth("i2i/{name}", "image to image, {of.name}", _TRUTH, headline=NO_HEADLINE),
    _truth("t2t/{name}", "text to text, {of.name}", _TRUTH, headline=NO_HEADLINE),
    _row(f"{JUDGED_QUERIES}/{{language}}", "judged queries in {of.spoken}",
         "Every query of one language searches all documents; graded judgements", "judged",
         members="languages of queries", kind="judged", name=JUDGED),
    _mean("t2i/*/{translator}", "text to image, */{of.translator}"),
    _mean("i2t/*/{translator}", "image to text, */{of.translator}"),
)  # fmt: skip


def _of_package(plugin: Plugin, found: object) -> ProtocolRule:
    """Return the rule, with errors that name the package."""
    if not isinstance(found, ProtocolRule) or not callable(build := found.build):
        raise TypeError(f"expected a capim.tasks.protocols.ProtocolRule with a function, got {found!r}")
    if found.protocol.id != plugin.point.name:
        raise ValueError(f"the protocol has another id, {found.protocol.id!r}")

    def with_name(layout: Any, protocol: Protocol, **options: Any) -> Any:
        with plugin.failures("protocol"):
            return build(layout, protocol, **options)

    return replace(found, build=with_name)


def _is_family(rule: ProtocolRule) -> bool:
    return "{" in rule.protocol.id


PROTOCOLS = PluginTable("capim.protocols", {r.protocol.id: r for r in _ROWS if not _is_family(r)}, _of_package)
"""The protocols by id, and after them those of installed packages."""
FAMILIES = tuple(filter(_is_family, _ROWS))
MEANS = "t2i/*/*", "i2t/*/*"
"""The planned ones of a corpus in several languages."""


@lru_cache(maxsize=4096)
def _parsed(id_: str) -> Protocol:
    if id_ in PROTOCOLS:
        return PROTOCOLS[id_].protocol
    plain, _, behind = id_.partition("@")
    if behind:
        protocol = _parsed(plain)
        if protocol.is_combined:
            return replace(protocol, id=id_, order=_LAST, weights=behind)
        return replace(protocol, id=id_, order=_LAST, orientation=behind)
    for rule in reversed(FAMILIES):
        pattern, parts = rule.protocol.id.split("/"), id_.split("/")
        given = {one[1:-1]: part for one, part in zip(pattern, parts, strict=False) if one.startswith("{")}
        if len(pattern) == len(parts) and rule.protocol.id.format(**given) == id_:
            return member(rule, given)
    return Protocol(id_, "pairs", "pairs", id_.partition("/")[2], heading=_PAIRS)


def member(family: ProtocolRule, given: Mapping[str, str]) -> Protocol:
    """Return a protocol of a family from the values in its id in place of each ``{…}``."""
    facts: dict[str, Any] = {name: text for name, text in given.items() if name != "family"}
    return replace(family.protocol, id=family.protocol.id.format(**given), **facts)


def language_id(direction: str, language: str = EVERY, translator: str = EVERY, weights: str = "") -> str:
    """Return the id of the captions of one language by one translator; with ``*``, of the mean over all of them.

    Examples:
        >>> language_id("t2i", "de", "google"), language_id("i2t", weights=mean_weights(speakers=True, without="en"))
        ('t2i/de/google', 'i2t/*/*@speakers-without-en')
    """
    return f"{direction}/{language}/{translator}{'@' * bool(weights)}{weights}"


LANGUAGE_IN_SQL = "CASE WHEN {0} LIKE '%/%/%' THEN split_part({0}, '/', 2) END"
"""The language that an id names, null where it names none; ``{0}`` is the column."""


def mean_weights(*, speakers: bool = False, without: str | None = None) -> str:
    """Return the name of the weights of a mean over languages: by speakers or equal, all languages or all but one."""
    return "-".join(["speakers"] * speakers + [f"without-{without}"] * bool(without))


def language_name(code: str) -> str:
    """Return the English name of a language, or its code.

    Examples:
        >>> language_name("de"), language_name("pt-BR"), language_name("xx")
        ('German', 'Portuguese (pt-BR)', 'xx')
    """
    from langcodes import Language, tag_is_valid

    if not tag_is_valid(code):
        return code
    language = Language.get(code)
    name = language.language_name()
    return name if language.language == code else f"{name} ({code})"


def by_language(protocols: Iterable[Protocol], corpus: Corpus) -> list[Protocol]:
    """Return of the protocols of retrieval the two of the literature, and those of the languages not taken by these."""
    found = list(protocols)
    taken = {(protocol.direction, corpus.main_part) for protocol in found if protocol.is_main}
    return [p for p in found if p.is_main or (p.is_of_language and (p.direction, p.part) not in taken)]


def with_outcomes(ids: Iterable[str]) -> list[Protocol]:
    """Return the protocols of these ids that are not of combined results, in the order given."""
    return [protocol for protocol in map(Protocol.of, ids) if not protocol.is_combined]
