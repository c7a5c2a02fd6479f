/** Sessions as a whole: open, resume, fork, close, read. */

import { select, selectionOf, storedSelection } from './options.mjs'
import { cancel } from './turns.mjs'
import { requireText } from './values.mjs'

/** Rows of a page are cut at about this many characters, so that no line is endless. */
const PAGE_CHARS_MAX = 1_000_000

export function open(bridge, params) {
  const meta = { cwd: requireText(params.cwd, 'cwd') }
  const { agents } = bridge.ctx
  return opened(bridge, params, (id, common) => agents.create({ sessionId: id, meta, ...common }))
}

export function resume(bridge, params) {
  const { agents } = bridge.ctx
  return opened(bridge, params, (id, common) => agents.resume({ resumeSessionId: id, ...common }))
}

/**
 * A parentless session that begins with rows of another. It names no parent: this version takes a
 * fork that does for a subagent.
 */
export async function fork(bridge, params) {
  const source = requireText(params.sourceSessionId, 'sourceSessionId')
  const id = requireText(params.sessionId, 'sessionId')
  const { events } = await read(bridge, source)
  const boundary = params.throughSeq ?? events.findLast((row) => row.type === 'turn/end')?.seq
  if (boundary === undefined) throw new Error(`session ${source} has no completed turn to fork`)
  if (!Number.isSafeInteger(boundary) || boundary < 0 || boundary >= events.length) {
    throw new Error(`session ${source} has no row ${boundary}: there are ${events.length}, from 0`)
  }
  const { buildForkSeed } = bridge.packages.session
  const seed = buildForkSeed(events, boundary).map((row) => ownDelivery(row, id))
  const meta = { cwd: requireText(params.cwd, 'cwd'), isSeeded: true }
  await opened(bridge, params, (sessionId, common) => bridge.ctx.agents.create({
    sessionId, seed, inheritedEventCount: boundary + 1, meta, ...common,
  }))
  await bridge.ctx.get('sessions').flush(bridge.agent(id).session)
  return { throughSeq: boundary }
}

/** A copied delivery row that names its source makes a fork unreadable to this version. */
function ownDelivery(row, id) {
  if (row.type !== 'session-log-deepseek/delivery-accepted') return row
  return { ...row, data: { ...row.data, sessionId: id } }
}

/** Start an agent with its model, and give it to the SDK server as its own. */
async function opened(bridge, params, start) {
  const { server } = bridge
  const id = requireText(params.sessionId, 'sessionId')
  if (!server.initialized) throw new Error('SDK server is not initialized')
  if (server.shuttingDown) throw new Error('SDK server is shutting down')
  if (server.sessions.has(id) || server.sessionCreations.has(id)) {
    throw new Error(`session ${id} is already open or opening`)
  }
  const opening = start(id, commonOptions(bridge, id, params)).then((handle) => {
    const record = { handle, failure: undefined }
    server.sessions.set(id, record)
    return record
  })
  // The SDK server waits for these at shutdown, and when a prompt comes meanwhile.
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

/** `setup` runs before the session is there for anybody: a failure in it leaves nothing behind. */
function commonOptions(bridge, id, params) {
  return {
    agentOptions: routeOf(bridge.server, params.model),
    setup: async (_agentCtx, agent) => {
      select(bridge, agent, selectionOf(params.model) ?? storedSelection(agent.session))
    },
  }
}

function routeOf(server, model) {
  const { provider, reasoningEffort, maxTokens } = server
  const standing = { provider, model: server.model, effort: reasoningEffort }
  const chosen = selectionOf(model) ?? selectionOf(standing)
  return { ...chosen, ...(maxTokens === undefined ? {} : { maxTokens }) }
}

/** The order matters: nothing may run or be written when the log's lock is let go. */
export async function close(bridge, params) {
  const { ctx, server } = bridge
  const sessionId = requireText(params.sessionId, 'sessionId')
  const record = server.sessions.get(sessionId)
  if (record === undefined) return { wasOpen: false }
  const { agent } = record.handle
  await cancel(bridge, { sessionId })
  await ctx.get('subagents').drainDescendants([agent])
  await ctx.get('sessions').flush(agent.session)
  await record.handle.dispose()
  if (server.sessions.get(sessionId) === record) server.sessions.delete(sessionId)
  return { wasOpen: true }
}

export async function history(bridge, params) {
  const { header, events } = await read(bridge, requireText(params.sessionId, 'sessionId'))
  const from = params.from ?? 0
  if (!Number.isSafeInteger(from) || from < 0) {
    throw new Error('from must be a row number, counted from 0')
  }
  let chars = 0
  let end = from
  while (end < events.length && chars < PAGE_CHARS_MAX) {
    chars += JSON.stringify(events[end]).length
    end += 1
  }
  return { header, events: events.slice(from, end), next: end < events.length ? end : null }
}

/** Header and rows of a session, open or cold. */
async function read(bridge, sessionId) {
  const live = bridge.ctx.agents.get(sessionId)
  if (live !== undefined) {
    return { header: live.session.header, events: live.session.snapshotEvents() }
  }
  const observed = await bridge.ctx.get('sessionQuery').observeSession(sessionId)
  try {
    return { header: observed.header, events: [...observed.events] }
  } finally {
    observed[Symbol.dispose]?.()
  }
}
