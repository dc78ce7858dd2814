"""A private Redis for all processes of one user on one machine, started on first use.

    <folder>/redis.conf, redis.log, redis.pid, data/    configuration, log and append-only file
    <folder>/data.unreadable/                           the last data that a server could not read
    <folder>/redis.sock                                 the socket (elsewhere where this path is too long for one;
                                                        it and its folder go when the server ends)
    <folder>/start.lock                                 held by the process that starts it
    <folder>/run.lock                                   held by the server, through a descriptor that it inherits

Guarantees: of processes that start at once, one starts the server and all use it. The server lives as long as it holds
`run.lock`, which the kernel frees however it ends, so a stale socket or process id file misleads no process. It is
reachable only through a socket in a folder that no other user can enter. Nothing is asked of a server of another user,
or in a folder that another user can change. It outlives its starter, and stops after a while without clients (see
`idle_watch`). It keeps its data over restarts: a kill loses no command that was answered, because each is in the kernel's
memory before. Limitation: a crash of the machine loses those of the last 30 s or so; entries are in files, too. With
`appendfsync everysec` it would lose fewer, and a kill up to 2 s: a server writes nothing while a slow disk syncs.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
import subprocess
import sys
import time
from typing import Final

from poolrt.cachestore.errors import PathRefused, StoreUnavailable
from poolrt.cachestore.file_lock import lock_file, try_lock
from poolrt.cachestore.folders import make_folder, open_file
from poolrt.cachestore.ownership import check_contents, check_folder
from poolrt.cachestore.peer import check_peer

from . import idle_watch
from .data_folder import log_size, set_aside, unreadable
from .server_binary import find_server

#: Bounds, in seconds: on starting (a long append-only file has to be read), on stopping, on one answer, and on the
#: start of the idle watch.
START_S: Final = 10.0
STOP_S: Final = 10.0
_PING_S: Final = 0.5
_WATCH_S: Final = 2.0
#: Time, in seconds, after which a server that does not stop is asked again.
_AGAIN_S: Final = 0.5
#: Least time, in seconds, that is left to a step when the whole time is nearly over.
_LEAST_S: Final = 0.01
#: Bytes that are read of an answer, and the beginning of one to any command while the last write to the disk has failed.
_MOST_ANSWER: Final = 256
_REFUSED: Final = b"-MISCONF"
#: Pause, in seconds, while another server or its saving child still holds the run lock, and between looks at a new one.
_HELD_PAUSE_S: Final = 0.02
_START_PAUSE_S: Final = 0.001
#: Longest path of a unix socket on Linux, in bytes, without the terminating zero.
_MAX_SOCKET_PATH: Final = 107

_CONFIG: Final = """\
port 0
unixsocket {socket}
unixsocketperm 700
dir {data}
pidfile {pid}
logfile {log}
daemonize yes
databases 1
appendonly yes
appendfsync no
auto-aof-rewrite-min-size 256mb
aof-use-rdb-preamble yes
save ""
rdbcompression no
stop-writes-on-bgsave-error no
maxmemory-policy noeviction
lua-time-limit 2000
"""


class EmbeddedServer:
    """The server of `folder`.

    `program` overrides the search for a binary; the process that starts the server decides with `idle_s` for how many
    seconds it lives on without a client (0: until it is stopped).
    """

    def __init__(self, folder: str, program: str | None = None, idle_s: float = 0.0) -> None:
        self._folder = os.path.abspath(folder)
        self._program = program
        self._idle_s = idle_s

    @property
    def socket_path(self) -> str:
        """The path of the server's socket."""
        path = os.path.join(self._folder, "redis.sock")
        if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
            return path
        name = hashlib.sha256(os.fsencode(self._folder)).hexdigest()[:16]
        # A fixed path: XDG_RUNTIME_DIR differs between a user's sessions, and all must find the one server.
        return f"/tmp/poolrt-{os.geteuid()}-{name}/redis.sock"

    @property
    def url(self) -> str:
        """The server's URL, as the client takes it."""
        from urllib.parse import quote

        return f"unix://{quote(self.socket_path)}"

    def is_running(self, seconds: float = _PING_S) -> bool:
        """Return whether the server answers within `seconds`; a frozen or loading server does not."""
        try:
            self._check_folders()
            return self._answers(seconds)
        except (PathRefused, StoreUnavailable):
            return False

    def refusal(self, seconds: float = _PING_S) -> str:
        """Return why a server that runs refuses commands, as on a full disk; empty if it does not."""
        try:
            self._answers(seconds)
        except StoreUnavailable as error:
            return error.reason
        return ""

    def _answers(self, seconds: float) -> bool:
        """Return whether the server answers. Raises StoreUnavailable if it cannot write its data and so refuses commands."""
        answer = _ask(self.socket_path, b"PING\r\n", seconds) or b""
        if answer.startswith(_REFUSED):
            text = answer.decode("utf-8", "replace").strip("-\r\n")
            raise StoreUnavailable("embedded", f"the server cannot write to {self._file('data')}: {text}")
        return answer == b"+PONG\r\n"

    def ensure(self, seconds: float = START_S) -> None:
        """Start the server unless it runs, and wait up to `seconds` for its answer.

        Raises StoreUnavailable when there is no program, another user can change the folder or has taken the socket's,
        the server cannot write its data, or there is no answer in time; a server that is still reading its data continues,
        and a later call finds it.
        """
        deadline = time.monotonic() + seconds
        try:
            self._check_folders()
            if self._answers(_within(deadline, _PING_S)):
                return
            _private_folder(self._folder)
            _private_folder(self._file("data"))
            descriptor = os.open(self._file("start.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                lock_file(descriptor, self._file("start.lock"), deadline - time.monotonic())
                self._start(deadline)
            finally:
                os.close(descriptor)
        except (OSError, PathRefused) as error:
            raise StoreUnavailable("embedded", f"the server cannot be started in {self._folder}: {error}") from error

    def down(self) -> bool:
        """Stop the server and wait for its end; return whether it was running.

        Raises StoreUnavailable when it does not end in time, and PathRefused when another user can change its folder.
        """
        self._check_folders()
        try:
            descriptor = os.open(self._file("run.lock"), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            if try_lock(descriptor):
                idle_watch.remove_socket(self.socket_path)
                return False
            # The watch of a server that has just ended holds the lock for a moment: then nothing listens.
            running = _listens(self.socket_path)
            _ask(self.socket_path, b"SHUTDOWN\r\n", STOP_S)
            deadline = time.monotonic() + STOP_S
            while not self._is_free(descriptor, deadline):
                # Another process has started a server meanwhile, which does not listen before it has read its data.
                running = _listens(self.socket_path) or running
                _ask(self.socket_path, b"SHUTDOWN\r\n", _within(deadline, STOP_S))
            idle_watch.remove_socket(self.socket_path)
        except OSError as error:
            raise StoreUnavailable("embedded", f"the server in {self._folder} does not stop: {error}") from error
        finally:
            os.close(descriptor)
        return running

    def _is_free(self, lock: int, deadline: float) -> bool:
        """Wait a moment for the run lock; return whether it is taken. Raises TimeoutError (an OSError) after the deadline."""
        try:
            lock_file(lock, self._file("run.lock"), _within(deadline, _AGAIN_S))
        except TimeoutError:
            if time.monotonic() < deadline:
                return False
            raise TimeoutError(errno.ETIMEDOUT, f"it still runs after {STOP_S:g} s") from None
        return True

    def _check_folders(self) -> None:
        """Raise PathRefused if another user can change the server's folders, or exchange its socket."""
        folders = {self._folder, os.path.dirname(self.socket_path)}
        for folder in folders:
            check_folder(folder)
            check_contents(folder)

    def _file(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _start(self, deadline: float) -> None:
        started = emptied = False
        logged = 0
        while not self._answers(_within(deadline, _PING_S)):
            if time.monotonic() >= deadline:
                raise StoreUnavailable("embedded", f"no answer in time; see {self._file('redis.log')}")
            lock = os.open(self._file("run.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                # Held: the server is loading or frozen, or the saving child of a killed server still runs.
                if try_lock(lock):
                    if started:
                        if emptied or not unreadable(self._file("redis.log"), logged):
                            raise StoreUnavailable("embedded", f"the server ended; see {self._file('redis.log')}")
                        set_aside(self._file("data"))
                        _private_folder(self._file("data"))
                        emptied = True
                    logged = log_size(self._file("redis.log"))
                    self._spawn(lock, _within(deadline, START_S))
                    started = True
            finally:
                os.close(lock)
            time.sleep(_START_PAUSE_S if started else _HELD_PAUSE_S)
        if started and self._idle_s > 0:
            self._watch()

    def _watch(self) -> None:
        """Start the idle watch, which detaches itself once it is connected."""
        words = [self.socket_path, str(self._idle_s), self._file("run.lock")]
        command = [sys.executable, "-I", "-S", idle_watch.__file__, *words]
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                timeout=_WATCH_S,
                check=True,
            )
        except subprocess.SubprocessError as error:
            raise StoreUnavailable("embedded", f"the idle watch of the server does not start: {error}") from None

    def _spawn(self, lock: int, seconds: float) -> None:
        """Start a server that inherits the run lock; it detaches itself, so its starter has no child to wait for."""
        _private_folder(os.path.dirname(self.socket_path))
        self._remove_stale()
        program = find_server(self._program)
        self._write_config()
        environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
        if "LD_LIBRARY_PATH" in os.environ:
            environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        try:
            subprocess.run(
                [program, self._file("redis.conf")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=environment,
                pass_fds=(lock,),
                timeout=seconds,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            output = error.stdout.decode("utf-8", "replace").strip()[-500:]
            raise StoreUnavailable("embedded", f"{program} ended with {error.returncode}: {output}") from None
        except subprocess.TimeoutExpired:
            raise StoreUnavailable("embedded", f"{program} did not detach itself") from None

    def _remove_stale(self) -> None:
        """Remove the leftovers of a killed server; the caller holds the run lock, so none is alive."""
        data = self._file("data")
        drafts = [os.path.join(data, name) for name in os.listdir(data) if name.startswith("temp-")]
        for path in (self.socket_path, *drafts):
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue

    def _write_config(self) -> None:
        text = _CONFIG.format(
            socket=_quoted(self.socket_path),
            data=_quoted(self._file("data")),
            pid=_quoted(self._file("redis.pid")),
            log=_quoted(self._file("redis.log")),
        )
        descriptor = open_file(self._file("redis.conf"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)


def _private_folder(path: str) -> None:
    """Make a folder that only we can enter; refuse one of another user, or that others could write to."""
    make_folder(path)
    check_folder(path)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(f"{path} is not a folder of user {os.geteuid()}")
    if status.st_mode & 0o077:
        os.chmod(path, 0o700)


def _within(deadline: float, seconds: float) -> float:
    """Return `seconds`, or what is left of them until the deadline."""
    return max(_LEAST_S, min(seconds, deadline - time.monotonic()))


def _quoted(text: str) -> str:
    """Return text as redis.conf takes it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _listens(path: str) -> bool:
    """Return whether a server listens at a socket; one that is frozen, or whose queue is full, does."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PING_S)
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            pass
    return True


def _ask(path: str, command: bytes, seconds: float) -> bytes | None:
    """Send one inline command; return the answer, empty when the server closed, None when there is no server."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(path)
            check_peer(connection)
            connection.sendall(command)
            return connection.recv(_MOST_ANSWER)
        except OSError:
            return None
