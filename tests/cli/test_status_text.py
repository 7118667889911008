import pytest

from rmqha.cli.status_text import human_bytes


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes_are_readable(size: int, text: str) -> None:
    assert human_bytes(size) == text
