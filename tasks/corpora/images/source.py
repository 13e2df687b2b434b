"""Sources of image bytes: folders, addresses, boxes of images, drawings; and hashes of images that were read before.

All sources pickle, for worker processes. Keys come from the files of a corpus and are not trusted: no key can name
anything outside its source. An image is not read again if its source reports that it is the same: a file is the same if
its path, its size and the times of its last change are; a drawn image if the code that draws it is. As in Git, a file
that was changed less than two seconds before it was read is not trusted, because it may have been changed once more
within the step of the file system's clock.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import random
import re
import sys
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PureWindowsPath
from time import sleep, time

import PIL
from PIL import Image, features

from capim.store.files import replacing
from capim.store.schema import StoredImage
from capim.store.types import ImageSource, digest16
from capim.tasks.corpora.images.decode import MAX_PIXELS, ImageFacts, UndecodableImage, decode_image, image_facts

CACHE = Path("~/.cache/capim/images")
_SETTLED_SECONDS = 2.0  # since its last change, before the state of a file identifies its content
_ATTEMPTS = 4
_TIMEOUT_SECONDS = 30.0
_LARGEST = 256 * 1024 * 1024
_KEY = re.compile(r"^(-?\d+),(-?\d+),(\d+),(\d+)@(.+)$")


def path_in(root: Path, key: str) -> Path:
    """Return the file of a key in a folder: a path relative to it, with ``/`` on every system.

    Symbolic links are followed (hub caches are made of them); raises ``PermissionError`` for a key with ``..``, and for
    an absolute one.
    """
    parts = key.replace("\\", "/").split("/")
    windows = PureWindowsPath(key)  # recognises both separators, and drives
    if ".." in parts or "\0" in key or windows.drive or windows.root:
        raise PermissionError(f"{key!r} leaves the folder {root}")
    return root.joinpath(*parts)


@dataclass(frozen=True)
class Folders:
    """Folders that together hold the files; a key is looked up in them in order."""

    roots: tuple[Path, ...]

    def read(self, key: str) -> bytes:
        """Return the bytes of one file; raise ``OSError`` if it cannot be read, naming all folders if none has it."""
        return self._path(key).read_bytes()

    def state(self, key: str) -> tuple[str, str] | None:
        """Return a file's path, size and times of change; None where these do not identify its content."""
        path = self._path(key)
        found = path.stat()
        if max(found.st_mtime, found.st_ctime) > time() - _SETTLED_SECONDS:
            return None
        return str(path.absolute()), f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"

    def _path(self, key: str) -> Path:
        for root in self.roots:
            path = path_in(root, key)
            if path.is_file() or len(self.roots) == 1:  # reading it reports the error
                return path
        raise FileNotFoundError(f"{key!r} is in none of {', '.join(map(str, self.roots))}")


@dataclass(frozen=True)
class Zipped:
    """The members of a ZIP file."""

    path: Path

    def read(self, key: str) -> bytes:
        """Return the bytes of one member; raise ``OSError`` if the file is damaged or has no such member."""
        try:
            with zipfile.ZipFile(self.path) as opened:
                return opened.read(key)
        except (KeyError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise FileNotFoundError(f"{key!r} cannot be read from {self.path.name}: {error}") from error


@dataclass(frozen=True)
class Downloads:
    """Files below one address, downloaded when first read.

    A key is the rest of the address, and the file's name in the cache.

    Attributes:
        address: ``https://…`` or ``http://…``; fixed by the reader, never taken from a corpus.
        cache: Folder in which files are kept; a file appears in it only when complete.
    """

    address: str
    cache: Path

    def read(self, key: str) -> bytes:
        """Return the bytes of one file; raise ``OSError`` with the address if it cannot be downloaded."""
        path = path_in(self.cache.expanduser(), key)
        if path.is_file():
            return path.read_bytes()
        data = self._fetch(f"{self.address}/{key}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(data)
        return data

    def _fetch(self, url: str) -> bytes:
        if not url.startswith(("https://", "http://")):
            raise PermissionError(f"{url!r} is not a web address")
        for attempt in range(_ATTEMPTS):
            sleep(0.5 * attempt**2)
            try:
                with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - scheme checked above
                    data: bytes = answer.read(_LARGEST + 1)
                if len(data) > _LARGEST:
                    raise OSError(f"{url}: more than {_LARGEST:,} bytes")
                if not answer.length:  # the bytes that are still to come, if the server said how many there are
                    return data
                reason = f"{answer.length:,} of its bytes did not come"
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    raise OSError(f"{url}: {error.code} {error.reason}") from error
                reason = f"{error.code} {error.reason}"
            except (urllib.error.URLError, http.client.HTTPException) as error:
                reason = str(getattr(error, "reason", repr(error)))
        raise OSError(f"{url}: {reason} ({_ATTEMPTS} attempts)")


def crop_key(key: str, x: int, y: int, width: int, height: int) -> str:
    """Return the key of a box of an image: left, top, width, height in pixels of the upright image."""
    return f"{x},{y},{width},{height}@{key}"


def photograph_key(key: str) -> str:
    """Return the key of the image that a key is a box of; the key itself for a complete image.

    Examples:
        >>> photograph_key(crop_key("1.jpg", 0, 0, 5, 5)), photograph_key("1.jpg")
        ('1.jpg', '1.jpg')
    """
    match = _KEY.match(key)
    return key if match is None else match[5]


@dataclass(frozen=True)
class Crops:
    """Whole images of another source, and boxes of them as uncompressed PPM: the bytes depend on the pixels only.

    ARO's and CREPE's items are boxes of Visual Genome photographs, and the queries of Revisited Oxford boxes of theirs.
    """

    images: ImageSource

    def read(self, key: str) -> bytes:
        """Return the bytes of one image or box; raise ``OSError`` if it cannot be read, or a box not be cut."""
        match = _KEY.match(key)
        if match is None:
            return self.images.read(key)
        x, y, width, height = (int(match[i]) for i in range(1, 5))
        name = match[5]
        try:
            image = decode_image(self.images.read(name))
        except UndecodableImage as error:
            raise OSError(f"{name}: {error}") from error
        if not 1 <= width * height <= MAX_PIXELS:
            raise OSError(f"{name}: a box of {width} x {height} pixels; expected 1 to {MAX_PIXELS:,} pixels")
        part = image.crop((x, y, x + width, y + height))
        return f"P6 {part.width} {part.height} 255\n".encode() + part.tobytes()


@dataclass(frozen=True)
class RenderedImages:
    """Draws the image of a key; its random variation depends on seed and key, so that its bytes are always the same.

    Attributes:
        draw: Draws the image of a key; ValueError for a key that names none.
        seed: Of the random variation.
    """

    draw: Callable[[str, random.Random], Image.Image]
    seed: int

    def read(self, key: str) -> bytes:
        """Return the PNG of one image.

        Raises:
            FileNotFoundError: The key names no image.
        """
        try:
            image = self.draw(key.removesuffix(".png"), random.Random(f"{self.seed}/{key}"))
        except ValueError as error:
            raise FileNotFoundError(str(error)) from error
        buffer = io.BytesIO()
        image.save(buffer, format="PNG")
        return buffer.getvalue()

    def state(self, key: str) -> tuple[str, str]:
        """Return what draws the image and its key, and the version of the code that draws and compresses."""
        module = self.draw.__module__
        return f"{module}.{self.draw.__qualname__}/{self.seed}/{key}", _version_of_drawings(module)


@cache
def _version_of_drawings(module: str) -> str:
    """Return a digest of a world's module, the files next to it with its name, this file, and Pillow's version."""
    place = Path(str(sys.modules[module].__file__))
    files = [Path(__file__), *sorted(place.parent.glob(f"{place.stem}.*"))]
    parts = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    return digest16([PIL.__version__, str(features.version("zlib")), *parts])


class ImageHashes:
    """Hashes and sizes of images by where they are.

    ``known`` is called when an image is first requested, if its source reports its state.
    """

    def __init__(self, known: Callable[[], Mapping[str, StoredImage]] = dict) -> None:
        self._known = cache(known)
        self._fresh: dict[str, StoredImage] = {}

    def facts(self, source: ImageSource, key: str) -> ImageFacts:
        """Return the hash and size of an image of a source, from its bytes where they are not known.

        Raises:
            OSError: The image cannot be read.
        """
        describe = getattr(source, "state", None)
        described = None if describe is None else describe(key)
        if described is None:
            return image_facts(source.read(key))
        place, state = described
        before = self._known().get(place)
        if before is None or before.state != state:
            facts = image_facts(source.read(key))
            before = self._fresh[place] = StoredImage(item=place, state=state, **facts._asdict())
        return ImageFacts(before.sha, before.width, before.height)

    def take_fresh(self) -> list[StoredImage]:
        """Return the images that were not known, each once, and forget them."""
        fresh, self._fresh = self._fresh, {}
        return [*fresh.values()]


_USED: ContextVar[ImageHashes | None] = ContextVar("image_hashes", default=None)


def hashes_in_use() -> ImageHashes:
    """Return the hashes that readers of corpora use here; none are known outside :func:`using`."""
    return _USED.get() or ImageHashes()


@contextmanager
def using(hashes: ImageHashes) -> Iterator[None]:
    """Readers of corpora, which do not know of the store, use these hashes within."""
    before = _USED.set(hashes)
    try:
        yield
    finally:
        _USED.reset(before)
