"""Images in prompts, checked before anything is stored (field report R075). Pure.

An image above a provider's limits would fail every later turn of its session; so type, size and
dimensions are read from the bytes, never taken from the client's word.
"""

import base64
import binascii
import hashlib
import struct

import attrs

from acp_bridge.errors import InvalidParamsError
from acp_bridge.vocabulary import JsonObject

IMAGE_BYTES_MAX = 5 * 1024 * 1024
"""What the strictest provider takes."""

IMAGE_SIDE_PIXELS_MAX = 8000
"""The same."""

_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_PNG_HEAD = b"\x89PNG\r\n\x1a\n"
_JPEG_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


@attrs.frozen(slots=True)
class Image:
    """A checked image; ``block`` is its log content block (dsh-events section 4)."""

    attachment_id: str
    data: bytes
    block: JsonObject


def image_from_base64(data: str, mime_type: str, *, field: str) -> Image:
    """Check an image block.

    Raises:
        InvalidParamsError: naming ``field``, with what is wrong and what is allowed.
    """
    if mime_type not in _TYPES:
        raise InvalidParamsError(
            f"The image type {mime_type!r} is not supported: use PNG, JPEG, GIF or WebP.",
            field=f"{field}.mimeType",
        )
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidParamsError("The image data is not base64.", field=f"{field}.data") from None
    if len(raw) > IMAGE_BYTES_MAX:
        raise InvalidParamsError(
            f"The image has {len(raw)} bytes; at most {IMAGE_BYTES_MAX} are allowed.",
            field=f"{field}.data",
        )
    size = _size(raw)
    if size is None or size[0] != mime_type:
        raise InvalidParamsError(
            f"The image data is not a sound {mime_type}.", field=f"{field}.data"
        )
    if not _whole(raw, mime_type):
        raise InvalidParamsError("The image data is cut off.", field=f"{field}.data")
    _, width, height = size
    if not 0 < max(width, height) <= IMAGE_SIDE_PIXELS_MAX or min(width, height) < 1:
        raise InvalidParamsError(
            f"The image is {width} by {height} pixels; each side may have 1 to "
            f"{IMAGE_SIDE_PIXELS_MAX}.",
            field=f"{field}.data",
        )
    attachment_id = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    attachment: JsonObject = {
        "attachmentId": attachment_id,
        "mediaType": mime_type,
        "bytes": len(raw),
        "width": width,
        "height": height,
    }
    return Image(attachment_id, raw, {"type": "image", "attachment": attachment})


def _size(raw: bytes) -> tuple[str, int, int] | None:
    """Type, width and height as the bytes say; None if they are no image that we know."""
    try:
        if raw.startswith(_PNG_HEAD) and raw[12:16] == b"IHDR":
            return ("image/png", *struct.unpack(">II", raw[16:24]))
        if raw[:6] in {b"GIF87a", b"GIF89a"}:
            return ("image/gif", *struct.unpack("<HH", raw[6:10]))
        if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
            return _webp_size(raw)
        if raw[:2] == b"\xff\xd8":
            return _jpeg_size(raw)
    except (struct.error, IndexError):
        pass
    return None


def _whole(raw: bytes, mime_type: str) -> bool:
    """Whether the end of the image is there; junk behind it is none of our business."""
    match mime_type:
        case "image/png":
            return b"IEND\xaeB`\x82" in raw
        case "image/jpeg":
            return b"\xff\xd9" in raw
        case "image/gif":
            return raw.rstrip(b"\0").endswith(b";")
        case _:
            return len(raw) >= int.from_bytes(raw[4:8], "little") + 8


def _webp_size(raw: bytes) -> tuple[str, int, int] | None:
    match raw[12:16]:
        case b"VP8 ":
            width, height = struct.unpack("<HH", raw[26:30])
            return ("image/webp", width & 0x3FFF, height & 0x3FFF)
        case b"VP8L":
            (bits,) = struct.unpack("<I", raw[21:25])
            return ("image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        case b"VP8X":
            width = int.from_bytes(raw[24:27], "little") + 1
            return ("image/webp", width, int.from_bytes(raw[27:30], "little") + 1)
        case _:
            return None


def _jpeg_size(raw: bytes) -> tuple[str, int, int] | None:
    at = 2
    while raw[at] == 0xFF:  # noqa: PLR2004  # every marker begins so
        marker = raw[at + 1]
        (length,) = struct.unpack(">H", raw[at + 2 : at + 4])
        if length < 2:  # noqa: PLR2004  # the length counts its own two bytes
            break
        if marker in _JPEG_SIZE_MARKERS:
            height, width = struct.unpack(">HH", raw[at + 5 : at + 9])
            return ("image/jpeg", width, height)
        at += 2 + length
    return None
