"""Files in the layout of SugarCrepe's answers of GPT-4V (gpt-4v-results of github.com/RAIVNLab/sugar-crepe)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def gpt_4v_files(folder: Path, sugar_crepe: Path) -> None:
    """All seven categories: answers by number, then one figure.

    Of swap_obj also item 108, which was answered and later taken out of the corpus.
    """
    for path in sugar_crepe.glob("*_*.json"):
        items: dict[str, dict[str, Any]] = json.loads(path.read_text())
        if path.stem == "swap_obj":
            items["108"] = {
                "caption": "A West 32nd sign under a Korea Way road sign. ",
                "negative_caption": "A Korea Way sign under a West 32nd road sign.",
                "filename": "000000310622.jpg",
            }
        n_correct = {"swap_att": 607, "swap_obj": 210}.get(path.stem, len(items) // 2)
        answers: dict[str, Any] = {}
        for position, (number, item) in enumerate(items.items()):
            answer = {"free_form_answer": "(1)", "multiple_choice_answer": item["caption"]}
            if position >= n_correct:
                answer = {"free_form_answer": "Neither caption describes the image.", "multiple_choice_answer": ""}
            answers[number] = {"answer": answer, **item, "correct": position < n_correct}
        answers["accuracy"] = round(n_correct / len(items), 4)
        (folder / f"gpt4v-{path.stem}.json").write_text(json.dumps(answers, indent=4))
