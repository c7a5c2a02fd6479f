"""Small images made byte by byte."""

import base64
import struct
import zlib


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def png_bytes(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 10)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


def png(width: int = 1, height: int = 1) -> str:
    return b64(png_bytes(width, height))


def gif_bytes(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0;"


def jpeg_bytes(width: int, height: int) -> bytes:
    app = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0" + b"\0" * 9
    size = b"\xff\xc0" + struct.pack(">HBHHB", 8, 8, height, width, 0)
    return b"\xff\xd8" + app + size + b"\xff\xda\0\x02data\xff\xd9"


def webp_bytes(width: int, height: int, kind: bytes = b"VP8 ") -> bytes:
    match kind:
        case b"VP8 ":
            body = b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
        case b"VP8L":
            body = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14)
        case _:
            sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
            body = b"\0\0\0\0" + sides
    inner = b"WEBP" + kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(inner)) + inner
