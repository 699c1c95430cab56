"""REST v3: deletes the records at the head of a partition (Kafka's DeleteRecords), which Confluent's REST Proxy does
not have.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from tidelog.broker.http.answers import no_content
from tidelog.broker.http.body import read_body
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.envelope import Links
from tidelog.broker.http.json_body import Body, OffsetNumber, decode_body, json_decoder
from tidelog.broker.http.media import check_document


class DeletionAsked(Body):
    """The body of a deletion: `before_offset` becomes the partition's log start offset."""

    before_offset: OffsetNumber


_DELETION: Final = json_decoder(DeletionAsked)


async def delete_records(context: Context, call: Call) -> web.StreamResponse:
    """Deletes the committed records below an offset. May be repeated."""
    Links(context, call)
    partition = context.face.partitions.handle(call.topic_name(), call.partition_number())
    check_document(call.request)
    deadline_s = call.deadline_s(context)
    deletion = decode_body(_DELETION, await read_body(context, call, context.limits.json_bytes_max))
    await partition.delete_records(deletion.before_offset, deadline_s=deadline_s)
    return no_content()
