"""The keys of access control."""

from dataclasses import dataclass

from rmqha.config.key import key
from rmqha.config.kinds import BOOLEAN, PATH


@dataclass(frozen=True, kw_only=True)
class AclConfig:
    """Source: rocketmq-all-4.9.8 BrokerConfig.java, PlainPermissionManager.java."""

    acl_enable: bool = key(
        "aclEnable",
        BOOLEAN,
        "false",
        meaning="Serve only clients that sign what they ask (HmacSHA1) as an account of <rocketmqHome>/conf/"
        "plain_acl.yml that may do it, or come from an address that is listed there. Files that change are read again. "
        "Needs PyYAML (pip install 'rmqha[acl]').",
    )
    rocketmq_home: str = key(
        "rocketmqHome",
        PATH,
        "",
        derived="$ROCKETMQ_HOME",
        meaning="Below it, in conf/plain_acl.yml and conf/acl/*.yml, are the accounts of aclEnable.",
    )
    acl_remote_changes_enable: bool = key(
        "aclRemoteChangesEnable",
        BOOLEAN,
        "false",
        ours=True,
        meaning="Administrators may change accounts from afar (mqadmin updateAclConfig, deleteAclConfig, "
        "updateGlobalWhiteAddr, clusterAclConfigVersion), as with RocketMQ. The files are written anew, without their "
        "comments. Secrets come over the line: use TLS.",
    )
    acl_credentials_path: str = key(
        "aclCredentialsPath",
        PATH,
        "",
        ours=True,
        meaning="A file with accessKey and secretKey, like mqadmin's conf/tools.yml, by which this broker signs what "
        "it asks other brokers and name servers. Empty: it does not, and a master with aclEnable has to list its "
        "address.",
    )
