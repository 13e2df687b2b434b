"""Results per language and translator: ``t2i/<language>/<translator>`` and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from langcodes import Language

from capim.reports.rows.report_data import ReportData, Row

DIRECTIONS = ("t2i", "i2t")
JUDGED = "t2i/judged"
NDCG = "consistency_nDCG@20"  # COCO-SM's nDCG@20: agreement with the list for the English caption
RBO = "consistency_RBO"

MEASURES = (  # of a language, in the order of COCO-SM's tables, with rank-biased overlap
    *((direction, f"R@{k}") for direction in DIRECTIONS for k in (1, 5, 10)),
    *((direction, metric) for metric in (NDCG, RBO) for direction in DIRECTIONS),
)

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")  # BCP-47, as far as ids use it


class CrossLingual(NamedTuple):
    """The parts of a protocol id such as ``t2i/de/google``."""

    direction: str
    language: str
    translator: str


def cross_lingual(protocol: str) -> CrossLingual | None:
    """The parts of a per-language protocol id, or None for any other id.

    Examples:
        >>> cross_lingual("t2i/de/google")
        CrossLingual(direction='t2i', language='de', translator='google')
        >>> cross_lingual("t2i/all"), cross_lingual("t2i/all+i2t/any"), cross_lingual("i2t/de/google@image-as-query")
        (None, None, None)
    """
    parts = protocol.split("/")
    if len(parts) != 3 or parts[0] not in DIRECTIONS or not _LANGUAGE.fullmatch(parts[1]) or "@" in protocol:
        return None
    return CrossLingual(*parts)


def judged_language(protocol: str) -> str | None:
    """The language of the judged queries of a protocol, empty for all together; None for any other protocol.

    Examples:
        >>> judged_language("t2i/judged"), judged_language("t2i/judged/de"), judged_language("t2i/all")
        ('', 'de', None)
    """
    whole, slash, language = protocol.partition(f"{JUDGED}/")
    return language if slash and not whole else "" if protocol == JUDGED else None


def language_name(code: str) -> str:
    """English name of a language, or its code.

    Examples:
        >>> language_name("de"), language_name("pt-BR"), language_name("xx")
        ('German', 'Portuguese (pt-BR)', 'xx')
    """
    language = Language.get(code)
    if not language.is_valid():
        return code
    name = language.language_name()
    return name if language.language == code else f"{name} ({code})"


def languages(data: ReportData, corpus: str) -> list[str]:
    """Language codes with results on a corpus, sorted."""
    return sorted({c.language for p in data.protocols(corpus) if (c := cross_lingual(p)) is not None})


def translators(data: ReportData, corpus: str, language: str | None = None) -> list[str]:
    """Translators with results on a corpus, sorted; optionally of one language only."""
    parts = (cross_lingual(p) for p in data.protocols(corpus))
    return sorted({c.translator for c in parts if c is not None and language in (None, c.language)})


def over_languages(data: ReportData, corpus: str) -> list[tuple[str, str, str]]:
    """The results over all languages: a label, and the suffixes of the protocol id and of the metric name."""
    reference = data.corpora[corpus].languages_reference
    labels = []
    for without, suffix in (("", ""), (f" without {language_name(reference)}", f"without-{reference}")):
        at = f"@{suffix}" if suffix else ""
        labels.append((f"all{without}", f"*/*{at}", ""))
        if len(ways := translators(data, corpus)) > 1:
            labels += [(f"{way}{without}", f"*/{way}{at}", "") for way in ways]
        labels.append((f"by speakers{without}", f"*/*@speakers{'-' if suffix else ''}{suffix}", ""))
    shares = {
        "language": "η² of languages",
        "translator": "η² of translators",
        "residual": "η², residual",
    }
    return labels + [(label, f"*/*@without-{reference}", f"_eta2_{key}") for key, label in shares.items()]


def noise(row: Row) -> float | None:
    """The value of eta squared where figures differ by noise alone; None for any other result."""
    return row["chance"] if "_eta2_" in row["metric"] else None


def mean(values: Sequence[float | None]) -> float | None:
    """Mean of the values that are not None; None if all are.

    Examples:
        >>> mean([1.0, None, 2.0]), mean([None])
        (1.5, None)
    """
    present = [v for v in values if v is not None]
    return fmean(present) if present else None


def mean_text(values: Sequence[float | None]) -> str:
    """Mean ± standard deviation with n - 1 of the values that are not None, as COCO-SM prints them.

    Examples:
        >>> mean_text([0.1, 0.3, None]), mean_text([0.1]), mean_text([None])
        ('0.200 ± 0.141', '0.100', '')
    """
    present = [v for v in values if v is not None]
    text = f"{fmean(present):.3f}" if present else ""
    return f"{text} ± {stdev(present):.3f}" if len(present) > 1 else text
