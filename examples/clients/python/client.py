#!/usr/bin/env python3
"""A small synchronous JSON-RPC client over a child's stdin and stdout.

It needs nothing but the standard library, and speaks to `sox-host serve` or to any program that reads and writes one JSON object per line:

    with Client(["sox-host", "serve"]) as client:
        print(client.call("notes.get_backlinks", {"path": "engineering/storage.md"}))

As a script:

    client.py notes.get_backlinks '{"path":"engineering/storage.md"}' -- sox-host serve

One thread, one request at a time. A request is never sent twice: if the child ends before it has answered, nobody can know whether it ran.
"""

import argparse
import itertools
import json
import queue
import subprocess
import sys
import threading
import time

MAX_LINE_BYTES = 64 * 1024
"""Longest line sent or accepted, without its newline. A strict host refuses longer ones; a client that says so first names the call at fault."""


class RpcError(Exception):
    """The other side answered with an error."""

    def __init__(self, code, message, data=None):
        super().__init__(f"{message} [{code}]")
        self.code = code
        self.message = message
        self.data = data

    @property
    def may_have_run(self):
        """False only if the answer says that the call was not executed."""
        return not (isinstance(self.data, dict) and self.data.get("executed") == "no")


class ConnectionClosed(Exception):
    """The child closed its output, or broke the protocol, before it answered."""


class MessageTooLarge(ValueError):
    """The line would be longer than the limit. Nothing was sent."""


class DeadlinePassed(TimeoutError):
    """No answer came in time. The call may still run; its late answer is dropped."""


class Client:
    """Owns one child process, from the constructor to close()."""

    def __init__(self, command, *, max_line_bytes=MAX_LINE_BYTES, env=None, stderr=None):
        """Starts command, a list: no shell is involved. stderr is where the child's log goes; by default to ours."""
        self.max_line_bytes = max_line_bytes
        self.notifications = []  # messages without an id that came in between, oldest first, at most 1,000
        self._ids = itertools.count(1)
        self._lines = queue.Queue()
        self._late = set()  # ids whose deadline passed
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=env)
        self._reader = threading.Thread(target=self._read, name="stdout of the child", daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, method, params=None, timeout=60.0):
        """Sends one request and returns its result. Raises RpcError, MessageTooLarge, ConnectionClosed or DeadlinePassed."""
        request_id = next(self._ids)
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if params is not None:
            message["params"] = params
        self._send(message)
        deadline = time.monotonic() + timeout
        while True:
            try:
                answer = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self._late.add(request_id)
                raise DeadlinePassed(f"{method}: no answer within {timeout:g} s") from None
            if isinstance(answer, Exception):
                self._lines.put(answer)  # it stays true for the next call
                raise answer
            if "method" in answer:
                self._incoming(answer)
            elif answer.get("id") in self._late:
                self._late.discard(answer["id"])
            elif answer.get("id") != request_id or isinstance(answer.get("id"), bool):
                raise ConnectionClosed(f"{method}: the answer has the id {answer.get('id')!r}, not {request_id}")
            elif "error" in answer:
                error = answer["error"]
                raise RpcError(error["code"], error["message"], error.get("data"))
            else:
                return answer["result"]

    def notify(self, method, params=None):
        """Sends a notification, to which no answer comes."""
        message = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        self._send(message)

    def initialize(self, name="python-client", version="1.0.0", protocol="2025-11-25"):
        """Opens an MCP session. Plain methods need none."""
        result = self.call("initialize", {"protocolVersion": protocol, "capabilities": {}, "clientInfo": {"name": name, "version": version}})
        self.notify("notifications/initialized")
        return result

    def close(self, grace=2.0):
        """Ends the child: end of its input, then SIGTERM, then SIGKILL, with grace seconds before each. Returns its exit code."""
        if self.process.stdin and not self.process.stdin.closed:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass  # it is gone already
        for stop in (self.process.terminate, self.process.kill):
            try:
                self.process.wait(timeout=grace)
                break
            except subprocess.TimeoutExpired:
                stop()
        code = self.process.wait()
        self._reader.join(timeout=grace)  # a grandchild may hold the pipe open
        return code

    def _send(self, message):
        line = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
        if len(line) > self.max_line_bytes:
            raise MessageTooLarge(f"{message['method']}: the message has {len(line)} bytes, the limit is {self.max_line_bytes}")
        try:
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError) as e:
            raise ConnectionClosed(f"{message['method']}: the child has closed its input") from e

    def _incoming(self, message):
        """A notification is kept; a request of the other side is refused, since this client offers nothing."""
        if "id" in message:
            error = {"code": -32601, "message": f"this client serves no {message['method']}"}
            self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode() + b"\n")
            self.process.stdin.flush()
        elif len(self.notifications) < 1000:
            self.notifications.append(message)

    def _read(self):
        """The reader thread: one queue entry per line, and the reason at the end. Ends with the child's output."""
        stdout = self.process.stdout
        while True:
            line = stdout.readline(self.max_line_bytes + 2)
            if not line:
                self._lines.put(ConnectionClosed("the child closed its output"))
                return
            if not line.endswith(b"\n"):
                reason = "is too long" if len(line) > self.max_line_bytes else "ends in the middle"
                self._lines.put(ConnectionClosed(f"a line of the child {reason}"))
                return
            if not line.strip():
                continue
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            if not isinstance(message, dict):
                self._lines.put(ConnectionClosed("a line of the child is not a JSON object"))
                return
            self._lines.put(message)


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(usage="%(prog)s [options] METHOD [PARAMS] -- COMMAND [ARGUMENT ...]", description="Call one method of a JSON-RPC server that is started for it.")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds to wait for the answer")
    parser.add_argument("--max-line-bytes", type=int, default=MAX_LINE_BYTES, help="longest line either way")
    parser.add_argument("method")
    parser.add_argument("params", nargs="?", type=json.loads, default={}, help="a JSON object, {} by default")
    split = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:split])
    command = arguments[split + 1 :]
    if not command:
        parser.error("the command to start comes after --")
    with Client(command, max_line_bytes=options.max_line_bytes) as client:
        try:
            result = client.call(options.method, options.params, timeout=options.timeout)
        except (RpcError, ConnectionClosed, MessageTooLarge, DeadlinePassed) as e:
            print(f"client.py: {e}", file=sys.stderr)
            return 1
    json.dump(result, sys.stdout, ensure_ascii=False)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
