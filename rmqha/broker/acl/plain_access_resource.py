"""PlainAccessResource: an account of ``plain_acl.yml``.

Source: rocketmq-all-4.9.8 PlainAccessResource.java, PlainPermissionManager.java (checkPerm).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqha.broker.acl.needed_permissions import Need, is_group, of_group
from rmqha.broker.acl.permission import ADMIN_CODES, DENY, PUB, check_permission
from rmqha.broker.acl.remote_address_strategy import RemoteAddressStrategy
from rmqha.broker.tables.retry_topics import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from rmqha.codec.limits import FORBIDDEN_SEND_TOPICS

_TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""Clients that trace their messages send traces there, whatever else they may do."""


@dataclass(frozen=True)
class PlainAccessResource:
    """Who may ask, and for what.

    Attributes:
        white_remote_address: from there its requests need neither signature nor permission.
        admin: it may do what only administrators may; without ``perms`` of its own also all else.
        perms: of topics, and of groups by their retry topics.
    """

    access_key: str
    secret_key: str = field(repr=False)
    white_remote_address: RemoteAddressStrategy = field(repr=False)
    admin: bool = False
    default_topic_perm: int = DENY
    default_group_perm: int = DENY
    perms: Mapping[str, int] = field(default_factory=dict)

    def why_not(self, code: int, needs: list[Need]) -> str:
        """Why a request of this code that needs this is not for this account; empty if it is."""
        if code in ADMIN_CODES and not self.admin:
            return f"request {code} is for administrators, and accessKey={self.access_key} is none"
        return self.lacks(needs)

    def lacks(self, needs: list[Need]) -> str:
        """What of this the account does not have, in words; empty if it has all."""
        if self.admin and not self.perms:
            return ""
        for need in needs:
            if need.unless_listed and need.resource not in self.perms:
                continue
            if not check_permission(need.perm, self._perm_of(need.resource)) and not _is_trace(need):
                return f"accessKey={self.access_key} has no {_words_of(need)}"
        return ""

    def _perm_of(self, resource: str) -> int:
        """Of what is not listed: topics of the broker itself are nobody's, a group's dead letters are the group's."""
        if resource in self.perms:
            return self.perms[resource]
        if is_group(resource):
            return self.default_group_perm
        if resource.startswith(DLQ_GROUP_TOPIC_PREFIX):
            return self._perm_of(of_group(resource.removeprefix(DLQ_GROUP_TOPIC_PREFIX)))
        return DENY if resource in FORBIDDEN_SEND_TOPICS else self.default_topic_perm


def _is_trace(need: Need) -> bool:
    return need == Need(_TRACE_TOPIC, PUB)


def _words_of(need: Need) -> str:
    name = "PUB" if need.perm == PUB else "SUB"
    if is_group(need.resource):
        return f"{name} permission for group:{need.resource.removeprefix(RETRY_GROUP_TOPIC_PREFIX)}"
    return f"{name} permission for topic:{need.resource}"
