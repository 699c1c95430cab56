"""`Idempotency-Key`: a retry that never appends twice, recognised by the log itself.

The key becomes the id of an idempotent producer of its own, and a fingerprint of the content its first sequence. So a
duplicate is recognised by the partition's producer state, which every replica has because it is in the batches: the
retry may go to any broker, also after a failover. The same key with other content is the same producer with a sequence
out of order, and is refused.

The scope is the topic: two topics, or a topic that was deleted and created again, do not share keys.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import xxhash
from aiohttp import web

from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import KEYED_PRODUCER_BIT, ProducerId, TopicId
from tidelog.model.ports import Buffer

HEADER = "Idempotency-Key"
FINGERPRINT_BITS = 31

_KEY = re.compile(r"[!-~]{1,255}")


class KeyedRequest(NamedTuple):
    """The identity of a request with an `Idempotency-Key`: the producer id made from the key, and a fingerprint of the
    request.
    """

    producer_id: ProducerId
    fingerprint: int

    def choose_partition(self, partitions: int) -> int:
        """Returns the partition for records that have neither key nor partition: the same one for every retry."""
        return self.producer_id % partitions


def keyed_request(request: web.BaseRequest, topic_id: TopicId, scope: str, body: Buffer) -> KeyedRequest | None:
    """Returns the request's identity if it has an `Idempotency-Key`. `scope` has everything besides the body that
    decides what is appended (the partition in the path, the format). Raises `InvalidRequest` if the key is not 1 to 255
    visible ASCII characters.
    """
    keys = request.headers.getall(HEADER, None)
    if keys is None:
        return None
    if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
        raise InvalidRequest(f"{HEADER} must be one string of 1 to 255 visible ASCII characters")
    digest = xxhash.xxh3_64_intdigest(f"{topic_id} {keys[0]}".encode())
    producer_id = ProducerId(digest & (KEYED_PRODUCER_BIT - 1) | KEYED_PRODUCER_BIT)
    seed = xxhash.xxh3_64_intdigest(scope.encode())
    return KeyedRequest(producer_id, xxhash.xxh3_64_intdigest(body, seed) >> (64 - FINGERPRINT_BITS))


def refuse_key(request: web.BaseRequest, why: str) -> None:
    """Raises `InvalidRequest`, with the reason `why`, if the request has an `Idempotency-Key` on a route that does not
    support it.
    """
    if HEADER in request.headers:
        raise InvalidRequest(f"{HEADER} {why}")
