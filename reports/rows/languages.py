"""Figures per language and translator: ``t2i/<language>/<translator>`` and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from reports.rows.report_data import Evidence, Row

DIRECTIONS = ("t2i", "i2t")
NDCG = "consistency_nDCG@20"  # COCO-SM's nDCG@20: agreement with the list for the English caption
RBO = "consistency_RBO"

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")  # BCP-47, as far as ids use it

NAMES = {
    "ar": "Arabic", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek", "en": "English", "es": "Spanish",
    "fa": "Persian", "fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian",
    "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean",
    "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "sv": "Swedish", "sw": "Swahili", "te": "Telugu", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


class CrossLingual(NamedTuple):
    """One protocol id taken apart."""

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


def language_name(code: str) -> str:
    """English name of a language, or its code.

    Examples:
        >>> language_name("de"), language_name("pt-BR"), language_name("xx")
        ('German', 'Portuguese (pt-BR)', 'xx')
    """
    base = code.split("-", maxsplit=1)[0]
    if base not in NAMES:
        return code
    return NAMES[base] if base == code else f"{NAMES[base]} ({code})"


def languages(evidence: Evidence, corpus: str) -> list[str]:
    """Language codes that have figures there, sorted."""
    return sorted({c.language for p in evidence.protocols(corpus) if (c := cross_lingual(p)) is not None})


def translators(evidence: Evidence, corpus: str, language: str | None = None) -> list[str]:
    """Translators that have figures there, sorted; of one language if asked."""
    found = (cross_lingual(p) for p in evidence.protocols(corpus))
    return sorted({c.translator for c in found if c is not None and language in (None, c.language)})


def figure(
    evidence: Evidence, corpus: str, encoder: str, direction: str, language: str, translator: str, metric: str
) -> Row | None:
    """One result row, or None."""
    return evidence.figures.get((corpus, f"{direction}/{language}/{translator}", metric, encoder))


def over_translators(
    evidence: Evidence, corpus: str, encoder: str, direction: str, language: str, metric: str
) -> float | None:
    """Mean over the translators of one language; None without any figure."""
    rows = (
        figure(evidence, corpus, encoder, direction, language, translator, metric)
        for translator in translators(evidence, corpus, language)
    )
    return mean([r["value"] for r in rows if r is not None])


def language_mean(
    evidence: Evidence, corpus: str, encoder: str, direction: str, metric: str, *, without: str | None = None
) -> float | None:
    """Mean over languages of the mean over translators; None without any figure."""
    return mean(
        [
            over_translators(evidence, corpus, encoder, direction, language, metric)
            for language in languages(evidence, corpus)
            if language != without
        ]
    )


def over_languages(evidence: Evidence, corpus: str) -> list[tuple[str, str, str]]:
    """The figures over all languages: what to call each, and the ends of its protocol id and of its metric's name."""
    reference = evidence.corpora[corpus].languages_reference
    name = language_name(reference)
    ways = translators(evidence, corpus)
    found = []
    for without, suffix in (("", ""), (f" without {name}", f"without-{reference}")):
        plain = f"@{suffix}" if suffix else ""
        found.append((f"all{without}", f"*/*{plain}", ""))
        found += [(f"{way}{without}", f"*/{way}{plain}", "") for way in ways if len(ways) > 1]
        found.append((f"by speakers{without}", f"*/*@speakers{'-' if suffix else ''}{suffix}", ""))
    shares = (("languages", "language"), ("translators", "translator"), ("neither", "residual"))
    found += [
        (
            f"variance between {title}" if title != "neither" else "variance of neither",
            f"*/*@without-{reference}",
            f"_variance_{key}",
        )
        for title, key in shares
    ]
    return found


def mean(values: Sequence[float | None]) -> float | None:
    """Mean of the known values; None if none is known.

    Examples:
        >>> mean([1.0, None, 2.0]), mean([None])
        (1.5, None)
    """
    known = [v for v in values if v is not None]
    return fmean(known) if known else None


def deviation(values: Sequence[float | None]) -> float | None:
    """Standard deviation with n - 1 of the known values; None below two.

    Examples:
        >>> deviation([1.0, 3.0, None]), deviation([1.0])
        (1.4142135623730951, None)
    """
    known = [v for v in values if v is not None]
    return stdev(known) if len(known) > 1 else None


_ISO = {
    "ar": "ara-Arab", "cs": "ces-Latn", "da": "dan-Latn", "de": "deu-Latn", "el": "ell-Grek", "en": "eng-Latn",
    "es": "spa-Latn", "fa": "fas-Arab", "fi": "fin-Latn", "fr": "fra-Latn", "he": "heb-Hebr", "hi": "hin-Deva",
    "hr": "hrv-Latn", "hu": "hun-Latn", "hy": "hye-Armn", "id": "ind-Latn", "it": "ita-Latn", "ja": "jpn-Jpan",
    "ko": "kor-Hang", "nl": "nld-Latn", "no": "nor-Latn", "pl": "pol-Latn", "pt": "por-Latn", "ro": "ron-Latn",
    "ru": "rus-Cyrl", "sv": "swe-Latn", "sw": "swa-Latn", "te": "tel-Telu", "th": "tha-Thai", "tr": "tur-Latn",
    "uk": "ukr-Cyrl", "vi": "vie-Latn", "zh": "zho-Hans",
}  # fmt: skip


def mteb_language(code: str) -> str:
    """The ISO 639-3 code with script that MTEB uses, or the code itself where the table has none.

    Examples:
        >>> mteb_language("de"), mteb_language("pt-BR"), mteb_language("xx")
        ('deu-Latn', 'por-Latn', 'xx')
    """
    return _ISO.get(code.split("-", maxsplit=1)[0], code)
