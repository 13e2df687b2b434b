"""After `capim demo`: a new metric, two models compared, a search and SQL, from the stored embeddings."""

import capim


def first_three(outcomes):
    """Share of the captions that find their image among the first three."""
    return outcomes.rank_worst <= 3


where = {"corpora": "shapes", "protocols": "t2i/all"}
print(capim.evaluate(own_metric=first_three, **where))  # value, interval, and the test against the best other model

# difference, interval, p and what the test says
print(capim.compare("tiny-clip", "tiny-clip-plain", **where))

print(capim.search("a red circle above a blue square", encoder="tiny-clip", corpus="shapes", k=3))

print(capim.sql("SELECT encoder, protocol, median(rank_worst) FROM outcomes GROUP BY ALL ORDER BY ALL LIMIT 5"))
