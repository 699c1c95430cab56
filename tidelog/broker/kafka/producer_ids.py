"""InitProducerId: a unique producer id for an idempotent producer. Transactions are not supported: a request with a
transactional id gets the only error after which every client stops at once instead of retrying."""

from __future__ import annotations

from typing import Any

from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.codes import code_of
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.model.access import CLUSTER, Caller, Operation
from tidelog.model.errors import TidelogError
from tidelog.model.ids import NO_PRODUCER
from tidelog.model.kafka_codes import KafkaCode


async def init_producer_id(parts: Parts, _call: Call, request: Any, caller: Caller) -> dict[str, Any]:
    """Answers an InitProducerId with a new producer id and epoch 0, as nested dicts with the field names of the library
    kio."""
    if request.transactional_id is not None:
        return _answer(KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        parts.refuse_unauthorized(caller, Operation.IDEMPOTENT_WRITE, CLUSTER)
        return _answer(0, await parts.face.administration.allocate_producer_id(), 0)
    except TidelogError as error:
        return _answer(code_of(error, CLUSTER.type))


def _answer(code: int, producer_id: int = NO_PRODUCER, epoch: int = -1) -> dict[str, Any]:
    return {"error_code": code, "producer_id": producer_id, "producer_epoch": epoch}
