"""One list of commands: nothing that the controller can be asked is missing from it, or stands in it twice."""

from __future__ import annotations

import gc

import pytest

from tidelog.broker.peer_claims import CLAIMS
from tidelog.broker.peer_service import MESSAGE_ADDITIONS, PEER_MESSAGES
from tidelog.controller.command_table import CLIENT_COMMANDS, COMMANDS, WIRE_COMMANDS, Row, check_rows
from tidelog.controller.commands import ClientCommand, Command
from tidelog.model.levels import LEVEL_MAX


def test_a_command_without_a_row_is_an_error_of_import() -> None:
    for kind in COMMANDS:
        rows = {other: row for other, row in COMMANDS.items() if other is not kind}
        with pytest.raises(TypeError, match=f"{kind.__name__} has no row in COMMANDS"):
            check_rows(rows)


def test_a_new_command_cannot_be_forgotten() -> None:
    class Forgotten(Command, frozen=True, tag=True):
        pass

    try:
        with pytest.raises(TypeError, match="Forgotten has no row"):
            check_rows(COMMANDS)
    finally:
        del Forgotten
        gc.collect()
    check_rows(COMMANDS)


def test_a_clients_command_takes_rights_and_says_for_whom_it_is() -> None:
    for kind, row in COMMANDS.items():
        assert issubclass(kind, ClientCommand) is (kind in CLIENT_COMMANDS) is (row.needs is not None)
        if kind in CLIENT_COMMANDS:
            assert MESSAGE_ADDITIONS.types.get(kind) == LEVEL_MAX or MESSAGE_ADDITIONS.fields[kind]["caller"] == 3
    (free,) = [kind for kind in CLIENT_COMMANDS if kind.__name__ == "CreateTopic"]
    with pytest.raises(TypeError, match="CreateTopic is a client's command if it takes rights"):
        check_rows({**COMMANDS, free: Row(COMMANDS[free].decide)})


def test_claims_and_messages_are_read_from_the_table() -> None:
    assert {kind for kind in PEER_MESSAGES if issubclass(kind, Command)} == {*WIRE_COMMANDS}
    assert {kind: CLAIMS[kind] for kind in WIRE_COMMANDS} == {kind: COMMANDS[kind].claim for kind in WIRE_COMMANDS}
