// A client of the TypeScript SDK that does what it is told: one JSON object a line on stdin, one on stdout.
//
//   node client.mjs v1|v2 legacy|auto|modern COMMAND ARGUMENTS...
//
// v1 is @modelcontextprotocol/sdk, v2 is @modelcontextprotocol/client. The command is started as the SDK starts servers, with the variables in
// INTEROP_ENV, a JSON object. Orders are {"id","do",...}, answered by {"id","result"} or {"id","error"}; {"event",...} is what happens meanwhile.
import { createInterface } from "node:readline";

const [generation, mode, command, ...args] = process.argv.slice(2);
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const info = { name: `typescript-${generation}`, version: "1.0.0" };
const capabilities = { sampling: {}, elicitation: { form: {} }, roots: { listChanged: true } };
const server = { command, args, env: JSON.parse(process.env.INTEROP_ENV), stderr: "inherit" };

const answers = {
  "sampling/createMessage": () => ({ role: "assistant", model: "none", content: { type: "text", text: "forty-two" } }),
  "elicitation/create": () => ({ action: "accept", content: { name: "Ada", value: "Ada" } }),
  "roots/list": () => ({ roots: [{ uri: "file:///project/one", name: "one" }] }),
};

let client, transport, negotiated;
if (generation === "v1") {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
  const types = await import("@modelcontextprotocol/sdk/types.js");
  client = new Client(info, { capabilities });
  client.setRequestHandler(types.CreateMessageRequestSchema, answers["sampling/createMessage"]);
  client.setRequestHandler(types.ElicitRequestSchema, answers["elicitation/create"]);
  client.setRequestHandler(types.ListRootsRequestSchema, answers["roots/list"]);
  client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => say({ event: "list_changed" }));
  transport = new StdioClientTransport(server);
  transport.setProtocolVersion = (version) => (negotiated = version); // the client keeps it to itself
} else {
  const { Client } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  client = new Client(info, {
    capabilities,
    versionNegotiation: { mode: mode === "modern" ? { pin: "2026-07-28" } : mode },
    listChanged: { tools: { autoRefresh: false, debounceMs: 0, onChanged: () => say({ event: "list_changed" }) } },
  });
  for (const [method, answer] of Object.entries(answers)) client.setRequestHandler(method, answer);
  transport = new StdioClientTransport(server);
}
// What the SDK finds wrong with the server's messages and tells nobody else.
client.onerror = (error) => say({ event: "fault", text: String(error) });
client.onclose = () => say({ event: "closed" });

const calls = new Map(); // open calls, to be cancelled
const call = async ({ id, name, arguments: given, progress }) => {
  const abort = new AbortController();
  calls.set(id, abort);
  const options = { signal: abort.signal, timeout: 60_000 };
  if (progress) options.onprogress = (report) => say({ event: "progress", of: id, progress: report.progress });
  try {
    const params = { name, arguments: given };
    return generation === "v1" ? await client.callTool(params, undefined, options) : await client.callTool(params, options);
  } finally {
    calls.delete(id);
  }
};

const orders = {
  connect: async () => {
    await client.connect(transport);
    return { version: client.getNegotiatedProtocolVersion?.() ?? negotiated, server: client.getServerVersion() };
  },
  tools: async () => (await client.listTools()).tools.map((tool) => tool.name),
  call,
  cancel: async ({ of }) => calls.get(of)?.abort("not wanted any more"),
  prompt: async ({ name, arguments: given }) => client.getPrompt({ name, arguments: given }),
  read: async ({ uri }) => client.readResource({ uri }),
  close: async () => client.close(),
};

for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  orders[order.do](order).then(
    (result) => say({ id: order.id, result: result ?? null }),
    (error) => say({ id: order.id, error: String(error) }),
  );
}
await client.close();
