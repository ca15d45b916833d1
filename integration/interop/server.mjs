// A server of the second generation of the TypeScript SDK, for the tests of this folder.
//
//	node server.mjs serve|reject
//
// serve has both eras of the protocol, reject only the modern one. Its tools: echo; count, which reports progress; ask, which has to know two things of
// its client, one after the other; and touch, which says that the resource note:one has changed.
import { McpServer, acceptedContent, inputRequired } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import * as z from "zod";

const text = (value) => ({ content: [{ type: "text", text: value }] });
const wanted = z.object({ value: z.string() });

const factory = () => {
  const server = new McpServer(
    { name: "second", version: process.env.INTEROP_BUILD ?? "0.0.0" },
    { capabilities: { tools: { listChanged: true }, resources: { subscribe: true, listChanged: true } } },
  );
  server.registerTool("echo", { inputSchema: z.object({ message: z.string() }) }, async ({ message }) => text(message));
  server.registerTool("build", { inputSchema: z.object({}) }, async () => text(process.env.INTEROP_BUILD));
  server.registerTool("count", { inputSchema: z.object({ to: z.number() }) }, async ({ to }, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (let progress = 1; progress <= to; progress++) {
      await new Promise((resolve) => setTimeout(resolve, 100));
      if (progressToken !== undefined) await ctx.mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total: to } });
    }
    return text(`counted to ${to}`);
  });
  server.registerTool("ask", { inputSchema: z.object({}) }, async (_, ctx) => {
    const state = ctx.mcpReq.requestState?.();
    const answer = acceptedContent(ctx.mcpReq.inputResponses, "q", wanted)?.value;
    const question = (message, requestState) =>
      inputRequired({ inputRequests: { q: inputRequired.elicit({ message, requestedSchema: wanted }) }, requestState });
    if (state === undefined) return question("First name?", "first:");
    if (state === "first:") return question("Last name?", `last:${answer}`);
    return text(`${state.slice("last:".length)} ${answer}`);
  });
  server.registerResource("one", "note:one", { mimeType: "text/plain" }, async (uri) => ({ contents: [{ uri: uri.href, text: "one" }] }));
  server.registerTool("touch", { inputSchema: z.object({}) }, async () => {
    await server.server.sendResourceUpdated({ uri: "note:one" });
    return text("touched");
  });
  return server;
};

serveStdio(factory, { legacy: process.argv[2] });
