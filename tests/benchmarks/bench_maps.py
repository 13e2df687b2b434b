"""Maps of late interaction: how often a token's best patch lies on the thing that it names (see ``pointing``)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from capim.flows.cli import main
from capim.store import EmbeddingStore
from tests.benchmarks.pointing import Pointing, pointing_game
from tests.benchmarks.rows import Row

GAMES = {"shapes": "tiny-colpali", "pages": "tiny-colpali-pages"}  # corpus -> encoder
_COUNTED = {"shapes": "tokens that name a colour or a shape", "pages": "tokens that name the topic of a question"}


def run(quick: bool = False) -> list[Row]:
    """The pointing game on the demo's scenes and pages, none of which the models were trained on."""
    with TemporaryDirectory() as folder:
        for corpus, encoder in GAMES.items():
            words = ["embed", "--corpora", corpus, "--encoders", encoder, "--device", "cpu", "--quiet"]
            sample = ["--sample", "30"] if quick else []
            if main([*words, *sample, "--workspace", folder]) != 0:
                raise RuntimeError("capim embed failed")
        store = EmbeddingStore.open(Path(folder) / "store")
        names = {corpus: f"{corpus}-sample30" if quick else corpus for corpus in GAMES}
        games = {
            corpus: pointing_game(store, encoder=encoder, corpus=names[corpus]) for corpus, encoder in GAMES.items()
        }
    return [row for corpus, game in games.items() for row in _rows(corpus, game)]


def _rows(corpus: str, game: Pointing) -> list[Row]:
    many = f"{game.n_tokens:,} {_COUNTED[corpus]}, {game.n_images} images"
    better = game.difference
    known = better.low is not None and better.high is not None
    interval = f"95 % interval {better.low:.3f} to {better.high:.3f}" if known else ""
    start = f"pointing game, {corpus}:"
    lower_end = f"{start} own map better than another image's, lower end of the interval"
    return [
        Row(f"{start} tokens whose best patch lies on what they name", game.hits, "", note=many),
        Row(f"{start} any patch", game.any_patch, ""),
        Row(f"{start} map of the same token over another image", game.permuted, ""),
        Row(lower_end, better.low, "", "> 0", note=interval),
    ]
