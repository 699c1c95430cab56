"""Maps the subject of a client's certificate to a principal, by Kafka's `ssl.principal.mapping.rules`.

A subject is read as its distinguished name (RFC 2253), the most specific part first: `CN=alice,OU=etl,O=Example`. The
first rule whose pattern matches all of it yields the name: `RULE:^CN=(.*?),OU=etl.*$/$1/L` makes it `alice`. `DEFAULT`
is the distinguished name itself. Without rules the principal is the common name, of which there must be exactly one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from tidelog.model.access import Principal, check_principal
from tidelog.model.errors import InvalidRequest

Subject = Sequence[Sequence[tuple[str, str]]]
"""A subject as the standard library's `ssl` returns it: relative distinguished names of (attribute, value) pairs."""

COMMON_NAME: Final = "commonName"
_SHORT: Final[Mapping[str, str]] = {
    COMMON_NAME: "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_TO_ESCAPE: Final = re.compile(r'[,+"\\<>;]|^[ #]| $')
_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_GROUP: Final = re.compile(r"\$(\d)")


class Rule(NamedTuple):
    """A mapping rule: a pattern for distinguished names, and the replacement that yields the principal's name.
    `DEFAULT` keeps each name as it is."""

    pattern: re.Pattern[str]
    replacement: str
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Returns the principal's name for a distinguished name; None if the pattern does not match."""
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        made = _GROUP.sub(lambda group: match[int(group[1])] or "", self.replacement)
        return {"L": made.lower(), "U": made.upper()}.get(self.case, made)


DEFAULT: Final = Rule(re.compile("(.*)", re.DOTALL), "$1")


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Parses rules that are separated by commas. Raises `InvalidRequest` for a malformed rule."""
    rules: list[Rule] = []
    at = 0
    while at < len(text):
        match = _RULE.match(text, at)
        if match is None:
            raise InvalidRequest(f"{text[at:]!r} is no rule: DEFAULT, or RULE:pattern/replacement/, with L or U behind")
        rules.append(DEFAULT if match[1] else _rule(*match.group(2, 3, 4)))
        at = match.end()
    return tuple(rules)


def _rule(pattern: str, replacement: str, case: str) -> Rule:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InvalidRequest(f"{pattern} is no regular expression: {error}") from None
    groups = [int(number) for number in _GROUP.findall(replacement)]
    if max(groups, default=0) > compiled.groups:
        raise InvalidRequest(f"{replacement} speaks of a group that {pattern} does not have")
    return Rule(compiled, replacement.replace("\\/", "/"), case)


def distinguished_name(subject: Subject) -> str:
    """Returns a subject as an RFC 2253 distinguished name. Attributes without a short name there keep their long
    name."""
    return ",".join(
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part) for part in subject[::-1]
    )


def _escaped(value: str) -> str:
    return _TO_ESCAPE.sub(lambda match: "\\" + match[0], value)


def principal_of(certificate: Mapping[str, Any], rules: Sequence[Rule]) -> Principal | None:
    """Returns the principal of a verified certificate; None if no rule matches, or the resulting name is invalid."""
    subject: Subject = certificate.get("subject", ())
    name: str | None
    if rules:
        full = distinguished_name(subject)
        name = next((made for rule in rules if (made := rule.apply(full)) is not None), None)
    else:
        names = [value for part in subject for attribute, value in part if attribute == COMMON_NAME]
        name = names[0] if len(names) == 1 else None
    try:
        return None if name is None else check_principal(f"User:{name}")
    except InvalidRequest:
        return None
