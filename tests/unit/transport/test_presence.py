"""Whether a broker is there: when it is asked, and when it is given up. On a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tidelog.adapters.system import SystemEntropy
from tidelog.sim.kit.loop import run
from tidelog.transport.presence import PATIENCE_FACTOR, PATIENCE_S_MIN, QUIET_S, Presence, Silent
from tidelog.transport.session import ClusterSession


class Broker:
    """Answers the question whether it is there after `takes_s`, never if that is more than it is given."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.asked_s: list[float] = []
        self.presence = Presence("http://b:1", self._ask)

    async def _ask(self, seconds: float) -> bool:
        self.asked_s.append(now_s())
        await asyncio.sleep(min(self.takes_s, seconds))
        return self.takes_s <= seconds

    def ignore(self, silent: Silent) -> None:
        """Does nothing more about an answer that will not come."""

    async def owe(self, answer_s: float, *, expects_s: float = 0.0) -> float:
        """Returns how long it took until the answer was there. Raises `Silent`."""
        began_s = now_s()
        async with self.presence.required(expects_s):
            await asyncio.sleep(answer_s)
        return now_s() - began_s


def now_s() -> float:
    return asyncio.get_running_loop().time()


def play(broker: Broker, story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()
        await asyncio.gather(*broker.presence.close(), return_exceptions=True)

    run(main)


def test_a_broker_that_answers_in_time_is_asked_nothing() -> None:
    broker = Broker()

    async def story() -> None:
        assert await broker.owe(QUIET_S * 0.9) == pytest.approx(QUIET_S * 0.9)

    play(broker, story)
    assert not broker.asked_s


def test_a_broker_that_is_slow_and_there_is_waited_for() -> None:
    broker = Broker(takes_s=0.1)

    async def story() -> None:
        assert await broker.owe(20.0) == pytest.approx(20.0)

    play(broker, story)
    assert len(broker.asked_s) >= 20


def test_a_silent_broker_is_given_up_by_all_that_wait() -> None:
    broker = Broker(takes_s=3600)
    ended_s: list[float] = []

    async def wait(answer_s: float) -> None:
        with pytest.raises(Silent, match="silent"):
            await broker.owe(answer_s)
        ended_s.append(now_s())

    async def story() -> None:
        began_s = now_s()
        await asyncio.gather(wait(30.0), wait(60.0))
        assert [at_s - began_s for at_s in ended_s] == [pytest.approx(QUIET_S + PATIENCE_S_MIN, abs=0.01)] * 2

    play(broker, story)
    assert len(broker.asked_s) == 1, "one question, whoever waits"


def test_other_answers_show_that_the_broker_is_there() -> None:
    broker = Broker(takes_s=3600)

    async def others() -> None:
        for _ in range(100):
            await broker.owe(QUIET_S / 2)

    async def story() -> None:
        busy = asyncio.create_task(others())
        assert await broker.owe(20.0) == pytest.approx(20.0)
        busy.cancel()

    play(broker, story)
    assert not broker.asked_s


def test_a_long_poll_is_overdue_only_when_its_wait_is_over() -> None:
    broker = Broker(takes_s=3600)

    async def story() -> None:
        began_s = now_s()
        with pytest.raises(Silent):
            await broker.owe(60.0, expects_s=5.0)
        assert broker.asked_s[0] - began_s >= 5.0 + QUIET_S

    play(broker, story)


def test_what_is_sent_while_a_long_poll_waits_is_not_overlooked() -> None:
    broker = Broker(takes_s=3600)

    async def story() -> None:
        polling = asyncio.create_task(broker.owe(60.0, expects_s=30.0))
        await asyncio.sleep(1.0)
        began_s = now_s()
        with pytest.raises(Silent):
            await broker.owe(30.0)
        assert now_s() - began_s <= 2 * QUIET_S + PATIENCE_S_MIN + 0.01
        with pytest.raises(Silent):
            await polling

    play(broker, story)


def test_patience_follows_what_the_broker_has_lately_taken() -> None:
    """Under load all its answers are slow; who gives up sends the same again, and adds to it."""
    broker = Broker(takes_s=0.0)

    async def story() -> None:
        for answer_s in (0.4, 1.0, 2.0):
            await broker.owe(answer_s)
        assert broker.presence.patience_s == pytest.approx(PATIENCE_FACTOR * 2.0)
        broker.takes_s = 3.9
        assert await broker.owe(10.0) == pytest.approx(10.0)

    play(broker, story)


def test_answers_that_wait_for_something_say_little_of_how_slow_a_broker_is() -> None:
    """A broker that forwards long polls would else take ten seconds to notice that another one hangs."""
    broker = Broker(takes_s=0.3)
    broker.presence = Presence("b", broker._ask, slow_s_max=0.4)

    async def story() -> None:
        await broker.owe(30.0)
        assert broker.presence.patience_s == pytest.approx(PATIENCE_FACTOR * 0.4)
        broker.takes_s = 0.7
        await broker.owe(5.0)
        assert broker.presence.patience_s == pytest.approx(PATIENCE_FACTOR * 0.7), "the question counts whole"

    play(broker, story)


def test_a_deadline_of_the_callers_own_is_no_silence() -> None:
    broker = Broker()

    async def story() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await broker.owe(5.0)

    play(broker, story)


def test_whoever_wants_to_know_hears_of_a_silent_broker_until_it_answers() -> None:
    broker = Broker(takes_s=3600)
    heard_s: list[float] = []
    broker.presence = Presence("b", broker._ask, quiet_s=0.4, on_silent=lambda: heard_s.append(now_s()))

    async def story() -> None:
        began_s = now_s()
        with pytest.raises(Silent):
            await broker.owe(60.0)
        await asyncio.sleep(3.0)
        assert heard_s[0] - began_s == pytest.approx(0.4 + PATIENCE_S_MIN, abs=0.01)
        assert len(heard_s) >= 3, "nothing waits for it any more, and it is asked on"
        broker.takes_s = 0.0
        await asyncio.sleep(2.0)
        told = len(heard_s)
        await asyncio.sleep(60.0)
        assert len(heard_s) == told

    play(broker, story)


def test_a_broker_that_is_given_little_time_for_each_answer_turns_out_to_be_silent() -> None:
    """Such as a controller that hangs: a heartbeat is given up before it is overdue for long."""
    broker, silences = Broker(takes_s=3600), []
    broker.presence = Presence("node 1", broker._ask, on_silent=lambda: silences.append(now_s()))

    async def story() -> None:
        began_s = now_s()
        while now_s() < began_s + 3:
            give_up = broker.ignore
            broker.presence.expect(give_up, 0.0)
            await asyncio.sleep(QUIET_S / 2)
            broker.presence.missed(give_up)
        assert silences[0] - began_s == pytest.approx(QUIET_S + PATIENCE_S_MIN, abs=0.01)

    play(broker, story)


def test_an_answer_that_was_missed_is_forgotten_when_the_broker_is_heard() -> None:
    broker = Broker()

    async def story() -> None:
        broker.presence.expect(broker.ignore, 0.0)
        await asyncio.sleep(0.1)
        broker.presence.missed(broker.ignore)
        await broker.owe(0.1)
        await asyncio.sleep(5)

    play(broker, story)
    assert not broker.asked_s


def test_the_probes_of_a_client_have_ended_when_it_is_closed() -> None:
    async def main() -> None:
        session = ClusterSession("http://b:1", entropy=SystemEntropy())
        session._presences["http://b:1"] = presence = Presence("http://b:1", Broker(takes_s=3600)._ask)
        presence.expect(lambda silent: None, 0.0)
        await asyncio.sleep(QUIET_S)
        await session.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main)


def test_a_client_that_is_opened_again_gives_up_silent_brokers_as_before() -> None:
    broker = Broker(takes_s=3600)

    async def story() -> None:
        waiting = asyncio.create_task(broker.owe(20.0))
        await asyncio.sleep(0)
        await asyncio.gather(*broker.presence.close(), return_exceptions=True)  # before the first step of the probes
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        with pytest.raises(Silent):
            await broker.owe(20.0)

    play(broker, story)
