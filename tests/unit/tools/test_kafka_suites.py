"""The report of other clients' tests: how each ended, and which failures are expected."""

from __future__ import annotations

import pytest

from tools.kafka_suites import __main__ as suites

REPORT = """
<testsuites><testsuite name="pytest">
  <testcase classname="tests.test_consumer.TestConsumer" name="test_reads"/>
  <testcase classname="test.integration.test_producer" name="test_sends[gzip]"><failure message="no"/></testcase>
  <testcase classname="tests.test_consumer.TestConsumer" name="test_closes"><error message="no"/></testcase>
  <testcase classname="tests.test_consumer.TestConsumer" name="test_old"><skipped message="old"/></testcase>
</testsuite></testsuites>
"""


def test_a_report_says_how_each_test_ended() -> None:
    result = suites.result_of(REPORT)
    assert result.passed == {"test_consumer::test_reads"}
    assert result.failed == {"test_producer::test_sends[gzip]", "test_consumer::test_closes"}
    assert result.skipped == {"test_consumer::test_old"}


def test_failures_are_told_with_their_reason_and_unexpected_ones_last() -> None:
    reasons = {"test_consumer::test_closes": "why", "test_consumer::test_reads": "races"}
    lines = [*suites.report_lines("kafka-python", suites.result_of(REPORT), reasons)]
    assert lines[0].endswith(": 1 passed, 2 failed, 1 skipped")
    assert lines[1:] == [
        "  expected: test_consumer::test_closes: why",
        "  passed, though it need not: test_consumer::test_reads",
        "  FAILED: test_producer::test_sends[gzip]",
    ]


@pytest.mark.parametrize("suite", suites.SUITES, ids=lambda suite: suite.name)
def test_each_expected_failure_has_a_reason(suite: suites.Suite) -> None:
    found = suites.expected(suite.name)
    assert found
    assert all("::" in test and why for test, why in found.items())


@pytest.mark.parametrize(("failed", "is_good"), [((), True), (("a::b",), True), (("a::b", "e::f"), False)])
def test_an_unexpected_failure_is_the_programs(failed: tuple[str, ...], is_good: bool) -> None:
    result = suites.Result(frozenset({"c::d"}), frozenset(failed), frozenset())
    assert suites.is_good(result, {"a::b": "why"}) == is_good


def test_a_suite_that_did_not_run_is_no_success() -> None:
    assert not suites.is_good(suites.Result(frozenset(), frozenset(), frozenset()), {})
