# ruff: noqa: E501 - a table of one line a way
"""Sixty usual ways in which people keep vectors and results: each is taken with equal figures, or refused with the way.

The forms are those of public code: CLIP feature caches, clip-retrieval, FAISS folders, FiftyOne's exports, caches of
sentence-transformers, mteb's results and predictions, dumps of colpali, runs of ranx, logs of lm-eval, open_clip's
tables. Every file is shuffled where it has ids, so that a form that is taken by position alone cannot pass.
"""

from __future__ import annotations

import csv
import json
import pickle
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from capim.store import EmbeddingStore
from capim.store.schema import Import, Result
from capim.store.sets.importing import matched_by
from capim.store.sets.matching import NOT_VERIFIED
from capim.tasks.corpora.build import CaptionRow, ImageRow, PairRow, QuadrupleRow, build_corpus
from tests.command import command

N = 12
CORPUS = build_corpus(
    "ways",
    [ImageRow(f"i{n}", f"photos/{n:03d}.jpg") for n in range(N)],
    [CaptionRow(f"c{n}-{k}", f"i{n}", f"caption {k} of photograph {n}") for n in range(N) for k in range(2)]
    + [CaptionRow(f"n{n}", None, f"wrong caption of {n}") for n in range(4)],
    source=None,
    pairs=[PairRow(f"p{n}", f"i{n}", f"c{n}-0", f"n{n}", "swap") for n in range(4)],
    quadruples=[QuadrupleRow(f"q{n}", f"i{n}", f"i{n + 4}", f"c{n}-0", f"c{n + 4}-0") for n in range(4)],
)
IMAGES = [f"i{n}" for n in range(N)]
FILES = [f"{n:03d}.jpg" for n in range(N)]
CAPTIONS = [f"c{n}-{k}" for n in range(N) for k in range(2)] + [f"n{n}" for n in range(4)]
TEXTS = [str(text) for text in CORPUS.captions["text"].to_pylist()]
QUERIES = CAPTIONS[: 2 * N]
_RNG = np.random.default_rng(4)
V = _RNG.standard_normal((N, 8)).astype(np.float32)
V /= np.linalg.norm(V, axis=1, keepdims=True)
T = np.concatenate([np.repeat(V, 2, axis=0), V[:4]]) + 0.6 * _RNG.standard_normal((2 * N + 4, 8)).astype(np.float32)
T = (T / np.linalg.norm(T, axis=1, keepdims=True)).astype(np.float32)
SCORES = (T @ V.T).astype(np.float32)
PI, PC, PQ = _RNG.permutation(N), _RNG.permutation(len(CAPTIONS)), _RNG.permutation(2 * N)
RANKS = [1 + int((SCORES[at] > SCORES[at, at // 2]).sum()) for at in range(2 * N)]
R1 = sum(rank == 1 for rank in RANKS) / len(RANKS)


def of(items: Sequence[Any], order: np.ndarray) -> list[Any]:
    """Items in a shuffled order."""
    return [items[at] for at in order]


class Way(NamedTuple):
    """One way: what writes the files in a folder and gives the words of the command, and what is expected.

    Attributes:
        taken: A text that the import prints; "" for a refusal.
        refused: A text of the refusal, which names the way.
        verified: Whether rows were matched by more than their position.
    """

    write: Callable[[Path], str]
    taken: str = ""
    refused: str = ""
    verified: bool = True


def saved(save: Callable[[Path], None], name: str) -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        save(folder / name)
        return name

    return write


def npz(**arrays: Any) -> Callable[[Path], str]:
    return saved(lambda path: np.savez(path, **arrays), "features.npz")


def both(image: Callable[[Path], str], caption: Callable[[Path], str]) -> Callable[[Path], str]:
    return lambda folder: f"{image(folder)} {caption(folder)}"


def array(name: str, values: np.ndarray, ids: Sequence[Any] | None = None, beside: str = "") -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        np.save(folder / name, values)
        if ids is not None and beside.endswith(".npy"):
            np.save(folder / beside, np.array(ids))
        elif ids is not None:
            (folder / beside).write_text("".join(f"{each}\n" for each in ids))
        return name

    return write


def torched(name: str, contents: Callable[[Callable[..., Any]], Any]) -> Callable[[Path], str]:
    """What saves contents that a function makes of ``torch.tensor``."""

    def save(path: Path) -> None:
        import torch

        torch.save(contents(torch.tensor), path)

    return saved(save, name)


def parquet(name: str, **columns: Any) -> Callable[[Path], str]:
    arrays = {key: each if isinstance(each, pa.Array) else pa.array(list(each)) for key, each in columns.items()}
    return saved(lambda path: pq.write_table(pa.table(arrays), path), name)


def text(name: str, contents: str | bytes, words: str = "") -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        return words or name

    return write


def table(name: str, rows: Sequence[dict[str, Any]], words: str = "") -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        path = folder / name
        if path.suffix == ".jsonl":
            path.write_text("\n".join(map(json.dumps, rows)))
        else:
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
                writer.writeheader()
                writer.writerows(rows)
        return words or name

    return write


def ranked(column: str, ids: Sequence[Any] = QUERIES, **more: Sequence[Any]) -> list[dict[str, Any]]:
    """Shuffled rows of ranks."""
    return [{column: ids[at], **{k: v[at] for k, v in more.items()}, "rank": RANKS[at]} for at in PQ.tolist()]


def lists(values: np.ndarray) -> list[list[float]]:
    return [[float(value) for value in row] for row in values]


def moment(path: Path) -> str:
    """FiftyOne's export of a data set."""
    rows = [{"filepath": f"/data/photos/{f}", "filename": f, "embedding": v} for f, v in zip(of(FILES, PI), lists(V[PI]), strict=True)]  # fmt: skip
    (path / "samples.json").write_text(json.dumps({"samples": rows}))
    return f"--images {path}/samples.json --captions {array('text.npy', T, CAPTIONS, 'text.ids.txt')(path)}"


def clip_retrieval(path: Path) -> str:
    """The folders of clip-retrieval's inference."""
    for side, values, order in (("img", V, PI), ("text", T, PC)):
        (path / f"{side}_emb").mkdir()
        for part, rows in enumerate(np.array_split(values[order], 2)):
            np.save(path / f"{side}_emb" / f"{side}_emb_{part}.npy", rows)
    (path / "metadata").mkdir()
    for part, rows in enumerate(np.array_split(np.array(of(FILES, PI)), 2)):
        pq.write_table(pa.table({"image_path": rows.tolist()}), path / "metadata" / f"metadata_{part}.parquet")
    np.save(path / "text.npy", T[PC])
    (path / "text.ids.txt").write_text("\n".join(of(CAPTIONS, PC)))
    return f"--images {path}/img_emb --captions {path}/text.npy"


RUN = {q: {IMAGES[i]: float(SCORES[at, i]) for i in range(N)} for at, q in enumerate(QUERIES)}
TREC = "\n".join(f"{q} Q0 {i} 1 {s!r} ours" for q in of(QUERIES, PQ) for i, s in RUN[q].items())
TRIPLES = [{"q_id": q, "doc_id": i, "score": s} for q in of(QUERIES, PQ) for i, s in RUN[q].items()]
CAPS = array("captions.npy", T[PC], of(CAPTIONS, PC), "captions.ids.txt")
IMGS = array("images.npy", V[PI], of(IMAGES, PI), "images.ids.txt")
PKL = "a pickle runs code when it is read: open it yourself, save them with numpy.savez"

WAYS: dict[str, Way] = {
    # --- vectors: arrays
    "npy and ids.txt": Way(both(IMGS, CAPS), "rows matched by `ids`"),
    "npy in the order of the corpus": Way(both(array("images.npy", V), array("captions.npy", T)), "no column of ids", verified=False),
    "npy and paths in a text file": Way(both(array("img_emb.npy", V[PI], of(FILES, PI), "img_paths.txt"), CAPS), "file names"),
    "npy and ids in npy": Way(both(array("image_embeddings.npy", V[PI], of(IMAGES, PI), "image_ids.npy"), CAPS), "matched by `ids`"),
    "npy and texts": Way(both(IMGS, array("text_features.npy", T[PC], of(TEXTS, PC), "text.txt")), "texts of the captions"),
    "npz of ids and embeddings": Way(both(npz(embeddings=V[PI], ids=of(IMAGES, PI)), CAPS), "rows matched by `ids`"),
    "npz of img and cap by shape": Way(npz(img=V, cap=T), "captions of ways", verified=False),
    "npz of image_features and text_features": Way(npz(image_features=V, text_features=T), "images of ways", verified=False),
    "npz with ids of both sides": Way(npz(image_features=V[PI], image_ids=of(IMAGES, PI), text_features=T[PC], caption_ids=of(CAPTIONS, PC)), "matched by `image_ids`"),
    "npz with file names": Way(both(npz(features=V[PI], filenames=of(FILES, PI)), CAPS), "file names of the images"),
    "npz with paths of another machine": Way(both(npz(features=V[PI], paths=[f"D:\\data\\{f}" if f < "006" else f"/data/{f}" for f in of(FILES, PI)]), CAPS), "file names of the images"),
    "npz with paths of the corpus": Way(both(npz(features=V[PI], paths=[f"photos/{f}" for f in of(FILES, PI)]), CAPS), "file names of the images"),
    "npz of anonymous arrays": Way(saved(lambda path: np.savez(path, V, T), "a.npz"), "captions of ways", verified=False),
    "npy of objects": Way(saved(lambda path: np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True), "images.npy"), refused=PKL),
    # --- vectors: torch, safetensors
    "pt of a tensor": Way(both(torched("images.pt", lambda tensor: tensor(V)), torched("texts.pt", lambda tensor: tensor(T))), "images of ways", verified=False),
    "pt of features and names": Way(both(torched("images.pt", lambda tensor: {"features": tensor(V[PI]), "names": of(FILES, PI)}), CAPS), "file names of the images"),
    "pt of id and vector": Way(both(torched("image_cache.pt", lambda tensor: {i: tensor(v) for i, v in zip(of(IMAGES, PI), V[PI], strict=True)}), CAPS), "matched by `ids`"),
    "pt of pickled objects": Way(torched("images.pt", lambda tensor: {"a": np.array([{"x"}], dtype=object)}), refused="not a file of tensors only"),
    "pt of colpali's list of pages": Way(both(torched("pages.pt", lambda tensor: [tensor(V[[n, n]]) for n in range(N)]), torched("queries.pt", lambda tensor: [tensor(t[None]) for t in T])), "images of ways", verified=False),
    "safetensors of embeddings": Way(both(saved(lambda path: save_file({"embeddings": V[PI]}, path, metadata={"ids": json.dumps(of(IMAGES, PI))}), "images.safetensors"), CAPS), "matched by `ids`"),
    "safetensors of id and vector": Way(both(saved(lambda path: save_file(dict(zip(of(IMAGES, PI), V[PI].copy(), strict=True)), path), "images.safetensors"), CAPS), "matched by `ids`"),
    "safetensors of both sides": Way(saved(lambda path: save_file({"image_embeds": V, "text_embeds": T}, path), "clip.safetensors"), "images of ways", verified=False),
    # --- vectors: tables
    "parquet of id and embedding": Way(both(parquet("images.parquet", id=of(IMAGES, PI), embedding=lists(V[PI])), CAPS), "matched by `id`"),
    "parquet of image_path and image_embedding": Way(both(parquet("images.parquet", image_path=of(FILES, PI), image_embedding=lists(V[PI])), CAPS), "file names of the images"),
    "parquet of both sides in two columns": Way(both(parquet("pages.parquet", page=of(IMAGES, PI), vector=lists(V[PI])), CAPS), "`page`"),
    "parquet of late interaction": Way(both(parquet("images.parquet", id=of(IMAGES, PI), embedding=[lists(V[[at]]) for at in PI.tolist()]), parquet("queries.parquet", id=of(CAPTIONS, PC), embedding=[lists(T[[at]]) for at in PC.tolist()])), "matched by `id`"),
    "parquet of texts": Way(both(IMGS, parquet("captions.parquet", caption=of(TEXTS, PC), emb=lists(T[PC]))), "texts of the captions"),
    "csv of components": Way(both(table("images.csv", [{"id": IMAGES[at], **{f"c{k}": float(V[at, k]) for k in range(8)}} for at in PI.tolist()]), CAPS), "matched by `id`"),
    "csv of pandas, by ids": Way(both(saved(lambda path: pd.DataFrame(V[PI], of(IMAGES, PI)).to_csv(path), "images.csv"), CAPS), "matched by `id`"),
    "csv of pandas, by named ids": Way(both(saved(lambda path: pd.DataFrame(V[PI], pd.Index(of(FILES, PI), name="photo")).to_csv(path), "images.csv"), CAPS), "`photo`, file names of the images"),
    "csv of pandas, by rows": Way(both(saved(lambda path: pd.DataFrame(V).to_csv(path), "images.csv"), CAPS), "12 of 12 rows matched by `id`, file names"),
    "tsv with a list in a cell": Way(both(table("images.tsv", [{"filename": FILES[at], "embedding": json.dumps(lists(V[[at]])[0])} for at in PI.tolist()]), CAPS), "file names"),
    "json of id and list": Way(both(text("images.json", json.dumps(dict(zip(of(IMAGES, PI), lists(V[PI]), strict=True)))), CAPS), "matched by `ids`"),
    "Chroma's collection": Way(both(text("images.json", json.dumps({"ids": of(IMAGES, PI), "embeddings": lists(V[PI]), "documents": None, "metadatas": [{}] * N})), CAPS), "matched by `ids`"),
    "Qdrant's points": Way(both(table("images.jsonl", [{"id": n, "payload": {"filename": FILES[at]}, "vector": lists(V[[at]])[0]} for n, at in enumerate(PI.tolist())]), CAPS), "`filename`, file names of the images"),
    "Elasticsearch's documents": Way(both(table("images.jsonl", [{"_id": IMAGES[at], "_source": {"embedding": lists(V[[at]])[0]}} for at in PI.tolist()]), CAPS), "matched by `_id`"),
    "OpenAI's batch": Way(both(table("images.jsonl", [{"id": f"r{n}", "custom_id": IMAGES[at], "response": {"body": {"data": [{"index": 0, "embedding": lists(V[[at]])[0]}]}}} for n, at in enumerate(PI.tolist())]), CAPS), "matched by `custom_id`"),
    "JSON lines named .json": Way(both(text("images.json", "\n".join(json.dumps({"id": IMAGES[at], "embedding": lists(V[[at]])[0]}) for at in PI.tolist())), CAPS), "matched by `id`"),
    "cos_sim of images by captions": Way(torched("cosine_scores.pt", lambda tensor: tensor(SCORES.T)), "taken as images by captions, transposed", verified=False),
    "FiftyOne's samples": Way(moment, "file names of the images"),
    "clip-retrieval's folder": Way(clip_retrieval, "file names of the images"),
    "one shard of clip-retrieval": Way(lambda path: clip_retrieval(path).replace("img_emb ", "img_emb/img_emb_1.npy "), refused="6 of 12 images of corpus 'ways' are not in the file"),
    "FAISS folder of langchain": Way(lambda folder: (text("db/index.faiss", b"x")(folder), text("db/index.pkl", b"x")(folder), "db")[2], refused="index.reconstruct_n"),
    "sentence-transformers' pickle": Way(text("embeddings.pkl", pickle.dumps({"sentences": TEXTS, "embeddings": T})), refused=PKL),
    "HDF5 features": Way(text("features.h5", b"\x89HDF"), refused="read its arrays with h5py"),
    # --- outcomes
    "csv of ranks": Way(table("ranks.csv", ranked("query")), "24 of 24 rows matched by `query`"),
    "csv of ranks by text": Way(table("ranks.csv", ranked("sentence", TEXTS)), "texts of the queries"),
    "csv of ranks under a name of their own": Way(table("ranks.csv", ranked("Beschriftung")), "matched by `Beschriftung`"),
    "pandas' index and an id": Way(table("ranks.csv", [{"": n, **row} for n, row in enumerate(ranked("id"))]), "matched by `id`"),
    "half of the ids": Way(table("ranks.csv", ranked("id", [*QUERIES[:N], *(f"x{n}" for n in range(N))]), "ranks.csv --protocol t2i/all"), refused="12 of 24 ids are not among the 24 queries"),
    "two columns that contradict each other": Way(table("ranks.csv", ranked("query", more=[0] * 24, uid=of(QUERIES, PQ)), "ranks.csv --protocol t2i/all"), refused="both name queries, and other ones in"),
    "lm-eval's samples": Way(table("samples.jsonl", [{"doc_id": f"p{n}", "acc": float(n < 3)} for n in (2, 0, 3, 1)]), "4 of 4 rows matched by `doc_id`"),
    "json of example and answer": Way(text("answers.json", json.dumps({f"p{n}": {"correct": n < 3} for n in (3, 1, 2, 0)})), "matched by `query`"),
    "Winoground's scores": Way(table("wino.csv", [{"id": f"q{n}", "text_score": n < 2, "image_score": n < 1, "group_score": n < 1} for n in (3, 1, 0, 2)]), "matched by `id`"),
    "Winoground's notebook": Way(table("clip.csv", [{"id": f"q{n}", "c0_i0": 0.5, "c0_i1": 0.4, "c1_i0": 0.2, "c1_i1": 0.3} for n in (3, 1, 0, 2)]), "4 of 4 rows matched by `id`"),
    "Winoground's files of scores": Way(table("clip.jsonl", [{"label": f"q{n}_c{c}_i{i}", "score": 0.1 * (c == i)} for n in (3, 1, 0, 2) for c in (0, 1) for i in (0, 1)]), "4 of 4 rows matched by `id`"),
    "score matrix": Way(saved(lambda path: np.savez(path, scores=SCORES[PC][:, PI], queries=of(CAPTIONS, PC), items=of(IMAGES, PI)), "m.npz"), "captions: 28 of 28 rows matched by `ids`"),
    "similarity of images by captions": Way(saved(lambda path: np.save(path, SCORES.T), "similarity.npy"), "transposed", verified=False),
    "pandas' table of similarities, named by ids": Way(saved(lambda path: pd.DataFrame(SCORES[PC][:, PI], of(CAPTIONS, PC), of(IMAGES, PI)).to_csv(path), "clip.csv"), "images: 12 of 12 rows matched by `ids`"),
    "pandas' table of similarities": Way(saved(lambda path: pd.DataFrame(SCORES[PC][:, PI], of(CAPTIONS, PC), of(FILES, PI)).to_csv(path), "clip.csv"), "images: 12 of 12 rows matched by `ids`, file names of the images"),
    "its Parquet, with images as rows": Way(saved(lambda path: pd.DataFrame(SCORES[PC][:, PI].T, of(IMAGES, PI), of(CAPTIONS, PC)).to_parquet(path), "clip.parquet"), "taken as images by captions, transposed"),
    "logits in a tensor": Way(torched("logits.pt", lambda tensor: {"logits": tensor(SCORES)}), "captions: 28 rows taken", verified=False),
    # --- runs, results
    "trec run": Way(text("run.trec", TREC), "24 queries matched by their ids"),
    "lists of files by text": Way(text("t2i.json", json.dumps({TEXTS[QUERIES.index(q)]: [f"/data/{FILES[IMAGES.index(item)]}" for item in sorted(items, key=items.__getitem__, reverse=True)] for q, items in RUN.items()})), "matched by their texts, their items by file names"),
    "rows with a list each, in Parquet": Way(parquet("t2i.parquet", query_id=of(QUERIES, PQ), retrieved=[sorted(RUN[q], key=RUN[q].__getitem__, reverse=True) for q in of(QUERIES, PQ)]), "24 queries matched by their ids"),
    "ranx in Parquet": Way(parquet("run.parquet", q_id=[r["q_id"] for r in TRIPLES], doc_id=[r["doc_id"] for r in TRIPLES], score=[r["score"] for r in TRIPLES]), "24 queries matched by their ids"),
    "predictions of mteb": Way(text("predictions.json", json.dumps({"mteb_model_meta": {"revision": "1"}, "default": {"test": RUN}})), "24 queries matched by their ids"),
    "results of mteb": Way(text("results/my__model/abc/Flickr30kT2IRetrieval.json", json.dumps({"task_name": "Flickr30kT2IRetrieval", "mteb_version": "2.0.0", "scores": {"test": [{"hf_subset": "default", "main_score": 0.8, "hit_rate_at_1": 0.8}]}}), "results"), "1 results of 1 models, 1 of them under a protocol"),
    "CLIP_benchmark's CSV": Way(text("benchmark.csv", "dataset,model,pretrained,task,image_retrieval_recall@5,text_retrieval_recall@5\nflickr30k,ViT-B-32,laion,zeroshot_retrieval,0.8,0.9\n"), "2 results of 1 models"),
    "CLIP_benchmark's JSON": Way(text("result.json", json.dumps({"dataset": "flickr30k", "model": "ViT-B-32", "pretrained": "laion", "task": "zeroshot_retrieval", "metrics": {"image_retrieval_recall@5": 0.8}})), "1 results of 1 models"),
    "ViDoRe's JSON": Way(text("m_metrics.json", json.dumps({"metadata": {"vidore_benchmark_version": "5"}, "metrics": {"vidore/arxivqa_test_subsampled": {"ndcg_at_5": 0.8}}})), "1 results of 1 models"),
    "a CSV of a paper": Way(text("paper.csv", "model,dataset,protocol,metric,value,source\nCLIP,ways,t2i/all,R@1,0.3,Table 2\n"), "1 results of 1 models, 1 of them under a protocol"),
    "a text file": Way(text("notes.txt", "nothing to see here\n"), refused="A run has 6 (query Q0 item rank score tag)"),
}  # fmt: skip


def test_the_table_has_at_least_sixty_ways() -> None:
    assert len(WAYS) >= 60


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with the corpus alone; not to be changed."""
    workspace = tmp_path_factory.mktemp("ways")
    EmbeddingStore.open(workspace / "store", create=True).write_corpus(CORPUS)
    return workspace


@pytest.mark.slow  # a suite of imports, each of which is evaluated
@pytest.mark.parametrize("name", WAYS)
def test_every_way_is_taken_with_equal_figures_or_refused_with_the_way(
    name: str, empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way, workspace = WAYS[name], tmp_path / "w"
    shutil.copytree(empty, workspace)
    monkeypatch.chdir(tmp_path)
    words = way.write(tmp_path)
    is_published = "results of" in way.taken
    identity = "" if is_published else "--encoder theirs --corpus ways"
    said = command(f"import {words} {identity} --quiet", workspace, code=0 if way.taken else 2).err
    assert (way.taken or way.refused) in said
    store = EmbeddingStore.open(workspace / "store")
    if not way.taken:
        assert not store.encoders()
        assert not store.rows("imports").num_rows
        return
    if is_published:
        assert store.rows("published").num_rows
        assert not store.rows("results").num_rows
        return
    if store.sealed_sets():
        command("evaluate --protocols t2i/all --replicates 100 --quiet", workspace)
    rows = {row.metric: row for row in store.all(Result) if row.protocol == "t2i/all"}
    if rows:
        assert rows["R@1"].value == pytest.approx(R1, abs=1e-12)
    matched = [row.matched for row in store.all(Import)]
    assert matched
    assert any(by.startswith("position") for by in matched) != way.verified
    shown = map(matched_by(store), store.all(Result))  # as `capim results` shows it
    assert any(NOT_VERIFIED in (each or "") for each in shown) != way.verified
