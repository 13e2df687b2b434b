"""Files in the layout of SugarCrepe's answers of GPT-4V (gpt-4v-results of github.com/RAIVNLab/sugar-crepe)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def gpt_4v_file(folder: Path, category: str, items: dict[str, dict[str, str]], n_correct: int) -> Path:
    """A file in the layout of gpt-4v-results: answers by number, then one figure."""
    answers: dict[str, Any] = {}
    for position, (number, item) in enumerate(items.items()):
        correct = position < n_correct
        answer = {"free_form_answer": "(1)", "multiple_choice_answer": item["caption"]}
        if not correct:
            answer = {"free_form_answer": "Neither caption describes the image.", "multiple_choice_answer": ""}
        texts = {key: item[key] for key in ("caption", "negative_caption", "filename")}
        answers[number] = {"answer": answer, **texts, "correct": correct}
    path = folder / f"gpt4v-{category}.json"
    path.write_text(json.dumps({**answers, "accuracy": round(n_correct / len(items), 4)}, indent=4))
    return path


def gpt_4v_files(folder: Path, sugar_crepe: Path) -> None:
    """All seven categories; of swap_obj also item 108, which was answered and later taken out of the corpus."""
    for path in sugar_crepe.glob("*_*.json"):
        items = json.loads(path.read_text())
        if path.stem == "swap_obj":
            items["108"] = {
                "caption": "A West 32nd sign under a Korea Way road sign. ",
                "negative_caption": "A Korea Way sign under a West 32nd road sign.",
                "filename": "000000310622.jpg",
            }
        gpt_4v_file(folder, path.stem, items, {"swap_att": 607, "swap_obj": 210}.get(path.stem, len(items) // 2))
