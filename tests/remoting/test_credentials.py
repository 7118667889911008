"""The file of a client's credentials."""

from pathlib import Path

import pytest

from rmqha.errors import ConfigError
from rmqha.remoting.credentials import read_credentials

TOOLS_YML = """# as RocketMQ brings it
# limitations under the License.

accessKey: rocketmq2
secretKey: 12345678

"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TOOLS_YML, ("rocketmq2", "12345678", None)),
        ("secretKey = s=c#et  # mine\naccessKey='a b'\n", ("a b", "s=c#et", None)),
        ("accessKey: a # b\nsecretKey: ab#cd #e\n", ("a", "ab#cd", None)),
        ('accessKey: "x#y"\nsecretKey: "q"\nsecurityToken: t\n', ("x#y", "q", "t")),
    ],
)
def test_a_file_as_mqadmin_reads_it(tmp_path: Path, text: str, expected: tuple[str, str, str | None]) -> None:
    path = tmp_path / "tools.yml"
    path.write_text(text)
    found = read_credentials(str(path))
    assert (found.access_key, found.secret_key, found.security_token) == expected


@pytest.mark.parametrize("content", [b"", b"accessKey: x\nsecretKey:\n", b"accessKey", b"\xff\xfe", None])
def test_what_is_no_such_file_is_said_with_its_name(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "tools.yml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"tools\.yml: "):
        read_credentials(str(path))
