"""``rmqha doctor``: whether other brokers let this one ask what it will ask them. Nothing is changed there."""

from collections.abc import Iterator

from rmqha.cli.ask import BrokerConnection
from rmqha.cli.credentials import is_of_accounts
from rmqha.cli.errors import CliError
from rmqha.cli.finding import FAIL, OK, Finding
from rmqha.cli.pages import Page
from rmqha.codec.codes import RequestCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.config import BrokerConfig
from rmqha.logs import escaped
from rmqha.remoting.credentials import read_credentials


def check_account(config: BrokerConfig, key: str, address: str, *, timeout_s: float) -> Iterator[Finding]:
    """Ask the broker at ``address``, which ``key`` leads to, as this broker: not as who runs the command.

    Of one that does not answer others tell.
    """
    path = config.acl_credentials_path
    credentials = read_credentials(path) if path else None
    try:
        with BrokerConnection(address, timeout_s=timeout_s, credentials=lambda: credentials) as connection:
            answer = connection.ask(RemotingCommand(RequestCode.GET_ALL_DELAY_OFFSET))
    except CliError:
        return
    if is_of_accounts(answer.remark):
        who = f"the account of {path} (aclCredentialsPath)" if path else "a broker without an account"
        told = f"see its plain_acl.yml, and correct {path or 'aclCredentialsPath'}: {Page.ACCOUNTS}"
        yield Finding(FAIL, key, escaped(f"{address}: it refuses {who}: {answer.remark!s:.200}"), told)
    elif credentials is not None:
        yield Finding(OK, key, f"{address}: it answers {credentials.access_key} (aclCredentialsPath)")
