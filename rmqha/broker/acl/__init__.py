"""Access control as RocketMQ 4.9 has it: accounts in ``plain_acl.yml``, who sign their requests (HmacSHA1)."""
