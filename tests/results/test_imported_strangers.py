"""Files of others that were read wrong without a word: distances as scores, percentages as fractions, damaged cells."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from capim.store.errors import RequestError
from capim.store.sets.columns_read import told
from capim.store.sets.embedding_files import open_embedding_file
from capim.tasks.published import read_published
from capim.tasks.results.imported.recognised import recognise
from capim.tasks.results.imported.runs import read_run
from capim.tasks.results.imported.sources import read_matrix

CELLS = ("true", " ", '0.1""', "x")
PAPER = "model,dataset,protocol,metric,value\nCLIP,ways,t2i/all,R@1,0.5\n"


RISING, FALLING, EQUAL = [0.1, 0.2, 0.3], [0.3, 0.2, 0.2], [1.0, 1.0, 1.0]
RISE, ONE = ("scores rise with the rank in 4 of 4 lines", "all items of a query have one score, and tie")


@pytest.mark.parametrize("file", ["run.trec", "run.csv"])
@pytest.mark.parametrize(("scores", "warning"), [(RISING, RISE), (FALLING, ""), (EQUAL, ONE)])
def test_scores_that_rise_with_the_rank_or_are_all_equal_are_a_warning(
    file: str, scores: list[float], warning: str, tmp_path: Path
) -> None:
    ranked = [
        (query, item, rank, score)
        for query in "ab"
        for rank, (item, score) in enumerate(zip("xyz", scores, strict=True), 1)
    ]
    text = "".join(f"{query} Q0 {item} {rank} {score} me\n" for query, item, rank, score in ranked)
    if file == "run.csv":
        text = "query_id,item_id,rank,score\n" + "".join(",".join(map(str, row)) + "\n" for row in ranked)
    (tmp_path / file).write_text(text)
    with told() as lines:
        assert read_run(tmp_path / file)["a"]["x"] == scores[0]
    assert [said for said in (RISE, ONE) if said in "".join(lines)] == [said for said in (warning,) if said]


@pytest.mark.parametrize(("name", "header"), [("run.txt", ""), ("run.csv", "query,item,rank\n")])
def test_a_score_in_the_place_of_a_rank_is_refused(name: str, header: str, tmp_path: Path) -> None:
    """Lines of a query, an item and a score were read as ranks: the best item came last."""
    (tmp_path / name).write_text(header + "q a 0.9\nq b 0.1\n".replace(" ", "," if header else " "))
    with pytest.raises(RequestError, match=r"1: expected a whole number as rank, got '0\.9'; scores: `query Q0 item"):
        read_run(tmp_path / name)


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ("CLIP,ways,t2i/all,R@5,58.4\n", "of percents the fraction, got 58.4"),
        ("CLIP,ways,t2i/all,R@5,nan\n", "of percents the fraction, got nan"),
        ("CLIP,ways,t2i/all,R@1,0.6\n", "CLIP, ways, R@1: expected a model, and one value of it"),
        (",ways,t2i/all,R@5,0.6\n", "no model, ways, R@5: expected a model"),
    ],
)
def test_published_values_are_fractions_and_each_is_one(rows: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "paper.csv").write_text(PAPER + rows)
    with pytest.raises(RequestError, match=fault):
        read_published(tmp_path / "paper.csv")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        *(
            ("v.csv", f"id,a,b\ni0,0.5,{cell}\ni1,0.1,0.2\ni2,0.3,0.4\n", "column b: expected numbers.* in row 1")
            for cell in CELLS
        ),
        ("v.csv", "i0 0.5 0.1\ni1 0.1 0.2\n", "no column of numbers, between commas"),
        (
            "v.csv",
            "id,aesthetic,f0,f1\ni0,5.5,0.5,0.1\ni1,4.5,0.1,0.2\n",
            "column aesthetic is not called like the components, f0 and",
        ),
        ("v.json", '{"i0": [0.5, true], "i1": [0.1, 0.2]}', ""),  # a truth value is no component
        ("v.json", '[{"v": [0.5]}, {"v": [0.5, 1]}]', "row 2 has 2 numbers, expected 1 as in row 1"),
        ("v.json", '[{"v": [0.5]}, {"v": null}]', "list of numbers in every row, got 'None' as v in row 2"),
        ("v.json", '[{"v": [[0.5]]}]', "several vectors of an item are read from Parquet or .npz"),
        ("v.csv", "id,a,b\ni0,0.5,0.1\ni1,0.5\n", "line 3 has 2 cells, expected 3 as in line 1"),
        (
            "v.csv",
            "id,v\ni0,[0.5 0.1]\n",
            r"expected a list of numbers like \[0.1, 0.2\], got '\[0.5 0.1\]'; NumPy prints",
        ),
    ],
)
def test_numbers_that_are_no_components_and_cells_that_are_no_numbers_are_refused(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    """A cell that was no number took its component out of all vectors."""
    (tmp_path / name).write_text(text)
    with pytest.raises(RequestError, match=message):
        open_embedding_file(tmp_path / name)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_components_in_columns_are_in_the_order_of_their_numbers(suffix: str, tmp_path: Path) -> None:
    """Columns that were sorted as texts, as of one side only, exchanged the components of all vectors."""
    table = pd.DataFrame({f"f{at}": [at / 64] for at in sorted(range(12), key=str)}).assign(sku="a")
    table.to_csv(tmp_path / "v.csv", index=False) if suffix == ".csv" else table.to_parquet(tmp_path / "v.parquet")
    contents = open_embedding_file(tmp_path / f"v{suffix}")
    assert contents.first.values.tolist() == [[at / 64 for at in range(12)]]
    assert contents.columns["sku"] == ["a"]


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
def test_items_of_several_vectors_by_their_ids_are_read(suffix: str, tmp_path: Path) -> None:
    items = {f"p{n}": np.full((n, 2), n / 8) for n in (1, 3, 2)}
    if suffix == ".npz":
        np.savez(tmp_path / "v.npz", **items)  # type: ignore[arg-type]
    else:
        torch.save({name: torch.tensor(each) for name, each in items.items()}, tmp_path / "v.pt")
    contents = open_embedding_file(tmp_path / f"v{suffix}")
    [whole] = contents.read(3)
    assert (contents.columns["ids"], whole.offsets.tolist()) == ([*items], [0, 1, 4, 6])  # type: ignore[union-attr]
    assert whole.values.tolist() == np.concatenate([*items.values()]).tolist()


SCORES = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])


@pytest.mark.parametrize(
    ("read", "name", "array", "message"),
    [
        (recognise, "distances.npy", "", r"save -distances as scores\.npy"),
        (recognise, "l2_dist.npz", "arr_0", r"save -distances as scores\.npy"),
        (read_matrix, "cosine_distance.npz", "scores", "of distances lower is better"),
        (read_matrix, "m.npz", "dists", "of distances lower is better"),
        (partial(read_run, columns={"score": "loss"}), "run.csv", "", "'loss' is the name of distances or losses"),
    ],
)
def test_what_a_name_calls_distances_or_losses_is_refused(
    read: Callable[[Path], object], name: str, array: str, message: str, tmp_path: Path
) -> None:
    if array:
        arrays: dict[str, Any] = {array: SCORES}
        np.savez(tmp_path / name, **arrays)
    elif name.endswith("npy"):
        np.save(tmp_path / name, SCORES)
    else:
        (tmp_path / name).write_text("query_id,item_id,loss\nq,a,0.1\nq,b,0.9\n")
    with pytest.raises(RequestError, match=message):
        read(tmp_path / name)


@pytest.mark.parametrize("array", ["feats.npy", "feats.pt"])
@pytest.mark.parametrize("names", ["filenames.txt", "image_names.json", "feats.csv", "metadata.csv", "feats_ids.txt"])
def test_names_in_a_file_beside_vectors_are_their_ids(array: str, names: str, tmp_path: Path) -> None:
    values, ids = SCORES.astype(np.float32), ["c.jpg", "a.jpg", "b.jpg"]
    np.save(tmp_path / array, values) if array.endswith("y") else torch.save(torch.tensor(values), tmp_path / array)
    text = {".txt": "\n".join([*ids, "", ""]), ".json": json.dumps(ids), ".csv": "\n".join(["filename", *ids])}
    (tmp_path / names).write_text(text[Path(names).suffix])
    with told() as lines:
        assert ids in open_embedding_file(tmp_path / array, "image").columns.values()
    assert names in "".join(lines)


@pytest.mark.parametrize(
    ("names", "text", "said"),
    [
        ("img_ids.txt", "a\nb", "img_ids.txt next to it holds 2 lines, expected 3, one id for each row: mend it"),
        ("img_names.json", "{}", "img_names.json next to it holds 0 lines, expected 3"),
        ("metadata.csv", "file\na\nb", "3 rows, and no ids of them next to it: 2 rows in metadata.csv"),
    ],
)
def test_names_beside_vectors_for_another_number_of_rows_are_no_reason_to_go_by_position(
    names: str, text: str, said: str, tmp_path: Path
) -> None:
    """The rows were taken in the order of the corpus, for want of a line in the list of their names."""
    np.save(tmp_path / "img.npy", SCORES)
    (tmp_path / names).write_text(text)
    with told() as lines:
        try:
            open_embedding_file(tmp_path / "img.npy")
        except RequestError as fault:
            assert said in str(fault)
        else:
            assert said in "".join(lines)


@pytest.mark.parametrize("n_rows", [[2], [2, 2]])
def test_metadata_of_shards_for_another_number_of_vectors_are_refused(n_rows: list[int], tmp_path: Path) -> None:
    for folder in ("img_emb", "metadata"):
        (tmp_path / folder).mkdir()
    for shard, n in enumerate((2, 3)):
        np.save(tmp_path / "img_emb" / f"img_emb_{shard}.npy", SCORES[:n])
    for shard, n in enumerate(n_rows):
        pq.write_table(pa.table({"image_path": ["a", "b"][:n]}), tmp_path / "metadata" / f"metadata_{shard}.parquet")
    with pytest.raises(RequestError, match=r"metadata: tables of .* rows, expected 2, 3, a row for each vector"):
        open_embedding_file(tmp_path / "img_emb")


def test_labels_of_the_images_are_no_ids_of_the_captions(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", image_features=SCORES[:2], text_features=SCORES, labels=[1, 0])
    assert [open_embedding_file(tmp_path / "v.npz", side).n for side in ("image", "caption")] == [2, 3]


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float8_e4m3fn])
def test_vectors_of_fewer_bits_are_read_as_float32(kind: torch.dtype, tmp_path: Path) -> None:
    save_file({"embeddings": torch.tensor(SCORES).to(kind)}, tmp_path / "v.safetensors")
    values = open_embedding_file(tmp_path / "v.safetensors").first.values
    assert values.dtype == np.float32
    assert values.tolist() == torch.tensor(SCORES[:1]).to(kind).float().tolist()
