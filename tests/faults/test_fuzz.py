"""Fuzzing without processes; all else that goes wrong is `make faults`."""

from __future__ import annotations

from pathlib import Path

from tests.faults.bad_files import fuzz_images
from tests.faults.bad_texts import fuzz_texts


def test_any_bytes_are_an_image_or_refused_with_the_reason() -> None:
    assert fuzz_images(0, examples=150) >= 150


def test_any_text_comes_back_from_the_store_as_it_was_or_is_refused(tmp_path: Path) -> None:
    assert fuzz_texts(0, tmp_path, examples=15) >= 15
