"""The headers of mqadmin's commands that change accounts; see :mod:`rmqha.codec.headers`.

Source: rocketmq-all-4.9.8 CreateAccessConfigRequestHeader.java, DeleteAccessConfigRequestHeader.java,
UpdateGlobalWhiteAddrsConfigRequestHeader.java, GetBrokerAclConfigResponseHeader.java.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CreateAccessConfigRequestHeader:
    """50 UPDATE_AND_CREATE_ACL_CONFIG: an account as it is to be; what lacks stays, except ``admin``.

    ``topic_perms`` and ``group_perms`` are ``name=permission``, with commas between them.
    """

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteAccessConfigRequestHeader:
    """51 DELETE_ACL_CONFIG."""

    access_key: str


@dataclass(frozen=True, slots=True)
class UpdateGlobalWhiteAddrsConfigRequestHeader:
    """53 UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: all addresses of one file, with commas; without a name of plain_acl.yml."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


@dataclass(frozen=True, slots=True)
class GetBrokerAclConfigResponseHeader:
    """Answers 52 GET_BROKER_CLUSTER_ACL_INFO; versions are JSON: of plain_acl.yml, and of each file by its path."""

    version: str
    all_acl_file_version: str
    broker_name: str
    broker_addr: str
    cluster_name: str
