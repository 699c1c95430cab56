"""Runs the integration tests of aiokafka and kafka-python against this tree: `python -m tools.kafka_suites`.

Each suite has a broker of its own, which takes the place of the Kafka that its fixtures start. The tests are those of
the releases that are installed: kafka-python's are in its sdist, aiokafka's only in its git repository. What is not
expected to pass is in `expected.toml`, with the reason. Any other failure is this program's, too.

    python -m tools.kafka_suites                        # both
    python -m tools.kafka_suites --only aiokafka        # one of them
    python -m tools.kafka_suites --aiokafka ~/aiokafka  # its tests from a repository on this machine
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

from tidelog.testing.broker_process import BrokerProcess
from tidelog.testing.commands import HOST
from tidelog.testing.ports import HeldPorts

HERE: Final = Path(__file__).parent
AIOKAFKA_GIT: Final = "https://github.com/aio-libs/aiokafka"
KAFKA_VERSION: Final = "4.3"
"""The release of Kafka whose tests are to run: the newest that the suites know."""
SETTINGS: Final = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "ack.durability": "replicated",
}
"""As the Kafka of their fixtures has them, or (the last) does: it answers before anything is flushed to disk."""
TEST_TIMEOUT_S: Final = 90
RUN_TIMEOUT_S: Final = 1_800
INI: Final = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nmarkers = ssl\n"


class Suite(NamedTuple):
    """The tests of a client: how they get into a directory, and the words for pytest there."""

    name: str
    fetch: Callable[[Path, str], None]
    words: str


class Result(NamedTuple):
    """Names of tests, as in `test_consumer::test_group`, by how they ended."""

    passed: frozenset[str]
    failed: frozenset[str]
    skipped: frozenset[str]


# -- where the tests come from -----------------------------------------------------------------------------------------


def fetch_aiokafka(directory: Path, source: str) -> None:
    """Puts aiokafka's tests into a directory, without its code: it is the installed one that is tested."""
    words = ("git", "-c", "advice.detachedHead=false", "clone", "--quiet", "--branch", f"v{version('aiokafka')}")
    _run(*words, source, str(directory / "git"))
    (directory / "git" / "tests").rename(directory / "tests")


def fetch_kafka_python(directory: Path, _source: str) -> None:
    """Puts kafka-python's tests into a directory, from its sdist."""
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps")
    release = f"kafka-python=={version('kafka-python')}"
    _run(*pip, "--no-binary", "kafka-python", "--dest", str(directory), release)
    (sdist,) = directory.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(directory, filter="data")
    (tests,) = directory.glob("*/test")
    tests.rename(directory / "test")
    (directory / "test" / "__init__.py").touch()  # else Python's own `test` is found


def _run(*words: str) -> None:
    subprocess.run(words, check=True, timeout=RUN_TIMEOUT_S)  # noqa: S603 -- our own words


AIOKAFKA_WORDS: Final = """
    --noconftest -p tools.kafka_suites.aiokafka_plugin -n 2 -m "not ssl" tests
    --ignore=tests/test_sasl.py --ignore=tests/coordinator
"""
KAFKA_PYTHON_WORDS: Final = """
    -p tools.kafka_suites.kafka_python_plugin test/integration
    --ignore=test/integration/test_ssl_integration.py --ignore=test/integration/test_sasl_integration.py
"""
"""What is left out wants a Kafka with TLS, passwords in the clear or Kerberos, or is not for a broker."""
SUITES: Final = (
    Suite("aiokafka", fetch_aiokafka, AIOKAFKA_WORDS),
    Suite("kafka-python", fetch_kafka_python, KAFKA_PYTHON_WORDS),
)


# -- running them ------------------------------------------------------------------------------------------------------


@contextmanager
def broker(directory: Path) -> Iterator[str]:
    """Has a broker with node id 0 run; yields its address for Kafka's clients."""
    ports = HeldPorts()
    http, peer, kafka = (f"{HOST}:{port}" for port in ports.take(3))
    process = BrokerProcess(0, directory, SETTINGS, http=http, peer=peer, kafka=kafka)
    try:
        process.start()
        yield kafka
        process.stop()
    finally:
        process.kill()
        ports.release()


def run(suite: Suite, directory: Path, address: str) -> Result:
    """Runs a suite whose tests are in a directory against a broker."""
    (directory / "pytest.ini").write_text(INI)
    report = directory / "report.xml"
    options = ("-q", "--tb=short", "--show-capture=no", "--disable-warnings", f"--timeout={TEST_TIMEOUT_S}")
    environment = {"KAFKA_URI": f"kafka://{address}", "KAFKA_VERSION": KAFKA_VERSION, "KAFKA_ROOT": str(directory)}
    words = (sys.executable, "-m", "pytest", *options, f"--junitxml={report}", *shlex.split(suite.words))
    paths = os.pathsep.join([str(directory), str(HERE.parent.parent)])
    subprocess.run(  # noqa: S603 -- our own words
        words, cwd=directory, env={**os.environ, **environment, "PYTHONPATH": paths}, check=False, timeout=RUN_TIMEOUT_S
    )
    return result_of(report.read_text())


def result_of(report: str) -> Result:
    """Reads pytest's report. A test that failed or broke in its set-up has failed."""
    ended: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}
    for case in ElementTree.fromstring(report).iter("testcase"):  # noqa: S314 -- pytest wrote it
        module = next(part for part in case.get("classname", "").split(".") if part.startswith("test_"))
        kinds = {child.tag for child in case}
        how = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        ended[how].add(f"{module}::{case.get('name')}")
    return Result(*(frozenset(ended[how]) for how in ("passed", "failed", "skipped")))


def report_lines(name: str, result: Result, reasons: Mapping[str, str]) -> Iterator[str]:
    """What a person is told about a suite; unexpected failures come last."""
    counts = ", ".join(f"{len(tests)} {how}" for how, tests in result._asdict().items())
    yield f"{name} {version(name)}: {counts}"
    for test in sorted(result.failed & reasons.keys()):
        yield f"  expected: {test}: {reasons[test]}"
    for test in sorted(result.passed & reasons.keys()):
        yield f"  passed, though it need not: {test}"
    for test in sorted(result.failed - reasons.keys()):
        yield f"  FAILED: {test}"


def is_good(result: Result, reasons: Mapping[str, str]) -> bool:
    """Returns True if a suite ran, and nothing failed but what is expected to."""
    return bool(result.passed) and result.failed <= reasons.keys()


def expected(suite: str) -> dict[str, str]:
    """The tests of a suite that need not pass, each with the reason."""
    entries = tomllib.loads((HERE / "expected.toml").read_text())[suite]
    return {test: entry["why"] for entry in entries for test in entry["tests"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if a test failed that should pass, or a suite did not run."""
    parser = argparse.ArgumentParser("tools.kafka_suites", description="Runs Kafka clients' own tests against tidelog.")
    parser.add_argument("--only", choices=[suite.name for suite in SUITES])
    parser.add_argument("--aiokafka", default=AIOKAFKA_GIT, help="the git repository that has aiokafka's tests")
    given = parser.parse_args(arguments)
    good = True
    lines: list[str] = []
    for suite in SUITES:
        if given.only not in (None, suite.name):
            continue
        with tempfile.TemporaryDirectory(prefix="kafka-suites-") as name:
            directory = Path(name)
            suite.fetch(directory, given.aiokafka)
            with broker(directory / "broker") as address:
                result = run(suite, directory, address)
        reasons = expected(suite.name)
        good = is_good(result, reasons) and good
        lines += report_lines(suite.name, result, reasons)
    print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
