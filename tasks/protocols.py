"""The protocols of ``docs/protocols.md`` as values: all that follows from an id. Nothing else takes an id apart.

An id is one of

- ``t2i/NAME``, ``i2t/NAME``: retrieval; ``t2i/judged``, ``t2i/judged/LANGUAGE``: documents with graded judgements;
- ``i2t/class``: images labelled by prompts of classes; ``t2i/class``: classes search images; ``i2i/label``: images that
  share a label; ``i2i/easy``, ``medium``, ``hard``: landmarks; ``t2i/composed``: an image and a text that changes it;
  ``i2i/similarity``: pairs of images that people rated; ``t2t/own``: captions of the same image;
- ``t2i/LANGUAGE/TRANSLATOR``: captions of one language by one translator;
- ``i2t/any@ORIENTATION``: one of the two other ways to score captions for an image by late interaction (§2);
- ``t2i/judged@trec_eval``: an imported run as trec_eval orders it, ties by id, what is not listed not retrieved (§7b);
- ``winoground``, ``winoground/TAG``: quadruples; ``FAMILY/CATEGORY``: captions against hard negatives;
- of figures over several protocols ``A+B``, their sum, and ``t2i/*/TRANSLATOR@WEIGHTS``, a mean over languages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from capim.store.plugins import Plugin, PluginTable
from capim.store.schema import COMPOSED, JUDGED, LABEL, SIMILARITY, SUBSET
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
ORIENTATIONS = {
    "transposed-per-token": "scores divided by the caption's number of tokens, so that length does not win",
    "image-as-query": "sum over patches of the best token",
}
"""How captions are scored for an image by late interaction, other than ``transposed``: text to image read by column."""

EVERY = "*"  # in place of a language or translator: all of them
MAIN = T2I_ALL, I2T_ANY = "t2i/all", "i2t/any"
"""The two protocols of the literature."""
T2I_FIRST, I2T_ANY5 = "t2i/first", "i2t/any5"
JUDGED_QUERIES = f"t2i/{JUDGED}"
TEXT_TO_IMAGE = (T2I_ALL, JUDGED_QUERIES)
"""Captions of images, and judged documents: a corpus has one of these."""
ALL_QUADRUPLES = "winoground"
MACRO, MICRO, ALL_NEGATIVES = "macro", "micro", "all-negatives"  # instead of a category: all of them

CLASS, BALANCED = "class", "class-balanced"
"""Names of the protocols of labels; ``balanced``: the mean over classes."""

_LABELLED = (("i2t", CLASS), ("i2t", BALANCED), ("i2i", LABEL))
MEDIUM = "medium"
REVISITED_GRADES = {"easy": (2,), MEDIUM: (1, 2), "hard": (1,)}
"""The protocols of Revisited Oxford and Paris (Radenović et al. 2018), and the grades that are right in each."""
COMPOSED_SUBSET, COMPOSED_ALONE = f"{COMPOSED}-{SUBSET}", f"{COMPOSED}-alone"
_AT = (1, 5, 10, 50)
MAIN_OF_JUDGED = "nDCG@10"
"""The main metric of judged documents, of a corpus that names no other."""
_ONLY = {
    **{f"i2i/{name}": ("AP by trapezoids", "R@1", "R@5", "R@10") for name in REVISITED_GRADES},
    **{
        f"t2i/{name}": (*(f"R@{k}" for k in _AT), *(f"AP@{k}" for k in (5, 10, 25, 50)))
        for name in (COMPOSED, COMPOSED_ALONE)
    },
    f"t2i/{COMPOSED_SUBSET}": ("R@1", "R@2", "R@3"),
    f"i2i/{SIMILARITY}": ("Spearman",),
}

# id -> what is added to the direction's name, and what the protocol measures
_FOLDS = ("1,000 images", "Mean of five folds of 1,000 images")
_CXC = ("CxC", "Also right: what Crisscrossed Captions judged to match")
_ECCV = ("ECCV", "Also right: what ECCV Caption judged to match")
_RETRIEVAL = {
    T2I_ALL: ("", "Every caption searches all images"),
    T2I_FIRST: ("first captions", "Caption 0 of every image searches all images: a biased sample"),
    "t2i/ordinal-mean": ("mean over positions", "Mean over captions 0 to 4 of searching all images"),
    "t2i/1k": _FOLDS,
    "t2i/cxc": _CXC,
    "t2i/eccv": _ECCV,
    JUDGED_QUERIES: ("", "Every query searches all documents; graded judgements"),
    f"t2i/{CLASS}": ("classes", "Every class, the mean of its prompts, searches all images"),
    f"t2i/{COMPOSED}": ("image and text", "An image and a text that changes it, added, search all images"),
    f"t2i/{COMPOSED_ALONE}": (
        "the text's own vector",
        "A text that changes an image searches all images by its own vector, in which a model may have fused the image",
    ),
    f"t2i/{COMPOSED_SUBSET}": (
        "image and text, hard subset",
        "An image and a text search a few images that are hard to tell apart",
    ),
    I2T_ANY: ("", "Every image searches all captions; any of its own counts"),
    I2T_ANY5: ("captions 0 to 4", "Every image searches captions 0 to 4 of every image"),
    "i2t/symmetric-first": ("first captions", "Every image searches caption 0 of every image"),
    "i2t/symmetric-mean": ("mean over positions", "Mean over ordinals 0 to 4 of searching that caption of every image"),
    "i2t/1k": _FOLDS,
    "i2t/cxc": _CXC,
    "i2t/eccv": _ECCV,
    f"i2t/{CLASS}": (
        "zero-shot classification",
        "Every image gets the nearest class, a class being the mean of its prompts",
    ),
    f"i2t/{BALANCED}": (
        "zero-shot classification, mean over classes",
        "Every image gets the nearest class; classes weigh the same",
    ),
    f"i2i/{LABEL}": ("same label", "Every image searches all others; right are those that share a label with it"),
    **{
        f"i2i/{name}": (f"landmarks, {name}", f"Images of landmarks search all others; right are those judged {right}")
        for name, right in (("easy", "easy"), (MEDIUM, "easy or hard"), ("hard", "hard"))
    },
    f"i2i/{SIMILARITY}": ("rated pairs", "Cosines of pairs of images, compared with how alike people found them"),
    "t2t/own": ("same image", "Every caption searches all others; right are those of the same image"),
}


def language_id(direction: str, language: str = EVERY, translator: str = EVERY, weights: str = "") -> str:
    """The id of the captions of one language by one translator; with ``*``, of the mean over all of them.

    Examples:
        >>> language_id("t2i", "de", "google"), language_id("i2t", weights=mean_weights(speakers=True, without="en"))
        ('t2i/de/google', 'i2t/*/*@speakers-without-en')
    """
    return f"{direction}/{language}/{translator}{'@' * bool(weights)}{weights}"


def mean_weights(*, speakers: bool = False, without: str | None = None) -> str:
    """The name of the weights of a mean over languages: by speakers or equal, all languages or all but one."""
    return "-".join(["speakers"] * speakers + [f"without-{without}"] * bool(without))


MEANS = language_id("t2i"), language_id("i2t")
"""The planned ones of a corpus in several languages."""


@dataclass(frozen=True)
class Protocol:
    """One protocol of ``docs/protocols.md``: which queries search which gallery, and what is relevant.

    Made from its id by :meth:`of`. A package's own protocol is made with whatever differs from what its id says.

    Attributes:
        id: The id in every stored figure.
        direction: ``t2i``: captions search images; ``i2t``: the reverse; ``pairs``, ``quadruples``: compositional;
            ``both``: a sum over two directions.
        kind: What its outcomes are, and with it which metrics apply; ``sum`` and ``mean`` are of figures only.
        name: What follows the direction or the family: ``all``, ``cxc``, a category, a tag.
        language: Of the queries or captions; empty for all together, ``*`` for a mean over languages.
        translator: Who wrote the captions; empty or ``*`` likewise.
        orientation: Of late interaction; empty for ``transposed``.
        weights: Of a mean over languages: ``speakers``, ``without-en``, ``speakers-without-en``; empty for equal ones.
        main_metric: Of judged documents: the headline of the corpus.
        captions: In words the captions that it takes of a corpus with several languages or translators (:meth:`on`);
            empty for all.
        metrics: The only ones that it has, the headline first; empty: all of its kind.
        description: One line for readers.
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

    @staticmethod
    def of(id_: str, main_metric: str = "") -> Protocol:
        """The protocol with this id.

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
        """The protocol as this corpus has it: its headline, and which captions a protocol without a language takes."""
        if self.kind == "judged":
            return replace(self, main_metric=corpus.main_metric)
        one = self.kind in ("retrieval", "sum") and not self.translator and self.id not in PACKAGES
        if not one or len(corpus.parts) < 2 or corpus.main_part is None:
            return self
        language, translator = corpus.main_part
        by = f" by {translator}" * (sum(part[0] == language for part in corpus.parts) > 1)
        return replace(self, captions=f"{language_name(language)} captions{by}")

    @property
    def is_retrieval(self) -> bool:
        """Whether queries search a gallery, judged documents included."""
        return self.kind in ("retrieval", "judged", "labels", "images")

    @property
    def is_combined(self) -> bool:
        """Whether it is of figures over several protocols, and has no outcomes."""
        return self.kind in ("sum", "mean")

    @property
    def is_of_language(self) -> bool:
        """Whether it is of the captions of one language by one translator."""
        return self.kind == "retrieval" and bool(self.translator)

    @property
    def part(self) -> tuple[str, str]:
        """Language and translator of its captions; empty texts for the main part of the corpus."""
        return self.language, self.translator

    @property
    def mean_over_languages(self) -> Protocol:
        """The mean over the languages and translators of this direction."""
        return Protocol.of(language_id(self.direction))

    @property
    def family(self) -> str:
        """The published set of hard negatives that a category is of."""
        return self.id.removesuffix(f"/{self.name}")

    @property
    def without_orientation(self) -> Protocol:
        """The protocol in the orientation ``transposed``."""
        return Protocol.of(self.id.partition("@")[0], self.main_metric) if self.orientation else self

    @property
    def shares_items(self) -> bool:
        """Whether its queries are items of the gallery, or share right ones; tests take them for independent."""
        return self.kind == "judged" or self.direction in ("i2i", "t2t")

    @property
    def is_main(self) -> bool:
        """Whether it is one of the two protocols of the literature, whose recalls add up to RSUM."""
        return self.id in MAIN

    @property
    def is_all_quadruples(self) -> bool:
        """Whether it is of all quadruples, not of those with one tag."""
        return self.kind == "quadruples" and not self.name

    @property
    def sides(self) -> tuple[Modality, Modality]:
        """What searches and what is searched, of retrieval: captions images, images captions, or images images."""
        return SIDES.get(self.direction, SIDES["i2t"])

    @property
    def queries(self) -> str:
        """What a query is: ``image`` or ``caption`` of retrieval, otherwise ``quadruples`` or ``pairs``."""
        return SIDES[self.direction][0] if self.direction in SIDES else self.direction

    @cached_property
    def title(self) -> str:
        """What it is about, in plain words; of a protocol :meth:`on` a corpus also which captions it takes.

        Examples:
            >>> [Protocol.of(id_).title for id_ in ("t2i/all", "winoground/object", "t2i/all+i2t/any")]
            ['text to image', 'binding, object', 'both directions']
            >>> [Protocol.of(id_).title for id_ in ("t2i/de/google", "i2t/any@image-as-query", "t2i/*/*")]
            ['text to image, German by google', 'image to text, image as query', 'text to image, mean over languages']
            >>> [Protocol.of(id_).title for id_ in ("aro/vg_relation", "t2i/judged/de")]
            ['hard negatives, aro/vg_relation', 'judged queries in German']
        """
        if self.kind == "pairs":
            return f"hard negatives, {self.id}"
        if self.kind == "quadruples":
            return f"binding, {self.name}" if self.name else "binding"
        if self.kind == "judged" and self.name == JUDGED:
            title = f"judged queries in {language_name(self.language)}" if self.language else "judged queries"
            return f"{title}, {self.orientation}" if self.orientation else title
        title = DIRECTION_TITLES[self.direction]
        if self.kind == "mean":
            more = "mean over languages" if self.part == (EVERY, EVERY) else "/".join(self.part)
        elif self.translator:
            more = f"{language_name(self.language)} by {self.translator}"
        else:
            more = _RETRIEVAL.get(f"{self.direction}/{self.name}", (self.name,))[0]
        last = (self.orientation or self.weights).replace("-", " ")
        return ", ".join(filter(None, (title, more, self.captions, last)))

    @property
    def titled(self) -> str:
        """The title with the id behind it.

        Examples:
            >>> Protocol.of("t2i/all").titled, Protocol.of("aro/vg_relation").titled
            ('text to image (t2i/all)', 'hard negatives, aro/vg_relation')
        """
        return self.title if self.id in self.title else f"{self.title} ({self.id})"

    @property
    def place(self) -> tuple[int, str]:
        """Where it stands among the protocols of a corpus on a page: judged, then the planned ones, then by id."""
        first = (JUDGED_QUERIES, MEANS[0], T2I_ALL, MEANS[1], I2T_ANY, ALL_QUADRUPLES)
        return (first.index(self.id) if self.id in first else len(first), self.id)


@lru_cache(maxsize=4096)
def _parsed(id_: str) -> Protocol:
    first, _, rest = id_.partition("/")
    if "+" in id_:
        return Protocol(id_, "both", "sum", description="The sum of the figures of both directions")
    if id_ not in _RETRIEVAL and id_ in PACKAGES:
        return PACKAGES[id_].protocol
    if first == "t2i":
        return _of_direction(id_, "t2i", *rest.split("@"))
    if first in ("i2t", "i2i", "t2t"):
        return _of_direction(id_, first, *rest.split("@"))  # type: ignore[arg-type]  # mypy does not narrow by `in`
    if first == ALL_QUADRUPLES:
        about = f"Two images, two captions: {rest}" if rest else "Two images and the caption of each"
        return Protocol(id_, "quadruples", "quadruples", rest, description=about)
    known = {
        MACRO: "Mean over the categories",
        MICRO: "Mean over all items",
        ALL_NEGATIVES: "Caption against all its hard negatives",
    }
    return Protocol(id_, "pairs", "pairs", rest, description=known.get(rest, f"Caption or hard negative: {rest}"))


def _of_direction(id_: str, direction: Direction, rest: str, behind: str = "") -> Protocol:
    """The protocol with a direction, what follows it, and what follows ``@``."""
    name, _, last = rest.partition("/")
    if EVERY in rest:
        about = "Mean over the figures of every language"
        return Protocol(id_, direction, "mean", "", name, last, weights=behind, description=about)
    about = _RETRIEVAL.get(f"{direction}/{name}", ("", f"Judged by the ground truth {name}"))[1]
    if (direction, name) in _LABELLED:
        return Protocol(id_, direction, "labels", name, description=about)
    if (direction, name) == ("t2i", CLASS):
        return Protocol(id_, direction, "judged", name, main_metric="AP", description=about)
    if name == JUDGED:
        about = about.replace("query", f"{last} query") if last else about
        about += "; trec_eval's order of an imported run" if behind else ""
        return Protocol(id_, direction, "judged", name, last, orientation=behind, description=about)
    if last:
        of = f"{name} caption{'s' * (direction == 'i2t')} ({last})"
        about = f"Every {of} searches all images" if direction == "t2i" else f"Every image searches all {of}"
        return Protocol(id_, direction, "retrieval", "", name, last, behind, description=about)
    if behind:
        about = f"{about}; {ORIENTATIONS.get(behind, behind)}"
    only = _ONLY.get(f"{direction}/{name}", ())
    kind: Kind = "images" if only else "retrieval"
    return Protocol(id_, direction, kind, name, orientation=behind, description=about, metrics=only)


@dataclass(frozen=True, kw_only=True)
class ProtocolRule:
    """A protocol, the corpora that it fits, and the task that it sets; a package adds one by an entry point.

    Attributes:
        build: Makes the task of a corpus (``CorpusLayout``) and the protocol: queries, galleries and relevant items.
        obstacle: Gives the reason why the protocol does not fit a corpus, as the end of a sentence; None if it fits.
        on_request: Evaluated only when its id is named.
    """

    protocol: Protocol
    build: Callable[[Any, Protocol], Any]
    obstacle: Callable[[Any], str | None] = lambda _: None
    on_request: bool = False


def _of_package(plugin: Plugin, found: object) -> ProtocolRule:
    """The rule, whose errors name the package."""
    if not isinstance(found, ProtocolRule):
        raise TypeError(f"expected a capim.tasks.protocols.ProtocolRule, got {type(found).__name__}")
    if found.protocol.id != plugin.point.name:
        raise ValueError(f"the protocol has another id, {found.protocol.id!r}")

    def build(layout: Any, protocol: Protocol) -> Any:
        with plugin.failures("protocol"):
            return found.build(layout, protocol)

    return replace(found, build=build)


PACKAGES = PluginTable("capim.protocols", dict[str, ProtocolRule](), _of_package)
"""The protocols of installed packages, by id."""


def language_name(code: str) -> str:
    """English name of a language, or its code.

    Examples:
        >>> language_name("de"), language_name("pt-BR"), language_name("xx")
        ('German', 'Portuguese (pt-BR)', 'xx')
    """
    from langcodes import Language

    language = Language.get(code)
    if not language.is_valid():
        return code
    name = language.language_name()
    return name if language.language == code else f"{name} ({code})"


def by_language(protocols: Iterable[Protocol], corpus: Corpus) -> list[Protocol]:
    """Of the protocols of retrieval the two of the literature, and those of the languages that these do not take."""
    found = list(protocols)
    taken = {(protocol.direction, corpus.main_part) for protocol in found if protocol.is_main}
    return [p for p in found if p.is_main or (p.is_of_language and (p.direction, p.part) not in taken)]


def with_outcomes(ids: Iterable[str]) -> list[Protocol]:
    """The protocols of these ids that are not of combined figures, in the order given."""
    return [protocol for protocol in map(Protocol.of, ids) if not protocol.is_combined]
