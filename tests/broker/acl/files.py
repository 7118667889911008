"""Files of accounts."""

from pathlib import Path

DISTRIBUTED = """# Licensed to ... (as RocketMQ 4.9 brings it)
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""


def home_with(directory: Path, text: str | bytes = DISTRIBUTED, *, name: str = "plain_acl.yml") -> str:
    """A $ROCKETMQ_HOME with that file in ``conf``."""
    path = directory / "conf" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(directory)


def account(access_key: str, *lines: str) -> str:
    """One account of a file, whose secret is ``12345678``."""
    rest = "".join(f"    {line}\n" for line in lines)
    return f"  - accessKey: {access_key}\n    secretKey: 12345678\n{rest}"
