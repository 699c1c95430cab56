"""Logging in by tokens and passwords, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import hmac
import random
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from types import MappingProxyType
from typing import TypeVar

import pytest

from tidelog.broker.face.login import NO_PROOF, WAITING_MAX, Login, first_token
from tidelog.model.access import Principal, check_principal
from tidelog.model.credentials import NO_ACCESS, Access, User
from tidelog.model.errors import InvalidRequest, NotAuthenticated, Overloaded, TooManyAttempts
from tidelog.model.passwords import check_password, is_right, made_user

T = TypeVar("T")
SALTS = (b"0" * 16, b"1" * 16, b"2" * 16)
ALICE = User("alice", "hash of alice")
HOST = "10.0.0.1"


class Clock:
    """Time stands still unless the test says otherwise."""

    now_s = 1_000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return round(self.now_s * 1000)


class Entropy:
    """Entropy that is the same each time."""

    def __init__(self) -> None:
        self._random = random.Random(1)

    def token_hex(self, bytes_count: int) -> str:
        return self._random.randbytes(bytes_count).hex()

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


class Threads:
    """Runs calls when the test lets them go, one after the other."""

    def __init__(self) -> None:
        self.may_go = asyncio.Event()
        self.calls = 0

    async def run(self, call: Callable[[], T]) -> T:
        self.calls += 1
        await self.may_go.wait()
        return call()

    async def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        return [await self.run(call) for call in calls]


class House:
    """A `Login` on metadata that the test changes. A password is right if its user's hash is `hash of` it."""

    def __init__(self, runner: Threads | None = None) -> None:
        self.access: Access = NO_ACCESS
        self.clock = Clock()
        self.compared: list[tuple[str, str]] = []
        self.login = Login(lambda: self.access, self.clock, Entropy(), runner, self._verify)

    def _verify(self, kept: str, password: str) -> bool:
        self.compared.append((kept, password))
        return kept == f"hash of {password}"

    def has(self, *users: User) -> None:
        self.access = replace(self.access, users=MappingProxyType({user.name: user for user in users}))

    def token(self, expires_ms: int = 0) -> str:
        token, secret = self.login.made_token(check_principal("User:job"), expires_ms, "")
        self.access = replace(self.access, tokens=MappingProxyType({token.token_id: token}))
        return f"{token.token_id}.{secret}"


def test_a_token_stands_for_its_principal_until_it_is_revoked() -> None:
    house = House()
    text = house.token()
    proof = house.login.by_token(text)
    assert proof.principal == Principal("User", "job")
    assert house.login.still_holds(proof)
    house.access = NO_ACCESS
    assert not house.login.still_holds(proof)
    with pytest.raises(NotAuthenticated):
        house.login.by_token(text)


def test_a_token_ends() -> None:
    house = House()
    text = house.token(expires_ms=1_000_500)
    proof = house.login.by_token(text)
    house.clock.now_s += 0.5
    assert not house.login.still_holds(proof)
    with pytest.raises(NotAuthenticated):
        house.login.by_token(text)


def test_all_wrong_tokens_are_told_the_same() -> None:
    """F105."""
    house = House()
    text = house.token()
    told = []
    for wrong in ("", ".", "x", text[:-1], f"{text}0", f"other.{text.partition('.')[2]}", text.partition(".")[0]):
        with pytest.raises(NotAuthenticated) as caught:
            house.login.by_token(wrong)
        told.append(caught.value.message)
    assert len(dict.fromkeys(told)) == 1
    assert text.partition(".")[2] not in repr(house.access)


def test_the_first_token_is_beside_the_metadata() -> None:
    house = House()
    house.login.first_token = first_token(f"first.{'s' * 32}", ["User:root", "User:ops"])
    proof = house.login.by_token(f"first.{'s' * 32}")
    assert (str(proof.principal), house.login.still_holds(proof)) == ("User:root", True)
    for text, super_users, words in (
        ("first", ["User:root"], "written as ID.SECRET"),
        ("first.short", ["User:root"], "32 characters"),
        (f"first.{'s' * 32}", [], "there is none"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            first_token(text, super_users)


async def test_a_password_is_compared_once_a_minute() -> None:
    house = House()
    house.has(ALICE)
    for _ in range(3):
        assert (await house.login.by_password("alice", "alice", HOST)).principal == Principal("User", "alice")
    assert len(house.compared) == 1
    house.clock.now_s += 60
    await house.login.by_password("alice", "alice", HOST)
    assert len(house.compared) == 2


async def test_a_changed_user_is_out_at_once() -> None:
    house = House()
    house.has(ALICE)
    proof = await house.login.by_password("alice", "alice", HOST)
    house.has(User("alice", "hash of another"))
    assert not house.login.still_holds(proof)
    with pytest.raises(NotAuthenticated):
        await house.login.by_password("alice", "alice", HOST)
    house.has()
    with pytest.raises(NotAuthenticated):
        await house.login.by_password("alice", "another", HOST)


async def test_an_unknown_user_costs_and_is_told_what_a_wrong_password_does() -> None:
    """F105."""
    house = House()
    house.has(ALICE)
    told = []
    for name in ("alice", "bob"):
        with pytest.raises(NotAuthenticated) as caught:
            await house.login.by_password(name, "wrong", HOST)
        told.append(caught.value.message)
    assert told[0] == told[1]
    assert len(house.compared) == 2
    assert house.compared[1][0].startswith("$argon2id$v=19$m=19456,t=2,p=1$")


async def test_five_failures_a_minute() -> None:
    """F104."""
    house = House()
    house.has(ALICE, User("bob", "hash of bob"))
    for n in range(5):
        with pytest.raises(NotAuthenticated):
            await house.login.by_password("alice", f"wrong {n}", HOST)
        house.clock.now_s += 1
    with pytest.raises(TooManyAttempts) as caught:
        await house.login.by_password("alice", "alice", HOST)
    assert caught.value.retry_after_s in (55, 56)
    assert len(house.compared) == 5
    await house.login.by_password("alice", "alice", "10.0.0.2")
    await house.login.by_password("bob", "bob", HOST)
    house.clock.now_s += 56
    await house.login.by_password("alice", "alice", HOST)
    for n in range(5):
        with pytest.raises(NotAuthenticated):
            await house.login.by_password("alice", f"wrong {n}", HOST)


async def test_attempts_at_once_are_no_way_round() -> None:
    threads = Threads()
    house = House(threads)
    house.has(ALICE)
    tries = [asyncio.create_task(house.login.by_password("alice", f"{n}", HOST)) for n in range(20)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert threads.calls == 5
    threads.may_go.set()
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    kinds = [type(outcome) for outcome in outcomes]
    assert (kinds.count(NotAuthenticated), kinds.count(TooManyAttempts)) == (5, 15)


async def test_many_connections_with_one_password_are_one_comparison() -> None:
    threads = Threads()
    house = House(threads)
    house.has(ALICE)
    tries = [asyncio.create_task(house.login.by_password("alice", "alice", HOST)) for _ in range(50)]
    await asyncio.sleep(0)
    tries[0].cancel()
    threads.may_go.set()
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert threads.calls == 1
    assert sum(isinstance(outcome, BaseException) for outcome in outcomes) == 1


async def test_who_would_wait_for_too_long_is_refused() -> None:
    """F104."""
    threads = Threads()
    house = House(threads)
    tries = [asyncio.create_task(house.login.by_password(f"user {n}", "x", HOST)) for n in range(WAITING_MAX)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await house.login.by_password("one more", "x", HOST)
    threads.may_go.set()
    await asyncio.gather(*tries, return_exceptions=True)
    with pytest.raises(NotAuthenticated):
        await house.login.by_password("one more", "x", HOST)


def test_a_token_in_other_characters_is_unknown() -> None:
    with pytest.raises(NotAuthenticated):
        House().login.by_token("id.\udcff")


def test_no_proof_always_holds() -> None:
    assert House().login.still_holds(NO_PROOF)


def test_what_is_kept_of_a_password() -> None:
    user = made_user("alice", "correct horse", SALTS)
    assert is_right(user.password_hash, "correct horse")
    assert not is_right(user.password_hash, "Correct horse")
    assert [keys.mechanism for keys in user.scram] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    for wrong in ("short", "x" * 1_025):
        with pytest.raises(InvalidRequest, match="8 to 1024 bytes"):
            check_password(wrong)


def test_scram_keys_are_those_of_the_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of RFC 7677: its proof, with the stored key, gives back the client key."""
    monkeypatch.setattr("tidelog.model.passwords.SCRAM_ITERATIONS", 4096)
    keys = made_user("user", "pencil", (b"0" * 16, b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), b"2" * 16)).scram[0]
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    said = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}".encode()
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(bytes.fromhex(keys.stored_key), said, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert sha256(client_key).hexdigest() == keys.stored_key
    assert b64encode(hmac.digest(bytes.fromhex(keys.server_key), said, "sha256")) == (
        b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )


def test_a_certificate_holds_until_its_time_ends() -> None:
    house = House()
    shown = {"subject": ((("commonName", "alice"),),), "notAfter": "Jan  1 01:00:00 1970 GMT"}
    proof = house.login.by_certificate(shown, ())
    assert proof.principal == Principal("User", "alice") and house.login.still_holds(proof)
    with pytest.raises(NotAuthenticated):
        house.login.by_certificate({**shown, "subject": ()}, ())
    house.clock.now_s = 3600.0
    assert not house.login.still_holds(proof)
    with pytest.raises(NotAuthenticated):
        house.login.by_certificate(shown, ())
