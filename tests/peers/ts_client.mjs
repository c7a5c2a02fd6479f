// An editor on the official TypeScript SDK that does what a plan says, and prints what it saw.
//
//   node ts_client.mjs SDK_FOLDER PLAN.json
//
// The plan: {"agent": [argv], "capabilities", "name", "permission": kind, "filled": [form content], "unsaved": {path: text},
// "unstable": true for the SDK's client of forms that are not stable yet, "runs": [[step, ...], ...]}. Each run starts the agent, initializes, does its steps in order and
// closes the agent's input. Steps: {"call": method, "params", "as"} waits for the answer,
// {"start": …} does not; {"notify": method, "params"}; {"await": name}; {"touch": file}; {"until": {part of a
// session/update's params}}. "$name.member" in params is taken from an earlier answer, "#title" is
// the session of the subagent with that title. Permission is answered with the option of that kind.
//
// Whatever is wrong goes to stderr: the SDK's own complaints, ours about terminals and files.

import { spawn } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdkFolder, planFile] = process.argv.slice(2);
const plan = JSON.parse(await readFile(planFile, "utf8"));
const entry = `dist/v1/${plan.unstable ? "unstable" : "stable"}/acp.js`;
const sdk = await import(pathToFileURL(path.join(sdkFolder, entry)).href);

const WAIT_MS = 60_000;
const seen = { answers: {}, updates: [], permissions: [], forms: [], terminals: [], calls: [], written: {} };
const watchers = new Set();

function complain(text) {
  console.error(text);
  process.exitCode = 1;
}

function holds(value, part) {
  if (part === null || typeof part !== "object") return value === part;
  if (value === null || typeof value !== "object") return false;
  return Object.entries(part).every(([key, inner]) => holds(value[key], inner));
}

async function until(what, describe) {
  const deadline = Date.now() + WAIT_MS;
  while (!what()) {
    const left = deadline - Date.now();
    if (left <= 0) throw new Error(`not within ${WAIT_MS} ms: ${describe}`);
    await new Promise((resolve) => {
      const timer = setTimeout(done, left);
      function done() {
        clearTimeout(timer);
        watchers.delete(done);
        resolve();
      }
      watchers.add(done);
    });
  }
}

function tell() {
  for (const watcher of [...watchers]) watcher();
}

// --- what the agent may ask for -------------------------------------------------------------------

const terminals = new Map();

function terminalOf(params) {
  const terminal = terminals.get(params.terminalId);
  if (terminal === undefined || terminal.sessionId !== params.sessionId) {
    complain(`no such terminal: ${JSON.stringify(params)}`);
    throw sdk.RequestError.invalidParams({ details: "no such terminal" });
  }
  return terminal;
}

function createTerminal(params) {
  const child = spawn(params.command, params.args ?? [], {
    cwd: params.cwd ?? undefined,
    env: { ...process.env, ...Object.fromEntries((params.env ?? []).map((v) => [v.name, v.value])) },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  const terminalId = `terminal-${seen.terminals.length + 1}`;
  const record = { terminalId, params, killed: 0, released: 0, embedded: 0, ended: false };
  seen.terminals.push(record);
  const terminal = { sessionId: params.sessionId, child, record, bytes: Buffer.alloc(0), cut: false };
  const keep = (data) => {
    terminal.bytes = Buffer.concat([terminal.bytes, data]);
    const over = terminal.bytes.length - (params.outputByteLimit ?? Infinity);
    if (over > 0) {
      terminal.bytes = terminal.bytes.subarray(over);
      terminal.cut = true;
    }
  };
  child.stdout.on("data", keep);
  child.stderr.on("data", keep);
  terminal.exit = new Promise((resolve) => {
    child.on("error", (error) => {
      complain(`cannot run ${params.command}: ${error.message}`);
      resolve({ exitCode: 127 });
    });
    child.on("close", (exitCode, signal) => {
      record.ended = true;
      terminal.status = { exitCode, signal };
      resolve(terminal.status);
    });
  });
  terminals.set(terminalId, terminal);
  return { terminalId };
}

function killTerminal(terminal) {
  try {
    process.kill(-terminal.child.pid, "SIGKILL");
  } catch (error) {
    if (error.code !== "ESRCH") throw error;
  }
}

async function releaseTerminal(terminal) {
  terminal.record.released += 1;
  terminals.delete(terminal.record.terminalId);
  killTerminal(terminal);
  await terminal.exit;
  return {};
}

function choose(params) {
  seen.permissions.push(params);
  if (plan.permission === "cancelled") return { outcome: { outcome: "cancelled" } };
  const option = params.options.find((candidate) => candidate.kind === plan.permission);
  return { outcome: { outcome: "selected", optionId: option.optionId } };
}

function fillIn(params) {
  seen.forms.push(params);
  return { action: "accept", content: plan.filled[seen.forms.length - 1] };
}

async function readText(params) {
  const unsaved = plan.unsaved?.[params.path];
  if (unsaved !== undefined) return { content: unsaved };
  try {
    return { content: await readFile(params.path, "utf8") };
  } catch {
    throw sdk.RequestError.resourceNotFound(params.path);
  }
}

async function writeText(params) {
  await writeFile(params.path, params.content);
  seen.written[params.path] = params.content;
  if (plan.unsaved !== undefined) delete plan.unsaved[params.path];
  return {};
}

const { client: asked } = sdk.methods;
const serves = {
  [asked.session.requestPermission]: choose,
  [asked.elicitation.create]: fillIn,
  [asked.fs.readTextFile]: readText,
  [asked.fs.writeTextFile]: writeText,
  [asked.terminal.create]: createTerminal,
  [asked.terminal.waitForExit]: (params) => terminalOf(params).exit,
  [asked.terminal.output]: (params) => {
    const { bytes, cut, status } = terminalOf(params);
    return { output: bytes.toString("utf8"), truncated: cut, exitStatus: status };
  },
  [asked.terminal.kill]: (params) => {
    const terminal = terminalOf(params);
    terminal.record.killed += 1;
    killTerminal(terminal);
    return {};
  },
  [asked.terminal.release]: (params) => releaseTerminal(terminalOf(params)),
};

function watch({ params }) {
  const { content } = params.update;
  for (const item of Array.isArray(content) ? content : []) {
    if (item.type !== "terminal") continue;
    const terminal = terminals.get(item.terminalId);
    if (terminal === undefined) complain(`shows a terminal that is not there: ${item.terminalId}`);
    else terminal.record.embedded += 1;
  }
  seen.updates.push(params);
  tell();
}

// --- the plan -------------------------------------------------------------------------------------

function filled(value) {
  if (typeof value === "string" && value.startsWith("#")) {
    const title = value.slice(1); // a subagent's session by its title
    return seen.updates.find(({ update }) => update.title === title && update.state).update.sessionId;
  }
  if (typeof value === "string" && value.startsWith("$")) {
    return value.slice(1).split(".").reduce((found, key) => found[key], seen.answers);
  }
  if (Array.isArray(value)) return value.map(filled);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, filled(inner)]));
}

async function answerOf(request) {
  try {
    return (await request) ?? null;
  } catch (error) {
    return { error: { code: error.code, message: error.message, data: error.data } };
  }
}

async function perform(steps, context) {
  const started = {};
  for (const step of steps) {
    const method = step.call ?? step.start;
    if (method !== undefined) {
      const name = step.as ?? method;
      const answer = answerOf(context.request(method, filled(step.params ?? {})));
      started[name] = answer.then((value) => (seen.answers[name] = value));
      if (step.call !== undefined) await started[name];
    } else if (step.notify !== undefined) {
      await context.notify(step.notify, filled(step.params));
    } else if (step.touch !== undefined) {
      await mkdir(path.dirname(step.touch), { recursive: true });
      await writeFile(step.touch, "");
    } else if (step.await !== undefined) {
      await started[step.await];
    } else {
      const wanted = () => seen.updates.some((params) => holds(params, filled(step.until)));
      await until(wanted, JSON.stringify(step.until));
    }
  }
}

async function run(steps) {
  const agent = spawn(plan.agent[0], plan.agent.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
  const gone = new Promise((resolve) => agent.on("close", resolve));
  const app = sdk.client({ name: plan.name ?? "ts-sdk-test" });
  app.onNotification(asked.session.update, watch);
  for (const [method, serve] of Object.entries(serves)) {
    app.onRequest(method, async ({ params }) => {
      seen.calls.push(method);
      return serve(params);
    });
  }
  const stream = sdk.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
  await app.connectWith(stream, async (context) => {
    seen.answers.hello = await context.request(sdk.methods.agent.initialize, {
      protocolVersion: sdk.PROTOCOL_VERSION,
      clientInfo: { name: plan.name ?? "ts-sdk-test", version: "1" },
      clientCapabilities: plan.capabilities ?? {},
    });
    await perform(steps, context);
  });
  agent.stdin.end();
  const code = await gone;
  if (code !== 0) complain(`the agent left with ${code}`);
}

for (const steps of plan.runs) await run(steps);
process.stdout.write(JSON.stringify(seen));
