"""Types of integers in messages between brokers: a number out of range is refused while the message is decoded.

Every position, offset, epoch and length of the cluster is a signed number of 64 bits. MessagePack can encode larger
ones, and negative ones where only 0 and more are valid. The bounds are part of the types of the fields, so that they
cost nothing but the comparison, in C.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

INT64_MAX: Final = 2**63 - 1

Natural = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
"""An integer from 0 to 2**63 - 1."""
NaturalOrNone = Annotated[int, msgspec.Meta(ge=-1, le=INT64_MAX)]
"""An integer from 0 to 2**63 - 1, or -1 for none."""
Int64 = Annotated[int, msgspec.Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
"""Any signed 64-bit integer, as in Kafka's protocol; the code that uses it checks its range."""
