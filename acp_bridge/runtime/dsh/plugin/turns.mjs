/** Turns that run: end them with all they have started, or add to them. */

import { requireText } from './values.mjs'

/** How often a cancel looks for subagents that were just being started when it came. */
const ROUNDS_MAX = 20
const GONE_MS = 5_000
const LOOK_EVERY_MS = 2

/**
 * End everything at and below a session; done when all of it is quiet.
 *
 * All are cancelled at once, children first: to wait for a child's command to die would let its
 * root go on meanwhile. A child's end is told to its parent, and would wake it into a turn that
 * nobody wants: while a cancel lasts, such notices are dropped.
 */
export async function cancel(bridge, params) {
  const agent = bridge.ctx.agents.get(requireText(params.sessionId, 'sessionId'))
  if (agent === undefined) return { wasRunning: false }
  if (params.alone === true) return { wasRunning: await ended([agent], { keepInbox: true }) }
  mute(bridge, agent)
  try {
    let wasRunning = await ended([...bridge.descendants(agent).reverse(), agent])
    for (let round = 0; round < ROUNDS_MAX; round += 1) {
      const children = bridge.descendants(agent).reverse()
      if (children.length === 0) break
      wasRunning = (await ended(children)) || wasRunning
      await Promise.all(children.map((child) => gone(bridge, child)))
    }
    return { wasRunning }
  } finally {
    unmute(bridge, agent)
  }
}

/** Whether any of these was running; none is any more. */
async function ended(agents, how) {
  const wasRunning = agents.some((one) => one.status === 'running')
  for (const one of agents) one.cancel({ kind: 'user' }, how)
  await Promise.all(agents.map((one) => one.whenIdle()))
  return wasRunning
}

/** Until a cancelled child has been taken down, so that its notice is behind us. */
async function gone(bridge, child) {
  const end = Date.now() + GONE_MS
  while (bridge.ctx.agents.get(child.id) === child && Date.now() < end) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS))
  }
}

function mute(bridge, agent) {
  bridge.muted.set(agent, (bridge.muted.get(agent) ?? 0) + 1)
  if (Object.hasOwn(agent, 'send')) return
  const { send } = agent
  agent.send = function sendUnlessMuted(message, ...rest) {
    if (bridge.muted.has(agent) && message?.source?.kind === 'subagent-settled') return
    send.call(agent, message, ...rest)
  }
}

function unmute(bridge, agent) {
  const left = bridge.muted.get(agent) - 1
  if (left > 0) bridge.muted.set(agent, left)
  else bridge.muted.delete(agent)
}

/**
 * Add to the turn that runs; null where none does, or one is being ended: there the runtime would
 * make a turn of it. With `wakes` that is right for as long as subagents work, for which whoever
 * prompted waits too.
 *
 * Nothing is waited for between the look and the message, and a turn looks for such messages at its
 * very end: so what is taken is heard.
 */
export async function steer(bridge, { sessionId, contentBlocks, wakes }) {
  const agent = bridge.agent(sessionId)
  if (!Array.isArray(contentBlocks) || contentBlocks.length === 0) {
    throw new Error('contentBlocks must be a list with at least one block')
  }
  const content = await storedContent(bridge, contentBlocks)
  const message = bridge.packages.llm.createUserMessage({ content, source: { kind: 'user' } })
  const takes = agent.status === 'running' || (wakes === true && bridge.descendants(agent).length > 0)
  if (!takes || bridge.muted.has(agent)) return { messageId: null }
  agent.steer(message)
  return { messageId: message.id }
}

/**
 * Images go to the attachment store, as with `session/prompt`. A block of another kind would spoil
 * the session for good, so it is refused.
 */
async function storedContent({ ctx, packages }, blocks) {
  const isText = (block) => block?.type === 'text' && typeof block.text === 'string'
  const images = blocks.filter((block) => block?.type === 'image')
  if (!blocks.every((block) => isText(block) || images.includes(block))) {
    throw new Error('contentBlocks holds a block that is neither text nor an image')
  }
  if (images.length === 0) return blocks
  const encoded = images.map(({ data, mimeType }) => ({ data, mediaType: mimeType }))
  const refs = await packages.attachment.admitEncodedImages(ctx.get('attachments'), encoded)
  const stored = (image) => ({ type: 'image', attachment: refs[images.indexOf(image)] })
  return blocks.map((block) => (isText(block) ? block : stored(block)))
}
