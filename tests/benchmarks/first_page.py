"""The first page of RESULTS.md: what users ask, answered by rows of the groups."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.benchmarks.rows import Row


class Answer(NamedTuple):
    """A question, and the rows of a group that answer it: name -> wording."""

    question: str
    group: str
    rows: dict[str, str]


ANSWERS = (
    Answer(
        "How long does a first run take (341 images, 1,650 captions, ViT-B/32)?",
        "peers",
        {
            "time of capim run, nothing stored": "{}",
            "time of CLIP_benchmark relative to capim, nothing stored": "CLIP_benchmark {} as long",
            "time of mteb relative to capim, nothing stored": "mteb {} as long",
        },
    ),
    Answer(
        "How long does the same run take again?",
        "peers",
        {
            "time of capim run, all stored": "{}",
            "time of CLIP_benchmark relative to capim, all stored": "CLIP_benchmark {} as long",
            "time of mteb relative to capim, all stored": "mteb {} as long",
        },
    ),
    Answer(
        "Are recalls the same as elsewhere?",
        "peers",
        {
            "largest difference of a recall from CLIP_benchmark": "within {} of CLIP_benchmark's",
            "largest difference of a recall from mteb": "within {} of mteb's",
        },
    ),
    Answer(
        "Are nDCG, recall and average precision of judged documents the same?",
        "judged",
        {
            "Judged documents: largest difference from pytrec_eval": "within {} of pytrec_eval's",
            "Judged documents: largest difference from mteb": "nDCG within {} of mteb's",
        },
    ),
    Answer(
        "How long does scoring take (25,010 captions, 5,000 images, 1,024 dimensions, 13 protocols)?",
        "scoring",
        {
            "dense: time": "{}",
            "dense: time of all protocols relative to the bare matrix product": "{} the bare product in torch",
            "dense: speed relative to CLIP_benchmark, batches of 64": "{} the speed of CLIP_benchmark",
        },
    ),
    Answer(
        "How fast is late interaction (MaxSim)?",
        "maxsim",
        {
            "MaxSim: speed relative to colpali_engine, hit lists of 100": "{} the speed of colpali_engine",
            "MaxSim: largest difference of a score, as a share of the largest score": "scores within {} of its scores",
        },
    ),
    Answer(
        "How fast is a small CLIP on a processor?",
        "encode",
        {
            "images per second, small CLIP": "images {} the speed of sentence-transformers",
            "captions per second, small CLIP": "captions {} its speed",
        },
    ),
    Answer(
        "How long does the import of 10,000,000 vectors take?",
        "bulk",
        {"import of .npy: time": "{}", "import of .npy: peak memory": "at most {} of memory"},
    ),
    Answer(
        "How often does a 95 % interval hold the true share?",
        "validity",
        {"95 % interval of a share: least coverage": "{} at the least"},
    ),
    Answer(
        "How often is any of 17 equally good models called better?",
        "validity",
        {"17 equally good encoders, R@1 0.5: suites with any false claim": "{}, where 5 % are promised"},
    ),
)


def first_page(kept: dict[str, dict[str, Any]]) -> list[str]:
    """Return the lines of the table; an answer of a group that was not run is left out.

    Raises:
        KeyError: A group has no row of this name.
    """
    lines = ["| question | answer | measured by |", "|---|---|---|"]
    for answer in ANSWERS:
        if answer.group not in kept:
            continue
        rows: dict[str, Row] = {}
        for entry in kept[answer.group]["rows"]:
            rows.setdefault(entry["name"], Row(**entry))  # of two peers with a row of one name, the first
        found = "; ".join(wording.format(rows[name].figure) for name, wording in answer.rows.items())
        lines.append(f"| {answer.question} | {found} | `make bench ONLY={answer.group}` |")
    return [*lines, ""]
