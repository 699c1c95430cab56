"""Whole numbers as they come from another broker: what the field cannot hold is refused while a message is decoded.

Every position, offset, epoch and length of the cluster is a signed number of 64 bits. MessagePack can say more, and -5
where there is nothing below 0. The bounds are part of the types of the fields, so that they cost nothing but the
comparison, in C.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

INT64_MAX: Final = 2**63 - 1

Natural = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
"""From 0 on."""
NaturalOrNone = Annotated[int, msgspec.Meta(ge=-1, le=INT64_MAX)]
"""From 0 on, or -1 where there is none."""
Int64 = Annotated[int, msgspec.Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
"""Any that Kafka's protocol could say as well; whoever acts on it judges the rest."""
