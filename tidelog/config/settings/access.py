"""Settings of logins, access lists, quotas and the audit log."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from tidelog.config.settings.base import Settings, setting
from tidelog.config.values import (
    Boolean,
    Count,
    JwtAlgorithms,
    KeysUrl,
    LoginMethods,
    Path,
    Principals,
    Seconds,
    Text,
    Words,
    keys_file,
)


class AccessSettings(Settings):
    """Settings of logins, ACLs, quotas and the audit log."""

    http_authentication: LoginMethods = setting(
        "http.authentication",
        (),
        "How HTTP clients say who they are: `token` (Authorization: Bearer ID.SECRET), `basic` (a user's name and "
        "password), `certificate` (shown in TLS; ssl.client.auth), `jwt` (Authorization: Bearer and a JSON Web Token; "
        "sasl.oauthbearer.*), or several, with commas between. Whoever shows none is refused with 401, but for "
        "/healthz, /readyz, / and /openapi.json. Default: nobody has to log in, and everybody is User:ANONYMOUS. (Not "
        "in Kafka.)",
    )
    http_ops_authentication: LoginMethods | None = setting(
        "http.ops.authentication",
        None,
        "The same at http.ops.listener, where /metrics alone wants to know; empty: nobody has to log in there. "
        "Default: as http.authentication. (Not in Kafka.)",
    )
    http_bootstrap_token_file: Path | None = setting(
        "http.bootstrap.token.file",
        None,
        "A file that holds ID.SECRET, and that only its owner may read (0600): a token that stands for the first of "
        "super.users on this broker, so that the first administrator of a cluster can log in and make others. "
        "Default: none. (Not in Kafka.)",
    )
    sasl_oauthbearer_jwks_endpoint_url: KeysUrl | None = setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        "The file with the keys that JSON Web Tokens are verified by, as in file:///etc/tidelog/jwks.json: a JWKS, or "
        "public keys and certificates in PEM. Nobody but its owner may be able to write it, nor to read it if it holds "
        "shared secrets (HS256). Looked at every few seconds, and on SIGHUP. Default: none; needed for `jwt`. (Kafka: "
        "https:// too; brokers fetch nothing here.)",
    )
    sasl_oauthbearer_expected_issuer: Text | None = setting(
        "sasl.oauthbearer.expected.issuer",
        None,
        "The `iss` that a JSON Web Token must have. Default: none; needed for `jwt`. (Kafka: not checked without it.)",
    )
    sasl_oauthbearer_expected_audience: Words = setting(
        "sasl.oauthbearer.expected.audience",
        (),
        "The `aud` that a JSON Web Token must have, or several with commas between, of which it must have one. "
        "Default: none; needed for `jwt`. (Kafka: not checked without it.)",
    )
    sasl_oauthbearer_sub_claim_name: Text = setting(
        "sasl.oauthbearer.sub.claim.name",
        "sub",
        "The claim of a JSON Web Token that names its principal: with `alice` in it, whoever shows it is User:alice.",
    )
    sasl_oauthbearer_clock_skew_seconds: Seconds = setting(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "How far the clock of whoever issues JSON Web Tokens may be from this broker's.",
        unit="s",
    )
    jwt_algorithms: JwtAlgorithms = setting(
        "jwt.algorithms",
        ("RS256", "ES256"),
        "How JSON Web Tokens may be signed, with commas between: RS256, RS384, RS512, PS256, PS384, PS512, ES256, "
        "ES384, ES512, EdDSA; and HS256, HS384, HS512, with which whoever can verify a token can make one. (Not in "
        "Kafka.)",
    )
    authorizer_enabled: Boolean = setting(
        "authorizer.enabled",
        False,
        "Whether ACLs say what callers may do; what no ACL allows is refused with 403 then. The same on all brokers. "
        "(Kafka: authorizer.class.name.)",
    )
    super_users: Principals = setting(
        "super.users",
        (),
        "Principals who may do everything, with semicolons between: User:admin;User:ops. The same on all brokers.",
    )
    allow_everyone_if_no_acl_found: Boolean = setting(
        "allow.everyone.if.no.acl.found",
        False,
        "Whether everybody may do everything to a resource that no ACL names.",
    )
    users_max: Count = setting("users.max", 1_000, "The most users that the cluster may have. (Not in Kafka.)")
    tokens_max: Count = setting(
        "tokens.max",
        5_000,
        "The most tokens that the cluster may have; those that are over make room. (Not in Kafka.)",
    )
    acls_max: Count = setting("acls.max", 5_000, "The most ACLs that the cluster may have. (Kafka: no limit.)")

    @property
    def jwt_keys_file(self) -> str:
        """Path of the file in `sasl.oauthbearer.jwks.endpoint.url`, which must be set."""
        assert self.sasl_oauthbearer_jwks_endpoint_url is not None
        return keys_file(self.sasl_oauthbearer_jwks_endpoint_url)

    @model_validator(mode="after")
    def _knows_the_issuer(self) -> Self:
        has_keys = self.sasl_oauthbearer_jwks_endpoint_url is not None
        if "jwt" not in self.http_authentication and not has_keys:
            return self
        needed = {
            "sasl.oauthbearer.jwks.endpoint.url": self.sasl_oauthbearer_jwks_endpoint_url,
            "sasl.oauthbearer.expected.issuer": self.sasl_oauthbearer_expected_issuer,
            "sasl.oauthbearer.expected.audience": self.sasl_oauthbearer_expected_audience,
        }
        missing = [name for name, value in needed.items() if not value]
        if missing:
            what = "http.authentication=jwt" if "jwt" in self.http_authentication else "OAUTHBEARER by such tokens"
            raise ValueError(
                f"{what} needs {' and '.join(missing)}: without it, tokens that were made for others would do"
            )
        return self
