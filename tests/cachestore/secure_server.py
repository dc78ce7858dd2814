"""A redis-server that speaks TLS and knows its users."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from poolrt.cachestore.redis.schema import Schema

from ..drills.ports import Port
from .certificates import Authority
from .server import RedisServer
from .server_programs import openssl, tls_program

#: A password with characters that a URL has to quote.
PASSWORD: Final = "p@ss:w/rd?#%"


class SecureServer(RedisServer):
    """A server with TLS on a port of 127.0.0.1; its socket is for the tests' own client.

    Its certificate is for `alternative`; with `mutual` it wants one of its clients, too.
    """

    def __init__(self, folder: Path, alternative: str = "IP:127.0.0.1", mutual: bool = False) -> None:
        openssl()
        folder.mkdir(exist_ok=True)
        self.authority = Authority(folder)
        certificate, key = self.authority.issue("server", alternative)
        self._kept = Port()
        self.port = self._kept.number
        settings = {
            "bind": "127.0.0.1",
            "tls-port": str(self.port),
            "tls-cert-file": str(certificate),
            "tls-key-file": str(key),
            "tls-ca-cert-file": str(self.authority.certificate),
            "tls-auth-clients": "yes" if mutual else "no",
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        super().__init__(folder, *words, program=tls_program(folder))

    def address(self, user: str = "", password: str = "", **more: Any) -> str:
        """Return the URL for a client that trusts the authority; `more` are other parameters, None leaves one out."""
        login = f"{user}:{quote(password, safe='')}@" if password else ""
        query = {"ssl_ca_certs": str(self.authority.certificate), **more}
        words = urlencode({name: value for name, value in query.items() if value is not None})
        return f"rediss://{login}127.0.0.1:{self.port}/0?{words}"

    def address_of_user(self, namespace: str) -> str:
        """Return the URL for a user with the rights for one namespace; a client without a name is refused."""
        user = f"user-of-{namespace}"
        with self.client() as client:
            client.execute_command("ACL", "SETUSER", user, "on", f">{PASSWORD}", *Schema(namespace).acl_rule.split())
        return self.address(user, PASSWORD)
