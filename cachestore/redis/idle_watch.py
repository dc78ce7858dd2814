"""Stop an embedded server that has had no client for a while. Runs as its own program: SOCKET IDLE_SECONDS RUN_LOCK.

Redis cannot stop itself, and the process that started it may have ended. This program keeps one connection open: while
it is the only one and no other has come, the server is idle. When the connection breaks, the server has ended; the
program then removes the socket of a killed server and ends. It uses the standard library only, without site packages,
so that it starts in milliseconds and stays small.
"""

import fcntl
import io
import os
import select
import socket
import struct
import sys
import time

#: Longest time, in seconds, between two looks.
LOOK_S = 5.0
#: Longest wait, in seconds, for the lock of a server that has closed its connections.
LOCK_S = 2.0


def main(path: str, idle_s: float, lock: str) -> None:
    """Watch the server at `path` until it ends, which frees `lock`."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        if struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1] != os.geteuid():
            return  # another user's server, which is not asked for anything
        # The starter waits for the first process only; the watch goes on in a session of its own.
        if os.fork():
            os._exit(0)
        os.setsid()
        try:
            with connection.makefile("rwb") as stream:
                watch(connection, stream, idle_s)
        except ConnectionError:
            pass  # the server has ended
    sweep(path, lock)


def watch(connection: socket.socket, stream: io.BufferedRWPair, idle_s: float) -> None:
    """Ask for a shutdown when the server has been idle; return when it has ended.

    The wait for an answer is unbounded: a frozen server may be thawed, and the end of any other breaks the connection.
    """
    known = -1
    used = time.monotonic()
    while not select.select([connection], [], [], min(LOOK_S, idle_s / 4))[0]:
        clients = ask(stream, b"INFO clients\r\n", b"connected_clients:")
        connections = ask(stream, b"INFO stats\r\n", b"total_connections_received:")
        if clients != 1 or connections != known:
            known = connections
            used = time.monotonic()
        elif time.monotonic() - used >= idle_s:
            stream.write(b"SHUTDOWN\r\n")
            stream.flush()
            stream.read(1)
            return


def sweep(path: str, lock: str) -> None:
    """Remove the socket of a server that has ended, unless another has taken its place."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        remove_socket(path)  # its whole folder has been removed, so no other server has taken its place
        return
    try:
        deadline = time.monotonic() + LOCK_S
        while time.monotonic() < deadline:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.01)
            else:
                remove_socket(path)
                return
    finally:
        os.close(descriptor)


def remove_socket(path: str) -> None:
    """Remove the socket of a server that has ended, and its folder if that is for the socket alone."""
    try:
        os.unlink(path)
    except OSError:
        pass  # the server has done it
    try:
        os.rmdir(os.path.dirname(path))
    except OSError:
        pass  # it holds the server's data too


def ask(stream: io.BufferedRWPair, command: bytes, name: bytes) -> int:
    """Return one number of an INFO answer, -1 when the server answers with an error."""
    stream.write(command)
    stream.flush()
    size = stream.readline()
    if not size:
        raise ConnectionError
    if not size.startswith(b"$"):
        return -1
    answer = stream.read(int(size[1:]) + 2)
    return int(answer.partition(name)[2].split(None, 1)[0])


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3])
