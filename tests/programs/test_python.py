"""The programs in Python: a web service, a management command, a worker, a notebook and a suite of tests."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest
import requests

from tests.e2e.asking import until
from tests.programs.conftest import EXAMPLES, Broker, Program, ran

pytestmark = [pytest.mark.programs, pytest.mark.process, pytest.mark.timeout(300)]


def need(*modules: str) -> None:
    for module in modules:
        pytest.importorskip(module, reason=f"{module} is missing; `make programs` installs it")


class TestWebService:
    @pytest.fixture(autouse=True)
    def _needs(self) -> None:
        need("fastapi", "uvicorn")

    @staticmethod
    @contextmanager
    def service(broker: Broker, output: Path) -> Iterator[tuple[str, Program]]:
        words: list[str | Path] = ["-m", "uvicorn", "--app-dir", EXAMPLES, "fastapi_service:app", "--port", "0"]
        with Program(words, output, TIDELOG_BOOTSTRAP=broker.url) as program:
            program.says("Uvicorn running on ")
            yield program.output.partition("Uvicorn running on ")[2].split()[0], program

    @staticmethod
    def totals(url: str) -> object:
        return requests.get(f"{url}/totals", timeout=30).json()

    def test_orders_are_written_and_counted(self, broker: Broker, tmp_path: Path) -> None:
        with self.service(broker, tmp_path / "first") as (url, program):
            for item, count, offset in (("tea", 2, 0), ("milk", 1, 0), ("tea", 3, 1)):
                answer = requests.post(f"{url}/orders", json={"item": item, "count": count}, timeout=30)
                assert (answer.status_code, answer.json()["offset"]) == (201, offset)
            until(lambda: self.totals(url) == {"tea": 5, "milk": 1})
            program.terminate()
            program.says("shutdown complete")
        with self.service(broker, tmp_path / "second") as (url, _):
            until(lambda: self.totals(url) == {"tea": 5, "milk": 1})

    def test_what_is_no_order_is_refused(self, broker: Broker, tmp_path: Path) -> None:
        with self.service(broker, tmp_path / "output") as (url, _):
            assert requests.post(f"{url}/orders", json={"item": "tea", "count": 0}, timeout=30).status_code == 422
            answer = requests.post(f"{url}/orders", json={"item": "x" * (2 << 20), "count": 1}, timeout=30)
            assert (answer.status_code, answer.json()["taken"]) == (413, "no")
            assert self.totals(url) == {}

    def test_a_failed_count_is_told(self, broker: Broker, tmp_path: Path) -> None:
        broker.order(("tea", -1))
        with self.service(broker, tmp_path / "output") as (url, _):
            until(lambda: requests.get(f"{url}/totals", timeout=30).status_code == 500)


class TestManagementCommand:
    @pytest.fixture(autouse=True)
    def _needs(self, tmp_path: Path) -> None:
        need("django")
        self.manage, self.database = EXAMPLES / "django_project" / "manage.py", tmp_path / "orders.sqlite3"
        ran([sys.executable, self.manage, "migrate", "--run-syncdb"], DATABASE=str(self.database))

    def rows(self) -> Counter[tuple[str, int]]:
        with closing(sqlite3.connect(self.database)) as connection:
            return Counter(connection.execute("SELECT item, count FROM orders_order"))

    def consume(self, broker: Broker, output: Path, *words: str) -> Program:
        words = ("consume_orders", "--bootstrap", broker.url, *words)
        return Program([self.manage, *words], output, DATABASE=str(self.database))

    def test_orders_become_rows_and_are_committed(self, broker: Broker, tmp_path: Path) -> None:
        broker.order(("tea", 2), ("milk", 1))
        with self.consume(broker, tmp_path / "first") as command:
            until(lambda: self.rows() == {("tea", 2): 1, ("milk", 1): 1})
            command.kill()
        broker.order(("tea", 3))
        with self.consume(broker, tmp_path / "second") as command:
            until(lambda: self.rows() == {("tea", 2): 1, ("milk", 1): 1, ("tea", 3): 1})
            assert command.terminate() == 0
            command.says("stopped")

    def test_orders_that_come_again_change_nothing(self, broker: Broker, tmp_path: Path) -> None:
        broker.order(("tea", 2), ("tea", 2), ("milk", 1))
        for group in ("one", "two"):
            with self.consume(broker, tmp_path / group, "--group", group) as command:
                command.says("kept 2 of orders-2")
                command.says("kept 1 of orders-0")
                assert command.terminate() == 0
            assert broker.lags(group) == {0: 0, 2: 0}
            assert self.rows() == {("tea", 2): 2, ("milk", 1): 1}


class Receiver(ThreadingHTTPServer):
    """A web service that never takes beer, and milk only at its third try; `fails` makes it take nothing."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, int]] = []
        self.tries = Counter[str]()
        self.fails = Event()
        super().__init__(("127.0.0.1", 0), ReceiverHandler)
        self.url = f"http://127.0.0.1:{self.server_port}/orders"


class ReceiverHandler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        item = order["item"]
        self.server.tries[item] += 1
        is_taken = not self.server.fails.is_set() and item != "beer" and (item != "milk" or self.server.tries[item] > 2)
        if is_taken:
            self.server.taken.append((item, order["count"]))
        self.send_response(200 if is_taken else 503)
        self.end_headers()

    def log_request(self, *_: object) -> None:
        """Writes nothing to the tests' output."""


class TestWorker:
    @pytest.fixture
    def receiver(self) -> Iterator[Receiver]:
        with Receiver() as receiver:
            thread = Thread(target=receiver.serve_forever, args=(0.05,))
            thread.start()
            yield receiver
            receiver.shutdown()
            thread.join()

    @staticmethod
    def work(broker: Broker, receiver: Receiver, output: Path) -> Program:
        return Program([EXAMPLES / "worker.py", receiver.url, "--bootstrap", broker.url], output)

    def test_it_tries_again_and_puts_aside_what_never_succeeds(
        self, broker: Broker, receiver: Receiver, tmp_path: Path
    ) -> None:
        orders = [("tea", 1), ("milk", 2), ("beer", 3), ("tea", 4)]
        broker.order(*orders)
        with self.work(broker, receiver, tmp_path / "output") as worker:
            worker.says("put aside orders-")
            [dead] = broker.records("orders-dead", 1)
            until(lambda: sorted(receiver.taken) == [("milk", 2), ("tea", 1), ("tea", 4)])
            assert worker.terminate() == 0
        assert receiver.tries == {"tea": 2, "milk": 3, "beer": 6}
        assert (dead.key, json.loads(dead.value or b"")["count"]) == (b"beer", 3)
        headers = dict(dead.headers)
        assert headers["reason"] == b"503 Service Unavailable"
        assert (headers["origin"] or b"").startswith(b"orders-")
        assert set(broker.lags("worker").values()) == {0}

    def test_what_it_was_told_to_stop_at_comes_again(self, broker: Broker, receiver: Receiver, tmp_path: Path) -> None:
        receiver.fails.set()
        broker.order(("tea", 1))
        with self.work(broker, receiver, tmp_path / "first") as worker:
            until(lambda: receiver.tries["tea"] > 1)
            assert worker.terminate() == 0
        assert (receiver.taken, receiver.tries["tea"] < 6) == ([], True)
        receiver.fails.clear()
        with self.work(broker, receiver, tmp_path / "second") as worker:
            until(lambda: receiver.taken == [("tea", 1)])
            assert worker.terminate() == 0
        assert broker.lags("worker") == {2: 0}


def test_the_notebook_sums_up_what_it_wrote(broker: Broker, tmp_path: Path) -> None:
    need("nbclient", "ipykernel", "pandas")
    notebook = Path(shutil.copy(EXAMPLES / "orders.ipynb", tmp_path))
    ran([sys.executable, "-m", "jupyter", "execute", "--inplace", notebook], TIDELOG_BOOTSTRAP=broker.url)
    [output] = json.loads(notebook.read_text())["cells"][-1]["outputs"]
    assert output["data"]["text/plain"][1:3] == ["milk    1\n", "tea     5\n"]


def test_the_suite_of_tests_passes() -> None:
    assert "3 passed" in ran([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", EXAMPLES / "pytest_suite"])
