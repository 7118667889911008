"""RocketMQ 4.9.7 and 5.3.3 as peers: resolved from Maven Central once, started by the tests.

4.9.7 is the newest broker of RocketMQ 4 that Maven Central has; its store does not differ from 4.9.8 (no change in
replication, commitlog or consume queue).
"""

import hashlib
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.e2e.processes import Broker, Child, Ports, free_ports, give_back
from tests.interop.fetched import LOCKS, PeerMissingError, check_sums, fetched, run_fetching

HERE = Path(__file__).parent
VERSION = "4.9.7"
VERSION_5 = "5.3.3"
_COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
JAVA_OPTIONS = (
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For what runs for seconds: compiling it well costs more than it brings. Not for benchmarks."""
_ON_A_FULL_DISK = "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99"
"""RocketMQ has no key for it."""
_ON_A_SLOW_MACHINE: Mapping[str, object] = {
    "waitTimeMillsInSendQueue": 60_000,
    "waitTimeMillsInPullQueue": 60_000,
    "osPageCacheBusyTimeOutMills": 60_000,
}
"""Otherwise what waited for 200 ms is answered SYSTEM_BUSY."""
LOGBACK = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5p %c{0} %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


def _pom(version: str, names: tuple[str, ...]) -> str:
    artifacts = "".join(
        "<dependency><groupId>org.apache.rocketmq</groupId>"
        f"<artifactId>rocketmq-{name}</artifactId><version>{version}</version></dependency>"
        for name in names
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>rmqha</groupId><artifactId>peers</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{artifacts}</dependencies></project>"
    )


@cache
def rocketmq_libs() -> Path:
    """The directory of RocketMQ's jars; the first call on a machine fetches them.

    Raises:
        PeerMissingError: no Java, or the jars are not there and Maven cannot bring them.
    """
    return _libs(f"rocketmq-{VERSION}", VERSION, ("broker", "namesrv", "tools"))


@cache
def rocketmq5_libs() -> Path:
    """The same of RocketMQ 5's broker. Raises PeerMissingError."""
    return _libs(f"rocketmq-broker-{VERSION_5}", VERSION_5, ("broker",))


@cache
def tools_libs(version: str) -> Path:
    """The same of the tools alone, and the client, of any version. Raises PeerMissingError."""
    return rocketmq_libs() if version == VERSION else _libs(f"rocketmq-tools-{version}", version, ("tools",))


@cache
def client_libs(version: str) -> Path:
    """The same of the client alone. Raises PeerMissingError."""
    return _libs(f"rocketmq-client-{version}", version, ("client",))


@cache
def compiled(source: str, libs: Path) -> Path:
    """The directory of the classes of a Java file of this folder, compiled once a machine against these jars.

    Raises:
        PeerMissingError: its text is the compiler's.
    """
    digest = hashlib.sha256((HERE / source).read_bytes() + str(libs).encode()).hexdigest()[:16]

    def compile_it(directory: Path) -> None:
        javac = ["java", "-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn", "-d", str(directory)]
        jars = ":".join(map(str, libs.glob("*.jar")))
        run_fetching([*javac, "-cp", jars, str(HERE / source)], cwd=directory, what=f"the classes of {source}")

    return fetched(f"classes-{Path(source).stem}-{digest}", compile_it)


def _libs(name: str, version: str, artifacts: tuple[str, ...]) -> Path:
    if shutil.which("java") is None:
        raise PeerMissingError("no `java` on the PATH: install a Java runtime, 17 or newer")
    libs = fetched(name, lambda directory: _fetch(directory, version, artifacts))
    check_sums(libs, LOCKS / f"{name}.sha256")
    return libs


def _fetch(libs: Path, version: str, artifacts: tuple[str, ...]) -> None:
    if shutil.which("mvn") is None:
        raise PeerMissingError("no `mvn` on the PATH: install Maven, it fetches RocketMQ's published jars")
    (libs.parent / "pom.xml").write_text(_pom(version, artifacts))
    command = ["mvn", "-q", "-B", _COPY_DEPENDENCIES, f"-DoutputDirectory={libs}"]
    run_fetching(command, cwd=libs.parent, what=f"RocketMQ {version}")


class JavaNameServer:
    """RocketMQ's name server; :meth:`close` it."""

    def __init__(self, directory: Path) -> None:
        self._ports = free_ports()
        self.address = f"127.0.0.1:{self._ports.listen}"
        (directory / "conf").mkdir(parents=True)
        (directory / "conf" / "logback_namesrv.xml").write_text(LOGBACK)
        conf = directory / "namesrv.conf"
        conf.write_text(f"listenPort={self._ports.listen}\n")
        places = (f"-Drocketmq.home.dir={directory}", f"-Duser.home={directory}", "-cp", f"{rocketmq_libs()}/*")
        main = ("org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(conf))
        argv = ["java", "-Xmx128m", *QUICK_START, *JAVA_OPTIONS, *places, *main]
        self.running = Child(argv, log=directory / "namesrv.log")

    def close(self) -> None:
        """Leave nothing behind."""
        self.running.reap()
        give_back(self._ports)


class JavaBroker(Broker):
    """A RocketMQ broker without a name server. A slave needs ``haMasterAddress`` in its ``conf``."""

    main: tuple[str, ...] = ("org.apache.rocketmq.broker.BrokerStartup",)
    jvm: tuple[str, ...] = ("-Xms128m", "-Xmx512m", *QUICK_START)

    def __init__(self, directory: Path, conf: Mapping[str, object], *, ports: Ports | None = None) -> None:
        local = {"brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1"}
        super().__init__(directory, {**local, **_ON_A_SLOW_MACHINE, **conf}, ports=ports)
        self.home = directory / "home"

    def prepare(self) -> None:
        """Also write the logging configuration; without it the broker ends at once."""
        super().prepare()
        (self.home / "conf").mkdir(parents=True, exist_ok=True)
        (self.home / "conf" / "logback_broker.xml").write_text(LOGBACK)

    def class_path(self) -> str:
        """Where ``main`` is found."""
        return f"{rocketmq_libs()}/*"

    def argv(self) -> list[str]:
        """The JVM's command line."""
        return [
            "java",
            *self.jvm,
            *JAVA_OPTIONS,
            _ON_A_FULL_DISK,
            f"-Drocketmq.home.dir={self.home}",
            f"-Duser.home={self.directory}",
            "-cp",
            self.class_path(),
            *self.main,
            "-c",
            str(self.conf_file),
        ]

    async def wait_ready(self) -> None:
        """RocketMQ says so itself."""
        await self.running.wait_output("boot success")


class JavaBroker5(JavaBroker):
    """One of RocketMQ 5. Its SYNC_MASTER waits for slaves only if ``inSyncReplicas`` says so."""

    def prepare(self) -> None:
        """Also write the logging configuration, which has another name; it would log into files."""
        super().prepare()
        self._logging.write_text(LOGBACK)

    @property
    def _logging(self) -> Path:
        return self.home / "conf" / "rmq.broker.logback.xml"

    def class_path(self) -> str:
        """Where ``main`` is found."""
        return f"{rocketmq5_libs()}/*"

    def argv(self) -> list[str]:
        """The JVM's command line."""
        java, *rest = super().argv()
        return [java, f"-Drmq.logback.configurationFile={self._logging}", *rest]
