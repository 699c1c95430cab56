"""Applies the records about users, tokens and ACLs to the image."""

from __future__ import annotations

from dataclasses import replace

from tidelog.controller import records
from tidelog.model.cluster import in_order
from tidelog.model.credentials import Access


def apply_to_access(access: Access, record: records.AccessRecord) -> Access:
    """Returns users, tokens and ACLs after a record."""
    match record:
        case records.UserStored(user):
            return replace(access, users=in_order({**access.users, user.name: user}))
        case records.UserRemoved(name):
            users = {user_name: user for user_name, user in access.users.items() if user_name != name}
            return replace(access, users=in_order(users))
        case records.TokenStored(token):
            return replace(access, tokens=in_order({**access.tokens, token.token_id: token}))
        case records.TokensRemoved(token_ids):
            gone = dict.fromkeys(token_ids)
            tokens = {token_id: token for token_id, token in access.tokens.items() if token_id not in gone}
            return replace(access, tokens=in_order(tokens))
        case records.AclsAdded(acls):
            # One order on every broker, whatever the history: snapshots are compared by their bytes.
            return replace(access, acls=tuple(sorted(dict.fromkeys((*access.acls, *acls)))))
        case records.AclsRemoved(acls):
            without = dict.fromkeys(acls)
            return replace(access, acls=tuple(acl for acl in access.acls if acl not in without))
