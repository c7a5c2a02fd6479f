"""Images are judged by their bytes before anything is stored (R075)."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from picture_bytes import b64, gif_bytes, jpeg_bytes, png_bytes, webp_bytes

from acp_bridge.errors import InvalidParamsError
from acp_bridge.harness.images import IMAGE_BYTES_MAX, image_from_base64

GOOD = [
    ("image/png", png_bytes(3, 5)),
    ("image/gif", gif_bytes(3, 5)),
    ("image/jpeg", jpeg_bytes(3, 5)),
    ("image/webp", webp_bytes(3, 5)),
    ("image/webp", webp_bytes(3, 5, b"VP8L")),
    ("image/webp", webp_bytes(3, 5, b"VP8X")),
]


@pytest.mark.parametrize(("mime", "data"), GOOD)
def test_a_sound_image_is_taken(mime: str, data: bytes) -> None:
    image = image_from_base64(b64(data), mime, field="f")
    digest = hashlib.sha256(data).hexdigest()
    assert image.data == data
    assert image.block == {
        "type": "image",
        "attachment": {
            "attachmentId": f"sha256:{digest}",
            "mediaType": mime,
            "bytes": len(data),
            "width": 3,
            "height": 5,
        },
    }


def refused(data: str, mime: str) -> InvalidParamsError:
    with pytest.raises(InvalidParamsError) as raised:
        image_from_base64(data, mime, field="prompt[0]")
    return raised.value


@pytest.mark.parametrize(("mime", "data"), GOOD)
def test_another_type_than_the_bytes_is_refused(mime: str, data: bytes) -> None:
    other = "image/png" if mime != "image/png" else "image/gif"
    assert "not a sound" in refused(b64(data), other).details
    assert refused(b64(data), other).field == "prompt[0].data"


@pytest.mark.parametrize(("mime", "data"), GOOD)
def test_a_cut_image_is_refused(mime: str, data: bytes) -> None:
    for end in range(len(data)):
        refused(b64(data[:end]), mime)


@pytest.mark.parametrize("mime", ["image/bmp", "image/svg+xml", "", "text/plain", "IMAGE/PNG"])
def test_types_that_no_provider_takes_are_refused(mime: str) -> None:
    assert refused(b64(png_bytes(1, 1)), mime).field == "prompt[0].mimeType"


@pytest.mark.parametrize("data", ["!", "abc", "äöü", "data:image/png;base64,AAAA", "\ud800"])
def test_what_is_no_base64_is_refused(data: str) -> None:
    assert "base64" in refused(data, "image/png").details


@pytest.mark.parametrize("size", [(8001, 1), (1, 8001), (30000, 30000), (0, 1), (1, 0)])
def test_too_many_pixels_are_refused_with_the_limit(size: tuple[int, int]) -> None:
    assert "8000" in refused(b64(png_bytes(*size)), "image/png").details


def test_too_many_bytes_are_refused_with_the_limit() -> None:
    data = png_bytes(1, 1) + b"\0" * IMAGE_BYTES_MAX
    assert str(IMAGE_BYTES_MAX) in refused(b64(data), "image/png").details


@given(
    st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF\0\0\0\0WEBP"]),
    st.binary(max_size=60),
    st.sampled_from(["image/png", "image/jpeg", "image/gif", "image/webp"]),
)
def test_no_bytes_make_it_fail(head: bytes, rest: bytes, mime: str) -> None:
    try:
        image_from_base64(b64(head + rest), mime, field="f")
    except InvalidParamsError as error:
        assert error.details.endswith(".")  # noqa: PT017  # whether it raises is not the point
