"""Stop an embedded server that nobody has used for a while. Runs as a program of its own: SOCKET IDLE_SECONDS.

Redis cannot stop itself, and the process that started it may be long gone. One connection is kept open: while it is the
only one and no other has come, the server is idle; when it breaks, the server has ended and so does this. Standard
library only, without site packages, so that it starts in milliseconds and stays small.
"""

import io
import os
import select
import socket
import sys
import time

#: Longest time, in seconds, between two looks.
LOOK_S = 5.0


def main(path: str, idle_s: float) -> None:
    """Watch the server at `path` until it ends."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        # The starter waits for the first process only; the watch goes on in a session of its own.
        if os.fork():
            os._exit(0)
        os.setsid()
        with connection.makefile("rwb") as stream:
            watch(connection, stream, idle_s)


def watch(connection: socket.socket, stream: io.BufferedRWPair, idle_s: float) -> None:
    """Ask for a shutdown when the server has been idle; return when it has ended.

    There is no bound on an answer: a frozen server may be thawed, and the end of any other breaks the connection.
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
    try:
        main(sys.argv[1], float(sys.argv[2]))
    except ConnectionError:
        # The server has ended.
        sys.exit(0)
