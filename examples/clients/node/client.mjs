#!/usr/bin/env node
// A client of sox-host, or of any program that speaks JSON-RPC, one object per line, on its stdin and stdout. It needs nothing but Node 20:
//
//     import { Client } from './client.mjs';
//     const client = new Client(['sox-host', 'serve']);
//     console.log(await client.call('notes.get_backlinks', { path: 'engineering/storage.md' }));
//     await client.close();
//
// As a script:
//
//     client.mjs notes.get_backlinks '{"path":"engineering/storage.md"}' -- sox-host serve
//
// Any number of requests may be under way at once. None is ever sent twice: when the child ends before it has answered, only the caller can know
// whether a repetition does harm.

import { spawn } from 'node:child_process';
import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The longest line accepted or sent: 16 MiB, the longest that sox-host takes. It sends at most 9 MiB. */
export const MAX_LINE_BYTES = 16 * 1024 * 1024;
/** The limit of a request that names none, in milliseconds. */
export const TIMEOUT_MS = 60_000;
/** What the child gets to end after its input has ended, and again after SIGTERM. sox-host needs at most 1.5 s. */
const CLOSE_GRACE_MS = 3_000;
/** Revisions of MCP that initialize accepts, the one it asks for first. */
const REVISIONS = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'];

/** The other side answered with an error. */
export class RpcError extends Error {
	constructor({ code, message, data }) {
		super(`${message} [${code}]`);
		this.name = 'RpcError';
		this.code = code;
		this.data = data;
	}
	/** False only if the answer says that the request was not executed: then it is safe to repeat. */
	get mayHaveRun() {
		return this.data?.executed !== 'no';
	}
}

/** The line would be longer than the limit. Nothing was sent. */
export class TooLarge extends Error {}
/** The server did not declare what the method needs. Nothing was sent. */
export class NotOffered extends Error {}
/** The child has ended or broken the protocol, or close was called. A request that was sent may have run. */
export class Closed extends Error {}

const isObject = (v) => typeof v === 'object' && v !== null && !Array.isArray(v);

/** Owns one child process, from the constructor to close. */
export class Client {
	#child;
	#maxLineBytes;
	#lastId = 0;
	#pending = new Map(); // id → {resolve, reject}: what is waited for
	#capabilities; // of the server, undefined before initialize
	#ended; // the error that every further call gets
	#exit; // resolves to the exit code, null after a signal
	#onNotification;

	/**
	 * Runs command, an array; no shell is involved. options: maxLineBytes, env, stderr (as for spawn; by default our own), onNotification(method,
	 * params).
	 */
	constructor(command, options = {}) {
		this.#maxLineBytes = options.maxLineBytes ?? MAX_LINE_BYTES;
		this.#onNotification = options.onNotification ?? (() => {});
		this.#child = spawn(command[0], command.slice(1), { env: options.env, stdio: ['pipe', 'pipe', options.stderr ?? 'inherit'] });
		this.#exit = new Promise((resolve) => {
			this.#child.once('exit', resolve);
			this.#child.once('error', (e) => {
				this.#fail(new Closed(`cannot start ${command[0]}: ${e.message}`));
				resolve(null);
			});
		});
		this.#child.stdin.on('error', () => {}); // the end of stdout says it too, and what was answered before it
		this.#read();
	}

	/**
	 * Sends one request and resolves to its result. After timeoutMs, or when signal is aborted, the server is told to cancel it, and its answer,
	 * should one come, is dropped. Rejects with RpcError, TooLarge, NotOffered, Closed, or the reason of the abort.
	 */
	async call(method, params, { timeoutMs = TIMEOUT_MS, signal } = {}) {
		signal?.throwIfAborted();
		this.#checkOffered(method);
		const id = this.#lastId + 1;
		const line = this.#encode({ jsonrpc: '2.0', id, method, params });
		if (this.#ended) throw this.#ended;
		this.#lastId = id;
		let timer, aborted;
		try {
			return await new Promise((resolve, reject) => {
				this.#pending.set(id, { resolve, reject });
				const giveUp = (why) => {
					this.#cancel(method, id);
					reject(why);
				};
				timer = setTimeout(() => giveUp(new DOMException(`${method}: no answer within ${timeoutMs} ms; it may have run`, 'TimeoutError')), timeoutMs);
				aborted = () => giveUp(signal.reason);
				signal?.addEventListener('abort', aborted, { once: true });
				this.#child.stdin.write(line);
			});
		} finally {
			clearTimeout(timer);
			signal?.removeEventListener('abort', aborted);
			this.#pending.delete(id);
		}
	}

	/** Sends a notification, to which no answer comes. */
	notify(method, params) {
		const line = this.#encode({ jsonrpc: '2.0', method, params });
		if (this.#ended) throw this.#ended;
		this.#child.stdin.write(line);
	}

	/** Opens an MCP session and checks what the server says of itself. Plain methods need none. */
	async initialize(name = 'node-client', version = '1.0.0', options = {}) {
		const hello = await this.call('initialize', { protocolVersion: REVISIONS[0], capabilities: {}, clientInfo: { name, version } }, options);
		if (!REVISIONS.includes(hello?.protocolVersion) || !isObject(hello.capabilities)) {
			throw new Error(`initialize: the server offers revision ${String(hello?.protocolVersion).slice(0, 20)}, which this client does not speak`);
		}
		this.#capabilities = hello.capabilities;
		this.notify('notifications/initialized', {});
		return hello;
	}

	/**
	 * Ends the child: end of its input, then SIGTERM, then SIGKILL. What it still answers in the first step reaches its caller. Resolves to the exit
	 * code, null after a signal.
	 */
	async close() {
		this.#child.stdin.end();
		for (const signal of ['SIGTERM', 'SIGKILL']) {
			let timer;
			const late = new Promise((resolve) => (timer = setTimeout(resolve, CLOSE_GRACE_MS, 'late')));
			const first = await Promise.race([this.#exit, late]);
			clearTimeout(timer);
			if (first !== 'late') break;
			this.#child.kill(signal);
		}
		const code = await this.#exit;
		this.#fail(new Closed('the connection is closed'));
		return code;
	}

	/** Checks a method of MCP against the capabilities of the server. Other methods are known to the server alone. */
	#checkOffered(method) {
		let kind = method.split('/')[0];
		if (kind === 'completion') kind = 'completions';
		if (!method.includes('/') || !['tools', 'prompts', 'resources', 'logging', 'completions'].includes(kind)) return;
		if (!this.#capabilities) throw new NotOffered(`${method}: call initialize first`);
		if (!Object.hasOwn(this.#capabilities, kind)) throw new NotOffered(`${method}: the server does not offer this: no capability ${kind}`);
	}

	/** Tells the server that an answer is no longer wanted. MCP and plain JSON-RPC have a word each for it. */
	#cancel(method, id) {
		if (this.#ended) return;
		if (method.includes('/')) this.notify('notifications/cancelled', { requestId: id });
		else this.notify('$/cancelRequest', { id });
	}

	#encode(message) {
		const line = JSON.stringify(message) + '\n';
		const size = Buffer.byteLength(line) - 1;
		if (size > this.#maxLineBytes) throw new TooLarge(`${message.method}: the message has ${size} bytes, the limit is ${this.#maxLineBytes}`);
		return line;
	}

	/** No answer can come any more. */
	#fail(error) {
		this.#ended ??= error;
		for (const { reject } of this.#pending.values()) reject(this.#ended);
	}

	/** Cuts the child's output into lines. What is kept of a line that has not ended is bounded. */
	#read() {
		let parts = [];
		let size = 0;
		this.#child.stdout.on('data', (chunk) => {
			if (this.#ended) return; // read on, so that the child does not hang on its output
			let start = 0;
			for (let end; (end = chunk.indexOf(10, start)) >= 0; start = end + 1) {
				parts.push(chunk.subarray(start, end));
				size += end - start;
				if (size > this.#maxLineBytes) break;
				const problem = this.#line(Buffer.concat(parts, size));
				if (problem) return this.#fail(new Closed(problem));
				parts = [];
				size = 0;
			}
			if (start < chunk.length && size <= this.#maxLineBytes) {
				parts.push(chunk.subarray(start));
				size += chunk.length - start;
			}
			if (size > this.#maxLineBytes) this.#fail(new Closed(`a line of the child is longer than ${this.#maxLineBytes} bytes`));
		});
		this.#child.stdout.on('close', () => this.#fail(new Closed('the child closed its output')));
	}

	/** Hands on one line. Returns why the connection cannot go on: after a line that is no JSON-RPC nothing else can be trusted. */
	#line(bytes) {
		let message;
		try {
			const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
			if (text.trim() === '') return undefined;
			message = JSON.parse(text);
		} catch {
			message = undefined;
		}
		if (!isObject(message) || message.jsonrpc !== '2.0') return 'a line of the child is not a JSON-RPC 2.0 object';
		const { id, method } = message;
		if (typeof method === 'string') {
			if (id === undefined) this.#onNotification(method, message.params);
			else this.#reply(id, method); // this client offers nothing but to be there
			return undefined;
		}
		if ('result' in message === isObject(message.error)) return 'an answer of the child has not exactly one of result and error';
		if (!Number.isInteger(id) || id < 1 || id > this.#lastId) return 'an answer of the child has an id that was never used';
		const waiting = this.#pending.get(id); // none: it is late, and nobody waits any more
		this.#pending.delete(id);
		if ('result' in message) waiting?.resolve(message.result);
		else waiting?.reject(new RpcError(message.error));
		return undefined;
	}

	#reply(id, method) {
		const answer = method === 'ping' ? { result: {} } : { error: { code: -32601, message: `this client does not serve ${method}` } };
		this.#child.stdin.write(JSON.stringify({ jsonrpc: '2.0', id, ...answer }) + '\n');
	}
}

// The demonstration: one call, from the command line.
async function main(args) {
	const split = args.indexOf('--');
	const command = split < 0 ? [] : args.slice(split + 1);
	const [method, params = '{}'] = split < 0 ? args : args.slice(0, split);
	if (!method || command.length === 0) {
		console.error('usage: client.mjs METHOD [PARAMS] -- COMMAND [ARGUMENT ...]');
		return 2;
	}
	const interrupted = new AbortController();
	process.once('SIGINT', () => interrupted.abort(new Error('interrupted'))); // Ctrl-C cancels the call
	const client = new Client(command);
	try {
		if (method.includes('/')) await client.initialize(); // a method of MCP needs a session
		console.log(JSON.stringify(await client.call(method, JSON.parse(params), { signal: interrupted.signal })));
		return 0;
	} catch (e) {
		console.error(`client.mjs: ${e.message}`);
		return 1;
	} finally {
		await client.close();
	}
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
	process.exitCode = await main(process.argv.slice(2));
}
