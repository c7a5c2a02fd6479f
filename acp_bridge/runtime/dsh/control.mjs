/**
 * acp-bridge's plugin for DeepSeek Harness 0.2.1-rc.2: what the SDK wire lacks, on that same wire.
 *
 * `patch.yml` inserts it into `dsh --profile sdk`. The contract (names, params, results, order) is
 * written down once, in `control.py`; this file answers it. Each hook, and why it is needed:
 *
 * - HarnessSdkJsonRpcServer.prototype.handleRequest: our methods come in on stdin and nothing else
 *   is opened. One wire keeps one order between deltas and log rows.
 * - agent/assistant-stream: the SDK wire tells a whole answer only.
 * - session/event: a message's deltas must leave before its row.
 * - approval/request, user-questions/request: nobody answers on the SDK wire, so all would be refused.
 * - tools/pre-execute: the bridge decides which calls ask, so that a mode means the same in both of
 *   its runtimes. tools/execute and SandboxPolicyService.prototype.resolve: a call that the user has
 *   allowed runs in the sandbox that was allowed, and only that call.
 * - agent/created, agent/disposed: subagents get their root's MCP servers and may ask; forget.
 *
 * Rules: an error that nobody catches ends the whole runtime, so every listener and timer goes
 * through `guarded` or catches by itself. stdout is the wire: nothing is ever printed.
 */

import { AsyncLocalStorage } from 'node:async_hooks'

export const name = 'acp-bridge-control'
export const inject = ['agents', 'loader']

const PROTOCOL = 1
/** Deltas of one block that come closer together than this leave as one. */
const MERGE_MS = 20
/** With this much unread output, deltas wait and merge: text is bounded by the answer, lines not. */
const BACKLOG_BYTES_MAX = 256 * 1024
const PAGE_BYTES_MAX = 1_000_000
/** How often a cancel looks again for subagents that were just being started. */
const CANCEL_ROUNDS_MAX = 20
const GONE_MS = 5_000

const PACKAGES = {
  sdk: '@deepseek-ai/dsh-sdk-jsonrpc-server',
  agent: '@deepseek-ai/dsh-agent',
  llm: '@deepseek-ai/dsh-llm',
  session: '@deepseek-ai/dsh-session',
  attachment: '@deepseek-ai/dsh-attachment',
  approval: '@deepseek-ai/dsh-user-approval',
  questions: '@deepseek-ai/dsh-user-questions',
  sandbox: '@deepseek-ai/dsh-sandbox-policy',
  mcp: '@deepseek-ai/dsh-mcp-client',
  boot: '@deepseek-ai/dsh-app-boot',
}

export async function apply(ctx) {
  const packages = await importAll(ctx.get('loader'))
  const bridge = new Bridge(ctx, packages)
  const prototype = packages.sdk.HarnessSdkJsonRpcServer.prototype
  const original = prototype.handleRequest
  const methods = requestMethods(bridge)
  prototype.handleRequest = function handleRequest(method, params) {
    bridge.server = this
    const own = Object.hasOwn(methods, method) ? methods[method] : undefined
    return own === undefined ? original.call(this, method, params) : own(params ?? {})
  }
  ctx.effect(() => () => { prototype.handleRequest = original }, `${name}: requests`)
  listen(ctx, bridge)
  widenSandbox(ctx, bridge)
}

/** A package that this version lacks is undefined: `features` tells what does not work then. */
async function importAll(loader) {
  const names = Object.keys(PACKAGES)
  const load = async (key) => {
    try {
      return await loader.import(PACKAGES[key])
    } catch (error) {
      if (key === 'sdk') throw error
      return undefined
    }
  }
  const modules = await Promise.all(names.map(load))
  return Object.fromEntries(names.map((key, at) => [key, modules[at]]))
}

/** What everything here shares: the runtime's server, who has said hello, sessions' extras. */
class Bridge {
  /** The SDK server, known from its first request on. */
  server = undefined
  /** Nothing is told or asked before hello: the client may not know us. */
  greeted = false
  judges = false
  asks = 0
  /** Session id to `{servers, selection}`. */
  extras = new Map()
  /** Tool execution to its judgement. */
  judged = new WeakMap()
  /** The judged call that the current chain of promises belongs to. */
  running = new AsyncLocalStorage()

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
    if (agent === undefined) throw new Error(`session ${sessionId} is not open: open or resume it first`)
    return agent
  }

  extrasOf(sessionId) {
    if (!this.extras.has(sessionId)) this.extras.set(sessionId, { servers: [], selection: undefined })
    return this.extras.get(sessionId)
  }

  /** The live agents below this one, parents before children. */
  descendants(agent) {
    const found = [agent]
    const all = this.ctx.agents.list()
    for (const parent of found) {
      for (const one of all) {
        if (!found.includes(one) && this.ctx.agents.isOwnedBy(one.id, parent)) found.push(one)
      }
    }
    return found.slice(1)
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

  /** A listener whose failure is told, never thrown: a throw would end the runtime. */
  guarded(where, listener) {
    return (...args) => {
      try {
        return listener(...args)
      } catch (error) {
        return this.fault(where, error)
      }
    }
  }

  /** A request to the client that is withdrawn, with a note, when `signal` fires. */
  async ask(method, params, signal) {
    const askId = `ask-${++this.asks}`
    try {
      return await this.transport.request(method, { askId, ...params }, signal)
    } catch (error) {
      if (signal?.aborted) this.transport.notify('bridge.withdrawn', { askId })
      throw error
    }
  }
}

// --- hooks ----------------------------------------------------------------------------------------

function listen(ctx, bridge) {
  const on = (event, listener, options) => ctx.on(event, listener, { global: true, ...options })
  on('agent/assistant-stream', bridge.guarded('stream', ({ agent, frame }) => {
    if (bridge.greeted) bridge.streams.take(agent.session.id, frame)
  }))
  // Ahead of the SDK server's own listener, which sends the row.
  on('session/event', bridge.guarded('row', (session, event) => {
    if (event.type === 'assistant/message' || event.type === 'assistant/attempt') bridge.streams.flush(session.id)
    if (event.type === 'plan/mode' && event.data.active === false) allowAsking(bridge, session)
  }), { prepend: true })
  on('agent/disposed', bridge.guarded('disposed', ({ agent }) => {
    bridge.streams.forget(agent.session.id)
    bridge.extras.delete(agent.session.id)
  }))
  on('agent/created', ({ agent }) => equipChild(bridge, agent))
  on('tools/pre-execute', (exec, next) => judge(bridge, exec, next))
  on('tools/execute', (exec, next) => {
    const judgement = bridge.judged.get(exec)
    return judgement === undefined ? next() : bridge.running.run(judgement, next)
  })
  on('approval/request', (request, next) => (bridge.greeted ? approve(bridge, request) : next()))
  on('user-questions/request', (request, next) => (bridge.greeted ? askUser(bridge, request) : next()))
}

/** A child may ask where its root may, and has its root's MCP servers. Never fails its birth. */
async function equipChild(bridge, agent) {
  try {
    const root = bridge.root(agent)
    if (root === agent || !bridge.greeted) return
    const approval = bridge.ctx.get('approval')
    if (bridge.judges && approval.effectivePolicy(root.session) === 'ask') setPolicy(bridge, agent, 'ask')
    for (const config of bridge.extras.get(root.session.id)?.servers ?? []) {
      await agent.ctx.plugin(bridge.packages.mcp, mcpConfig(bridge, config, agent))
    }
  } catch (error) {
    bridge.fault(`subagent ${agent.session.id}`, error)
  }
}

/** Approved plans are carried out: the policy that plan mode had set would refuse every ask. */
function allowAsking(bridge, session) {
  const agent = bridge.ctx.agents.get(session.id)
  if (!bridge.judges || agent === undefined) return
  // Not within the row's own dispatch: the log is being told of it.
  queueMicrotask(bridge.guarded('plan over', () => {
    const knobs = knobsOf(bridge, session)
    if (knobs.policy === 'never' && knobs.sandbox === 'read-only') setPolicy(bridge, agent, 'ask')
  }))
}

/** Before every call: the bridge's verdict, unless the runtime has refused already. */
async function judge(bridge, exec, next) {
  const decision = await next()
  if (!bridge.judges || exec.agent === undefined || decision.kind !== 'allow') return decision
  let judgement
  try {
    judgement = await bridge.transport.request('bridge/judge', callParams(bridge, exec), exec.signal)
  } catch (error) {
    if (exec.signal?.aborted) return { kind: 'cancel' }
    return { kind: 'deny', reason: `the client could not decide whether this call may run: ${messageOf(error)}` }
  }
  const { verdict, reason, sandbox } = judgement ?? {}
  const mark = { callId: exec.callId, sessionId: exec.agent.session.id, sandbox, allowed: false }
  if (verdict === 'run') {
    if (sandbox) bridge.judged.set(exec, mark)
    return decision
  }
  if (verdict === 'ask') {
    // Counts only if the call gets to run: the runtime asks in between.
    bridge.judged.set(exec, { ...mark, sandbox: 'danger-full-access', allowed: true })
    return { kind: 'ask', reason }
  }
  return { kind: 'deny', reason: reason ?? 'the client refused this call' }
}

function callParams(bridge, exec) {
  const { session } = exec.agent
  const isObject = exec.arguments !== null && typeof exec.arguments === 'object' && !Array.isArray(exec.arguments)
  return {
    sessionId: session.id,
    rootSessionId: bridge.root(exec.agent).session.id,
    callId: String(exec.callId),
    toolName: exec.name,
    arguments: isObject ? exec.arguments : {},
    cwd: bridge.ctx.get('workingDirectory')?.get(session) ?? session.header.cwd,
  }
}

/** The widest sandbox that was allowed for the call that runs now, if it is this session's. */
function widenSandbox(ctx, bridge) {
  const prototype = bridge.packages.sandbox?.SandboxPolicyService?.prototype
  if (prototype === undefined) return
  const original = prototype.resolve
  prototype.resolve = function resolve(request = {}) {
    const call = bridge.running.getStore()
    const fits = call !== undefined && call.sandbox && request.mode === undefined && request.session?.id === call.sessionId
    return original.call(this, fits ? { ...request, mode: call.sandbox } : request)
  }
  ctx.effect(() => () => { prototype.resolve = original }, `${name}: sandbox`)
}

async function approve(bridge, request) {
  const { session } = request.agent
  const running = bridge.running.getStore()
  // The user has allowed this very call, escalation and all: the arguments were shown.
  if (running?.allowed && running.callId === request.callId && running.sessionId === session.id) return 'allowed-once'
  const call = callRow(session, request.callId)
  try {
    const answer = await bridge.ask('bridge/approve', {
      sessionId: session.id,
      rootSessionId: bridge.root(request.agent).session.id,
      parentSessionId: session.header.origin === 'subagent' ? session.header.parentSession : undefined,
      callId: request.callId,
      toolName: request.toolName,
      arguments: call?.arguments,
      turn: call?.turn,
      step: call?.step,
      reason: request.reason ?? request.displayReason?.en ?? '',
    }, request.signal)
    return answer?.outcome ?? 'unavailable'
  } catch (error) {
    if (request.signal?.aborted) return 'cancelled'
    bridge.fault('approve', error)
    return 'unavailable'
  }
}

async function askUser(bridge, request) {
  const { session } = request.agent
  const planReview = request.questions.find((one) => one.intent?.kind === 'plan-review')
  const callId = request.wait?.callId ?? planReview?.intent.callId ?? openCall(session)
  const answer = await bridge.ask('bridge/ask_user', {
    sessionId: session.id,
    callId,
    questions: request.questions.map((one) => ({
      id: one.id,
      question: one.question,
      header: one.header,
      detail: one.detail,
      options: one.options,
      multiSelect: one.multiSelect === true,
      planReview: one.intent?.kind === 'plan-review',
    })),
  }, request.signal)
  const answers = Array.isArray(answer?.answers) ? answer.answers : undefined
  const fits = answers?.every((one) => typeof one?.id === 'string' && Array.isArray(one.selected))
  if (fits) return { answers }
  const { UserQuestionError } = bridge.packages.questions
  throw new UserQuestionError('The user did not answer the questions.', 'ASK_CANCELLED')
}

function callRow(session, callId) {
  const rows = session.snapshotEvents()
  return rows.findLast((row) => row.type === 'tool/call' && row.data.callId === callId)?.data
}

function openCall(session) {
  return session.snapshotEvents().findLast((row) => row.type === 'tool/call')?.data.callId
}

// --- streaming ------------------------------------------------------------------------------------

/** Frames of model calls to `bridge.stream` notifications, deltas of a block merged. */
class Streams {
  #bridge
  /** Session id to the model call that it makes, or made last. */
  #calls = new Map()

  constructor(bridge) {
    this.#bridge = bridge
  }

  take(sessionId, frame) {
    if (frame.type === 'start') this.#start(sessionId, frame)
    else if (frame.type === 'chunk') this.#chunk(sessionId, frame.chunk)
    else if (frame.type === 'end') this.#end(sessionId, frame.outcome)
  }

  #start(sessionId, { turn, step }) {
    const last = this.#calls.get(sessionId)
    const attempt = last?.turn === turn && last.step === step ? last.attempt + 1 : 1
    this.forget(sessionId)
    const call = { place: { sessionId, turn, step, attempt }, turn, step, attempt, held: undefined, sentAt: 0, timer: undefined }
    this.#calls.set(sessionId, call)
    this.#tell(call, { event: 'start' })
  }

  #chunk(sessionId, chunk) {
    const kind = { 'text-delta': 'text', 'reasoning-delta': 'reasoning' }[chunk.type]
    const call = this.#calls.get(sessionId)
    if (kind === undefined || call === undefined || chunk.text === '') return
    if (call.held !== undefined && (call.held.block !== chunk.index || call.held.kind !== kind)) this.#send(call)
    call.held ??= { block: chunk.index, kind, text: '' }
    call.held.text += chunk.text
    if (Date.now() - call.sentAt >= MERGE_MS && !this.#isStalled()) this.#send(call)
    else this.#wait(call)
  }

  #end(sessionId, outcome) {
    const call = this.#calls.get(sessionId)
    if (call === undefined) return
    this.flush(sessionId)
    const kind = outcome.kind === 'committed' ? outcome.eventType.replace('assistant/', '') : 'abandoned'
    this.#tell(call, { event: 'end', outcome: kind, seq: outcome.seq })
  }

  /** Send what is held of a session, whatever the backlog: its row is about to follow. */
  flush(sessionId) {
    const call = this.#calls.get(sessionId)
    if (call !== undefined) this.#send(call)
  }

  forget(sessionId) {
    this.flush(sessionId)
    this.#calls.delete(sessionId)
  }

  #wait(call) {
    call.timer ??= setTimeout(this.#bridge.guarded('stream timer', () => {
      call.timer = undefined
      if (this.#isStalled()) this.#wait(call)
      else this.#send(call)
    }), MERGE_MS)
  }

  #send(call) {
    clearTimeout(call.timer)
    call.timer = undefined
    if (call.held === undefined) return
    const held = call.held
    call.held = undefined
    call.sentAt = Date.now()
    this.#tell(call, { event: 'delta', ...held })
  }

  #tell(call, note) {
    this.#bridge.transport.notify('bridge.stream', { ...call.place, ...note })
  }

  #isStalled() {
    return (this.#bridge.transport.output?.writableLength ?? 0) > BACKLOG_BYTES_MAX
  }
}

// --- requests -------------------------------------------------------------------------------------

function requestMethods(bridge) {
  const methods = {
    hello: (params) => hello(bridge, params),
    open: (params) => open(bridge, params, newSession),
    resume: (params) => open(bridge, params, storedSession),
    fork: (params) => fork(bridge, params),
    cancel: (params) => cancel(bridge, params.sessionId),
    close: (params) => close(bridge, params.sessionId),
    steer: (params) => steer(bridge, params),
    set_mode: (params) => setMode(bridge, params),
    set_model: (params) => setModel(bridge, params),
    state: (params) => state(bridge, params.sessionId),
    models: () => models(bridge),
    rename: ({ sessionId, title }) => rename(bridge, sessionId, title),
    history: (params) => history(bridge, params),
  }
  // An async function each: what they throw becomes the error answer, never an uncaught one.
  const entries = Object.entries(methods)
  return Object.fromEntries(entries.map(([key, call]) => [`bridge/${key}`, async (params) => call(params)]))
}

function hello(bridge, params) {
  if (params.protocol !== PROTOCOL) throw new Error(`the control plugin speaks protocol ${PROTOCOL}, not ${params.protocol}`)
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

/** By feature: true, or what this version lacks for it. */
function featuresOf({ ctx, packages, server }) {
  const service = (key, ...calls) => {
    const found = ctx.get(key)
    if (found === undefined) return `service ${key} is missing`
    return calls.filter((call) => typeof found[call] !== 'function').map((call) => `${key}.${call} is missing`)[0]
  }
  const from = (key, ...exported) => {
    const lacking = exported.find((one) => packages[key]?.[one] === undefined)
    return lacking === undefined ? undefined : `${PACKAGES[key]} does not export ${lacking}`
  }
  const agents = () => service('agents', 'get', 'list', 'isOwnedBy', 'create', 'resume')
  const sessions = () => (server.sessions instanceof Map ? undefined : 'the SDK server has no sessions map')
  const needs = {
    stream: () => agents() ?? (typeof server.transport?.notify === 'function' ? undefined : 'no transport'),
    approve: () => agents() ?? service('approval', 'request', 'effectivePolicy') ?? from('approval', 'setApprovalPolicy'),
    judge: () => service('approval', 'effectivePolicy') ?? from('sandbox', 'SandboxPolicyService', 'setSandboxMode'),
    ask_user: () => service('userQuestions', 'ask') ?? from('questions', 'UserQuestionError'),
    cancel: agents,
    close: () => agents() ?? sessions() ?? service('subagents', 'drainDescendants') ?? service('sessions', 'flush'),
    steer: () => agents() ?? from('llm', 'createUserMessage'),
    open: () => agents() ?? sessions() ?? from('agent', 'installModelSelection'),
    mcp: () => from('mcp', 'Config', 'apply'),
    models: () => service('llm', 'listProviders', 'listModels', 'resolveModelInfo', 'resolveCallConfig') ?? from('agent', 'installModelSelection'),
    mode: () => service('planMode', 'get', 'set') ?? service('approval', 'setPolicy') ?? from('sandbox', 'setSandboxMode'),
    title: () => service('sessionTitle', 'get', 'rename'),
    history: () => service('sessionQuery', 'observeSession'),
    fork: () => agents() ?? sessions() ?? service('sessionQuery', 'observeSession') ?? from('session', 'buildForkSeed'),
  }
  return Object.fromEntries(Object.entries(needs).map(([key, lack]) => [key, lack() ?? true]))
}

// --- opening, forking, closing --------------------------------------------------------------------

/** Make an agent by `start` with its model and MCP servers, and give it to the SDK server. */
async function open(bridge, params, start) {
  const { server } = bridge
  const id = requireText(params.sessionId, 'sessionId')
  if (!server.initialized) throw new Error('SDK server is not initialized')
  if (server.shuttingDown) throw new Error('SDK server is shutting down')
  if (server.sessions.has(id) || server.sessionCreations.has(id)) throw new Error(`session ${id} is already open or opening`)
  const opening = start(bridge, id, params, setupOf(bridge, id, params)).then((handle) => {
    const record = { handle, failure: undefined }
    server.sessions.set(id, record)
    return record
  })
  // The SDK server waits for these at shutdown, and for a prompt that comes meanwhile.
  server.sessionCreations.set(id, opening)
  try {
    const { handle } = await opening
    return { cwd: handle.agent.session.header.cwd }
  } catch (error) {
    bridge.extras.delete(id)
    throw error
  } finally {
    server.sessionCreations.delete(id)
  }
}

function newSession({ ctx, server }, id, params, setup) {
  const meta = { cwd: requireText(params.cwd, 'cwd') }
  return ctx.agents.create({ sessionId: id, meta, agentOptions: routeOf(server, params.model), ...setup })
}

function storedSession({ ctx, server }, id, params, setup) {
  return ctx.agents.resume({ resumeSessionId: id, agentOptions: routeOf(server, params.model), ...setup })
}

function setupOf(bridge, id, params) {
  const servers = params.mcpServers ?? []
  return {
    signal: AbortSignal.timeout(params.timeoutMs ?? 30_000),
    setup: async (agentCtx, agent) => {
      const extras = bridge.extrasOf(id)
      extras.servers = servers
      select(bridge, agent, selectionOf(params.model) ?? storedSelection(agent.session))
      for (const config of servers) await agentCtx.plugin(bridge.packages.mcp, mcpConfig(bridge, config, agent))
    },
  }
}

function mcpConfig(bridge, config, agent) {
  const cwd = config.transport === 'stdio' ? { cwd: agent.session.header.cwd } : {}
  return bridge.packages.mcp.Config({ ...config, ...cwd, failOnStartupError: true })
}

async function fork(bridge, params) {
  const { buildForkSeed } = bridge.packages.session
  const id = requireText(params.sessionId, 'sessionId')
  const { events } = await readSession(bridge, requireText(params.sourceSessionId, 'sourceSessionId'))
  const lastTurn = events.findLast((row) => row.type === 'turn/end')?.seq
  const boundary = params.throughSeq ?? lastTurn
  if (boundary === undefined) throw new Error(`session ${params.sourceSessionId} has no completed turn to fork`)
  if (!Number.isSafeInteger(boundary) || boundary < 0 || boundary >= events.length) {
    throw new Error(`session ${params.sourceSessionId} has no row ${boundary}: its last one is ${events.length - 1}`)
  }
  const seed = buildForkSeed(events, boundary).map((row) => ownDelivery(row, id))
  const meta = { cwd: requireText(params.cwd, 'cwd'), isSeeded: true }
  await open(bridge, params, ({ ctx, server }, sessionId, _params, setup) => ctx.agents.create({
    sessionId, seed, inheritedEventCount: boundary + 1, meta, agentOptions: routeOf(server, params.model), ...setup,
  }))
  await bridge.ctx.get('sessions').flush(bridge.agent(id).session)
  return { throughSeq: boundary }
}

/** A copied delivery row that names its source makes the fork unreadable to this version. */
function ownDelivery(row, id) {
  if (row.type !== 'session-log-deepseek/delivery-accepted') return row
  return { ...row, data: { ...row.data, sessionId: id } }
}

async function close(bridge, sessionId) {
  const { ctx, server } = bridge
  const record = server.sessions.get(requireText(sessionId, 'sessionId'))
  if (record === undefined) return { wasOpen: false }
  const { agent } = record.handle
  await cancel(bridge, sessionId)
  await ctx.get('subagents').drainDescendants([agent])
  await ctx.get('sessions').flush(agent.session)
  await record.handle.dispose()
  server.sessions.delete(sessionId)
  return { wasOpen: true }
}

/** A stored or open session's header and rows. */
async function readSession(bridge, sessionId) {
  const live = bridge.ctx.agents.get(sessionId)
  if (live !== undefined) return { header: live.session.header, events: live.session.snapshotEvents() }
  const observed = await bridge.ctx.get('sessionQuery').observeSession(sessionId)
  try {
    return { header: observed.header, events: [...observed.events] }
  } finally {
    observed[Symbol.dispose]?.()
  }
}

async function history(bridge, params) {
  const { header, events } = await readSession(bridge, requireText(params.sessionId, 'sessionId'))
  const from = params.from ?? 0
  let bytes = 0
  let end = from
  while (end < events.length && (end === from || bytes < PAGE_BYTES_MAX)) {
    bytes += JSON.stringify(events[end]).length
    end += 1
  }
  return { header, events: events.slice(from, end), next: end < events.length ? end : null }
}

// --- turns ----------------------------------------------------------------------------------------

/**
 * End everything below and including a session, until nothing runs.
 *
 * A subagent's end is told to its parent and wakes it into a turn of its own, so while a root is
 * being cancelled its `send` drops such notices. All are cancelled at once, children first: waiting
 * for a child's command to die would let the root go on meanwhile.
 */
async function cancel(bridge, sessionId) {
  const agent = bridge.ctx.agents.get(requireText(sessionId, 'sessionId'))
  if (agent === undefined) return { wasRunning: false }
  let wasRunning = false
  const restore = dropNotices(agent)
  try {
    for (let round = 0; round < CANCEL_ROUNDS_MAX; round += 1) {
      const tree = [...bridge.descendants(agent).reverse(), agent]
      const busy = tree.filter((one) => one.status === 'running')
      if (round > 0 && busy.length === 0 && tree.length === 1) break
      wasRunning ||= busy.length > 0
      for (const one of tree) one.cancel({ kind: 'user' })
      await Promise.all(tree.map((one) => one.whenIdle()))
      await Promise.all(tree.slice(0, -1).map((child) => gone(bridge, child)))
    }
  } finally {
    restore()
  }
  return { wasRunning }
}

function dropNotices(agent) {
  const had = Object.hasOwn(agent, 'send')
  const before = agent.send
  agent.send = function send(message, ...rest) {
    if (message?.source?.kind !== 'subagent-settled') before.call(this, message, ...rest)
  }
  return () => {
    if (had) agent.send = before
    else delete agent.send
  }
}

/** Wait until a cancelled child has been taken down, so that its notice is behind us. */
async function gone(bridge, child) {
  const end = Date.now() + GONE_MS
  while (bridge.ctx.agents.get(child.id) === child && Date.now() < end) {
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
}

async function steer(bridge, { sessionId, contentBlocks }) {
  const agent = bridge.agent(sessionId)
  if (!Array.isArray(contentBlocks) || contentBlocks.length === 0) throw new Error('contentBlocks must be a list with at least one block')
  const content = await storedContent(bridge, contentBlocks)
  const message = bridge.packages.llm.createUserMessage({ content, source: { kind: 'user' } })
  agent.steer(message)
  return { messageId: message.id }
}

/** Images into the attachment store, as `session/prompt` does it; an unknown block spoils a session. */
async function storedContent({ ctx, packages }, blocks) {
  const images = blocks.filter((block) => block?.type === 'image')
  const unknown = blocks.find((block) => block?.type !== 'image' && !(block?.type === 'text' && typeof block.text === 'string'))
  if (unknown !== undefined) throw new Error('contentBlocks holds a block that is neither text nor an image')
  if (images.length === 0) return blocks
  const refs = await packages.attachment.admitEncodedImages(
    ctx.get('attachments'), images.map(({ data, mimeType }) => ({ data, mediaType: mimeType })),
  )
  return blocks.map((block) => (block.type === 'image' ? { type: 'image', attachment: refs[images.indexOf(block)] } : block))
}

// --- options --------------------------------------------------------------------------------------

function knobsOf({ ctx }, session) {
  const sandbox = ctx.get('sandboxPolicy')
  return { sandbox: sandbox.overrideOf(session) ?? sandbox.defaultMode, policy: ctx.get('approval').effectivePolicy(session) }
}

function setPolicy(bridge, agent, policy) {
  if (bridge.ctx.get('approval').effectivePolicy(agent.session) !== policy) {
    bridge.packages.approval.setApprovalPolicy(agent.session, policy)
  }
}

function setMode(bridge, { sessionId, sandbox, policy, planning }) {
  const agent = bridge.agent(sessionId)
  const { sandbox: kit } = bridge.packages
  if (!kit.SANDBOX_MODES.includes(sandbox)) throw new Error(`sandbox must be one of ${kit.SANDBOX_MODES.join(', ')}`)
  if (policy !== 'ask' && policy !== 'never') throw new Error('policy must be ask or never')
  const knobs = knobsOf(bridge, agent.session)
  if (knobs.sandbox !== sandbox || knobs.policy !== policy) agent.session.append('permission/preset', { preset: sandbox })
  for (const one of [agent, ...bridge.descendants(agent)]) {
    if (knobsOf(bridge, one.session).sandbox !== sandbox) kit.setSandboxMode(one.session, sandbox)
    setPolicy(bridge, one, policy)
  }
  bridge.ctx.get('planMode').set(agent, planning === true)
  return {}
}

async function setModel(bridge, { sessionId, model }) {
  const agent = bridge.agent(sessionId)
  const selection = selectionOf(model)
  if (selection === undefined) throw new Error('model must name a provider and a model')
  await bridge.ctx.get('llm').resolveCallConfig({ ...selection })
  select(bridge, agent, selection)
  return {}
}

/** Let a session use a selection from its next step on; installed once, then only changed. */
function select(bridge, agent, current) {
  const extras = bridge.extrasOf(agent.session.id)
  if (extras.selection !== undefined) {
    extras.selection.current = current
  } else if (current !== undefined) {
    extras.selection = { current, assembled: undefined }
    bridge.packages.agent.installModelSelection(agent.ctx, extras.selection)
  }
}

function selectionOf(model) {
  if (typeof model?.provider !== 'string' || typeof model.model !== 'string') return undefined
  return { provider: model.provider, model: model.model, ...(model.effort ? { reasoningEffort: model.effort } : {}) }
}

/** What the log's last request used: the runtime itself goes back to the choice of `initialize`. */
function storedSelection(session) {
  const header = session.requestHeader()
  if (header === undefined) return undefined
  const { provider, model, reasoningEffort } = header.config
  return selectionOf({ provider, model, effort: header.adapterDefaults?.reasoningEffort ? undefined : reasoningEffort })
}

function routeOf(server, model) {
  const chosen = selectionOf(model) ?? {
    provider: server.provider,
    model: server.model,
    ...(server.reasoningEffort === undefined ? {} : { reasoningEffort: server.reasoningEffort }),
  }
  return { ...chosen, ...(server.maxTokens === undefined ? {} : { maxTokens: server.maxTokens }) }
}

async function models({ ctx }) {
  const llm = ctx.get('llm')
  const found = []
  for (const provider of llm.listProviders()) {
    for (const { id } of await llm.listModels(provider.id)) {
      const info = await llm.resolveModelInfo(provider.id, id)
      found.push({
        provider: provider.id,
        model: id,
        title: info.name,
        contextWindow: info.context?.contextWindow,
        efforts: (info.reasoning?.efforts ?? []).map((effort) => String(effort.id)),
        defaultEffort: info.reasoning?.defaultEffort,
        takesImages: info.inputModalities?.includes('image') ?? false,
      })
    }
  }
  return { models: found }
}

function state(bridge, sessionId) {
  const { ctx } = bridge
  const agent = bridge.agent(sessionId)
  const { session } = agent
  const chosen = bridge.extras.get(session.id)?.selection?.current ?? agent.options
  const plan = ctx.get('planMode')?.get(agent)
  return {
    running: agent.status === 'running',
    cwd: ctx.get('workingDirectory')?.get(session) ?? session.header.cwd,
    model: { provider: chosen.provider, model: chosen.model, effort: chosen.reasoningEffort },
    ...knobsOf(bridge, session),
    planning: plan?.active ?? false,
    title: ctx.get('sessionTitle')?.get(session)?.title,
    contextTokens: ctx.get('tokenMeter')?.measure(session).totalTokens,
    contextWindow: session.requestContext()?.contextWindow,
    lastSeq: session.seq - 1,
  }
}

function rename(bridge, sessionId, title) {
  const { session } = bridge.agent(sessionId)
  const titles = bridge.ctx.get('sessionTitle')
  titles.rename(session, requireText(title, 'title'))
  return { title: titles.get(session).title }
}

// --- small things ---------------------------------------------------------------------------------

function requireText(value, field) {
  if (typeof value !== 'string' || value === '') throw new Error(`${field} must be a string that is not empty`)
  return value
}

function messageOf(error) {
  return error instanceof Error ? error.message : String(error)
}
