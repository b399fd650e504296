#!/usr/bin/env node
// An MCP client for rootsfs: offers directories as roots, and lets you change them while the view is mounted.
//
//   node client.mjs MOUNTPOINT ROOT...        ROOTSFS=path/to/rootsfs if it is not in PATH
//
// Lines on stdin, one JSON line on stdout for each:
//
//   drop N            take root number N (from 1) off the list
//   set PATH...       replace the list
//   call TOOL JSON    call a tool, say: call explain_access {"path": "app/main.c", "operation": "read"}
//   quit              leave; the view is unmounted (end of input does the same)

import { basename, resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { ListRootsRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const [mountpoint, ...paths] = process.argv.slice(2);
if (mountpoint === undefined) {
  console.error("usage: client.mjs MOUNTPOINT ROOT...");
  process.exit(2);
}

// pathToFileURL percent-encodes what has to be; `file://` + path would break on a space or a `#`.
const root = (path) => ({ uri: pathToFileURL(resolve(path)).href, name: basename(resolve(path)) });
let roots = paths.map(root);

// `listChanged` is the promise to announce changes, so that the server need not ask before each call.
const client = new Client(
  { name: "rootsfs-example-typescript", version: "0.1.0" },
  { capabilities: { roots: { listChanged: true } } },
);

// Set before `connect`: the server asks as soon as the session is initialized.
client.setRequestHandler(ListRootsRequestSchema, () => ({ roots }));

const transport = new StdioClientTransport({
  command: process.env.ROOTSFS ?? "rootsfs",
  args: ["mcp", "--mountpoint", resolve(mountpoint)],
  // Unless told so, the SDK passes few variables on; rootsfs keeps its control socket in XDG_RUNTIME_DIR.
  env: process.env,
});

const print = (answer) => console.log(JSON.stringify(answer));

async function change(list) {
  roots = list;
  await client.sendRootsListChanged();
  return { roots };
}

async function call(tool, json) {
  const result = await client.callTool({ name: tool, arguments: JSON.parse(json || "{}") });
  return result.isError ? { error: result.content } : result.structuredContent;
}

async function obey(line) {
  const [, command, rest] = /^(\S*)\s*(.*)$/.exec(line);
  switch (command) {
    case "drop": {
      const number = Number(rest);
      if (!(number >= 1 && number <= roots.length)) throw new Error(`there is no root number ${rest}`);
      return change(roots.filter((_, index) => index !== number - 1));
    }
    case "set":
      return change(rest.split(/\s+/).filter(Boolean).map(root));
    case "call": {
      const [, tool, json] = /^(\S*)\s*(.*)$/.exec(rest);
      return call(tool, json);
    }
    default:
      throw new Error(`unknown command ${command}; known: drop, set, call, quit`);
  }
}

await client.connect(transport);
// The answer waits for the list: the roots of this client stand in it.
print(await call("view_status"));

for await (const line of createInterface({ input: process.stdin })) {
  if (line.trim() === "quit") break;
  if (line.trim() === "") continue;
  try {
    print(await obey(line.trim()));
  } catch (error) {
    print({ error: error.message });
  }
}

// Closes the server's standard input; rootsfs unmounts and exits.
await client.close();
process.exit(0);
