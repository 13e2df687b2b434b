"""Plain names of protocols, and their ids beside them."""

from __future__ import annotations

from capim.reports.rows.languages import JUDGED, cross_lingual, judged_language, language_name

DIRECTION_TITLES = {"t2i": "text to image", "i2t": "image to text"}
VARIANTS = {  # protocol of retrieval without its orientation to its plain name and what it measures, in reading order
    "t2i/all": ("text to image", "every caption over every image"),
    "t2i/first": ("text to image, first captions", "the first caption of every image: a biased sample"),
    "t2i/ordinal-mean": ("text to image, mean over positions", "mean over the positions of the captions"),
    "t2i/1k": ("text to image, 1,000 images", "mean of five folds of 1,000 images"),
    "t2i/cxc": ("text to image, CxC", "also right: what Crisscrossed Captions judged to match"),
    "t2i/eccv": ("text to image, ECCV", "also right: what ECCV Caption judged to match"),
    JUDGED: ("judged queries", "every query over every document, with graded judgements"),
    "i2t/any": ("image to text", "every image over every caption; any caption of the image is right"),
    "i2t/any5": ("image to text, captions 0 to 4", "as image to text, over captions 0 to 4"),
    "i2t/symmetric-first": ("image to text, first captions", "every image over the first captions: one is right"),
    "i2t/symmetric-mean": ("image to text, mean over positions", "mean over the positions of the captions, one right"),
    "i2t/1k": ("image to text, 1,000 images", "mean of five folds of 1,000 images"),
    "i2t/cxc": ("image to text, CxC", "also right: what Crisscrossed Captions judged to match"),
    "i2t/eccv": ("image to text, ECCV", "also right: what ECCV Caption judged to match"),
}


def plain_title(protocol: str) -> str:
    """What a protocol is about, in plain words.

    Examples:
        >>> plain_title("t2i/all"), plain_title("winoground/object"), plain_title("t2i/all+i2t/any")
        ('text to image', 'binding, object', 'both directions')
        >>> plain_title("t2i/de/google"), plain_title("i2t/any@image-as-query"), plain_title("t2i/*/*")
        ('text to image, German by google', 'image to text, image as query', 'text to image, mean over languages')
        >>> plain_title("aro/vg_relation"), plain_title("t2i/judged/de")
        ('hard negatives, aro/vg_relation', 'judged queries in German')
    """
    base, _, orientation = protocol.partition("@")
    parts, (first, _, rest) = cross_lingual(base), base.partition("/")
    if "+" in base:
        title = "both directions"
    elif base in VARIANTS:
        title = VARIANTS[base][0]
    elif judged := judged_language(base):
        title = f"{VARIANTS[JUDGED][0]} in {language_name(judged)}"
    elif parts is not None:
        title = f"{DIRECTION_TITLES[parts.direction]}, {language_name(parts.language)} by {parts.translator}"
    elif first in DIRECTION_TITLES:
        title = f"{DIRECTION_TITLES[first]}, {'mean over languages' if rest == '*/*' else rest}"
    elif first == "winoground":
        title = ", ".join(filter(None, ("binding", rest)))
    else:
        title = f"hard negatives, {base}"
    return f"{title}, {orientation.replace('-', ' ')}" if orientation else title


def named(protocol: str) -> str:
    """The plain name of a protocol, then its id.

    Examples:
        >>> named("t2i/all"), named("aro/vg_relation")
        ('text to image (t2i/all)', 'hard negatives, aro/vg_relation')
    """
    title = plain_title(protocol)
    return title if protocol in title else f"{title} ({protocol})"
