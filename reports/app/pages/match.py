"""``/match``: where a caption matches an image, token by token, by an encoder with several vectors per item."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from capim.reports import format as show
from capim.reports.app.rendering import View, link, respond
from capim.reports.app.state import Statement, state_of
from capim.reports.elements.match_maps import draw_map, encoded, opened, patch_map
from capim.reports.explanation import token_words
from capim.store.errors import RequestError, unknown
from capim.store.multivectors import Explanation


def page(request: Request) -> Response:
    """The tokens of the caption, each with its share of the score and its map."""
    found = _explained(request)
    given = {name: request.query_params[name] for name in ("encoder", "corpus", "caption", "image")}
    tokens = [
        (token_words(token), show.number(float(share), 3), link("/match.png", **given, token=number))
        for number, (token, share) in enumerate(zip(found.tokens, found.shares, strict=True), 1)
    ]
    values = {
        "found": found,
        "score": show.number(found.score, 3),
        "whole": link("/match.png", **given),
        "tokens": tokens,
    }
    statement = Statement(
        sql="""SELECT encoder, modality, item_id, n_vectors, vectors
FROM embeddings
WHERE corpus = ? AND encoder = ? AND (modality, item_id) IN (('caption', ?), ('image', ?))""",
        parameters=(given["corpus"], given["encoder"], found.caption_id, found.image_id),
    )
    return respond(request, View(template="match.html", title="Where it matches", statement=statement, values=values))


def picture(request: Request) -> Response:
    """The image under a veil that is open where the caption matches, or one token of it (``token``, from 1)."""
    found = _explained(request)
    token = request.query_params.get("token", "")
    if token and not (token.isdecimal() and 1 <= int(token) <= len(found.tokens)):
        raise RequestError(f"token={token}: expected a number from 1 to {len(found.tokens)}")
    values = found.similarities[int(token) - 1] if token else patch_map(found)
    thumbnail = state_of(request).store.thumbnails([found.sha]).get(found.sha)
    return Response(encoded(draw_map(opened(thumbnail), found, values)), media_type="image/png")


def _explained(request: Request) -> Explanation:
    state = state_of(request)
    snapshot = state.snapshot()
    given = request.query_params
    contents = snapshot.data.corpora.get(given.get("corpus", ""))
    spec = snapshot.data.specs.get(given.get("encoder", ""))
    if contents is None:
        raise RequestError(unknown("corpus", given.get("corpus", ""), list(snapshot.data.corpora)))
    if spec is None:
        raise RequestError(unknown("encoder", given.get("encoder", ""), list(snapshot.data.specs)))
    places = []
    for name, table in (("caption", contents.captions), ("image", contents.images)):
        text = given.get(name, "")
        if not text.isdecimal() or int(text) >= table.num_rows:
            raise RequestError(f"{name}={text}: expected a position from 0 to {table.num_rows - 1}")
        places.append(int(text))
    caption, image = places
    [found] = state.services.explain(encoder=spec.fingerprint, corpus=contents.fingerprint, pairs=[(caption, image)])
    return found
