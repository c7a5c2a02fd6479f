/** What a session's model is told and offered beside what the runtime tells and offers it. */

/** Replace what a session and its subagents are told of ours; holds from the next step on. */
export function setPrompt(bridge, { sessionId, text, withheld }) {
  const agent = bridge.agent(sessionId)
  if (typeof text !== 'string') throw new Error('text must be a string')
  if (!Array.isArray(withheld)) throw new Error('withheld must be a list')
  const extras = bridge.extrasOf(agent.session.id)
  const isNew = text !== (extras.prompt?.text ?? '')
  extras.prompt = { text, withheld, isNew: isNew || extras.prompt?.isNew === true }
  return {}
}

/**
 * Our text comes last, literally: it is no template of the runtime's. It is the same at every step,
 * so that what providers cache stays.
 */
export async function addToPrompt(bridge, { agent }, next) {
  const assembly = await next()
  const prompt = agent && bridge.extras.get(bridge.root(agent).session.id)?.prompt
  if (prompt === undefined) return assembly
  const { text, withheld } = prompt
  const ours = text === '' ? [] : [{ name: 'acp-bridge', text, interpolate: false }]
  return {
    ...assembly,
    sections: [...assembly.sections, ...ours],
    tools: assembly.tools.filter((tool) => !withheld.includes(tool.name)),
  }
}

/** By itself the runtime would say a new prompt behind the old one, which the model still sees. */
export async function replacePrompt(bridge, { agent }, next) {
  const decision = await next()
  const prompt = bridge.extras.get(agent.session.id)?.prompt
  if (prompt?.isNew !== true || decision.kind !== 'enter') return decision
  prompt.isNew = false
  return { ...decision, startsRequestSeries: true }
}
