"""Hashes of images that were read before: an image whose source says that it is the same is not read again.

A file is the same if its path, its size and the times of its last change are; a drawn image if the code that draws it
is. As in Git, a file that was changed less than two seconds before it was read is not trusted, because it may have been
changed once more within the step of the file system's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property

from capim.store.types import HashedImage, ImageSource
from capim.tasks.corpora.images.decode import ImageFacts, image_facts


class ImageHashes:
    """Hashes and sizes of images by where they are.

    ``known`` is called when an image is first asked for whose source tells its state.
    """

    def __init__(self, known: Callable[[], Mapping[str, HashedImage]] = dict) -> None:
        self._read_known = known
        self._fresh: dict[str, HashedImage] = {}

    @cached_property
    def _known(self) -> Mapping[str, HashedImage]:
        return self._read_known()

    def facts(self, source: ImageSource, key: str) -> ImageFacts:
        """Hash and size of an image of a source, from its bytes where they are not known.

        Raises:
            OSError: The image cannot be read.
        """
        describe = getattr(source, "state", None)
        described = None if describe is None else describe(key)
        if described is None:
            return image_facts(source.read(key))
        place, state = described
        before = self._known.get(place)
        if before is None or before.state != state:
            before = self._fresh[place] = HashedImage(place, state, *image_facts(source.read(key)))
        return ImageFacts(before.sha, before.width, before.height)

    def take_fresh(self) -> list[HashedImage]:
        """Those that were not known, each once."""
        fresh, self._fresh = self._fresh, {}
        return [*fresh.values()]


_USED: ContextVar[ImageHashes | None] = ContextVar("image_hashes", default=None)


def hashes_in_use() -> ImageHashes:
    """The hashes that readers of corpora use here; none are known outside :func:`using`."""
    return _USED.get() or ImageHashes()


@contextmanager
def using(hashes: ImageHashes) -> Iterator[None]:
    """Readers of corpora, which do not know of the store, use these hashes within."""
    before = _USED.set(hashes)
    try:
        yield
    finally:
        _USED.reset(before)
