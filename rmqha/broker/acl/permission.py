"""What an account may do with a topic or a group, and which requests are for administrators.

Source: rocketmq-all-4.9.8 Permission.java.
"""

from typing import Final

from rmqha.codec.codes import RequestCode

DENY: Final = 1
PUB: Final = 4
SUB: Final = 8

_PERMISSIONS: Final = {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
PERMISSION_NAMES: Final = tuple(_PERMISSIONS)

_ROCKETMQ_ADMIN_CODES: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
    }
)
ADMIN_CODES: Final = _ROCKETMQ_ADMIN_CODES | {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    RequestCode.PUT_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.ADD_WRITE_PERM_OF_BROKER,
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.QUERY_CONSUME_QUEUE,
}
"""Those, and what else concerns topics and groups of others: RocketMQ grants it to every account."""


def parse_perm(text: str | None) -> int | None:
    """The permission of that name; DENY where none is given, None if there is no such name."""
    return DENY if text is None else _PERMISSIONS.get(text.strip())


def check_permission(needed: int, owned: int) -> bool:
    """Whether ``owned`` contains ``needed``."""
    return not owned & DENY and bool(needed & owned)
