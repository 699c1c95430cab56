"""The description is a sound OpenAPI 3.1 document, and says no more and no less than the table."""

from __future__ import annotations

import json
import re
from typing import Any

from tidelog.broker.http.openapi import describe
from tidelog.broker.http.routes import ROUTES

BODY_ON_A_GET = ("/consumers/{group}/instances/{instance}/offsets",)
"""Confluent's; there is no other way to say it."""
DOCUMENT: dict[str, Any] = json.loads(describe(ROUTES))


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, entry) for path, entries in DOCUMENT["paths"].items() for method, entry in entries.items()]


def test_it_covers_every_route_and_nothing_else() -> None:
    described = {(method.upper(), path) for path, method, _ in operations()}
    assert described == {(route.method, route.template) for route in ROUTES}
    assert DOCUMENT["openapi"].startswith("3.1.")
    assert DOCUMENT["info"].keys() >= {"title", "version"}


def test_operation_ids_are_unique() -> None:
    ids = [entry["operationId"] for _, _, entry in operations()]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"\w+", name) for name in ids)


def test_path_parameters_are_those_of_the_path() -> None:
    for path, _, entry in operations():
        declared = [parameter["name"] for parameter in entry["parameters"] if parameter["in"] == "path"]
        assert declared == re.findall(r"\{(\w+)\}", path)
        assert all(parameter["required"] for parameter in entry["parameters"] if parameter["in"] == "path")
        names = [(parameter["in"], parameter["name"]) for parameter in entry["parameters"]]
        assert len(names) == len(set(names))


def test_every_reference_leads_somewhere() -> None:
    references = re.findall(r'"\$ref":"#/components/schemas/([^"]+)"', json.dumps(DOCUMENT, separators=(",", ":")))
    assert references
    assert {*references} <= DOCUMENT["components"]["schemas"].keys()
    assert all(re.fullmatch(r"[a-zA-Z0-9._-]+", name) for name in DOCUMENT["components"]["schemas"])


def test_every_operation_has_a_summary_an_answer_and_the_error() -> None:
    for path, method, entry in operations():
        assert entry["summary"].endswith((".", "?")), (path, method)
        assert "default" in entry["responses"]
        assert any(status.startswith("2") for status in entry["responses"])
        assert ("requestBody" in entry) <= (method in ("post", "put", "patch") or path in BODY_ON_A_GET)


def test_every_route_says_what_it_does_to_what() -> None:
    for route in ROUTES:
        resource = route.resource({"topic": "t", "group": "g"})
        assert resource.type in ("Cluster", "Topic", "Group", "User")
        assert ("{group}" in route.path) == (resource.name == "g")
        assert ("{topic}" in route.path and "{group}" not in route.path) == (resource.name == "t")
