"""Maps of late interaction: how often a token's best patch lies on the thing that it names (see ``pointing``)."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from flows.cli import main
from store import EmbeddingStore
from tests.benchmarks.pointing import pointing_game
from tests.benchmarks.rows import Row


def run(quick: bool = False) -> list[Row]:
    """The pointing game of tiny-colpali on the demo's scenes, none of which it was trained on."""
    with TemporaryDirectory() as folder:
        words = ["embed", "--corpora", "shapes", "--encoders", "tiny-colpali", "--device", "cpu", "--quiet"]
        sample = ["--sample", "30"] if quick else []
        if main([*words, *sample, "--workspace", folder]) != 0:
            raise RuntimeError("capim embed failed")
        game = pointing_game(EmbeddingStore.open(Path(folder) / "store"), encoder="tiny-colpali", corpus="shapes")
    many = f"{game.n_tokens:,} tokens that name a colour or a shape, {game.n_images} images"
    better = game.difference
    interval = (
        "" if better.low is None or better.high is None else f"95 % interval {better.low:.3f} to {better.high:.3f}"
    )
    return [
        Row("pointing game: tokens whose best patch lies on the thing they name", game.hits, "", note=many),
        Row("pointing game: any patch", game.any_patch, ""),
        Row("pointing game: map of the same token over another image", game.permuted, ""),
        Row(
            "pointing game: own map better than another image's, lower end of the interval",
            better.low,
            "",
            "> 0",
            note=interval,
        ),
    ]


if __name__ == "__main__":
    for row in run(quick="--quick" in sys.argv):
        print(row.name, row.figure, row.note)
