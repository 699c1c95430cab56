"""Routes are found by their segments, whatever a client puts into them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.http.router import Router, WrongMethod
from tidelog.broker.http.routes import ROUTES
from tidelog.model.errors import InvalidRequest, NotFound

ROUTER = Router(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.template}")
def test_every_route_finds_itself(route) -> None:  # type: ignore[no-untyped-def]  # the table's own type says it all
    path = route.template.replace("{", "").replace("}", "")
    found, values = ROUTER.match(route.method, path)
    assert found is route
    assert all(value == name for name, value in values.items())
    if route.path != "/":
        assert ROUTER.match(route.method, path + "/") == (found, values)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/topics/%2e%2e", {"topic": ".."}),
        ("/topics/..%2f..%2fetc", {"topic": "../../etc"}),
        ("/topics/a%00", {"topic": "a\x00"}),
        ("/topics/-/partitions/%30", {"topic": "-", "partition": "0"}),
        ("/topics/%C3%A9", {"topic": "\u00e9"}),
        ("/topics/a+b", {"topic": "a+b"}),
    ],
)
def test_a_placeholder_gets_one_decoded_segment(path: str, values: dict[str, str]) -> None:
    assert ROUTER.match("GET", path)[1] == values


def test_a_literal_is_preferred() -> None:
    assert ROUTER.match("GET", "/v3/clusters/c/topics/-/configs")[1] == {"cluster_id": "c"}
    assert ROUTER.match("GET", "/v3/clusters/c/topics/t/configs")[1] == {"cluster_id": "c", "topic": "t"}
    assert ROUTER.match("POST", "/v3/clusters/c/topics/t/records%3Abatch")[0].path.endswith(":batch")


@pytest.mark.parametrize(
    "path",
    ["", "*", "//", "/topics//", "//topics", "/topics//partitions", "/topics/t//", "/Topics", "/v3", "/v3/",
     "/topics/a/b", "/topics%2ft", "/v3/clusters//topics", "/v3/clusters//topics/"],
)  # fmt: skip
def test_other_paths_are_not_found(path: str) -> None:
    with pytest.raises(NotFound):
        ROUTER.match("GET", path)


@pytest.mark.parametrize("path", ["/topics/%", "/topics/%zz", "/topics/%ff", "/topics/%ed%a0%80"])
def test_bad_escapes_are_refused(path: str) -> None:
    with pytest.raises(InvalidRequest):
        ROUTER.match("GET", path)


def test_a_wrong_method_names_the_right_ones() -> None:
    with pytest.raises(WrongMethod) as caught:
        ROUTER.match("DELETE", "/topics/t")
    assert caught.value.allowed == ("GET", "POST")
    assert caught.value.status == 405


@given(st.text(alphabet="/abct%2f.-{}:", max_size=30), st.sampled_from(["GET", "POST", "X"]))
def test_any_path_is_found_or_refused(path: str, method: str) -> None:
    with suppress(InvalidRequest, NotFound, WrongMethod):
        ROUTER.match(method, path)


def test_a_route_cannot_be_there_twice() -> None:
    with pytest.raises(AssertionError):
        Router([*ROUTES, ROUTES[0]])
