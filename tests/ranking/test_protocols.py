"""Which protocols fit which corpus, why others do not, and the task that each sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, ImageRow, PairRow, RelevanceRow, build_corpus
from capim.tasks.metrics import METRICS
from capim.tasks.metrics.metric import Ties
from capim.tasks.protocols import FAMILIES, PROTOCOLS, Protocol, ProtocolRule
from capim.tasks.ranking import tasks as builders
from capim.tasks.ranking.protocols import MEMBERS, NEEDS, drawn_clusters, protocols_of, select_protocols
from capim.tasks.results.suite import cluster_photographs, photographs_of
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import interval_of
from tests.ranking.conftest import corpus_in, score_dense, small_corpus, stored_and_read, task_of, tasks_of

OF_FIVE = (
    "t2i/all", "i2t/any", "t2i/first", "i2t/any5", "i2t/symmetric-first", "t2i/ordinal-mean", "i2t/symmetric-mean",
)  # fmt: skip
FIVE = [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]  # captions 0 to 4 of two images, of which the first or both have six


def ids(corpus: Corpus) -> list[str]:
    return [protocol.id for protocol in protocols_of(corpus)]


def test_a_corpus_has_the_protocols_that_make_sense_for_it(winoground_form: Corpus) -> None:
    assert ids(small_corpus([1, 1, 1])) == ["t2i/all", "i2t/any"]
    assert ids(small_corpus([2, 1, 1])) == ["t2i/all", "i2t/any", "t2i/first", "i2t/symmetric-first"]
    assert ids(small_corpus([5, 6])) == [*OF_FIVE]
    assert ids(small_corpus([5] * 5000)) == [*OF_FIVE, "t2i/1k", "i2t/1k"]
    assert ids(winoground_form) == ["t2i/all", "i2t/any", "winoground"]


@pytest.mark.parametrize("rule", [*PROTOCOLS.values(), *FAMILIES], ids=lambda rule: rule.protocol.id)
def test_a_row_names_what_there_is(rule: ProtocolRule) -> None:
    assert rule.protocol.is_combined or rule.protocol.orientation or callable(getattr(builders, str(rule.build)))
    assert not rule.needs or rule.needs in NEEDS
    assert not rule.members or rule.members in MEMBERS
    assert rule.protocol.title
    assert set(rule.protocol.metrics) | ({rule.protocol.main_metric} - {""}) <= set(METRICS)
    if rule in FAMILIES:
        assert rule.members or rule.protocol.is_combined
    else:
        assert Protocol.of(rule.protocol.id) == rule.protocol


@pytest.mark.parametrize(
    ("id_", "reason"),
    [
        ("t2i/first", "every image has one caption"),
        ("i2t/any5", "captions 0 to 4 of every image, and an image has 1"),
        ("t2i/1k", "captions 0 to 4"),
        ("winoground", "no quadruples"),
        ("t2i/klingon/google", "unknown"),
        ("i2t/any@NONSENSE", "known with an orientation: i2t/any@transposed-per-token, i2t/any@image-as-query"),
    ],
)
def test_protocols_that_do_not_fit_say_why_all_together(id_: str, reason: str) -> None:
    with pytest.raises(RequestError, match=reason) as caught:
        select_protocols(small_corpus([1, 1]), [id_, "t2i/all", "nonsense"])
    assert len(caught.value.faults) == 2


def test_a_request_for_an_orientation_gives_this_protocol_and_no_other() -> None:
    corpus, id_ = small_corpus([1, 1]), "i2t/any@image-as-query"
    for vectors in (None, "multi"):
        assert [each.id for each in select_protocols(corpus, [id_, "t2i/all"], vectors=vectors)] == [id_, "t2i/all"]
        assert [each.id for each in select_protocols(corpus, [id_], vectors=vectors)] == [id_]
    assert [each.id for each in select_protocols(corpus, [id_, "t2i/all"], vectors="single")] == ["t2i/all"]
    with pytest.raises(RequestError, match=f"{id_}': only encoders with several vectors per item have orientations"):
        select_protocols(corpus, [id_], vectors="single")


def test_galleries_and_relevant_items_follow_the_definitions() -> None:
    corpus = small_corpus([6, 5])  # captions 0-5 and 6-10
    every = task_of(corpus, "t2i/all")
    assert every.queries.tolist() == list(range(11))
    assert every.relevant.tolist() == [0] * 6 + [1] * 5
    assert task_of(corpus, "t2i/first").queries.tolist() == [0, 6]
    assert task_of(corpus, "t2i/ordinal-mean").queries.tolist() == FIVE
    own = task_of(corpus, "i2t/any")
    assert np.split(own.relevant, own.offsets[1:-1])[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert task_of(corpus, "i2t/any5").galleries[0].tolist() == FIVE
    assert task_of(corpus, "i2t/symmetric-first").galleries[0].tolist() == [0, 6]
    mean = task_of(corpus, "i2t/symmetric-mean")
    assert [gallery.tolist() for gallery in mean.galleries] == [[k, 6 + k] for k in range(5)]
    assert mean.query_ids.tolist() == [f"i{i}#{k}" for k in range(5) for i in range(2)]
    wanted = ["i2t/any", "t2i/all"]  # in the order of the request
    assert [task.protocol.id for task in tasks_of(corpus, *wanted)] == wanted


def test_folds_are_runs_of_a_thousand_images_that_search_among_themselves() -> None:
    t2i, i2t = tasks_of(small_corpus([6] + [5] * 4999), "t2i/1k", "i2t/1k")
    assert len(t2i.queries) == 25_000
    assert [len(gallery) for gallery in t2i.galleries] == [1000] * 5
    assert [len(gallery) for gallery in i2t.galleries] == [5000] * 5
    assert i2t.gallery_of.tolist() == np.repeat(range(5), 1000).tolist()
    assert (t2i.weights == 1).all()


def test_a_protocol_without_a_language_says_which_captions_it_takes_of_several() -> None:
    parts = (("en", "human"), ("de", "google"), ("en", "bing"))
    titles = {
        parts[:1]: {"t2i/all": "text to image", "t2i/all+i2t/any": "both directions"},
        parts[:2]: {
            "t2i/all": "text to image, English captions",
            "i2t/any@image-as-query": "image to text, English captions, image as query",
            "t2i/all+i2t/any": "both directions, English captions",
            "t2i/de/google": "text to image, German by google",
            "t2i/*/*": "text to image, mean over languages",
        },
        parts: {"t2i/all": "text to image, English captions by human"},
        parts[1:]: {"i2t/any": "image to text, English captions"},
    }
    for of, expected in titles.items():
        corpus = corpus_in(of, range(3))
        assert {id_: Protocol.of(id_).on(corpus).title for id_ in expected} == expected


def test_languages_search_within_themselves_and_the_headline_is_the_reference() -> None:
    corpus = corpus_in((("en", "human"), ("de", "google"), ("de", "bing")), range(3))
    assert "t2i/de/google" in ids(corpus)
    assert task_of(corpus, "t2i/all").queries.tolist() == [0, 1, 2]
    german = task_of(corpus, "i2t/de/bing")
    assert german.item_space.ords_of(german.galleries[0]).tolist() == [6, 7, 8]
    assert [protocol.id for protocol in select_protocols(corpus, ["t2i/de/*"])] == ["t2i/de/bing", "t2i/de/google"]


def test_extra_ground_truths_become_protocols_with_only_judged_queries() -> None:
    """CxC and ECCV search captions 0 to 4 and those that they name: the published files judge no sixth caption, which
    would be wrong for its own image."""
    rows = [
        ("cxc", "t2i", "c0.0", "i0"), ("cxc", "t2i", "c0.0", "i1"), ("cxc", "i2t", "i0", "c0.0"),
        ("eccv", "i2t", "i1", "c0.5"), ("eccv", "i2t", "i1", "c1.0"), ("mine", "i2t", "i0", "c0.0"),
    ]  # fmt: skip
    corpus = small_corpus([6, 6], relevance=[RelevanceRow(*row) for row in rows])
    t2i, cxc, eccv, mine = tasks_of(corpus, "t2i/cxc", "i2t/cxc", "i2t/eccv", "i2t/mine")
    assert (t2i.queries.tolist(), t2i.relevant.tolist()) == ([0], [0, 1])
    assert (cxc.queries.tolist(), cxc.galleries[0].tolist()) == ([0], FIVE)
    assert eccv.galleries[0].tolist() == [*FIVE[:5], 5, *FIVE[5:]]
    assert (eccv.queries.tolist(), eccv.relevant.tolist()) == ([1], [5, 6])
    assert mine.galleries[0].tolist() == list(range(12))


def pairs_corpus(name: str, *rows: tuple[str, ...]) -> Corpus:
    """Two images, captions 0 and 1, negatives 2 to 5."""
    images = [ImageRow(id="i0"), ImageRow(id="i1")]
    captions = [CaptionRow(id=f"c{k}", image_id=f"i{k}", text="a") for k in range(2)]
    captions += [CaptionRow(id=f"n{k}", image_id=None, text="wrong") for k in range(4)]
    return build_corpus(name, images, captions, source=None, pairs=[PairRow(*row) for row in rows])


def test_pairs_have_one_protocol_per_category_and_a_macro_mean_that_weighs_categories_alike() -> None:
    rows = ("p0", "i0", "c0", "n0", "add"), ("p1", "i1", "c1", "n1", "add"), ("p2", "i0", "c0", "n2", "swap")
    corpus = pairs_corpus("sugarcrepe", *rows)
    assert ids(corpus) == ["sugarcrepe/add", "sugarcrepe/swap", "sugarcrepe/macro", "sugarcrepe/micro"]
    macro, micro = tasks_of(corpus, "sugarcrepe/macro", "sugarcrepe/micro")
    assert macro.weights.tolist() == [0.75, 0.75, 1.5]
    assert macro.captions.tolist() == [[0, 2], [1, 3], [0, 4]]
    assert micro.weights.tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(RequestError, match="pairs with hard negatives"):
        select_protocols(corpus, ["t2i/all"])


def test_a_caption_can_be_compared_with_all_its_negatives_at_once() -> None:
    rows = [(f"p{k}", "i0", "c0", f"n{k}", "order") for k in range(3)]
    corpus = pairs_corpus("aro-coco-order", *rows, ("p3", "i1", "c1", "n3", "order"))
    assert ids(corpus) == ["aro/order", "aro/all-negatives"]
    task = task_of(corpus, "aro/all-negatives")
    assert task.captions.tolist() == [[0, 2, 3, 4], [1, 5, -1, -1]]
    vectors = np.array([[1, 0], [0, 1]], np.float32)
    captions = np.array([[0.8, 0.6], [0, 1], [0, 1], [0.6, 0.8], [0, -1], [0, 1]], np.float32)
    outcomes = score_dense(vectors, captions, [task])[task.protocol.id]
    assert outcomes.n_gallery.tolist() == [4, 2]
    assert METRICS["pair_accuracy"].per_query(outcomes).tolist() == [1, 0]
    assert METRICS["pair_accuracy"].per_query(outcomes, "won").tolist() == [1, 1]
    assert METRICS["pair_accuracy"].chance(outcomes) == (1 / 4 + 1 / 2) / 2


def test_sugarcrepe_pp_compares_both_captions_with_their_negative() -> None:
    """``cos_p1 > cos_neg and cos_p2 > cos_neg`` (VLMs/test_Variants_CLIP.py of github.com/Sri-Harsha/scpp)."""
    rows = ("p0", "i0", "c0", "n0", "swap_att"), ("p0/2", "i0", "n1", "n0", "swap_att")
    task = task_of(pairs_corpus("sugarcrepe-pp", *rows), "sugarcrepe-pp/swap_att")
    assert (task.query_ids.tolist(), task.captions.tolist(), task.n_right) == (["p0"], [[0, 3, 2]], 2)
    image = np.array([[1, 0], [0, 1]], np.float32)
    accuracy = METRICS["pair_accuracy"]

    def won(first: float, second: float, negative: float, ties: Ties = "expected") -> float:
        captions = np.array([[first, 0.1], [0, 1], [negative, 0.1], [second, 0.1], [0, 1], [0, 1]], np.float32)
        [outcomes] = stored_and_read(score_dense(image, captions, [task])).values()
        assert accuracy.chance(outcomes) == pytest.approx(1 / 3)
        assert (outcomes.n_relevant.tolist(), outcomes.n_gallery.tolist()) == ([2], [3])
        return float(accuracy.per_query(outcomes, ties)[0])

    assert won(0.6, 0.5, 0.4) == 1
    assert won(0.6, 0.3, 0.4) == 0
    assert won(0.3, 0.6, 0.4) == 0
    assert (won(0.6, 0.4, 0.4), won(0.6, 0.4, 0.4, "won")) == (0, 1)


def test_negbench_is_one_choice_among_all_options_of_a_question() -> None:
    corpus = pairs_corpus("negbench-COCO", *((f"p{k}", "i0", "c0", f"n{k}", "hybrid") for k in range(3)))
    task = task_of(corpus, "negbench/hybrid")
    assert (task.query_ids.tolist(), task.captions.tolist()) == (["p0"], [[0, 2, 3, 4]])


def test_sets_with_different_numbers_of_right_captions_are_refused() -> None:
    rows = ("p0", "i0", "c0", "n0", "a"), ("p1", "i0", "n1", "n0", "a"), ("p2", "i1", "c1", "n2", "a")
    with pytest.raises(ValueError, match="different numbers of right captions"):
        task_of(pairs_corpus("sugarcrepe-pp", *rows), "sugarcrepe-pp/a")


def test_of_many_categories_only_the_means_are_taken_unless_named() -> None:
    rows = [(f"p{k}", f"i{k % 2}", f"c{k % 2}", "n0", f"relation-{k}") for k in range(21)]
    corpus = pairs_corpus("aro-relation", *rows)
    assert ids(corpus) == ["aro/macro", "aro/micro", "aro/all-negatives"]
    assert [protocol.id for protocol in select_protocols(corpus, ["aro/relation-7"])] == ["aro/relation-7"]


@pytest.mark.parametrize("id_", ["t2i/all", "i2t/any"])
def test_images_without_captions_are_searched_but_never_ask_and_are_never_drawn(id_: str) -> None:
    def intervals(captions: list[int], values: list[float]) -> list[tuple[float | None, float | None]]:
        corpus = small_corpus(captions)
        task = task_of(corpus, id_)
        assert len(task.queries) == len(values)
        assert len(np.unique(np.concatenate(task.galleries))) == len(captions if id_ == "t2i/all" else values)
        clusters = Clusters.of(task.clusters, drawn_clusters(corpus, task.protocol), task.weights)
        assert clusters.n_clusters == 3
        how = Resampling(replicates=200, seed=1, method="percentile")
        found = [interval_of(values, clusters, how, "mean"), interval_of(values, clusters, how, "median")]
        return [(interval.low, interval.high) for interval in found]

    values = [1.0, 4.0, 2.0]
    assert intervals([0, 1, 0, 0, 1, 1, 0], values) == intervals([1, 1, 1], values)


@pytest.mark.parametrize("id_", ["t2i/all", "i2t/any"])
def test_images_of_one_photograph_are_one_cluster(id_: str) -> None:
    corpus = small_corpus([1, 2, 0, 1])
    shas = pa.chunked_array([["same", "same", "same", "other"]])
    repeated = replace(corpus, images=corpus.images.set_column(corpus.images.column_names.index("sha"), "sha", shas))
    task = task_of(repeated, id_)
    clusters = Clusters.of(task.clusters, drawn_clusters(repeated, task.protocol), task.weights)
    assert clusters.n_clusters == clusters.n_occupied == 2
    assert clusters.sizes.tolist() == ([3, 1] if id_ == "t2i/all" else [2, 1])
    photographs = cluster_photographs(repeated, photographs_of(repeated), task.protocol)
    assert [{sha for sha, _ in each} for each in photographs] == [{"same"}, {"other"}]
