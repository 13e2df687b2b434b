"""NegBench: captions with negation, as multiple choice or for retrieval (Alhamoud et al. 2025).

https://arxiv.org/abs/2501.09425. Each CSV file is a corpus of its own, named after the file. The authors' code takes
the first of equal scores; here a question whose right caption ties with another is wrong (docs/protocols.md §5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.build import ImageRow
from capim.tasks.corpora.files import corpus_name, require_file, require_match
from capim.tasks.corpora.images.image_files import Missing, image_id_of
from capim.tasks.corpora.readers.delimited import rows_with
from capim.tasks.corpora.readers.published import (
    HardNegativeItem,
    Translation,
    hard_negatives,
    literal_texts,
    published_corpus,
    translations,
)

_PATHS = ("image_path", "filepath")


def read_negbench(root: str | Path, *, images: str | Path | None = None, missing: Missing = "error") -> Corpus:
    """The rows of one CSV file, in their order.

    A file with ``correct_answer`` holds questions: ``caption_0``, ``caption_1`` … of which one is right; the category
    is its template (positive, negative, hybrid). A file with ``captions`` holds images with several captions.

    Args:
        root: The CSV file, or a folder with one.
        images: Folder of the images, by their names without folders (COCO val2017, VOC2007); without one, texts and
            ids only.

    Raises:
        RequestError: The file, a column or an image is missing, or a cell does not hold what it should.
    """
    path = Path(root).expanduser().absolute()
    hint = "the files are linked from https://github.com/m1k2zoo/negbench"
    file = require_match(path, "*.csv", hint=hint) if path.is_dir() else require_file(path, "negbench file")
    rows = rows_with(file)
    header = list(rows[0]) if rows else []
    column = next((name for name in _PATHS if name in header), None)
    if column is None or not {"captions", "correct_answer"} & set(header):
        raise RequestError(
            f"{file}: expected a column {' or '.join(_PATHS)}, and correct_answer (multiple choice) or captions "
            f"(retrieval); it has {', '.join(header) or 'no rows'}"
        )
    names = [row[column].replace("\\", "/") for row in rows]
    image_rows = [ImageRow(image_id_of(name), name.rpartition("/")[2]) for name in names]
    if len({row.id for row in image_rows}) != len(set(names)):
        raise RequestError(f"{file}: images in different folders have the same name; rename them in column {column}")
    if "captions" in header:
        texts = [literal_texts(row["captions"], f"{file}: row {number}") for number, row in enumerate(rows)]
        each = [Translation(image.id, captions, "en") for image, captions in zip(image_rows, texts, strict=True)]
        contents = translations(image_rows, each)
    else:
        options = [option for n in range(len(header)) if (option := f"caption_{n}") in header]
        items = [
            _question(str(number), row, image, options, f"{file}: row {number}")
            for number, (row, image) in enumerate(zip(rows, image_rows, strict=True))
        ]
        contents = hard_negatives(items)
    return published_corpus("negbench", contents, part=corpus_name(file), images=images, missing=missing)


def _question(
    identifier: str, row: Mapping[str, str], image: ImageRow, options: Sequence[str], where: str
) -> HardNegativeItem:
    right = f"caption_{row['correct_answer'].strip().removesuffix('.0')}"
    if right not in options or len(options) < 2:
        raise RequestError(
            f"{where}: expected correct_answer to be the number of one of {', '.join(options) or 'caption_0 …'}, "
            f"got {row['correct_answer']!r}"
        )
    category = row.get("correct_answer_template") or "all"
    negatives = [(category, row[option]) for option in options if option != right]
    return HardNegativeItem(identifier, image, row[right], negatives)
