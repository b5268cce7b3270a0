"""HDFS behind a connection that fails, and servers that pass for it."""

from __future__ import annotations

import http.server

import psutil


def read(files, location, disturb=lambda reached: None):
    """Return a file's bytes; `disturb` gets their number after each piece."""
    pieces, reached = [], 0

    def sink(data):
        nonlocal reached
        pieces.append(data)
        reached += len(data)
        disturb(reached)

    files.read(files.status(location), sink)
    return b"".join(pieces)


def once(after, action):
    """Return a disturbance that acts when more than `after` bytes are there."""
    done = []

    def disturb(reached):
        if reached > after and not done:
            done.append(True)
            action()

    return disturb


def disturbed(data, disturb):
    """Yield pieces; `disturb` gets the number of bytes sent after each."""
    reached = 0
    for piece in data:
        yield piece
        reached += len(piece)
        disturb(reached)


def datanodes(hdfs):
    """Return the DataNode that this process is sending to, and the other one."""
    ports = hdfs.datanode_http_ports
    (port,) = {
        connection.raddr.port
        for connection in psutil.Process().net_connections("tcp")
        if connection.status == psutil.CONN_ESTABLISHED and connection.raddr.port in ports
    }
    taker = ports.index(port)
    return {"taker": f"datanode{taker}", "other": f"datanode{1 - taker}"}


class Impostor(http.server.BaseHTTPRequestHandler):
    """Answers in another protocol than WebHDFS."""

    def answer(self):
        status, body = self.server.answers
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_DELETE = answer

    def log_message(self, *arguments):
        pass
