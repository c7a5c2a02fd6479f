/** Rows of the bridge's own in a session's log: kept and skipped by whoever does not know them. */

import { requireText } from './values.mjs'

const OURS = 'plugin:acp-bridge/'

export function record(bridge, { sessionId, type, data }) {
  const { session } = bridge.agent(sessionId)
  if (!requireText(type, 'type').startsWith(OURS)) throw new Error(`type must begin with ${OURS}`)
  return { seq: bridge.packages.session.appendPluginRecord(session, type, data) }
}
