"""Which protocols fit which corpus, why others do not, and the task that each sets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, ImageRow, PairRow, RelevanceRow, build_corpus
from capim.tasks.metrics import METRICS
from capim.tasks.metrics.metric import Ties
from capim.tasks.ranking.cosine import score_dense
from capim.tasks.ranking.layout import drawn_clusters
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import PROTOCOLS, build_task, build_tasks, protocols_of, select_protocols
from capim.tasks.ranking.tasks import ChoiceTask, RetrievalTask
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import ClusteredValues, bootstrap_samples

OTHER_FORMS = ("winoground", "t2i/judged")  # of corpora of quadruples, and of judged ones


def ids(corpus: Corpus) -> list[str]:
    return [protocol.id for protocol in protocols_of(corpus)]


def retrieval_task(corpus: Corpus, id_: str) -> RetrievalTask:
    task = build_task(corpus, select_protocols(corpus, [id_])[0])
    assert isinstance(task, RetrievalTask)
    return task


def test_a_corpus_has_the_protocols_that_make_sense_for_it(
    corpus_of: Callable[[list[int]], Corpus], winoground_form: Corpus
) -> None:
    assert ids(corpus_of([1, 1, 1])) == ["t2i/all", "i2t/any"]
    assert ids(corpus_of([2, 1, 1])) == ["t2i/all", "i2t/any", "t2i/first", "i2t/symmetric-first"]
    assert ids(corpus_of([5, 6])) == [id_ for id_ in PROTOCOLS if "1k" not in id_ and id_ not in OTHER_FORMS]
    assert ids(corpus_of([5] * 5000)) == [id_ for id_ in PROTOCOLS if id_ not in OTHER_FORMS]
    assert ids(winoground_form) == ["t2i/all", "i2t/any", "winoground"]


@pytest.mark.parametrize(
    ("id_", "reason"),
    [
        ("t2i/first", "every image has one caption"),
        ("i2t/any5", "captions 0 to 4 of every image, and an image has 1"),
        ("t2i/1k", "captions 0 to 4"),
        ("winoground", "no quadruples"),
        ("t2i/klingon/google", "unknown"),
        ("R@1", "unknown"),
        ("i2t/any@NONSENSE", "known with an orientation: i2t/any@transposed-per-token, i2t/any@image-as-query"),
    ],
)
def test_a_protocol_that_does_not_fit_says_why(corpus_of: Callable[[list[int]], Corpus], id_: str, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        select_protocols(corpus_of([1, 1]), [id_])


def test_all_unfit_protocols_are_reported_together(corpus_of: Callable[[list[int]], Corpus]) -> None:
    with pytest.raises(RequestError) as caught:
        select_protocols(corpus_of([1, 1]), ["t2i/first", "t2i/all", "nonsense"])
    assert len(caught.value.faults) == 2


def test_galleries_and_relevant_items_follow_the_definitions(corpus_of: Callable[[list[int]], Corpus]) -> None:
    corpus = corpus_of([6, 5])  # captions 0-5 and 6-10
    every = retrieval_task(corpus, "t2i/all")
    assert every.queries.tolist() == list(range(11))
    assert every.relevant.tolist() == [0] * 6 + [1] * 5
    assert retrieval_task(corpus, "t2i/first").queries.tolist() == [0, 6]
    assert retrieval_task(corpus, "t2i/ordinal-mean").queries.tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    own = retrieval_task(corpus, "i2t/any")
    assert np.split(own.relevant, own.offsets[1:-1])[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert retrieval_task(corpus, "i2t/any5").galleries[0].tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert retrieval_task(corpus, "i2t/symmetric-first").galleries[0].tolist() == [0, 6]
    mean = retrieval_task(corpus, "i2t/symmetric-mean")
    assert [gallery.tolist() for gallery in mean.galleries] == [[k, 6 + k] for k in range(5)]
    assert mean.query_ids.tolist() == [f"i{i}#{k}" for k in range(5) for i in range(2)]


def test_folds_are_runs_of_a_thousand_images_that_search_among_themselves(
    corpus_of: Callable[[list[int]], Corpus],
) -> None:
    corpus = corpus_of([6] + [5] * 4999)
    t2i, i2t = retrieval_task(corpus, "t2i/1k"), retrieval_task(corpus, "i2t/1k")
    assert len(t2i.queries) == 25_000
    assert [len(gallery) for gallery in t2i.galleries] == [1000] * 5
    assert [len(gallery) for gallery in i2t.galleries] == [5000] * 5
    assert i2t.gallery_of.tolist() == np.repeat(range(5), 1000).tolist()
    assert (t2i.weights == 1).all()


def test_an_image_without_captions_is_searched_but_does_not_ask(corpus_of: Callable[[list[int]], Corpus]) -> None:
    corpus = corpus_of([1, 0, 1])
    assert retrieval_task(corpus, "t2i/all").galleries[0].tolist() == [0, 1, 2]
    assert retrieval_task(corpus, "i2t/any").queries.tolist() == [0, 2]


def multilingual() -> Corpus:
    rows = [
        CaptionRow(
            id=f"{language}.{translator}.{i}", image_id=f"i{i}", text="x", language=language, translator=translator
        )
        for language, translator in (("en", "human"), ("de", "google"), ("de", "bing"))
        for i in range(3)
    ]
    return build_corpus("m", [ImageRow(id=f"i{i}") for i in range(3)], rows, source=None)


def test_languages_search_within_themselves_and_the_headline_is_the_reference() -> None:
    corpus = multilingual()
    assert "t2i/de/google" in ids(corpus)
    assert retrieval_task(corpus, "t2i/all").queries.tolist() == [0, 1, 2]
    assert retrieval_task(corpus, "i2t/de/bing").galleries[0].tolist() == [6, 7, 8]
    assert [protocol.id for protocol in select_protocols(corpus, ["t2i/de/*"])] == ["t2i/de/bing", "t2i/de/google"]


def test_extra_ground_truths_become_protocols_with_only_judged_queries() -> None:
    images = [ImageRow(id=f"i{i}") for i in range(3)]
    captions = [CaptionRow(id=f"c{i}", image_id=f"i{i}", text="x") for i in range(3)]
    relevance = [
        RelevanceRow("cxc", "t2i", "c0", "i0"),
        RelevanceRow("cxc", "t2i", "c0", "i2"),
        RelevanceRow("cxc", "i2t", "i1", "c1"),
    ]
    corpus = build_corpus("x", images, captions, source=None, relevance=relevance)
    t2i = retrieval_task(corpus, "t2i/cxc")
    assert (t2i.queries.tolist(), t2i.relevant.tolist()) == ([0], [0, 2])
    assert retrieval_task(corpus, "i2t/cxc").queries.tolist() == [1]


def test_cxc_and_eccv_search_captions_0_to_4_and_those_that_they_name(corpus_of: Callable[[list[int]], Corpus]) -> None:
    """A sixth caption has no annotation in the published files: counted, it would be wrong for its own image."""
    corpus = corpus_of([6, 6])  # captions 0-5 and 6-11
    rows = [
        RelevanceRow(truth, "i2t", image, caption)
        for truth, image, caption in (
            ("cxc", "i0", "c0.0"),
            ("eccv", "i1", "c0.5"),
            ("eccv", "i1", "c1.0"),
            ("mine", "i0", "c0.0"),
        )
    ]
    judged = build_corpus(
        "judged",
        [ImageRow(id=f"i{i}") for i in range(2)],
        [CaptionRow(id=f"c{i}.{k}", image_id=f"i{i}", text="x") for i in range(2) for k in range(6)],
        source=None,
        relevance=rows,
    )
    five = [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert retrieval_task(judged, "i2t/cxc").galleries[0].tolist() == five
    eccv = retrieval_task(judged, "i2t/eccv")
    assert eccv.galleries[0].tolist() == [*five[:5], 5, *five[5:]]
    assert eccv.relevant.tolist() == [5, 6]
    assert retrieval_task(judged, "i2t/mine").galleries[0].tolist() == list(range(corpus.captions.num_rows))


def test_pairs_have_one_protocol_per_category_and_a_macro_mean_that_weighs_categories_alike() -> None:
    images = [ImageRow(id="i0"), ImageRow(id="i1")]
    captions = [CaptionRow(id="c0", image_id="i0", text="a"), CaptionRow(id="c1", image_id="i1", text="b")]
    captions += [CaptionRow(id=f"n{k}", image_id=None, text="wrong") for k in range(3)]
    pairs = [
        PairRow("p0", "i0", "c0", "n0", "add"),
        PairRow("p1", "i1", "c1", "n1", "add"),
        PairRow("p2", "i0", "c0", "n2", "swap"),
    ]
    corpus = build_corpus("sugarcrepe", images, captions, source=None, pairs=pairs)
    assert ids(corpus) == ["sugarcrepe/add", "sugarcrepe/swap", "sugarcrepe/macro", "sugarcrepe/micro"]
    macro = build_task(corpus, select_protocols(corpus, ["sugarcrepe/macro"])[0])
    assert isinstance(macro, ChoiceTask)
    assert macro.weights.tolist() == [0.75, 0.75, 1.5]
    assert macro.captions.tolist() == [[0, 2], [1, 3], [0, 4]]
    micro = build_task(corpus, select_protocols(corpus, ["sugarcrepe/micro"])[0])
    assert isinstance(micro, ChoiceTask)
    assert micro.weights.tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(RequestError, match="pairs with hard negatives"):
        select_protocols(corpus, ["t2i/all"])


def pairs_corpus(name: str, pairs: list[PairRow]) -> Corpus:
    images = [ImageRow(id="i0"), ImageRow(id="i1")]
    captions = [CaptionRow(id=f"c{k}", image_id=f"i{k}", text="a") for k in range(2)]
    captions += [CaptionRow(id=f"n{k}", image_id=None, text="wrong") for k in range(4)]
    return build_corpus(name, images, captions, source=None, pairs=pairs)


def test_a_caption_can_be_compared_with_all_its_negatives_at_once() -> None:
    pairs = [PairRow(f"p{k}", "i0", "c0", f"n{k}", "order") for k in range(3)] + [
        PairRow("p3", "i1", "c1", "n3", "order")
    ]
    corpus = pairs_corpus("aro-coco-order", pairs)
    assert ids(corpus) == ["aro/order", "aro/all-negatives"]
    task = build_task(corpus, select_protocols(corpus, ["aro/all-negatives"])[0])
    assert isinstance(task, ChoiceTask)
    assert task.captions.tolist() == [[0, 2, 3, 4], [1, 5, -1, -1]]
    vectors = np.array([[1, 0], [0, 1]], np.float32)
    captions = np.array([[0.8, 0.6], [0, 1], [0, 1], [0.6, 0.8], [0, -1], [0, 1]], np.float32)
    outcomes = score_dense(vectors, captions, [task])[task.protocol.id]
    assert outcomes.n_gallery.tolist() == [4, 2]
    assert METRICS["pair_accuracy"].per_query(outcomes).tolist() == [1, 0]
    assert METRICS["pair_accuracy"].per_query(outcomes, "won").tolist() == [1, 1]
    assert METRICS["pair_accuracy"].chance(outcomes) == (1 / 4 + 1 / 2) / 2


def sets_of(name: str, pairs: list[PairRow], id_: str) -> ChoiceTask:
    corpus = pairs_corpus(name, pairs)
    task = build_task(corpus, select_protocols(corpus, [id_])[0])
    assert isinstance(task, ChoiceTask)
    return task


def test_sugarcrepe_pp_compares_both_captions_with_their_negative() -> None:
    pairs = [PairRow("p0", "i0", "c0", "n0", "swap_att"), PairRow("p0/2", "i0", "n1", "n0", "swap_att")]
    task = sets_of("sugarcrepe-pp", pairs, "sugarcrepe-pp/swap_att")
    assert (task.query_ids.tolist(), task.captions.tolist(), task.n_right) == (["p0"], [[0, 3, 2]], 2)
    image = np.array([[1, 0], [0, 1]], np.float32)
    accuracy = METRICS["pair_accuracy"]

    def won(first: float, second: float, negative: float, ties: Ties = "expected") -> float:
        captions = np.array([[first, 0.1], [0, 1], [negative, 0.1], [second, 0.1], [0, 1], [0, 1]], np.float32)
        [outcomes] = score_dense(image, captions, [task]).values()
        assert accuracy.chance(outcomes) == pytest.approx(1 / 3)
        assert (outcomes.n_relevant.tolist(), outcomes.n_gallery.tolist()) == ([2], [3])
        again = Outcomes.from_arrow(stored(outcomes), outcomes.protocol)
        return float(accuracy.per_query(again, ties)[0])

    assert won(0.6, 0.5, 0.4) == 1
    assert won(0.6, 0.3, 0.4) == 0
    assert won(0.3, 0.6, 0.4) == 0
    assert (won(0.6, 0.4, 0.4), won(0.6, 0.4, 0.4, "won")) == (0, 1)


def stored(outcomes: Outcomes) -> pa.Table:
    return outcomes.to_arrow(evaluation="e", encoder="a", encoder_fingerprint="f", corpus="c", corpus_fingerprint="g")


def test_negbench_is_one_choice_among_all_options_of_a_question() -> None:
    pairs = [PairRow(f"p{k}", "i0", "c0", f"n{k}", "hybrid") for k in range(3)]
    task = sets_of("negbench-COCO", pairs, "negbench/hybrid")
    assert (task.query_ids.tolist(), task.captions.tolist()) == (["p0"], [[0, 2, 3, 4]])


def test_sets_with_different_numbers_of_right_captions_are_refused() -> None:
    rows = [("p0", "i0", "c0", "n0"), ("p1", "i0", "n1", "n0"), ("p2", "i1", "c1", "n2")]
    pairs = [PairRow(*row, "a") for row in rows]
    with pytest.raises(ValueError, match="different numbers of right captions"):
        sets_of("sugarcrepe-pp", pairs, "sugarcrepe-pp/a")


def test_of_many_categories_only_the_means_are_taken_unless_named() -> None:
    pairs = [PairRow(f"p{k}", f"i{k % 2}", f"c{k % 2}", "n0", f"relation-{k}") for k in range(21)]
    corpus = pairs_corpus("aro-relation", pairs)
    assert ids(corpus) == ["aro/macro", "aro/micro", "aro/all-negatives"]
    assert [protocol.id for protocol in select_protocols(corpus, ["aro/relation-7"])] == ["aro/relation-7"]


def test_several_tasks_come_in_the_order_of_the_protocols(corpus_of: Callable[[list[int]], Corpus]) -> None:
    corpus = corpus_of([2, 2])
    wanted = ["i2t/any", "t2i/all"]
    assert [task.protocol.id for task in build_tasks(corpus, select_protocols(corpus, wanted))] == wanted


@pytest.mark.parametrize("id_", ["t2i/all", "i2t/any"])
def test_images_without_captions_are_searched_but_never_drawn(
    corpus_of: Callable[[list[int]], Corpus], id_: str
) -> None:
    def intervals(captions: list[int], values: list[float]) -> list[tuple[float | None, float | None]]:
        corpus = corpus_of(captions)
        task = retrieval_task(corpus, id_)
        assert len(np.unique(np.concatenate(task.galleries))) == len(captions if id_ == "t2i/all" else values)
        clusters = Clusters.of(task.clusters, drawn_clusters(corpus, task.protocol), task.weights)
        assert clusters.n_clusters == 3
        sample = ClusteredValues([values], clusters)
        found = [bootstrap_samples([sample], Resampling(replicates=200, seed=1), how)[0] for how in ("mean", "median")]
        return [(interval.low, interval.high) for [interval] in found]

    values = [1.0, 4.0, 2.0]
    assert intervals([0, 1, 0, 0, 1, 1, 0], values) == intervals([1, 1, 1], values)
