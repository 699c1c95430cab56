"""Members and operators are told of errors by codes after which no client ends that could ask again."""

from __future__ import annotations

import pytest

from tests.unit.broker.kafka.test_codes import an_error
from tidelog.broker.kafka.codes import code_of
from tidelog.broker.kafka.groups.trees import group_code, offsets_code
from tidelog.model.errors import FencedMember, NotAuthorized, NotOwned, QuotaExceeded, TidelogError
from tidelog.model.kafka_codes import KafkaCode
from tools.error_reference import error_classes

LOOKED_FOR = (KafkaCode.COORDINATOR_NOT_AVAILABLE, KafkaCode.NOT_COORDINATOR)


@pytest.mark.parametrize("kind", error_classes())
def test_what_passes_by_itself_sends_a_client_to_look_for_the_coordinator(kind: type[TidelogError]) -> None:
    error = an_error(kind)
    passes = not error.definite or error.status in (503, 507)
    assert (group_code(error) in LOOKED_FOR) == (passes or isinstance(error, QuotaExceeded))
    if not passes and not isinstance(error, QuotaExceeded):
        assert group_code(error) == code_of(error, "Group")


def test_a_missing_right_is_one_to_the_group() -> None:
    assert group_code(an_error(NotAuthorized)) is KafkaCode.GROUP_AUTHORIZATION_FAILED


def test_commits_of_the_past_are_told_so_in_words_after_which_a_member_goes_on() -> None:
    for kind in (FencedMember, NotOwned):
        assert offsets_code(an_error(kind)) is KafkaCode.STALE_MEMBER_EPOCH
    assert group_code(an_error(FencedMember)) is KafkaCode.FENCED_MEMBER_EPOCH
