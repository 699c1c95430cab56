"""Every secret of a secure cluster's life is looked for wherever it could have leaked to, and is found nowhere.

Three real brokers with TLS, a cluster secret, tokens and passwords live through what administrators and strangers do,
and through what goes wrong when they do it. Then all that a broker wrote, answered or showed is searched for each
secret, as it is and in the forms that programs give to bytes. F122 of the catalogue in docs/testing.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import ssl
import traceback
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.e2e.asking import until
from tests.integration.cli.conftest import TIMEOUT_S, Cli
from tidelog.admin import AdminClient
from tidelog.broker.http.routes import ROUTES
from tidelog.consumer import Consumer
from tidelog.model.errors import NotAuthenticated
from tidelog.producer import Producer
from tidelog.testing import LocalCluster
from tidelog.testing.certificates import ClusterCertificates

pytestmark = [pytest.mark.process, pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.usefixtures("executed")]
"""A forked broker's command line is not its own."""

BOOTSTRAP = "b007" * 16
FIRST_PASSWORD = "canary-first-Kestrel-1"
SECOND_PASSWORD = "canary-second-Merlin-2"
WRONG_PASSWORD = "canary-wrong-Harrier-3"
REFUSED_PASSWORD = "canary-refused-Osprey-4"
MISTYPED_PASSWORD = "canary-mistyped-Goshawk-5"
WRONG_TOKEN = "bad0" * 16
MALFORMED_TOKEN = "canarywithoutadotBuzzard6"
SECRETS_TYPED = {
    "the bootstrap token": BOOTSTRAP,
    "a password": FIRST_PASSWORD,
    "its successor": SECOND_PASSWORD,
    "a wrong password": WRONG_PASSWORD,
    "a password of a user that was not made": REFUSED_PASSWORD,
    "a password in a document that is wrong": MISTYPED_PASSWORD,
    "a token that nobody has": WRONG_TOKEN,
    "a token without a dot": MALFORMED_TOKEN,
}
NAMES = {
    "topic": "orders",
    "group": "billing",
    "partition": "0",
    "broker_id": "1",
    "instance": "i",
    "name": "retention.ms",
    "consumer": "c",
    "user": "carol",
    "token_id": "none",
}
SETTINGS = {
    "http.authentication": "token,basic",
    "authorizer.enabled": "true",
    "super.users": "User:root",
    "log.level": "debug",
}
MISTYPED = (
    f'{{"user_name": "", "password": "{MISTYPED_PASSWORD}"}}',
    f'{{"password": "{MISTYPED_PASSWORD}"}}',
    f'{{"user_name": "a", "pasword": "{MISTYPED_PASSWORD}"}}',
    f'{{"user_name": "a", "password": ["{MISTYPED_PASSWORD}"]}}',
    f'{{"user_name": "a", "password": "{MISTYPED_PASSWORD}',
    f'{{"user_name": "a", "password": {MISTYPED_PASSWORD}}}',
    f'"{MISTYPED_PASSWORD}"',
    MISTYPED_PASSWORD,
)
"""Documents that are no user, with a password somewhere in them."""
HASH = re.compile(
    rb"\$argon2id\$[!-~]{60,}?(?=[^A-Za-z0-9+/$=,])|(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{128})(?![0-9a-f])"
)
HASHES_MIN = 7
"""An argon2id hash, two keys of each mechanism of SCRAM, and the hash of a token, of one user at least."""


def forms(secret: bytes) -> set[bytes]:
    """Returns what a secret looks like when it is printed, in hexadecimal digits or in base64, wherever that begins."""
    aligned = [b64encode(bytes(lead) + secret) for lead in range(3)]
    inner = [text[4:-4].rstrip(b"=") for text in aligned]
    return {secret, secret.hex().encode(), secret.hex().upper().encode(), b64encode(secret).rstrip(b"="), *inner}


def keys_of(pem: Path) -> Iterator[bytes]:
    """Yields a private key as its file has it, and as the number that it is."""
    text = pem.read_bytes()
    key = load_pem_private_key(text, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    yield key.private_numbers().private_value.to_bytes(32, "big")
    body = text[text.index(b"PRIVATE KEY-----") : text.index(b"-----END PRIVATE KEY")]
    yield from (line for line in body.splitlines() if len(line) == 64)


class Found(NamedTuple):
    secret: str
    place: str


def found(secrets: Mapping[str, Iterable[bytes]], places: Iterable[tuple[str, bytes]]) -> list[Found]:
    """Returns which secret is in which place, in whatever form."""
    looked_for = {name: set().union(*map(forms, values)) for name, values in secrets.items()}
    return [
        Found(name, place)
        for place, data in places
        for name, needles in looked_for.items()
        if any(needle in data for needle in needles)
    ]


class Life:
    """The cluster, those who use it, and all that was seen of it."""

    def __init__(self, cluster: LocalCluster, directory: Path, cli: Cli) -> None:
        self.cluster = cluster
        self.directory = directory
        self.cli = cli
        self.seen: list[tuple[str, bytes]] = []
        self.secrets: dict[str, list[bytes]] = {name: [text.encode()] for name, text in SECRETS_TYPED.items()}
        assert cluster.certificates is not None
        self.ca = str(cluster.certificates.ca)
        self._context = ssl.create_default_context(cafile=self.ca)

    def file(self, name: str, secret: str, mode: int = 0o600) -> str:
        path = self.directory / name
        path.write_text(f"{secret}\n")
        path.chmod(mode)
        return str(path)

    def run(self, *words: str, stdin: str = "", **variables: str) -> int:
        """Runs a command, keeps what it printed, and returns how it ended."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            ran = self.cli(*words, stdin=stdin.encode())
        self.seen.append((f"what `{' '.join(words)}` prints", ran.out + ran.err.encode()))
        return ran.status

    def ask(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        node: int = 1,
    ) -> int:
        """Asks a broker, keeps head and body of the answer, and returns its status."""
        url = self.cluster.broker(node).url + target
        request = urllib.request.Request(url, body, dict(headers), method=method)
        try:
            answer = urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._context)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            self.seen.append((f"the answer to {method} {target}", str(answer.headers).encode() + answer.read()))
            return int(answer.status)


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator[Life]:
    """A cluster whose first administrator has a token in a file."""
    root_file = tmp_path / "root.token"
    root_file.touch(mode=0o600)
    root_file.write_text(f"bootstrap.{BOOTSTRAP}\n")
    settings = {**SETTINGS, "http.bootstrap.token.file": str(root_file)}
    made = LocalCluster(3, settings=settings, data_dir=tmp_path / "data", secret=True, tls=True)
    for node in made.node_ids:
        made.broker(node).change_settings({"audit.log.file": str(made.broker(node).directory / "audit.log")})
    with made as cluster:
        assert cluster.certificates is not None
        properties = tmp_path / "client.properties"
        properties.write_text(f"ssl.ca.location={cluster.certificates.ca}\n")
        monkeypatch.setenv("TIDELOG_TOKEN_FILE", str(root_file))
        monkeypatch.setenv("TIDELOG_COMMAND_CONFIG", str(properties))
        yield Life(cluster, tmp_path, Cli(cluster.bootstrap, tmp_path, monkeypatch, capfdbinary))


def administer(life: Life) -> None:
    """Runs commands that succeed."""
    first, second = life.file("first.password", FIRST_PASSWORD), life.file("second.password", SECOND_PASSWORD)
    token = str(life.directory / "carol.token")
    for words in (
        ("topic", "create", "orders", "--partitions", "3", "--replication-factor", "3"),
        ("user", "add", "carol", "--password-file", first),
        ("user", "passwd", "carol", "--password-file", second),
        ("acl", "add", "--principal", "User:carol", "--operation", "read", "--operation", "write", "--topic", "orders"),
        ("acl", "add", "--principal", "User:carol", "--operation", "read", "--group", "billing"),
        ("token", "add", "User:carol", "--days", "1", "--to", token),
        ("quota", "set", "--user", "carol", "producer_byte_rate=10MB"),
        ("user", "list"),
        ("token", "list", "--json"),
        ("acl", "list"),
        ("cluster", "describe"),
        ("broker", "describe", "1", "--json"),
    ):
        assert life.run(*words) == 0, life.seen[-1]
    life.secrets["a token that was made"] = [Path(token).read_text().strip().partition(".")[2].encode()]
    command = life.cluster.broker(1).command
    settings = ["--set", f"peer.listener={command[command.index('--peer') + 1]}", *command[command.index("--set") :]]
    assert life.run("config", "show", *settings) == 0, life.seen[-1]


def mistake(life: Life) -> None:
    """Runs commands and requests that are refused."""
    refused = life.file("refused.password", REFUSED_PASSWORD)
    open_to_all = life.file("open.token", f"bootstrap.{BOOTSTRAP}", 0o644)
    carol = {"TIDELOG_TOKEN_FILE": str(life.directory / "carol.token")}
    wrong = {"TIDELOG_TOKEN_FILE": life.file("wrong.token", f"bootstrap.{WRONG_TOKEN}")}
    by_password = {"TIDELOG_TOKEN_FILE": "", "TIDELOG_USERNAME": "carol"}
    harrier = {**by_password, "TIDELOG_PASSWORD_FILE": life.file("wrong.password", WRONG_PASSWORD)}
    for words, stdin, variables in (
        (("user", "add", "carol", "--password-file", refused), "", {}),
        (("user", "add", "dave", "--password-file", "-"), REFUSED_PASSWORD[:7], {}),
        (("user", "add", "", "--password-file", "-"), REFUSED_PASSWORD, {}),
        (("user", "add", "dave", "--password-file", refused), "", carol),
        (("user", "passwd", "nobody", "--password-file", refused), "", {}),
        (("topic", "list"), "", {"TIDELOG_TOKEN_FILE": open_to_all}),
        (("topic", "list"), "", wrong),
        (("topic", "list"), "", {"TIDELOG_TOKEN_FILE": life.file("malformed.token", MALFORMED_TOKEN)}),
        (("topic", "delete", "orders"), "", carol),
        (("acl", "list"), "", harrier),
        (("produce", "orders"), "value", harrier),
        (("consume", "orders", "--group", "billing"), "", wrong),
        (("token", "add", "User:carol", "--to", str(life.directory / "carol.token")), "", {}),
    ):
        assert life.run(*words, stdin=stdin, **variables) == 1, life.seen[-1]
    users = f"/v3/clusters/{life.cluster.cluster_id}/users"
    root = {"Authorization": f"Bearer bootstrap.{BOOTSTRAP}", "Content-Type": "application/json"}
    for document in MISTYPED:
        assert life.ask("POST", users, document.encode(), root) in (400, 422), life.seen[-1]
    for login in (
        f"Bearer {MALFORMED_TOKEN}",
        f"Bearer carol.{WRONG_TOKEN}",
        f"Basic {b64encode(f'carol:{WRONG_PASSWORD}'.encode()).decode()}",
        f"Basic {b64encode(WRONG_PASSWORD.encode()).decode()}",
        f"Basic {WRONG_PASSWORD}",
        f"Digest {WRONG_PASSWORD}",
    ):
        assert life.ask("GET", "/topics", headers={"Authorization": login}) == 401, login


async def use_clients(life: Life) -> None:
    """Runs programs that log in and one that is refused, and notes what their objects print."""
    login: dict[str, Any] = {"ssl_ca_location": life.ca, "sasl_mechanism": "PLAIN", "sasl_username": "carol"}
    right, wrong = {**login, "sasl_password": SECOND_PASSWORD}, {**login, "sasl_password": WRONG_PASSWORD}
    async with Producer(life.cluster.bootstrap, **right) as producer:
        await producer.send_and_wait("orders", b"value", partition=0)
        life.seen.append(("a producer", repr(producer).encode()))
    reader = Consumer("orders", bootstrap_servers=life.cluster.bootstrap, auto_offset_reset="earliest", **right)
    async with reader as consumer:
        assert (await asyncio.wait_for(anext(aiter(consumer)), TIMEOUT_S)).value == b"value"
        life.seen.append(("a consumer", repr(consumer).encode()))
    with pytest.raises(NotAuthenticated) as refused:
        async with AdminClient(life.cluster.bootstrap, **wrong) as admin:
            await admin.list_topics()
    life.seen.append(("an error of a client", "".join(traceback.format_exception(refused.value)).encode()))


def crawl(life: Life) -> None:
    """Reads all that can be read, as who may and as who may not, at a broker each."""
    logins = (f"Bearer bootstrap.{BOOTSTRAP}", f"Bearer bootstrap.{WRONG_TOKEN}")
    for node, login in enumerate(logins, start=1):
        for route in ROUTES:
            if route.method == "GET" and route.prefix != "/kafka/v3":
                target = route.template.format(cluster_id=life.cluster.cluster_id, **NAMES)
                life.ask("GET", target, headers={"Authorization": login}, node=node)
    for node in life.cluster.node_ids:
        assert life.ask("GET", "/metrics", headers={"Authorization": logins[0]}, node=node) == 200


def look_at_processes(life: Life) -> None:
    """Takes down the command line of every process on this machine, while brokers and a command run."""
    with life.cli.begin("user", "passwd", "carol", "--password-file", "-") as command:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                life.seen.append((str(path), path.read_bytes()))
        out, errors = command.communicate(f"{SECOND_PASSWORD}\n".encode(), TIMEOUT_S)
    assert command.returncode in (0, 1), errors  # 1: the machine was too busy to connect within three seconds
    life.seen.append(("what a command of its own prints", out + errors))
    brokers = {f"/proc/{life.cluster.broker(node).pid}/cmdline" for node in life.cluster.node_ids}
    assert {*brokers, f"/proc/{command.pid}/cmdline"} <= {place for place, _ in life.seen}
    for node in life.cluster.node_ids:
        os.kill(life.cluster.broker(node).pid, signal.SIGUSR1)
        until(lambda node=node: "most recent call" in life.cluster.broker(node).output)  # type: ignore[misc]  # bound


def kept(life: Life, *, in_metadata: bool) -> Iterator[tuple[str, bytes]]:
    """Yields all files that the brokers have written: those of the metadata log, or all others."""
    for node in life.cluster.node_ids:
        for path in sorted(life.cluster.broker(node).directory.rglob("*")):
            if path.is_file() and ("metadata" in path.parts) is in_metadata:
                yield str(path), path.read_bytes()


def test_no_secret_is_to_be_found_anywhere(life: Life) -> None:
    """Not in logs, answers, metrics, errors, command lines, the audit log, nor in any file of a broker. F122."""
    administer(life)
    mistake(life)
    asyncio.run(use_clients(life))
    crawl(life)
    look_at_processes(life)
    life.cluster.stop(*life.cluster.node_ids)
    made = life.cluster.certificates
    assert made is not None
    life.secrets["the cluster's secret"] = [life.cluster.secret_file.read_bytes().strip()]
    for node in life.cluster.node_ids:
        life.secrets[f"the key of broker {node}"] = [*keys_of(made.directory / f"broker-{node}.pem")]
    life.secrets["a login of Basic"] = [f"carol:{text}".encode() for text in (SECOND_PASSWORD, WRONG_PASSWORD)]

    metadata, elsewhere = [*kept(life, in_metadata=True)], [*kept(life, in_metadata=False), *life.seen]
    assert found(life.secrets, [*metadata, *elsewhere]) == []

    # Hashes and keys of SCRAM are kept in the metadata log, and only there.
    hashes = {match for _, data in metadata for match in HASH.findall(data)}
    assert len(hashes) >= HASHES_MIN
    assert found({"what is kept of a secret": hashes}, elsewhere) == []

    # What was looked at has in it what it should have: names, and the ids of tokens.
    for name in (b"carol", b"orders", b"bootstrap"):
        assert sum(name in data for _, data in elsewhere) > 3
    audited = b"".join(data for place, data in elsewhere if place.endswith("audit.log"))
    assert audited.count(b'"event": "denied"') > 5 and audited.count(b'"event": "changed"') > 5
    assert len(metadata) > 10 and len(elsewhere) > 150


@pytest.mark.parametrize("shown", ["as it is", "hex", "base64", "in a login", "in a dump"])
def test_a_secret_that_leaks_is_found(tmp_path: Path, shown: str) -> None:
    """The positive control: without it, finding nothing would say nothing."""
    secret = FIRST_PASSWORD.encode()
    planted = {
        "as it is": secret,
        "hex": secret.hex().encode(),
        "base64": b64encode(secret),
        "in a login": b"Authorization: Basic " + b64encode(b"carol:" + secret),
        "in a dump": b64encode(b"\x82\xa8password" + secret + b"\xa9"),
    }[shown]
    (tmp_path / "leak").write_bytes(bytes(5000) + b"before " + planted + b" after" + bytes(5000))
    places = [(path.name, path.read_bytes()) for path in tmp_path.iterdir()]
    assert found({"a password": [secret], "another": [b"not there"]}, places) == [Found("a password", "leak")]


def test_a_key_that_leaks_is_found(tmp_path: Path) -> None:
    made = ClusterCertificates(tmp_path / "tls")
    keys = {"a key": [*keys_of(made.broker(1))]}
    pem = (tmp_path / "tls" / "broker-1.pem").read_bytes()
    number, *lines = keys["a key"]
    assert len(lines) >= 2 and all(line in pem for line in lines)
    places = [
        ("its number", bytes(9) + number),
        ("its file", pem),
        ("its certificate", pem[pem.index(b"-BEGIN CERT") :]),
    ]
    assert [one.place for one in found(keys, places)] == ["its number", "its file"]
