#!/usr/bin/env python3
"""py-clock: a sox-host plugin in Python, with nothing but the standard library.

It speaks protocol 1 as plugin/PROTOCOL.md describes it; the section signs in this file point there. The clock itself is the last third of the file:
replace that part, NAME and VERSION by your own. Started by hand it is an ordinary MCP server on stdin and stdout.

    cp py-clock.py ~/.sox/plugins/py-clock_v1.0.0
    sox-host upgrade py-clock
"""

import collections
import json
import os
import select
import signal
import struct
import sys
import threading
import time
from datetime import datetime, timedelta, timezone

NAME = "py-clock"
VERSION = "1.0.0"  # both as in the name of the file in the plugins folder

LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MODERN = "2026-07-28"
SIGNALS = (signal.SIGTERM, signal.SIGINT)
MAX_FRAME_BYTES = 16 * 1024 * 1024
CONCURRENCY, QUEUE = 4, 32  # requests that run and that wait; more are refused as busy, §9
DEFAULT_SECONDS, MAX_SECONDS = 20.0, 120.0  # deadlines, counted from the moment a request is read

PARSE, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
OUTCOME_UNKNOWN, BUSY, DEADLINE, CANCELLED, SHUTTING_DOWN = -32003, -32004, -32005, -32008, -32009
UNSUPPORTED_VERSION = -32022  # MCP's own
CODE_NAMES = {
    PARSE: "E_PARSE", INVALID_REQUEST: "E_INVALID_REQUEST", METHOD_NOT_FOUND: "E_METHOD_NOT_FOUND", INVALID_PARAMS: "E_INVALID_PARAMS",
    INTERNAL: "E_INTERNAL", OUTCOME_UNKNOWN: "E_OUTCOME_UNKNOWN", BUSY: "E_BUSY", DEADLINE: "E_DEADLINE", CANCELLED: "E_CANCELLED",
    SHUTTING_DOWN: "E_SHUTTING_DOWN",
}  # fmt: skip


class Violation(Exception):
    """The other side broke the protocol; the connection cannot go on."""


class RpcError(Exception):
    """An answer that is an error, §10."""

    def __init__(self, code, message, executed="no", **data):
        super().__init__(message)
        self.code = code
        self.data = {**({"code": CODE_NAMES[code], "executed": executed} if code in CODE_NAMES else {}), **data}


class Stream:
    """JSON objects over a pair of descriptors. One thread reads, any thread writes."""

    def __init__(self, reading, writing):
        self.reading, self.writing = reading, writing
        self.signalled = False
        self.tick = lambda: None  # called before every wait; returns its longest duration, in seconds
        self._got = bytearray()
        self._lock = threading.Lock()
        self._wake, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)  # a signal ends the wait in _more

    def _more(self):
        """Waits for bytes. False at the end of the stream, and when a signal came."""
        ready = []
        while not ready:
            ready, _, _ = select.select([self.reading, self._wake], [], [], self.tick())
        if self._wake in ready:
            self.signalled = True
            return False
        try:
            chunk = os.read(self.reading, 65536)
        except ConnectionError:  # the host was killed
            chunk = b""
        self._got += chunk
        return bool(chunk)

    def _write(self, data):
        with self._lock:
            view = memoryview(data)
            while view:
                view = view[os.write(self.writing, view) :]


class Frames(Stream):
    """Frames over a socket: four bytes of length, then the object, §2."""

    def read(self):
        """The next object, or None at the end. What a header announces is not reserved: the buffer grows with what arrives."""
        if not self._fill(4):
            return None
        (size,) = struct.unpack(">I", self._got[:4])
        if not 1 <= size <= MAX_FRAME_BYTES:
            raise Violation(f"a frame of {size} bytes")
        if not self._fill(4 + size):
            return None
        body = bytes(self._got[4 : 4 + size])
        del self._got[: 4 + size]
        return decode(body)

    def _fill(self, size):
        while len(self._got) < size:
            if not self._more():
                if self._got and not self.signalled:
                    raise Violation("it ended inside a frame")
                return False
        return True

    def write(self, message):
        body = encode(message)
        self._write(struct.pack(">I", len(body)) + body)  # header and body in one write


class Lines(Stream):
    """One object per line, for MCP clients that start this program themselves."""

    def read(self):
        while True:
            end = self._got.find(b"\n")
            if end >= 0:
                line = bytes(self._got[:end]).strip()
                del self._got[: end + 1]
                if not line:
                    continue
                try:
                    return decode(line)
                except Violation as e:  # a bad line ends nothing
                    print(f"{NAME}: {e}", file=sys.stderr)
                    continue
            if len(self._got) > MAX_FRAME_BYTES:
                raise Violation("a line that does not end")
            if not self._more():
                return None

    def write(self, message):
        self._write(encode(message) + b"\n")


def encode(message):
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii")  # which is UTF-8 too; the rest is escaped


def decode(body):
    def refuse(word):
        raise ValueError(word)

    try:
        message = json.loads(body.decode("utf-8"), parse_constant=refuse)  # NaN and Infinity are not JSON
    except (ValueError, RecursionError) as e:
        raise Violation("not JSON in UTF-8") from e
    if not isinstance(message, dict) or ("ack" not in message or "method" in message) and message.get("jsonrpc") != "2.0":
        raise Violation("not one JSON-RPC 2.0 object")
    if not {"method", "result", "error", "ack"} & message.keys():
        raise Violation("neither a request nor an answer")
    return message


class Request:
    """One request from its arrival to its answer."""

    def __init__(self, server, message):
        self.server = server
        self.id, self.method = message["id"], message["method"]
        self.session = message.get("session", 0)
        self.params = message.get("params", {})
        self.wants_ack = message.get("ack") is True
        limit = message.get("timeout_ms", DEFAULT_SECONDS * 1000) / 1000
        self.deadline = time.monotonic() + min(limit, MAX_SECONDS)
        self.stopped = None  # why it has to stop: CANCELLED, DEADLINE or SHUTTING_DOWN; set before stop, guarded by server.lock
        self.stop = threading.Event()
        self.silent = False  # no answer is wanted any more

    def sleep(self, seconds):
        """Waits, and raises the answer when the request is cancelled, its deadline passes or the plugin ends."""
        if self.stop.wait(seconds):
            raise self.interrupted("unknown")

    def interrupted(self, executed):
        """The answer to a request that will not be finished, §7 and §8."""
        if self.stopped == SHUTTING_DOWN and executed != "no":
            return RpcError(OUTCOME_UNKNOWN, f"{self.method}: the plugin was stopped while it ran", executed)
        reason = {CANCELLED: "cancelled", SHUTTING_DOWN: "the plugin is shutting down", DEADLINE: "the deadline passed"}[self.stopped]
        return RpcError(self.stopped, f"{self.method}: {reason}", executed)

    def progress(self, done, total):
        """Says how far it is, if the caller asked to be told, §7."""
        token = self.params.get("_meta", {}).get("progressToken") if isinstance(self.params, dict) else None
        if token is not None:
            params = {"progressToken": token, "progress": done, "total": total}
            self.server.send({"jsonrpc": "2.0", "session": self.session, "method": "notifications/progress", "params": params})


class Server:
    """One connection. The main thread reads, CONCURRENCY threads run handlers, and whoever has something to say writes."""

    def __init__(self, stream, by_hand):
        self.stream, self.by_hand = stream, by_hand
        stream.tick = self.expire
        self.lock = threading.Lock()  # guards what follows
        self.work = threading.Condition(self.lock)
        self.waiting = collections.deque()
        self.open = {}  # requests that are not answered, by id
        self.sessions = {0}

    def send(self, message):
        if self.by_hand:
            message.pop("session", None)
        try:
            self.stream.write(message)
        except OSError:
            pass  # nobody reads any more: the end of the stream is near

    def run(self):
        for _ in range(CONCURRENCY):
            threading.Thread(target=self.worker, daemon=True).start()  # until the process ends
        if not self.by_hand:
            self.send(ready())
        message = self.stream.read()
        while message is not None and (self.by_hand or message.get("method") != "sox/shutdown"):
            self.incoming(message)
            message = self.stream.read()
        # Whoever ended the input of a program that runs by hand may still want the answers.
        self.end(patient=self.by_hand and not self.stream.signalled)

    def incoming(self, message):
        method = message.get("method")
        if not isinstance(method, str):
            return  # an answer; this plugin asks nothing
        if "id" not in message:
            self.notified(method, message.get("params"))
            return
        if isinstance(message["id"], bool) or not isinstance(message["id"], (str, int, float)):
            raise Violation("an id that is none")
        request = Request(self, message)
        if method.startswith("sox/"):  # at once: what follows on the wire may belong to the session that is opened, §5
            self.answer(request, self.own(request))
            return
        with self.lock:
            refusal = self.refusal(request)
            if refusal is None:
                self.open[request.id] = request
                self.waiting.append(request)
                self.work.notify_all()
        if refusal is not None:
            self.answer(request, refusal)

    def own(self, request):
        """Answers the host's own requests, §8."""
        if request.method == "sox/health":
            return {"status": "ok"}
        if request.method != "sox/session.open":
            return RpcError(METHOD_NOT_FOUND, f"{NAME} {VERSION} does not serve {request.method}")
        session = request.params.get("session") if isinstance(request.params, dict) else None
        with self.lock:
            if not isinstance(session, int) or session in self.sessions:
                return RpcError(INVALID_REQUEST, "not the number of a new session")
            self.sessions.add(session)
        return {}

    def refusal(self, request):
        """Why a request is not taken. It has not run."""
        if request.session not in self.sessions:
            return RpcError(INVALID_REQUEST, f"session {request.session} is not open")
        if request.id in self.open:
            return RpcError(INVALID_REQUEST, "a request with this id is open")
        if len(self.open) >= CONCURRENCY + QUEUE:
            return RpcError(BUSY, f"{NAME} has {len(self.open)} requests already", retry_after_ms=100)
        return None

    def notified(self, method, params):
        params = params if isinstance(params, dict) else {}
        if method == "notifications/cancelled":
            # On the wire of the host every request is answered; an MCP client wants no answer to what it cancelled.
            self.stop_requests(CANCELLED, lambda r: r.id == params.get("requestId"), silent=self.by_hand)
        elif method == "$/cancelRequest":
            self.stop_requests(CANCELLED, lambda r: r.id == params.get("id"))
        elif method == "sox/session.close" and params.get("session", 0) != 0:
            with self.lock:
                self.sessions.discard(params["session"])
            self.stop_requests(CANCELLED, lambda r: r.session == params["session"])

    def expire(self):
        """Stops what is past its deadline and returns the time to the next one."""
        now = time.monotonic()
        self.stop_requests(DEADLINE, lambda r: r.deadline <= now)
        with self.lock:
            return min((r.deadline - now for r in self.open.values() if r.stopped is None), default=None)

    def stop_requests(self, code, which, silent=False):
        """Tells requests to stop, and answers those that still wait."""
        with self.lock:
            chosen = [r for r in self.open.values() if which(r) and r.stopped is None]
            for request in chosen:
                request.stopped, request.silent = code, silent
            never_ran = [r for r in chosen if r in self.waiting]
            for request in never_ran:
                self.waiting.remove(request)
        for request in chosen:
            request.stop.set()
        for request in never_ran:
            self.answer(request, request.interrupted("no"))

    def worker(self):
        while True:
            with self.lock:
                while not self.waiting:
                    self.work.wait()
                request = self.waiting.popleft()
            if request.wants_ack:
                self.send({"ack": request.id})  # written before the handler starts, §6
            try:
                result = serve(request)
            except RpcError as e:
                result = e
            except Exception as e:  # a fault of this program; the log gets the details
                sys.excepthook(type(e), e, e.__traceback__)
                result = RpcError(INTERNAL, f"{request.method}: {type(e).__name__}", "unknown")
            self.answer(request, result)

    def answer(self, request, result):
        """The one answer."""
        message = {"jsonrpc": "2.0", "id": request.id}
        if isinstance(result, RpcError):
            message["error"] = {"code": result.code, "message": str(result), "data": result.data}
        else:
            message["result"] = result
        if not request.silent:
            self.send(message)
        with self.lock:
            if self.open.get(request.id) is request:
                del self.open[request.id]
            self.work.notify_all()

    def end(self, patient):
        """Refuses what waits, stops what runs, sees to it that all of it is answered, and says goodbye, §8."""
        for number_of_signal in SIGNALS:
            signal.signal(number_of_signal, signal.SIG_DFL)  # a second one ends it at once
        if not patient:
            self.stop_requests(SHUTTING_DOWN, lambda r: True)
        give_up = time.monotonic() + (MAX_SECONDS if patient else 0.3)
        while self.open and time.monotonic() < give_up:
            next_deadline = self.expire()
            with self.lock:
                if self.open:
                    self.work.wait(0.1 if next_deadline is None else min(next_deadline, 0.1))
        if not self.by_hand:
            self.send({"jsonrpc": "2.0", "method": "sox/bye"})


def ready():
    """The first frame, §4."""
    return {
        "jsonrpc": "2.0",
        "method": "sox/ready",
        "params": {
            "protocol": {"min": 1, "max": 1},
            "name": NAME,
            "version": VERSION,
            "mcp": [MODERN, *LEGACY],
            "methods": list(METHODS),
            "capabilities": {"ack": True, "cancel": True, "health": True},
            "limits": {
                "concurrency": CONCURRENCY,
                "queue": QUEUE,
                "default_timeout_ms": int(DEFAULT_SECONDS * 1000),
                "max_timeout_ms": int(MAX_SECONDS * 1000),
            },
        },
    }


def serve(request):
    """Runs one request: a method of this plugin's own, or MCP of either era."""
    method, params = request.method, request.params
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, f"{method}: params must be an object")
    if method in METHODS:
        return METHODS[method](request, params)
    meta = params.get("_meta", {})
    claim = meta.get("io.modelcontextprotocol/protocolVersion")
    if claim is None:
        return serve_legacy(request)
    if claim != MODERN:
        raise RpcError(UNSUPPORTED_VERSION, "unsupported protocol version", supported=[MODERN, *LEGACY], requested=claim)
    if not isinstance(meta.get("io.modelcontextprotocol/clientCapabilities"), dict):
        raise RpcError(INVALID_PARAMS, f"{method}: _meta lacks io.modelcontextprotocol/clientCapabilities")
    result = serve_modern(request)
    return {"resultType": "complete", **result, "_meta": {"io.modelcontextprotocol/serverInfo": {"name": NAME, "version": VERSION}}}


def serve_legacy(request):
    if request.method == "initialize":
        asked = request.params.get("protocolVersion")
        version = asked if asked in LEGACY else LEGACY[0]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": NAME, "version": VERSION}}
    if request.method == "ping":
        return {}
    return serve_tools(request)


def serve_modern(request):
    if request.method == "server/discover":
        return {"supportedVersions": [MODERN, *LEGACY], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}
    result = serve_tools(request)
    if request.method == "tools/list":
        result.update(ttlMs=0, cacheScope="private")
    return result


def serve_tools(request):
    if request.method == "tools/list":
        return {"tools": [{"name": name, **tool["describes"]} for name, tool in TOOLS.items()]}
    if request.method != "tools/call":
        raise RpcError(METHOD_NOT_FOUND, f"{NAME} {VERSION} does not serve {request.method}")
    tool = TOOLS.get(request.params.get("name"))
    if tool is None:
        raise RpcError(INVALID_PARAMS, f"{NAME} {VERSION} has no such tool")
    try:
        result = tool["run"](request, request.params.get("arguments", {}))
    except RpcError as e:
        if e.code != INVALID_PARAMS:
            raise
        return {"content": [{"type": "text", "text": str(e)}], "isError": True}  # a model can read this and correct itself
    return {"content": [{"type": "text", "text": json.dumps(result)}], "structuredContent": result}


# The clock.


def number(params, name, default, low, high):
    value = params.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise RpcError(INVALID_PARAMS, f"{name} must be a number from {low} to {high}")
    return value


def now(request, params):
    hours = number(params, "utc_offset", 0, -14, 14)
    return {"now": datetime.now(timezone(timedelta(hours=hours))).isoformat(timespec="seconds"), "clock": f"{NAME} {VERSION}"}


def wait(request, params):
    """Takes its time in ten steps, between which it can be stopped and tells its progress."""
    seconds = number(params, "seconds", None, 0, MAX_SECONDS)
    for step in range(10):
        request.progress(step, 10)
        request.sleep(seconds / 10)
    return {"waited": seconds, "clock": f"{NAME} {VERSION}"}


METHODS = {"clock.now": now, "clock.wait": wait}

TOOLS = {
    "now": {
        "run": now,
        "describes": {
            "description": "Tell the date and time.",
            "inputSchema": {
                "type": "object",
                "properties": {"utc_offset": {"type": "number", "description": "hours east of Greenwich, 0 by default"}},
            },
            "annotations": {"readOnlyHint": True},
        },
    },
    "wait": {
        "run": wait,
        "describes": {
            "description": "Wait, then answer.",
            "inputSchema": {
                "type": "object",
                "properties": {"seconds": {"type": "number", "minimum": 0, "maximum": MAX_SECONDS}},
                "required": ["seconds"],
            },
        },
    },
}


def connect():
    """Finds the peer as the environment says, §1."""
    environment = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("SOX_PLUGIN_")}
    descriptor = environment.get("SOX_PLUGIN_FD")
    if descriptor is None and environment.keys() & {"SOX_PLUGIN_LISTEN_FD", "SOX_PLUGIN_SOCKET"}:
        sys.exit(f"{NAME}: this example serves one host over SOX_PLUGIN_FD, and not several over a listening socket")
    if descriptor is None:
        if sys.stdin.isatty():
            print(f"{NAME} {VERSION}, a sox-host plugin. Copy it to ~/.sox/plugins/{NAME}_v{VERSION} and run: sox-host upgrade {NAME}")
            sys.exit(0)
        return Server(Lines(0, 1), by_hand=True)
    low, _, high = environment.get("SOX_PLUGIN_PROTOCOLS", "1-1").partition("-")
    if not int(low) <= 1 <= int(high or low):
        sys.exit(f"{NAME}: the host speaks protocols {low} to {high}, this plugin speaks 1")
    os.set_inheritable(int(descriptor), False)  # children must not keep the connection open
    return Server(Frames(int(descriptor), int(descriptor)), by_hand=False)


def main():
    for number_of_signal in SIGNALS:
        signal.signal(number_of_signal, lambda *_: None)  # noticed by Stream
    try:
        connect().run()
    except Violation as e:
        sys.exit(f"{NAME}: the connection is broken: {e}")


if __name__ == "__main__":
    main()
