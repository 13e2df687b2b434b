"""Decoding of images, their sources, the image index, and image files under names that are not exactly theirs."""

from __future__ import annotations

import io
import struct
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from capim.store.errors import RequestError, WorkError
from capim.store.schema import StoredImage
from capim.tasks.corpora.description import open_corpus
from capim.tasks.corpora.images import source
from capim.tasks.corpora.images.decode import MAX_PIXELS, UndecodableImage, decode_image, image_facts, thumbnail
from capim.tasks.corpora.images.source import Downloads, Folders
from capim.tasks.corpora.subset import index_images
from tests.corpora.own_data import Put, files, refusal, write


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=form, **options)
    return buffer.getvalue()


def grey(value: float, kind: type) -> Image.Image:
    return Image.fromarray(np.full((4, 4), value, kind))


def palette(**options: object) -> bytes:
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    return encoded(image, "PNG", **options)


FRAMES = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (encoded(Image.new("RGB", (4, 4), (10, 20, 30)), "PNG"), (10, 20, 30)),
        (encoded(Image.new("L", (4, 4), 77), "PNG"), (77, 77, 77)),
        (encoded(Image.new("1", (4, 4), 1), "PNG"), (255, 255, 255)),
        (encoded(Image.new("RGBA", (4, 4), (10, 20, 30, 255)), "PNG"), (10, 20, 30)),
        (encoded(Image.new("RGBA", (4, 4), (0, 0, 0, 0)), "PNG"), (255, 255, 255)),
        (encoded(Image.new("LA", (4, 4), (0, 0)), "PNG"), (255, 255, 255)),
        (palette(), (10, 20, 30)),
        (palette(transparency=1), (255, 255, 255)),
        (encoded(Image.new("CMYK", (4, 4), (0, 0, 0, 255)), "TIFF"), (0, 0, 0)),
        (encoded(grey(65535, np.uint16), "PNG"), (255, 255, 255)),
        (encoded(grey(32896, np.uint16), "PNG"), (128, 128, 128)),
        (encoded(grey(0.5, np.float32), "TIFF"), (128, 128, 128)),
        (encoded(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:]), (255, 0, 0)),  # the first frame
    ],
)
def test_any_mode_becomes_rgb_as_people_see_it(data: bytes, expected: tuple[int, ...]) -> None:
    image = decode_image(data)
    assert (image.mode, image.getpixel((0, 0))) == ("RGB", expected)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_done_as_pillow_does_it(orientation: int) -> None:
    image = Image.fromarray(np.arange(6 * 4 * 3, dtype=np.uint8).reshape(4, 6, 3))
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(image, "PNG", exif=exif)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert np.array_equal(np.asarray(decode_image(data)), np.asarray(expected))
    assert image_facts(data)[1:] == expected.size


def test_a_damaged_exif_block_does_not_lose_the_image() -> None:
    data = encoded(Image.new("RGB", (6, 4), "red"), "PNG", exif=b"Exif\0\0garbage that is no TIFF header")
    assert decode_image(data).size == (6, 4)
    assert image_facts(data)[1:] == (6, 4)


def bomb() -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


JPEG = encoded(Image.effect_noise((64, 64), 50).convert("RGB"), "JPEG")


SIDE = int(MAX_PIXELS**0.5) + 2


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"<html>not found</html>", "unknown image format (starts with b'<html>no')"),
        (JPEG[: len(JPEG) // 2], "truncated"),
        (bomb(), f"more than the {MAX_PIXELS:,} pixels allowed"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 40, ""),
        (encoded(Image.new("1", (SIDE, SIDE)), "PNG"), "pixels"),  # just over the limit
        # 20 KB; resized to a short side of 224 pixels, as models do, it took 18 GB
        (encoded(Image.new("RGB", (2, 1000)), "PNG"), "2 x 1000 pixels: one side is more than 341 times the other"),
    ],
)
def test_what_cannot_be_decoded_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(UndecodableImage) as caught:
        decode_image(data)
    assert reason in str(caught.value)
    assert decode_image(encoded(Image.new("RGB", (600, 2)), "PNG")).size == (600, 2)


@pytest.mark.parametrize(
    ("size", "expected"),
    [((640, 480), (213, 160)), ((480, 640), (160, 213)), ((100, 50), (100, 50)), ((8000, 200), (640, 16))],
)
def test_a_thumbnail_has_a_short_side_of_160_and_is_never_enlarged(
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    small = Image.open(io.BytesIO(thumbnail(Image.new("RGB", size, "red"))))
    assert small.format == "JPEG"
    assert small.size == expected


def test_a_photograph_is_decoded_without_copying_its_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy holds Python's lock: with 16 threads it took most of the time of the others."""
    data = encoded(Image.new("RGB", (40, 30), "red"), "JPEG")
    monkeypatch.setattr(Image.Image, "copy", lambda _: pytest.fail("pixels were copied"))
    assert decode_image(data).size == (40, 30)


@pytest.mark.parametrize("form", ["EPS", "PCX", "SGI", "TGA", "ICO"])
def test_only_named_formats_are_opened(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow hands PostScript to Ghostscript, a program that runs it."""
    data = encoded(Image.new("RGB", (8, 8)), form)
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: pytest.fail("PostScript was run"))
    with pytest.raises(UndecodableImage, match="unknown image format"):
        decode_image(data)
    assert image_facts(data).width is None


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF"])
def test_every_named_format_is_read(form: str) -> None:
    assert decode_image(encoded(Image.new("RGB", (64, 64), "white"), form)).getpixel((3, 3)) == (255, 255, 255)


class Shelf(BaseHTTPRequestHandler):
    """Serves /a/there.jpg; /a/flaky.jpg fails twice first, /a/cut.jpg is cut short; all else is not found."""

    asked: list[str] = []  # noqa: RUF012 - shared on purpose

    def do_GET(self) -> None:
        self.asked.append(self.path)
        failing = self.path == "/a/flaky.jpg" and self.asked.count(self.path) < 3
        status = 503 if failing else 200 if self.path in {"/a/there.jpg", "/a/flaky.jpg", "/a/cut.jpg"} else 404
        self.send_response(status)
        if self.path == "/a/cut.jpg":
            self.send_header("Content-Length", "99")
        self.end_headers()
        if status == 200:
            self.wfile.write(b"picture")

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shelf)
    Shelf.asked.clear()
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_file_is_fetched_once_and_kept_whole_though_the_server_fails_for_a_moment(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "sleep", lambda _: None)
    downloads = Downloads(address, tmp_path)
    assert downloads.read("a/flaky.jpg") == downloads.read("a/flaky.jpg") == b"picture"
    assert Shelf.asked == ["/a/flaky.jpg"] * 3
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["flaky.jpg"]


def test_what_cannot_be_had_is_an_os_error_with_its_address_and_leaves_nothing(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "sleep", lambda _: None)
    with pytest.raises(OSError, match=r"gone.jpg: 404 Not Found"):
        Downloads(address, tmp_path).read("gone.jpg")
    with pytest.raises(OSError, match=r"x.jpg: .*refused.*4 attempts"):
        Downloads("http://127.0.0.1:9", tmp_path).read("x.jpg")
    with pytest.raises(OSError, match=r"cut.jpg: 92 of its bytes did not come \(4 attempts\)"):
        Downloads(address, tmp_path).read("a/cut.jpg")
    monkeypatch.setattr(source, "_LARGEST", 3)
    with pytest.raises(OSError, match="more than 3 bytes"):
        Downloads(address, tmp_path).read("a/there.jpg")
    with pytest.raises(PermissionError, match="is not a web address"):
        Downloads("file:///etc", tmp_path).read("passwd")
    with pytest.raises(PermissionError, match="leaves the folder"):
        Downloads(address, tmp_path).read("../x.jpg")
    assert list(tmp_path.rglob("*.jpg")) == []


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    write(tmp_path, {"one/deep/one.jpg": "one", "two/deep/two.jpg": "two", "secret": "secret"})
    return tmp_path / "one", tmp_path / "two"


@pytest.mark.parametrize(
    "key",
    ["../secret", "deep/../../secret", "/etc/passwd", "..\\secret", "C:\\secret", "C:secret", "a\0b", "\\\\host\\x"],
)
def test_a_key_never_leaves_its_folder(two: tuple[Path, Path], key: str) -> None:
    for folders in (Folders(two[:1]), Folders(two)):
        with pytest.raises(OSError, match="leaves"):
            folders.read(key)


def test_folders_are_searched_in_turn_and_all_named_where_none_has_the_file(two: tuple[Path, Path]) -> None:
    source = Folders(two)
    assert source.read("deep/two.jpg") == b"two"
    with pytest.raises(FileNotFoundError, match=r"'x.jpg' is in none of .*one, .*two"):
        source.read("x.jpg")


def test_every_image_content_is_decoded_once_and_only_once(coco_folder: Path) -> None:
    images = coco_folder / "images"
    (images / "blue.png").write_bytes((images / "red.png").read_bytes())
    corpus = open_corpus(coco_folder)
    indexed_images: list[StoredImage] = []
    steps: list[float] = []
    first = index_images(corpus, known={}, sink=indexed_images.extend, advance=steps.append)
    assert [image.sha for image in indexed_images] == corpus.images["sha"].unique().to_pylist()
    assert all(image.thumbnail and (image.width, image.height) == (8, 6) for image in indexed_images)
    assert sum(steps) == 2
    again: list[StoredImage] = []
    second = index_images(corpus, known={image.sha: image.reason for image in indexed_images}, sink=again.extend)
    assert again == []
    assert first.fingerprint == second.fingerprint == corpus.fingerprint


def test_a_corrupt_image_is_a_listed_skip_with_its_captions_and_the_same_the_second_time(coco_folder: Path) -> None:
    (coco_folder / "images" / "green.png").write_bytes(b"not an image")
    corpus = open_corpus(coco_folder)
    indexed_images: list[StoredImage] = []
    clean = index_images(corpus, known={}, sink=indexed_images.extend)
    assert clean.images["id"].to_pylist() == ["10", "12"]
    assert clean.captions["image_id"].to_pylist() == ["10", "10", "12", "12"]
    reason = "unknown image format (starts with b'not an i')"
    assert clean.skipped.to_pylist() == [{"item_id": "11", "reason": reason, "modality": "image"}]
    again = index_images(corpus, known={image.sha: image.reason for image in indexed_images}, sink=lambda _: None)
    assert again.fingerprint == clean.fingerprint != corpus.fingerprint
    with pytest.raises(RequestError, match=r"none of its 3 images can be used; the first, '10': junk"):
        index_images(corpus, known={row["sha"]: "junk" for row in corpus.images.to_pylist()}, sink=lambda _: None)


def test_an_image_that_vanishes_or_changes_during_the_work_is_named(coco_folder: Path) -> None:
    corpus, file = open_corpus(coco_folder), coco_folder / "images" / "green.png"
    file.write_bytes(file.with_name("red.png").read_bytes())
    with pytest.raises(WorkError, match=r"image 'green.png' was changed after the corpus was opened"):
        index_images(corpus, known={}, sink=lambda _: None)
    file.unlink()
    with pytest.raises(WorkError, match=r"image 'green.png' was there when the corpus was opened"):
        index_images(corpus, known={}, sink=lambda _: None)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("a.png", "deep/er/a.png"),
        ("a", "a.png"),
        ("a.jpg", "a.JPEG"),
        ("IMG_1.jpg", "img_1.JPG"),
        ("./a.png", "a.png"),
        ("deep\\a.png", "deep/a.png"),
        ("images/a.png", "images/a.png"),
        ("a.png", "images/a.png"),
        ("scan.v2", "scan.v2.png"),
        ("285", "val2017/000000000285.jpg"),
        ("e\u0301.png", "\u00e9.png"),
        ("/home/somebody/photos/a.png", "a.png"),
        ("../photos/a.png", "a.png"),
    ],
)
def test_names_that_are_not_exactly_those_of_files_find_them(put: Put, name: str, file: str) -> None:
    root = put({"captions.csv": f"image,caption\n{name},red\nb.png,blue\n"}, file, "b.png")
    corpus = open_corpus(root)
    assert corpus.images["id"].to_pylist() == [name, "b.png"]
    key = files(corpus)[0].replace("\\", "/")
    assert root / file in (root / key, root / "images" / key)
    assert corpus.images["sha"].null_count == 0


def test_an_absolute_path_inside_the_folder_is_inside(put: Put) -> None:
    root = put(None, "deep/a.png", "other/a.png")
    put({"captions.csv": f"image,caption\n{root}/deep/a.png,red\n"})
    assert files(open_corpus(root)) == ["deep/a.png"]


def test_a_name_that_fits_several_files_names_them(put: Put) -> None:
    root = put({"captions.csv": "image,caption\na.png,red\nb,blue\n"}, "x/a.png", "y/a.png", "b.png", "b.jpg")
    expected = "image names that fit several files; write their path: 'a.png' (x/a.png, y/a.png), 'b' (b.jpg, b.png)"
    assert expected in refusal(root)
    put({"captions.csv": "image,caption\nx/a.png,red\nfar/y/a.png,blue\n"})
    assert files(open_corpus(root)) == ["x/a.png", "y/a.png"]


def test_two_names_of_one_file_are_named(put: Put) -> None:
    root = put({"captions.csv": "image,caption\na.png,red\na,blue\n"}, "a.png")
    assert "image names that mean the same file: 'a.png' and 'a' (a.png)" in refusal(root)
    put({"captions.csv": "image,caption\na,red\na.png,blue\n"})
    assert "image names that mean the same file: 'a' and 'a.png' (a.png)" in refusal(root)


def test_a_missing_file_with_a_near_name_shows_it_and_numbers_are_no_near_names(put: Put) -> None:
    root = put({"captions.csv": "image,caption\nimg-01.png,red\nimg_3.png,blue\n"}, "img_1.png", "img_2.png")
    message = refusal(root)
    assert "img-01.png (is it img_1.png?), img_3.png; put them there" in message


def test_hidden_files_and_those_of_macos_are_no_images(put: Put) -> None:
    hidden = ("__MACOSX/x/a.png", ".cache/a.png", "x/._a.png")
    root = put({"captions.csv": "image,caption\na.png,red\n"}, "x/a.png", *hidden)
    assert files(open_corpus(root)) == ["x/a.png"]
