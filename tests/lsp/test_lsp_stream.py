from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.lsp.stream import BodyBuffer
from acp_bridge.wire.framing import NEED_DATA


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.data())
def test_any_split_of_the_bytes_gives_the_same_bodies(
    bodies: list[bytes], data: st.DataObject
) -> None:
    whole = b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies)
    buffer, found = BodyBuffer(), []
    while whole:
        count = data.draw(st.integers(1, len(whole)))
        buffer.receive(whole[:count])
        whole = whole[count:]
        while (body := buffer.next_line()) is not NEED_DATA:
            found.append(body)
    assert found == bodies


def test_headers_without_a_length_are_skipped() -> None:
    buffer = BodyBuffer()
    buffer.receive(b"Nonsense: 1\r\n\r\ncontent-length:2\r\nX: y\r\n\r\n{}")
    assert buffer.next_line() == b"{}"
