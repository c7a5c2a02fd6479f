/**
 * acp-bridge's plugin for DeepSeek Harness 0.2.1-rc.2: what the SDK wire lacks, on that same wire.
 *
 * `patch.yml` inserts it into `dsh --profile sdk`. The contract (names, params, results, order) is
 * written down once, in `control.py`; this file and those in `plugin/` answer it. Each hook, and
 * why it is needed:
 *
 * - HarnessSdkJsonRpcServer.prototype.handleRequest: our methods come in on stdin, and no second
 *   channel is opened: one wire keeps one order between deltas and log rows.
 * - agent/assistant-stream: the SDK wire tells whole answers only (streams.mjs).
 * - session/event: a message's deltas must leave before its row.
 * - approval/request, user-questions/request: on the SDK wire nobody answers, so every ask would be
 *   refused (asking.mjs).
 * - tools/pre-execute: the bridge decides which calls ask, so that a mode means the same in both of
 *   its runtimes. tools/execute and SandboxPolicyService.prototype.resolve: a call that was allowed
 *   runs in the sandbox that was allowed for it, and no other call does.
 * - system-prompt/assemble, agent/pre-step: what the client adds to the system prompt, and a tool
 *   whose calls nobody could answer (prompts.mjs).
 * - agent/created, agent/disposed: subagents get their root's MCP tools and may ask; forget.
 *
 * Rules: an error that nobody catches ends the whole runtime, so every listener and timer goes
 * through `guarded` or catches by itself, and every request is an async function. stdout is the
 * wire: nothing is ever printed. All of it is built on internals of one version: `featuresOf` looks
 * before anything is promised.
 */

import { AsyncLocalStorage } from 'node:async_hooks'
import * as asking from './plugin/asking.mjs'
import * as commands from './plugin/commands.mjs'
import { PACKAGES, featuresOf } from './plugin/features.mjs'
import * as options from './plugin/options.mjs'
import { addToPrompt, replacePrompt, setPrompt } from './plugin/prompts.mjs'
import { record } from './plugin/records.mjs'
import * as sessions from './plugin/sessions.mjs'
import { Streams } from './plugin/streams.mjs'
import { setTools } from './plugin/tools.mjs'
import * as turns from './plugin/turns.mjs'
import { messageOf, requireText } from './plugin/values.mjs'

export const name = 'acp-bridge-control'
export const inject = ['agents', 'loader']

const PROTOCOL = 1

export async function apply(ctx) {
  const bridge = new Bridge(ctx, await importAll(ctx.get('loader')))
  const prototype = bridge.packages.sdk.HarnessSdkJsonRpcServer.prototype
  const original = prototype.handleRequest
  const methods = requestMethods(bridge)
  prototype.handleRequest = function handleRequest(method, params) {
    bridge.server = this
    const own = Object.hasOwn(methods, method) ? methods[method] : undefined
    return own === undefined ? original.call(this, method, params) : own(params ?? {})
  }
  ctx.effect(() => () => { prototype.handleRequest = original }, `${name}: requests`)
  listen(ctx, bridge)
  asking.widenSandbox(ctx, bridge)
}

/** A package that this version lacks is undefined; without the SDK server nothing can be done. */
async function importAll(loader) {
  const load = async (key) => {
    try {
      return [key, await loader.import(PACKAGES[key])]
    } catch (error) {
      if (key === 'sdk') throw error
      return [key, undefined]
    }
  }
  return Object.fromEntries(await Promise.all(Object.keys(PACKAGES).map(load)))
}

/** What all parts share: the runtime's server, whether hello was said, what sessions have of us. */
class Bridge {
  /** The SDK server, known from its first request on. */
  server = undefined
  /** Nothing is told or asked before hello: the client may not know us. */
  greeted = false
  judges = false
  /** Session id to what it got from us: `{tools, selection, prompt}`. */
  extras = new Map()
  /** Agent to a promise of what its tools of ours are registered with (tools.mjs). */
  mounted = new WeakMap()
  /** Tool execution to its judgement. */
  judged = new WeakMap()
  /** The judged call that the current chain of promises comes from; it may be over by now. */
  running = new AsyncLocalStorage()
  /** Agent to the number of cancels that keep it from being told of its subagents. */
  muted = new Map()
  #asks = 0

  constructor(ctx, packages) {
    this.ctx = ctx
    this.packages = packages
    this.streams = new Streams(this)
  }

  get transport() {
    return this.server.transport
  }

  agent(sessionId) {
    const agent = this.ctx.agents.get(requireText(sessionId, 'sessionId'))
    if (agent === undefined) {
      throw new Error(`session ${sessionId} is not open: open or resume it first`)
    }
    return agent
  }

  extrasOf(sessionId) {
    if (!this.extras.has(sessionId)) {
      this.extras.set(sessionId, { tools: [], selection: undefined, prompt: undefined })
    }
    return this.extras.get(sessionId)
  }

  /** The live agents below this one, parents before children. */
  descendants(agent) {
    const tree = [agent]
    const all = this.ctx.agents.list()
    for (const parent of tree) {
      for (const one of all) {
        if (!tree.includes(one) && this.ctx.agents.isOwnedBy(one.id, parent)) tree.push(one)
      }
    }
    return tree.slice(1)
  }

  /** The agent that a person talks to: the top of the live tree. */
  root(agent) {
    const all = this.ctx.agents.list()
    let top = agent
    for (let depth = 0; depth < all.length; depth += 1) {
      const owner = all.find((one) => this.ctx.agents.isOwnedBy(top.id, one))
      if (owner === undefined) return top
      top = owner
    }
    return top
  }

  fault(where, error) {
    try {
      if (this.greeted) this.transport.notify('bridge.fault', { where, message: messageOf(error) })
    } catch {
      // The wire is gone, and with it whoever could be told.
    }
  }

  /** A synchronous listener whose failure is told, never thrown. */
  guarded(where, listener) {
    return (...args) => {
      try {
        listener(...args)
      } catch (error) {
        this.fault(where, error)
      }
    }
  }

  /** A request to the client; when `signal` fires it is withdrawn, and the client is told. */
  async ask(method, params, signal) {
    this.#asks += 1
    const askId = `ask-${this.#asks}`
    try {
      return await this.transport.request(method, { askId, ...params }, signal)
    } catch (error) {
      if (signal?.aborted) this.transport.notify('bridge.withdrawn', { askId })
      throw error
    }
  }
}

function listen(ctx, bridge) {
  const on = (event, listener, how) => ctx.on(event, listener, { global: true, ...how })
  on('agent/assistant-stream', bridge.guarded('stream', ({ agent, frame }) => {
    if (bridge.greeted) bridge.streams.take(agent.session.id, frame)
  }))
  // Ahead of the SDK server's own listener, which sends the row.
  on('session/event', bridge.guarded('row', (session, { type, data }) => {
    if (type === 'assistant/message' || type === 'assistant/attempt') {
      bridge.streams.flush(session.id)
    }
    if (type === 'plan/mode' && data.active === false) asking.planOver(bridge, session)
  }), { prepend: true })
  on('agent/disposed', bridge.guarded('disposed', ({ agent }) => {
    bridge.streams.forget(agent.session.id)
    bridge.extras.delete(agent.session.id)
  }))
  on('agent/created', ({ agent }) => asking.equipChild(bridge, agent))
  on('system-prompt/assemble', (assembly, context, next) => addToPrompt(bridge, context, next))
  on('agent/pre-step', (step, next) => replacePrompt(bridge, step, next))
  on('tools/pre-execute', (exec, next) => asking.judge(bridge, exec, next))
  on('tools/execute', (exec, next) => asking.runJudged(bridge, exec, next))
  const by = (answer) => (request, next) => (bridge.greeted ? answer(bridge, request) : next())
  on('approval/request', by(asking.approve))
  on('user-questions/request', by(asking.askUser))
}

function requestMethods(bridge) {
  const methods = {
    hello,
    open: sessions.open,
    resume: sessions.resume,
    fork: sessions.fork,
    close: sessions.close,
    history: sessions.history,
    cancel: turns.cancel,
    steer: turns.steer,
    set_mode: options.setMode,
    set_model: options.setModel,
    set_tools: setTools,
    set_prompt: setPrompt,
    record,
    state: options.state,
    models: options.models,
    rename: options.rename,
    log_command: commands.log,
    compact: commands.compact,
  }
  // An async function each: what it throws becomes the error answer, never an uncaught one.
  const served = ([key, call]) => [`bridge/${key}`, async (params) => call(bridge, params)]
  return Object.fromEntries(Object.entries(methods).map(served))
}

function hello(bridge, params) {
  if (params.protocol !== PROTOCOL) {
    throw new Error(`the control plugin speaks protocol ${PROTOCOL}, not ${params.protocol}`)
  }
  const { boot, session } = bridge.packages
  const features = featuresOf(bridge)
  bridge.judges = params.judge === true && features.judge === true
  bridge.greeted = true
  return {
    protocol: PROTOCOL,
    runtime: boot?.getDshRuntimeVersion?.() ?? 'unknown',
    sessionFormat: session?.SESSION_FORMAT_VERSION ?? 0,
    features,
  }
}
