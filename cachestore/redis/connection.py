"""Commands to one Redis, with every wait bounded and every failure raised as `StoreUnavailable`.

The client's own defaults would wait a minute for a frozen server, so time-outs and retries are set here; no exception
of redis-py leaves this module, and a shape of `replies` checks each reply. Scripts are sent as plain EVALSHA (the client's
script objects ask SCRIPT EXISTS first, one more round trip) and loaded when Redis does not know them.

In a cluster all keys of a namespace are in one slot, and so on one node: a plain client is enough, and follows a MOVED
answer to another node. Any failure there brings it back to the address of the URL.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from poolrt.cachestore.errors import StoreFull, StoreUnavailable
from poolrt.cachestore.peer import check_peer

from .address import moved
from .breaker import CircuitBreaker
from .replies import MalformedReply, Shape, list_of, value
from .scripts import Script
from .value_reader import ValueReader

#: Longest wait, in seconds, for a connection.
CONNECT_S: Final = 0.25
#: Connections of one client, one for each thread that waits for an answer; the client's own bound would be 100.
_MOST_CONNECTIONS: Final = 1 << 16
#: Longest time, in seconds, that one blocking read waits; a flushed stream would never answer.
BLOCK_S: Final = 0.25

T = TypeVar("T")
Command = tuple[bytes | str | float, ...]
#: A command, and keys and arguments of a script that runs behind it.
Upload = tuple[Command, Sequence[str], Sequence[bytes | str | float]]


class RedisConnection:
    """Send commands to the Redis at `url`; `name` is its name in messages (without a password).

    Thread-safe. `io_timeout_s` bounds the wait for every answer. `on_malformed` is called for each malformed reply.
    With `own_server` nothing is sent to a server of another user, which may listen at the path of ours.
    """

    def __init__(
        self,
        url: str,
        name: str,
        io_timeout_s: float,
        breaker: CircuitBreaker,
        on_malformed: Callable[[], object] = lambda: None,
        own_server: bool = False,
    ) -> None:
        # Imported here: the client costs 80 ms, and a process that finds everything in files never needs it.
        import redis
        from redis.backoff import NoBackoff
        from redis.exceptions import MovedError, NoScriptError, OutOfMemoryError, TimeoutError
        from redis.retry import Retry

        self.name = name
        self._breaker = breaker
        self._on_malformed = on_malformed
        self._errors: tuple[type[Exception], ...] = (redis.RedisError, OSError)
        self._silence = TimeoutError
        self._unknown_script = NoScriptError
        self._full = OutOfMemoryError
        self._moved = MovedError
        self._answer_errors = redis.ResponseError

        def client(url: str, timeout: float) -> Any:
            made: Any = redis.Redis.from_url(
                url,
                socket_timeout=timeout,
                socket_connect_timeout=min(CONNECT_S, timeout),
                # Once more for a connection that the server has closed, not for a silent server.
                retry=Retry(NoBackoff(), 1, (redis.ConnectionError,)),
                protocol=2,
                max_connections=_MOST_CONNECTIONS,
                redis_connect_func=_greet if url.startswith("rediss:") else _check_server if own_server else None,
                driver_info=None,
            )
            # Answers as they come: the client's reshaping changes with its versions.
            made.response_callbacks.clear()
            return made

        def connect() -> Any:
            pool = self._client.connection_pool
            made: Any = pool.connection_class(**pool.connection_kwargs)
            made.connect()
            return made

        def clients(url: str) -> tuple[Any, Any]:
            return client(url, io_timeout_s), client(url, BLOCK_S + io_timeout_s / 2)

        self._connect = connect
        self._make_clients = clients
        self._lock = threading.Lock()
        self._given = self._url = url
        #: The clients of each address that was used; another thread may still use those of a former address.
        self._clients: dict[str, tuple[Any, Any]] = {}
        self._readers: dict[Command, ValueReader] = {}
        try:
            self._use_address(url)
        except (ValueError, TypeError) as error:
            raise StoreUnavailable(name, str(error)) from None

    def command(self, shape: Shape[T], *command: bytes | str | float) -> T:
        """Run one command and return its answer."""
        return self._guarded(shape, self._run_command, *command)

    def wait_command(self, shape: Shape[T], *command: bytes | str | float) -> T | None:
        """Run one command that blocks for at most `BLOCK_S` seconds; None when there is no answer.

        Redis measures that time with a clock that may step, so silence is no failure here: the next command decides.
        """
        try:
            return self._checked(shape, self._blocking.execute_command, *command)
        except self._silence:
            return None

    def script(
        self, shape: Shape[T], script: Script, keys: Sequence[str], arguments: Sequence[bytes | str | float]
    ) -> T:
        """Run a script and return its answer."""
        return self._guarded(shape, self._run_script, script, keys, arguments)

    def batch(self, shape: Shape[T], commands: Sequence[Command]) -> list[T]:
        """Run several commands in one round trip; raise the first failure."""
        return self._guarded(list_of(shape, len(commands)), self._run_batch, commands)

    def values(self, fields: tuple[str, ...], names: Sequence[str]) -> tuple[list[bytes | None], list[bytes | None]]:
        """Return some fields of a hash (`fields` is the command, HMGET) and some values, in one round trip."""
        reader = self._readers.get(fields)
        if reader is None:
            reader = self._readers.setdefault(fields, ValueReader(self._connect, *fields))
        answer: tuple[list[bytes | None], list[bytes | None]] | None
        answer = self._guarded(lambda plain: plain, reader.read, names)  # the reader has checked it
        if answer is None:
            count = len(fields) - 2

            def shape(answers: list[Any]) -> tuple[list[bytes | None], list[bytes | None]]:
                return list_of(value, count)(answers[0]), list_of(value, len(names))(answers[1:])

            answer = self._guarded(shape, self._run_batch, [fields, *(("GET", name) for name in names)])
        return answer

    def uploads(self, shape: Shape[T], uploads: Sequence[Upload], script: Script) -> list[T | StoreFull]:
        """Run each command with the script behind it, all in one round trip; return the script's answers.

        The answer is a StoreFull for each that Redis has no memory for; raises the first other failure.
        """

        def check(answer: Any) -> T | StoreFull:
            return answer if isinstance(answer, StoreFull) else shape(answer)

        return self._guarded(list_of(check, len(uploads)), self._run_uploads, uploads, script)

    def check(self, shape: Shape[T], part: Any) -> T:
        """Return the value of a part of an answer. Raises StoreUnavailable unless it has a shape."""
        try:
            return shape(part)
        except MalformedReply as error:
            raise self._malformed(str(error)) from None

    def close(self) -> None:
        """Close the connections."""
        for reader in self._readers.values():
            reader.close()
        for pair in self._clients.values():
            for client in pair:
                client.close()

    def _use_address(self, url: str) -> None:
        """Use this address from now on."""
        with self._lock:
            if url not in self._clients:
                self._clients[url] = self._make_clients(url)
            self._client, self._blocking = self._clients[url]
            self._url = url
            readers, self._readers = self._readers, {}
        for reader in readers.values():
            reader.close()

    def _run_command(self, *command: bytes | str | float) -> Any:
        return self._client.execute_command(*command)

    def _run_script(self, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        try:
            return self._client.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
        except self._unknown_script:
            # SCRIPT LOAD rather than EVAL: an ACL can then forbid EVAL.
            self._client.execute_command("SCRIPT LOAD", script.source)
            return self._client.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)

    def _run_batch(self, commands: Sequence[Command]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        answers: list[Any] = pipeline.execute(raise_on_error=True)
        return answers

    def _run_uploads(self, uploads: Sequence[Upload], script: Script) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for command, keys, arguments in uploads:
            pipeline.execute_command(*command)
            pipeline.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
        answers = pipeline.execute(raise_on_error=False)
        found = []
        for (_, keys, arguments), uploaded, answer in zip(uploads, answers[::2], answers[1::2], strict=True):
            if isinstance(uploaded, Exception):
                answer = uploaded
            elif isinstance(answer, self._unknown_script):
                try:
                    answer = self._run_script(script, keys, arguments)
                except self._answer_errors as error:
                    answer = error
            if isinstance(answer, Exception):
                if not self._is_full(answer):
                    raise answer
                answer = StoreFull(self.name, str(answer))
            found.append(answer)
        return found

    def _guarded(self, shape: Shape[T], run: Callable[..., Any], *arguments: Any) -> T:
        """Return an answer, also from the address to which a cluster sends us."""

        def follow() -> Any:
            try:
                return run(*arguments)
            except self._moved as error:
                url = moved(self._url, error.host, error.port)
                if url is None:
                    raise
                self._use_address(url)
                return run(*arguments)

        try:
            return self._checked(shape, follow)
        except self._silence as error:
            raise self._failure(error) from None

    def _checked(self, shape: Shape[T], run: Callable[..., Any], *arguments: Any) -> T:
        """Return an answer of a shape. Raises StoreUnavailable, and the client's TimeoutError for a silent server."""
        try:
            answer = shape(run(*arguments))
        except self._silence:
            raise
        except self._errors as error:
            raise self._failure(error) from None
        except MalformedReply as error:
            raise self._malformed(str(error)) from None
        except Exception as error:
            # The client's parsers raise any error for bytes that are no reply.
            raise self._malformed(f"{type(error).__name__}: {error}") from error
        self._breaker.succeeded()
        return answer

    def _malformed(self, what: str) -> StoreUnavailable:
        """Count a malformed reply and open the breaker; return the error to raise."""
        self._on_malformed()
        reason = f"malformed reply: {what}"
        self._breaker.failed(reason)
        return StoreUnavailable(self.name, reason)

    def _failure(self, error: Exception) -> StoreUnavailable:
        """Return the error to raise for an error of the client; open the breaker unless Redis is merely full."""
        if self._is_full(error):
            return StoreFull(self.name, str(error))
        reason = f"{type(error).__name__}: {error}"
        self._breaker.failed(reason)
        if self._url != self._given:
            self._use_address(self._given)
        return StoreUnavailable(self.name, reason)

    def _is_full(self, error: Exception) -> bool:
        # Redis 6.2 reports a full memory inside a script as a plain error; 7.0's own class lacks the word.
        return isinstance(error, self._full) or (isinstance(error, self._answer_errors) and "OOM" in str(error))


def _check_server(connection: Any) -> None:
    """Log in on a new connection to our own server; raise the client's ConnectionError for another user's."""
    from redis.exceptions import ConnectionError

    try:
        check_peer(connection._sock)
    except OSError as error:
        raise ConnectionError(error.strerror) from None
    connection.on_connect()


def _greet(connection: Any) -> None:
    """Log in on a new TLS connection, and read a first answer.

    A server sends session tickets by itself before that answer, and the client takes a connection with unread bytes for
    a broken one.
    """
    connection.on_connect()
    connection.send_command("PING")
    connection.read_response()
