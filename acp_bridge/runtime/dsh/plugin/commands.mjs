/** Slash commands: the rows of those that the bridge runs, and the runtime's own `/compact`. */

import { messageOf, requireText } from './values.mjs'

const ROWS = ['command/run', 'command/done']

/** Rows outside of any turn, as the runtime logs its own commands. */
export function log(bridge, { sessionId, type, data }) {
  const { session } = bridge.agent(sessionId)
  if (!ROWS.includes(type)) throw new Error(`type must be one of ${ROWS.join(', ')}`)
  requireText(data?.commandId, 'data.commandId')
  session.append(type, data)
  return {}
}

/** It logs itself, its failures too; a cancel of the session ends it. */
export async function compact(bridge, { sessionId, argument }) {
  const agent = bridge.agent(sessionId)
  const line = `/compact ${argument ?? ''}`.trimEnd()
  const before = agent.session.seq
  let done
  try {
    const { signal } = new AbortController()
    done = await bridge.ctx.get('commands').execute(agent, line, [], signal)
  } catch (error) {
    if (agent.session.seq === before) throw error
    return { kind: 'error', text: messageOf(error) }
  }
  if (done === undefined) throw new Error('this runtime has no /compact')
  return { kind: done.result.kind, text: done.result.text ?? '' }
}
