"""The first page of RESULTS.md: what users ask, answered by rows of the groups."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.rows import Row

ANSWERS = {
    ("peers", "How long does a first run take (341 images, 1,650 captions, ViT-B/32)?"): {
        "time of capim run, nothing stored": "{}",
        "time of CLIP_benchmark relative to capim, nothing stored": "CLIP_benchmark {} as long",
        "time of mteb relative to capim, nothing stored": "mteb {} as long",
    },
    ("peers", "How long does the same run take again?"): {
        "time of capim run, all stored": "{}",
        "time of CLIP_benchmark relative to capim, all stored": "CLIP_benchmark {} as long",
        "time of mteb relative to capim, all stored": "mteb {} as long",
    },
    ("peers", "Are recalls the same as elsewhere?"): {
        "largest difference of a recall from CLIP_benchmark": "within {} of CLIP_benchmark's",
        "largest difference of a recall from mteb": "within {} of mteb's",
    },
    ("judged", "Are nDCG, recall and average precision of judged documents the same?"): {
        "Judged documents: largest difference from pytrec_eval": "within {} of pytrec_eval's",
        "Judged documents: largest difference from mteb": "nDCG within {} of mteb's",
    },
    ("scoring", "How long does scoring take (25,010 captions, 5,000 images, 1,024 dimensions, 13 protocols)?"): {
        "dense: time": "{}",
        "dense: time of all protocols relative to the bare matrix product": "{} the bare product in torch",
        "dense: speed relative to CLIP_benchmark, batches of 64": "{} the speed of CLIP_benchmark",
    },
    ("maxsim", "How fast is late interaction (MaxSim)?"): {
        "MaxSim: speed relative to colpali_engine, hit lists of 100": "{} the speed of colpali_engine",
        "MaxSim: largest difference of a score, as a share of the largest score": "scores within {} of its scores",
    },
    ("encode", "How fast is a small CLIP on a processor?"): {
        "images per second, small CLIP": "images {} the speed of sentence-transformers",
        "captions per second, small CLIP": "captions {} its speed",
    },
    ("bulk", "How long does the import of 10,000,000 vectors take?"): {
        "import of .npy: time": "{}",
        "import of .npy: peak memory": "at most {} of memory",
    },
    ("validity", "How often does a 95 % interval hold the true share?"): {
        "95 % interval of a share: least coverage": "{} at the least"
    },
    ("validity", "How often is any of 17 equally good models called better?"): {
        "17 equally good encoders, R@1 0.5: suites with any false claim": "{}, where 5 % are promised"
    },
}
"""By group and question, the rows that answer it: name -> wording."""


def first_page(kept: dict[str, dict[str, Any]]) -> list[str]:
    """Return the lines of the table; an answer of a group that was not run is left out.

    Raises:
        KeyError: A group has no row of this name.
    """
    lines = ["| question | answer | measured by |", "|---|---|---|"]
    for (group, question), wordings in ANSWERS.items():
        if group in kept:
            # of two peers with a row of one name, the first
            rows = {entry["name"]: Row(**entry) for entry in reversed(kept[group]["rows"])}
            found = "; ".join(wording.format(rows[name].figure) for name, wording in wordings.items())
            lines.append(f"| {question} | {found} | `make bench ONLY={group}` |")
    return [*lines, ""]
