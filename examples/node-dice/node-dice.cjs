#!/usr/bin/env node
// node-dice: a sox-host plugin for Node 20, without packages.
//
// It speaks protocol 1 as plugin/PROTOCOL.md describes it; the section signs in this file point there. The dice are the last part of the file:
// replace that, NAME and VERSION by your own. Started by hand it is an ordinary MCP server on stdin and stdout.
//
//     cp node-dice.cjs ~/.sox/plugins/node-dice_v1.0.0
//     sox-host upgrade node-dice
//
// The file is CommonJS, because that is what Node takes a program for whose name ends in neither .js nor .mjs, as in the plugins folder.
'use strict';

const { randomInt } = require('node:crypto');
const { Socket } = require('node:net');
const { setTimeout: sleep } = require('node:timers/promises');

const NAME = 'node-dice';
const VERSION = '1.0.0'; // both as in the name of the file in the plugins folder

const LEGACY = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'];
const MODERN = '2026-07-28';
const MAX_FRAME_BYTES = 16 * 1024 * 1024;
const MAX_OPEN = 64; // requests at once; more are refused as busy, §9
const DEFAULT_MS = 20_000; // deadline of a request that names none, from the moment it is read
const MAX_MS = 120_000;

const CODES = {
	E_INVALID_REQUEST: -32600,
	E_METHOD_NOT_FOUND: -32601,
	E_INVALID_PARAMS: -32602,
	E_INTERNAL: -32603,
	E_OUTCOME_UNKNOWN: -32003,
	E_BUSY: -32004,
	E_DEADLINE: -32005,
	E_CANCELLED: -32008,
	E_SHUTTING_DOWN: -32009,
};
const UNSUPPORTED_VERSION = -32022; // MCP's own

/** An answer that is an error, §10. */
class RpcError extends Error {
	constructor(name, message, executed = 'no', more = {}) {
		super(message);
		this.code = CODES[name] ?? name;
		this.data = name in CODES ? { code: name, executed, ...more } : more;
	}
}

const isObject = (v) => typeof v === 'object' && v !== null && !Array.isArray(v);

/** The end of a connection that cannot go on. The line reaches the host's log. */
function violation(what) {
	process.stderr.write(`${NAME}: the connection is broken: ${what}\n`);
	process.exit(1);
}

/** Parses one object. Throws for anything else. */
function decode(bytes) {
	const message = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes));
	if (!isObject(message)) throw new Error('not an object');
	if (message.jsonrpc !== '2.0' && !('ack' in message && !('method' in message))) throw new Error('not JSON-RPC 2.0');
	if (!['method', 'result', 'error', 'ack'].some((member) => member in message)) throw new Error('neither a request nor an answer');
	return message;
}

/** Cuts a stream into bodies. Chunks are kept in a list until a body is whole, so that a header reserves nothing. */
class Chunks {
	constructor() {
		this.list = [];
		this.bytes = 0;
	}
	push(chunk) {
		this.list.push(chunk);
		this.bytes += chunk.length;
	}
	/** The first n bytes; they stay. */
	peek(n) {
		if (this.list[0].length < n) this.list = [Buffer.concat(this.list)];
		return this.list[0].subarray(0, n);
	}
	take(n) {
		const head = this.peek(n);
		this.list[0] = this.list[0].subarray(n);
		this.bytes -= n;
		return head;
	}
}

/** Frames over a socket: four bytes of length, then the object, §2. */
class Frames {
	constructor(socket, onMessage, onEnd) {
		this.socket = socket;
		const got = new Chunks();
		let size = 0; // of the frame that is coming, 0 before its header is there
		socket.on('data', (chunk) => {
			got.push(chunk);
			for (;;) {
				if (size === 0) {
					if (got.bytes < 4) return;
					size = got.take(4).readUInt32BE(0);
					if (size < 1 || size > MAX_FRAME_BYTES) violation(`a frame of ${size} bytes`);
				}
				if (got.bytes < size) return;
				const body = got.take(size);
				size = 0;
				let message;
				try {
					message = decode(body);
				} catch {
					violation('not one JSON-RPC 2.0 object in UTF-8');
				}
				onMessage(message);
			}
		});
		socket.on('end', () => (size > 0 || got.bytes > 0 ? violation('it ended inside a frame') : onEnd()));
		socket.on('error', onEnd); // the host was killed; what is written now is lost
	}

	/** Resolves when the kernel has the frame. */
	write(message) {
		const body = Buffer.from(JSON.stringify(message), 'utf-8'); // the length counts bytes, not characters
		const frame = Buffer.allocUnsafe(4 + body.length);
		frame.writeUInt32BE(body.length, 0);
		body.copy(frame, 4);
		return new Promise((resolve) => this.socket.write(frame, resolve));
	}

	close() {
		return new Promise((resolve) => this.socket.end(resolve));
	}
}

/** One object per line, for MCP clients that start this program themselves. */
class Lines {
	constructor(onMessage, onEnd) {
		let rest = Buffer.alloc(0);
		process.stdin.on('data', (chunk) => {
			rest = Buffer.concat([rest, chunk]);
			for (let end; (end = rest.indexOf(10)) >= 0; ) {
				const line = rest.subarray(0, end);
				rest = rest.subarray(end + 1);
				if (line.every((byte) => byte === 32 || byte === 13 || byte === 9)) continue;
				let message;
				try {
					message = decode(line);
				} catch (e) {
					process.stderr.write(`${NAME}: a bad line: ${e.message}\n`); // it ends nothing
					continue;
				}
				onMessage(message);
			}
			if (rest.length > MAX_FRAME_BYTES) violation('a line that does not end');
		});
		process.stdin.on('end', onEnd);
		process.stdout.on('error', () => process.exit(0)); // nobody reads any more
	}

	write(message) {
		const { session, ...rest } = message;
		return new Promise((resolve) => process.stdout.write(JSON.stringify(rest) + '\n', resolve));
	}

	async close() {
		process.stdin.pause();
	}
}

/** One request from its arrival to its answer. */
class Request {
	constructor(server, message) {
		this.server = server;
		this.id = message.id;
		this.method = message.method;
		this.session = message.session ?? 0;
		this.params = message.params ?? {};
		this.wantsAck = message.ack === true;
		this.stop = new AbortController(); // its reason is the name of an error
		this.silent = false; // no answer is wanted any more
		this.timer = setTimeout(() => this.stop.abort('E_DEADLINE'), Math.min(message.timeout_ms ?? DEFAULT_MS, MAX_MS));
	}

	/** Waits; throws the answer when the request is cancelled, its deadline passes or the plugin ends. */
	async sleep(ms) {
		try {
			await sleep(ms, undefined, { signal: this.stop.signal });
		} catch {
			throw this.interrupted();
		}
	}

	/** The answer to a request that was cut short, §7 and §8: it may have run in part. */
	interrupted() {
		const name = this.stop.signal.reason === 'E_SHUTTING_DOWN' ? 'E_OUTCOME_UNKNOWN' : this.stop.signal.reason;
		const why = { E_CANCELLED: 'cancelled', E_DEADLINE: 'the deadline passed' }[name] ?? 'the plugin was stopped while it ran';
		return new RpcError(name, `${this.method}: ${why}`, 'unknown');
	}

	/** Says how far it is, if the caller asked to be told, §7. */
	progress(done, total) {
		const progressToken = this.params._meta?.progressToken;
		if (progressToken === undefined) return;
		const params = { progressToken, progress: done, total };
		this.server.peer.write({ jsonrpc: '2.0', session: this.session, method: 'notifications/progress', params });
	}
}

/** One connection. Node runs one thing at a time, so nothing here needs a lock, and reading goes on while handlers wait. */
class Server {
	constructor() {
		this.open = new Map(); // requests that are not answered, by id
		this.sessions = new Set([0]);
		this.ending = false;
	}

	serve(peer, byHand) {
		this.peer = peer;
		this.byHand = byHand;
		if (!byHand) peer.write({ jsonrpc: '2.0', method: 'sox/ready', params: ready() });
	}

	incoming(message) {
		if (typeof message.method !== 'string') return; // an answer; this plugin asks nothing
		if (message.method === 'sox/shutdown' && !this.byHand) this.end();
		else if (!('id' in message)) this.notified(message.method, isObject(message.params) ? message.params : {});
		else if (typeof message.id !== 'number' && typeof message.id !== 'string') violation('an id that is none');
		else this.asked(new Request(this, message));
	}

	notified(method, params) {
		if (method === 'notifications/cancelled') this.cancel(params.requestId, this.byHand); // an MCP client wants no answer then
		else if (method === '$/cancelRequest') this.cancel(params.id, false);
		else if (method === 'sox/session.close' && params.session !== 0) {
			this.sessions.delete(params.session);
			for (const request of this.open.values()) if (request.session === params.session) request.stop.abort('E_CANCELLED');
		}
	}

	cancel(id, silent) {
		const request = this.open.get(id);
		if (!request) return; // unknown, or answered
		request.silent = silent;
		request.stop.abort('E_CANCELLED');
	}

	/** Answers one request, once. */
	async asked(request) {
		let answer;
		try {
			answer = { result: await this.run(request) };
		} catch (e) {
			if (!(e instanceof RpcError)) process.stderr.write(`${NAME}: ${e.stack}\n`); // a fault of this program
			const known = e instanceof RpcError ? e : new RpcError('E_INTERNAL', `${request.method}: ${e.message}`, 'unknown');
			answer = { error: { code: known.code, message: known.message, data: known.data } };
		}
		clearTimeout(request.timer);
		if (this.open.get(request.id) === request) this.open.delete(request.id);
		if (!request.silent) await this.peer.write({ jsonrpc: '2.0', id: request.id, ...answer });
		if (this.open.size === 0) this.idle?.();
	}

	async run(request) {
		if (request.method.startsWith('sox/')) return this.own(request); // at once: what follows may belong to the new session, §5
		if (this.ending) throw new RpcError('E_SHUTTING_DOWN', `${NAME} is shutting down`);
		if (!this.sessions.has(request.session)) throw new RpcError('E_INVALID_REQUEST', `session ${request.session} is not open`);
		if (this.open.has(request.id)) throw new RpcError('E_INVALID_REQUEST', 'a request with this id is open');
		if (this.open.size >= MAX_OPEN) throw new RpcError('E_BUSY', `${NAME} has ${this.open.size} requests already`, 'no', { retry_after_ms: 100 });
		if (!isObject(request.params)) throw new RpcError('E_INVALID_PARAMS', `${request.method}: params must be an object`);
		this.open.set(request.id, request);
		if (request.wantsAck) await this.peer.write({ ack: request.id }); // the kernel has it before the handler starts, §6
		return Object.hasOwn(METHODS, request.method) ? METHODS[request.method](request, request.params) : serveMCP(request);
	}

	/** Answers the host's own requests, §8. */
	own(request) {
		if (request.method === 'sox/health') return { status: 'ok' };
		if (request.method !== 'sox/session.open') throw new RpcError('E_METHOD_NOT_FOUND', `${NAME} does not serve ${request.method}`);
		const { session } = request.params;
		if (!Number.isSafeInteger(session) || this.sessions.has(session)) throw new RpcError('E_INVALID_REQUEST', 'not the number of a new session');
		this.sessions.add(session);
		return {};
	}

	/** Stops what runs, sees to it that all of it is answered, says goodbye and exits, §8. */
	async end({ patient = false, farewell = true } = {}) {
		if (this.ending) return;
		this.ending = true;
		if (!patient) for (const request of this.open.values()) request.stop.abort('E_SHUTTING_DOWN');
		if (this.open.size > 0) {
			await new Promise((resolve) => {
				this.idle = resolve;
				if (!patient) setTimeout(resolve, 300);
			});
		}
		setTimeout(() => process.exit(0), 500); // a host that does not read
		if (farewell && !this.byHand) await this.peer.write({ jsonrpc: '2.0', method: 'sox/bye' });
		await this.peer.close();
		process.exit(0);
	}
}

/** The first frame, §4. */
function ready() {
	return {
		protocol: { min: 1, max: 1 },
		name: NAME,
		version: VERSION,
		mcp: [MODERN, ...LEGACY],
		methods: Object.keys(METHODS),
		capabilities: { ack: true, cancel: true, health: true },
		limits: { concurrency: MAX_OPEN, default_timeout_ms: DEFAULT_MS, max_timeout_ms: MAX_MS },
	};
}

/** Answers a request of MCP. One that claims a revision in its _meta is modern, any other legacy. */
async function serveMCP(request) {
	const { method, params } = request;
	const claim = params._meta?.['io.modelcontextprotocol/protocolVersion'];
	const serverInfo = { name: NAME, version: VERSION };
	if (claim === undefined) {
		if (method === 'ping') return {};
		if (method !== 'initialize') return serveTools(request);
		const protocolVersion = LEGACY.includes(params.protocolVersion) ? params.protocolVersion : LEGACY[0];
		return { protocolVersion, capabilities: { tools: {} }, serverInfo };
	}
	if (claim !== MODERN) throw new RpcError(UNSUPPORTED_VERSION, 'unsupported protocol version', 'no', { supported: [MODERN, ...LEGACY], requested: claim });
	if (!isObject(params._meta['io.modelcontextprotocol/clientCapabilities'])) {
		throw new RpcError('E_INVALID_PARAMS', `${method}: _meta lacks io.modelcontextprotocol/clientCapabilities`);
	}
	const fresh = { ttlMs: 0, cacheScope: 'private' };
	let result;
	if (method === 'server/discover') result = { supportedVersions: [MODERN, ...LEGACY], capabilities: { tools: {} }, ...fresh };
	else result = { ...(await serveTools(request)), ...(method === 'tools/list' ? fresh : {}) };
	return { resultType: 'complete', ...result, _meta: { 'io.modelcontextprotocol/serverInfo': serverInfo } };
}

async function serveTools(request) {
	const { method, params } = request;
	if (method === 'tools/list') return { tools: Object.entries(TOOLS).map(([name, { run, ...description }]) => ({ name, ...description })) };
	if (method !== 'tools/call') throw new RpcError('E_METHOD_NOT_FOUND', `${NAME} ${VERSION} does not serve ${method}`);
	if (!Object.hasOwn(TOOLS, params.name)) throw new RpcError('E_INVALID_PARAMS', `${NAME} ${VERSION} has no such tool`);
	try {
		const result = await TOOLS[params.name].run(request, params.arguments ?? {});
		return { content: [{ type: 'text', text: JSON.stringify(result) }], structuredContent: result };
	} catch (e) {
		if (e.code !== CODES.E_INVALID_PARAMS) throw e;
		return { content: [{ type: 'text', text: e.message }], isError: true }; // a model can read this and correct itself
	}
}

// The dice.

function integer(params, name, usual, low, high) {
	const value = params[name] ?? usual;
	if (!Number.isInteger(value) || value < low || value > high) throw new RpcError('E_INVALID_PARAMS', `${name} must be a whole number from ${low} to ${high}`);
	return value;
}

/** Rolls one die after the other. Between two of them it can be stopped, and tells its progress. */
async function roll(request, params) {
	const dice = integer(params, 'dice', 1, 1, 100);
	const sides = integer(params, 'sides', 6, 2, 1000);
	const pause = integer(params, 'pause_ms', 0, 0, 10_000);
	const rolled = [];
	while (rolled.length < dice) {
		if (pause > 0) {
			request.progress(rolled.length, dice);
			await request.sleep(pause);
		}
		rolled.push(randomInt(1, sides + 1));
	}
	return { rolled, sum: rolled.reduce((a, b) => a + b), dice: `${NAME} ${VERSION}` };
}

const METHODS = { 'dice.roll': roll };

const TOOLS = {
	roll: {
		run: roll,
		description: 'Roll dice.',
		inputSchema: {
			type: 'object',
			properties: {
				dice: { type: 'integer', minimum: 1, maximum: 100, description: 'how many, 1 by default' },
				sides: { type: 'integer', minimum: 2, maximum: 1000, description: 'of each, 6 by default' },
				pause_ms: { type: 'integer', minimum: 0, maximum: 10000, description: 'to wait before each, in milliseconds' },
			},
		},
	},
};

/** Finds the peer as the environment says, §1. */
function main() {
	const environment = {};
	for (const name of Object.keys(process.env).filter((name) => name.startsWith('SOX_PLUGIN_'))) {
		environment[name] = process.env[name];
		delete process.env[name]; // not for children of ours
	}
	const server = new Server();
	const incoming = (message) => server.incoming(message);
	for (const signal of ['SIGTERM', 'SIGINT']) process.once(signal, () => server.end());

	if (environment.SOX_PLUGIN_FD !== undefined) {
		const [low, high] = (environment.SOX_PLUGIN_PROTOCOLS ?? '1-1').split('-').map(Number);
		if (!(low <= 1 && 1 <= high)) {
			process.stderr.write(`${NAME}: the host speaks protocols ${low} to ${high}, this plugin speaks 1\n`);
			process.exit(1);
		}
		// Node marks it close-on-exec by itself. With allowHalfOpen the end of the host's side leaves ours to end.
		const socket = new Socket({ fd: Number(environment.SOX_PLUGIN_FD), readable: true, writable: true, allowHalfOpen: true });
		server.serve(new Frames(socket, incoming, () => server.end({ farewell: false })), false);
	} else if (environment.SOX_PLUGIN_LISTEN_FD !== undefined || environment.SOX_PLUGIN_SOCKET !== undefined) {
		process.stderr.write(`${NAME}: this example serves one host over SOX_PLUGIN_FD, and not several over a listening socket\n`);
		process.exit(1);
	} else if (process.stdin.isTTY) {
		console.log(`${NAME} ${VERSION}, a sox-host plugin. Copy it to ~/.sox/plugins/${NAME}_v${VERSION} and run: sox-host upgrade ${NAME}`);
	} else {
		// Whoever ended the input of a program that runs by hand may still want the answers.
		server.serve(new Lines(incoming, () => server.end({ patient: true })), true);
	}
}

main();
