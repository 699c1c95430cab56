"""Subjects of certificates become principals, by rules in Kafka's syntax."""

from __future__ import annotations

import pytest

from tidelog.model.access import Principal
from tidelog.model.certificate_names import distinguished_name, parse_rules, principal_of
from tidelog.model.errors import InvalidRequest

SUBJECT = (
    (("countryName", "DE"),),
    (("organizationName", "Example, Inc."),),
    (("organizationalUnitName", "etl"),),
    (("commonName", "Nightly"),),
)
WHOLE = r"CN=Nightly,OU=etl,O=Example\, Inc.,C=DE"


def named(rules: str, subject: object = SUBJECT) -> str | None:
    found = principal_of({"subject": subject}, parse_rules(rules))
    return None if found is None else str(found)


def test_a_name_is_written_with_its_most_special_part_first() -> None:
    assert distinguished_name(SUBJECT) == WHOLE
    assert distinguished_name(((("commonName", "#a"), ("userId", "b ")),)) == "CN=\\#a+UID=b\\ "
    assert distinguished_name(((("emailAddress", "a@b"),),)) == "emailAddress=a@b"


def test_without_rules_the_common_name_counts_if_there_is_one() -> None:
    assert principal_of({"subject": SUBJECT}, ()) == Principal("User", "Nightly")
    two = ((("commonName", "a"),), (("commonName", "b"),))
    for subject in ((), ((("organizationName", "x"),),), two, ((("commonName", ""),),), ((("commonName", "a\nb"),),)):
        assert named("", subject) is None
    assert principal_of({}, ()) is None


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", WHOLE),
        ("RULE:^CN=(.*?),OU=etl,.*$/$1/", "Nightly"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$2-$1/L", "etl-nightly"),
        ("RULE:^CN=(.*?),.*$/$1/U", "NIGHTLY"),
        (r"RULE:^CN=(.*?),.*$/a\/$1/", "a/Nightly"),
        ("RULE:^CN=x,.*$/y/, RULE:^.*OU=etl.*$/etl/ ,DEFAULT", "etl"),
        ("RULE:CN=Nightly/part/,DEFAULT", WHOLE),
    ],
)
def test_the_first_rule_that_matches_all_of_the_name_counts(rules: str, name: str) -> None:
    assert named(rules) == f"User:{name}"


def test_whom_no_rule_matches_is_nobody() -> None:
    assert named("RULE:^CN=other,.*$/x/") is None


@pytest.mark.parametrize(
    "wrong", ["default", "RULE:a/b", "RULE:(/a/", "RULE:a/$1/", "RULE:a/b/X", "DEFAULT;DEFAULT", ","]
)
def test_what_is_no_rule_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_rules(wrong)
