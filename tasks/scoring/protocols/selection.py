"""Which protocols to evaluate on a corpus, and the task that each of them sets."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from capim.store.errors import RequestError, did_you_mean
from capim.store.types import Corpus, EvalProtocol, VectorKind
from capim.tasks.scoring.protocols.layout import CorpusLayout, layout_of
from capim.tasks.scoring.protocols.orientations import ORIENTATIONS, with_orientations
from capim.tasks.scoring.protocols.table import ProtocolRule, rules_for
from capim.tasks.scoring.protocols.tasks import ScoringTask


def protocols_of(corpus: Corpus) -> tuple[EvalProtocol, ...]:
    """Every protocol that fits a corpus, headlines first, without orientations of late interaction.

    Of more than 20 categories of hard negatives only the means, of more than 20 tags of quadruples none; such a
    category or tag has to be requested by its id.
    """
    layout = layout_of(corpus)
    return tuple(r.protocol for r in rules_for(layout) if not r.on_request and r.obstacle(layout) is None)


def select_protocols(
    corpus: Corpus, ids: Collection[str] = (), *, vectors: VectorKind = "multi"
) -> tuple[EvalProtocol, ...]:
    """The protocols with these ids, in the order given; every protocol that fits the corpus if none is named.

    Args:
        ids: Protocol ids or shell patterns (``t2i/*/google``). An id may name an orientation of late interaction
            (``i2t/any@image-as-query``).
        vectors: Orientations are left out for single-vector encoders.

    Raises:
        RequestError: An id is unknown or does not fit this corpus; gives the reason for every such id.
    """
    if ids:
        layout = layout_of(corpus)
        plain = tuple(rule.protocol for rule in _matching(layout, ids).values())
    else:
        plain = protocols_of(corpus)
    if vectors == "single":
        return plain
    return tuple(p for p in with_orientations(plain) if not ids or "@" not in p.id or p.id in ids)


def build_task(corpus: Corpus, protocol: EvalProtocol) -> ScoringTask:
    """The task that one protocol sets on a corpus; see :func:`build_tasks` for several at once."""
    return build_tasks(corpus, [protocol])[0]


def build_tasks(corpus: Corpus, protocols: Iterable[EvalProtocol]) -> list[ScoringTask]:
    """The task that each protocol sets on a corpus, in the order of the protocols.

    Raises:
        RequestError: A protocol does not fit; gives the reason for every such protocol.
    """
    layout, wanted = layout_of(corpus), list(protocols)
    rules = _matching(layout, [protocol.id for protocol in wanted])
    return [rules[protocol.id.partition("@")[0]].build(layout, protocol) for protocol in wanted]


def _matching(layout: CorpusLayout, ids: Collection[str]) -> dict[str, ProtocolRule]:
    """Protocol id without orientation -> rule, of every protocol that is named and that fits the corpus."""
    rules = {rule.protocol.id: rule for rule in rules_for(layout)}
    name = layout.corpus.name
    matching: dict[str, ProtocolRule] = {}
    faults = []
    oriented = [f"i2t/any@{orientation}" for orientation in ORIENTATIONS]
    for id_ in ids:
        if "@" in id_ and id_ not in oriented:
            faults.append(f"protocol {id_!r} is unknown; known with an orientation: {', '.join(oriented)}")
            continue
        plain = id_.partition("@")[0]
        matches = [plain] if plain in rules else [other for other in rules if fnmatchcase(other, plain)]
        obstacles = {match: rules[match].obstacle(layout) for match in matches}
        if not matches:
            hint = did_you_mean(id_, rules)
            faults.append(f"protocol {id_!r} is unknown for corpus {name!r}; {hint}known: {', '.join(rules)}")
        elif all(obstacles.values()):
            faults.append(f"protocol {id_!r} does not fit corpus {name!r}: {next(iter(obstacles.values()))}")
        matching |= {match: rules[match] for match, obstacle in obstacles.items() if obstacle is None}
    if faults:
        raise RequestError(faults)
    return matching
